package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/config"
	"understudy/storage/sqlite"
)

// patient is a folder with a langgraph.json that Examine looks at.
type patient struct {
	within  time.Duration // what an import may take; 0: as always
	t       *testing.T
	dir     string
	flags   map[string]string
	env     map[string]string
	environ []string
	models  bool
	doing   []string
	limit   time.Duration // of a model
	loaded  func() map[string]error
	serves  func(graph string) bool
}

// newPatient makes one whose Python has no langgraph: a script that answers as asked.
func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, dir: t.TempDir(), env: map[string]string{}, environ: []string{"HOME=/"}}
	p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph"}}`)
	p.write("a.py", "graph = 1\n")
	p.flags = map[string]string{"port": "0", "data": filepath.Join(p.dir, "data"), "python": p.python(`{"python": "3.12.1", "packages": {"langgraph": "1.0"}, "errors": {"ormsgpack": "ImportError: no"}}`)}
	return p
}

func (p *patient) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // some are programs
	return path
}

// python makes an interpreter that says no more than this.
func (p *patient) python(says string) string {
	return p.write("bin/python", "#!/bin/sh\necho noise\necho '"+says+"'\n")
}

func (p *patient) examine() string {
	p.t.Helper()
	findings := Examine(context.Background(), Examination{
		Source: config.Source{
			Mode: config.Serve, File: filepath.Join(p.dir, "langgraph.json"), Flags: p.flags,
			Lookup: func(name string) (string, bool) { s, ok := p.env[name]; return s, ok },
		},
		Environ: p.environ, Import: cmp.Or(p.within, 20*time.Second), Loaded: p.loaded, Serves: p.serves, Models: p.models, ModelTime: p.limit,
		Doing: func(what string) {
			if strings.HasPrefix(what, "asking ") { // a model; other checks take long on a busy machine
				p.doing = append(p.doing, what)
			}
		},
	})
	var text strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&text, "%s %s: %s → %s %q\n", f.Verdict, f.Check, f.Text, f.Fix, f.Details)
	}
	return text.String()
}

func TestExamine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(*patient)
		want []string
	}{
		"every mistake of the configuration": {
			func(p *patient) { p.write("langgraph.json", `{"graphs": {"a": 1, "b": "x"}}`); p.flags["port"] = "x" },
			[]string{"problem config: langgraph.json:1:18: graphs.a", "langgraph.json:1:26: graphs.b", `problem config: --port: "x"`, "were not checked"},
		},
		"no configuration": {
			func(p *patient) { require.NoError(p.t, os.Remove(filepath.Join(p.dir, "langgraph.json"))) },
			[]string{"problem config: ", "does not exist"},
		},
		"a key that does nothing": {
			func(p *patient) { p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph"}, "grahps": 1}`) },
			[]string{"warning config: grahps"},
		},
		"misspelt variables": {
			func(p *patient) {
				p.environ = []string{"UNDERSTUDY_DTA=x", "UNDERSTUDY_NONSENSE_AT_ALL=1", "UNDERSTUDY_PORT=1", "UNDERSTUDI_HOST=2"}
			},
			[]string{
				"problem environment: unknown variable UNDERSTUDY_DTA → write UNDERSTUDY_DATA", "UNDERSTUDY_NONSENSE_AT_ALL → remove it", "UNDERSTUDI_HOST → write UNDERSTUDY_HOST",
				"ok environment: 1 variable",
			},
		},
		"no Python": {
			func(p *patient) { p.flags["python"] = "/no/such/python" },
			[]string{`problem config: --python: "/no/such/python": cannot be started`},
		},
		"Python that does not work": {
			func(p *patient) { p.write("bin/python", "#!/bin/sh\necho broken >&2\nexit 3\n") },
			[]string{"problem python:", "exit status 3", `"broken"`, "name another interpreter with --python"},
		},
		"a variable that is missing with its file": {
			func(p *patient) {
				p.write("langgraph.json", `{"graphs": {"a": {"agent": {"model": "openai:gpt-4o"}}}, "env": ".env"}`)
				delete(p.flags, "python")
			},
			[]string{
				"warning config: env: there is no file ", "has no key; set OPENAI_API_KEY in ", "/.env, which env names and which does not exist, or in the environment → create ",
			},
		},
		"a line of .env": {
			func(p *patient) {
				p.write(".env", "A=1\n\nnonsense s3cret\nB=s3cret\n")
				p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph"}, "env": ".env"}`)
			},
			[]string{"problem config: .env:3: write NAME=value →"},
		},
		"Python that is too old": {
			func(p *patient) { p.python(`{"python": "3.8.1", "packages": {}, "errors": {}}`) },
			[]string{"is Python 3.8.1, and langgraph needs 3.10 or later → create a virtual environment"},
		},
		"another Python than asked for": {
			func(p *patient) {
				p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph"}, "python_version": "3.11"}`)
			},
			[]string{"warning python:", "python_version asks for 3.11"},
		},
		"no langgraph": {
			func(*patient) {},
			[]string{"problem python: ormsgpack cannot be imported: ImportError: no →", "pip install"},
		},
		"nothing of langgraph": {
			func(p *patient) {
				p.python(`{"python": "3.13.1", "packages": {}, "errors": {"langchain-core": "no a", "langgraph": "no b", "orjson": "no c"}}`)
			},
			[]string{"problem python: langgraph cannot be imported: no b →"},
		},
		"parts of it": {
			func(p *patient) {
				p.python(`{"python": "3.13.1", "packages": {"langgraph": "1"}, "errors": {"ormsgpack": "no a", "orjson": "no b"}}`)
			},
			[]string{"problem python: orjson cannot be imported: no b", "ormsgpack: no a"},
		},
		"a port that is taken": {
			func(p *patient) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(p.t, err)
				p.t.Cleanup(func() { l.Close() })
				p.flags["port"] = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
			},
			[]string{"problem port:", "is taken", "--port (0 takes a free one)"},
		},
		"an address that is not ours": {
			func(p *patient) { p.flags["host"], p.flags["no-auth"] = "203.0.113.7", "true" },
			[]string{"problem port: no network interface here has the address 203.0.113.7"},
		},
		"an open server": {
			func(p *patient) { p.flags["host"] = "0.0.0.0" },
			[]string{"problem config: --host: \"0.0.0.0\": nothing authenticates requests", "--no-auth"},
		},
		"a data folder that is a file": {
			func(p *patient) { p.flags["data"] = p.write("file", "") },
			[]string{"problem data: --data: ", "is not a folder → name another folder with --data"},
		},
		"a data folder that cannot be made": {
			func(p *patient) { p.flags["data"] = "/proc/data" },
			[]string{"problem data: --data: ", " /proc ", "name another folder with --data"},
		},
		"a folder to be made": {
			func(p *patient) { p.flags["data"] = filepath.Join(p.dir, "x", "y") },
			[]string{"ok data: --data: ", "and will be created", "no database yet"},
		},
		"data in memory": {
			func(p *patient) { p.flags["data"] = ":memory:" },
			[]string{"warning data: all data is in memory"},
		},
		"a folder that a server has": {
			func(p *patient) {
				s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: p.flags["data"]})
				require.NoError(p.t, err)
				p.t.Cleanup(func() { require.NoError(p.t, s.Close()) })
			},
			[]string{fmt.Sprintf("warning data: a server is using the data folder (pid %d", os.Getpid()), "is intact"},
		},
		"a database of a newer version": {
			func(p *patient) { p.database("INSERT INTO schema_migrations (number, name) VALUES (900, 'later')") },
			[]string{"problem data: the database was written by a newer version of this program (schema 900"},
		},
		"a damaged database": {
			func(p *patient) {
				p.database("CREATE TABLE big (x); INSERT INTO big SELECT randomblob(2000) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n)")
				file := filepath.Join(p.flags["data"], "understudy.db")
				b, err := os.ReadFile(file)
				require.NoError(p.t, err)
				for i := 8192; i < len(b); i += 7 {
					b[i] ^= 0xff
				}
				require.NoError(p.t, os.WriteFile(file, b, 0o600))
			},
			[]string{"problem data: the database is damaged", "backup TARGET --damaged"},
		},
		"no database at all": {
			func(p *patient) { p.write("data/understudy.db", strings.Repeat("not a database ", 1000)) },
			[]string{"problem data: the database is damaged", "not a database"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			c.harm(p)
			got := p.examine()
			for _, want := range c.want {
				require.Contains(t, got, want)
			}
			require.LessOrEqual(t, strings.Count(got, "problem python:"), 1, "one thing mends what is wrong with it")
			require.NotContains(t, got, "s3cret")
		})
	}
}

// Of programs that run no Python, no more is shown than they say in a few words: not the program that they were given, and not what never ends.
func TestExamineWhatIsNoPython(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"/bin/ls", "/bin/cat", "/bin/true", "/bin/false", "/bin/sh", "/usr/bin/env", "yes", "echoes"} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			switch program {
			case "yes":
				program = p.write("bin/yes", "#!/bin/sh\nwhile :; do echo yes; done\n")
			case "echoes":
				program = p.write("bin/echoes", "#!/bin/sh\ncat >&2\nexit 1\n")
			}
			if _, err := os.Stat(program); err != nil {
				t.Skip("there is none")
			}
			p.flags["python"] = program
			_, got, found := strings.Cut(p.examine(), "problem python: ")
			require.True(t, found)
			require.Contains(t, got, program+" does not run Python: ")
			require.Contains(t, got, "→ name another interpreter with --python")
			require.NotContains(t, got, "ormsgpack")
			require.Less(t, len(got), 1000)
		})
	}
}

// An interpreter that is too old has one step: an environment of it with what it lacks would be too old again.
func TestOldPythonHasOneStep(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.7.18", "3.9.18"} {
		p := newPatient(t)
		p.python(`{"python": "` + version + `", "packages": {}, "errors": {"langgraph": "ModuleNotFoundError: No module named langgraph"}}`)
		got := p.examine()
		require.Equal(t, 1, strings.Count(got, "problem python: "), got)
		require.Contains(t, got, "is Python "+version+", and langgraph needs 3.10 or later → "+python.NewerPython)
	}
}

// database makes one and changes it.
func (p *patient) database(change string) {
	p.t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: p.flags["data"]})
	require.NoError(p.t, err)
	require.NoError(p.t, s.Close())
	conn, err := driver.OpenConn(filepath.Join(p.flags["data"], "understudy.db"))
	require.NoError(p.t, err)
	require.NoError(p.t, sqlitex.ExecuteScript(conn, change, nil))
	require.NoError(p.t, conn.Close())
}

// interpreter is a Python with langgraph.
func interpreter(t *testing.T) string {
	t.Helper()
	py := os.Getenv("UNDERSTUDY_TEST_PYTHON")
	if py == "" {
		py, _ = filepath.Abs(".venv/bin/python")
	}
	if exec.Command(py, "-c", "import langgraph").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no Python with langgraph: set UNDERSTUDY_TEST_PYTHON")
		}
		t.Skip("no Python with langgraph: set UNDERSTUDY_TEST_PYTHON")
	}
	return py
}

// Every part that keeps a server from starting is a problem, not only the first.
func TestExamineParts(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.flags["python"] = interpreter(t)
	p.write("langgraph.json", `{"graphs": {"m": {"agent": {"model": "scripted:./m.json"}}}, "auth": {"path": "./auth.py:auth"}, "http": {"app": "./app.py:app"},
		"store": {"index": {"embed": "./embed.py:embed", "dims": 2}}, "encryption": {"path": "./enc.py:enc"}}`)
	p.write("auth.py", "x = 1\nimport a_module_that_nobody_has\n")
	p.write("app.py", "from starlette.applications import Starlette\nasync def started(app):\n    raise RuntimeError('only a server starts it')\n    yield\napp = Starlette(lifespan=started)\n")
	p.write("embed.py", "async def other(texts): return [[0, 1] for _ in texts]\n")
	p.write("enc.py", "enc = 1\n")
	got := p.examine()
	for _, want := range []string{
		"problem auth: auth.path (", "No module named 'a_module_that_nobody_has' at ", "auth.py:2 → ", "the module a_module_that_nobody_has (its name on PyPI may differ): ",
		"problem store: store.index.embed (", "there is no 'embed' in ", "→ correct what store.index.embed of langgraph.json names",
		"problem encryption: encryption.path (", "→ encryption.path has to name an Encryption",
		"ok http: http.app imports ",
	} {
		require.Contains(t, got, want)
	}
	p.write("embed.py", "async def embed(texts): return [[0, 1] for _ in texts]\n")
	p.write("langgraph.json", `{"graphs": {"m": {"agent": {"model": "scripted:./m.json"}}}, "store": {"index": {"embed": "./embed.py:embed", "dims": 2}}}`)
	got = p.examine()
	require.Contains(t, got, "ok store: store.index.embed imports ")
	require.NotContains(t, got, "auth")
	for text, want := range map[string]string{
		"async def embed(texts): return [[0, 1, 2] for _ in texts]\n": "returns 3 dimensions, and dims of store.index is 2 → set dims to 3",
		"def embed(texts):\n    return 1 / 0\n":                       "does not embed a word: ZeroDivisionError: division by zero at ",
		"def embed(texts): return []\n":                               "does not embed a word: ValueError: embed returned 0 vectors for 1 texts",
		"def embed(texts): return ['abc' for _ in texts]\n":           "does not embed a word: ValueError: could not convert string to float: 'a'",
	} {
		p.write("embed.py", text)
		require.Contains(t, p.examine(), want)
	}
}

func TestExamineGraphs(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.flags["python"] = interpreter(t)
	p.write("langgraph.json", `{"graphs": {"good": "./good.py:graph", "syntax": "./syntax.py:graph", "missing": "./missing.py:graph", "other": "./missing.py:graph", "name": "./good.py:nothing", "dies": "./dies.py:graph",
		"made": "./made.py:made", "none": "./made.py:none", "raises": "./made.py:raises", "slow": "./made.py:slow", "unset": "./made.py:unset", "library": "./library.py:graph", "own": "./good.py:own"}}`)
	p.write("good.py", "from langgraph.graph import StateGraph, START\nb = StateGraph(dict)\nb.add_node('a', lambda s: s)\nb.add_edge(START, 'a')\ngraph = b.compile()\n"+
		"from langgraph.checkpoint.memory import InMemorySaver\nfrom langgraph.store.memory import InMemoryStore\nown = b.compile(checkpointer=InMemorySaver(), store=InMemoryStore())\n")
	p.write("syntax.py", "x = 1\ndef (:\n")
	p.write("missing.py", "import a_module_that_nobody_has\n")
	p.write("library.py", "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1/')\n")
	p.write("dies.py", "import os, sys\nsys.stderr.write('farewell\\n')\nsys.stderr.flush()\nos._exit(3)\n")
	p.write("made.py", "import asyncio, os\nfrom good import graph\nasync def made(config): return graph\ndef none(): return None\ndef raises(config): return config['configurable']['tenant']\n"+
		"async def slow(): await asyncio.sleep(3600)\ndef unset(): return os.environ['NOT_SET_AT_ALL']\n")
	got := p.examine()
	require.Equal(t, 1, strings.Count(got, ": made "), "a factory that works is a graph like others: "+got)
	for _, want := range []string{
		"ok graph: made imports", "problem graph: none makes no graph: TypeError: Graph factory 'none' made a NoneType, not a graph → return a graph",
		"ok graph: raises imports", "warning graph: raises cannot be built with an empty configuration: KeyError: 'tenant' at made.py:5 → give what it reads from the configuration a default",
		"warning graph: slow cannot be built", "takes longer than", "warning graph: unset cannot be built", "set NOT_SET_AT_ALL in the file",
		"ok graph: own imports", "warning graph: own was compiled with a checkpointer (InMemorySaver) and store (InMemoryStore) of its own, which is not used → call compile() without it",
		"ok python: ", "langgraph-checkpoint", "ok graph: good imports", "problem graph: syntax does not import: SyntaxError", "syntax.py", "problem graph: missing does not import: ModuleNotFoundError",
		// The user's own line, though the traceback ends in a library.
		" at library.py:2 → correct what library.py:2 does", "urllib.request.urlopen('http://127.0.0.1:1/')",
		"pip install", "problem graph: name does not import", "fix the name after the colon", "problem graph: dies does not import", "exit status 3", "farewell",
	} {
		require.Contains(t, got, want)
	}
	require.Equal(t, 1, strings.Count(got, "problem graph: other does not import, for the same reason as missing"), got)
	require.Equal(t, 1, strings.Count(got, "import a_module_that_nobody_has"), "it is said once: "+got)
	for _, frame := range []string{"importlib", "_bootstrap", "<understudy>", "<frozen"} {
		require.NotContains(t, got, frame, "frames that are not the user's say nothing")
	}
}

// An interpreter that does not answer in time, as on a busy machine, is not called broken.
func TestExamineSlowInterpreter(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.within = 100 * time.Millisecond
	p.flags["python"] = p.write("bin/slow", "#!/bin/sh\nexec sleep 60\n")
	got := p.examine()
	require.Contains(t, got, p.flags["python"]+" did not import langgraph within 100ms → run doctor again when the machine is less busy")
	require.NotContains(t, got, "another interpreter")
}

// While a server is running, doctor asks it for its graphs and does not check its port or database.
func TestExamineServing(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph", "b": "./b.py:graph", "c": "./b.py:graph", "slow": "./slow.py:graph", "added": "./no_such_file.py:graph",
		"agent": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}}, "new agent": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}},
		"remote": {"url": "http://127.0.0.1:1"}, "new remote": {"url": "http://127.0.0.1:1"}}}`)
	p.flags["deerflow"] = p.write("config.yaml", "models: []\n")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p.flags["port"] = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	p.flags["python"] = p.python(`{"python": "3.12.1", "packages": {"langgraph": "1.0"}, "errors": {}}`)
	db, err := sqlite.Open(t.Context(), sqlite.Options{Dir: p.flags["data"]})
	require.NoError(t, err)
	defer db.Close()
	broken := &graph.Failure{Type: "ImportError", Message: "no module named x", Detail: "line 1\nline 2"}
	p.loaded = func() map[string]error {
		return map[string]error{"a": nil, "b": broken, "c": broken, "slow": python.ErrImporting}
	}
	p.serves = func(name string) bool { return name == "agent" || name == "remote" }
	text := p.examine()
	require.NotContains(t, text, " port: ")
	require.NotContains(t, text, "is using the data folder")
	require.Contains(t, text, "ok graph: a is imported")
	require.Contains(t, text, "problem graph: b does not import: ")
	require.Contains(t, text, "no module named x")
	require.Contains(t, text, `"line 1" "line 2"`)
	require.Contains(t, text, "problem graph: c does not import, for the same reason as b")
	require.Contains(t, text, "warning graph: slow is still being imported")
	require.Contains(t, text, "ok graph: agent is an agent on ")
	require.Contains(t, text, "ok graph: remote is served by ")
	for _, name := range []string{"added", "new agent", "new remote"} {
		require.Contains(t, text, "problem graph: "+name+" is not loaded by this server")
	}
	require.Equal(t, 9, strings.Count(text, " graph: "), text)
	require.Contains(t, text, "warning deerflow: the DeerFlow installation is not checked")
	require.Contains(t, text, "ok data: ")
	p.loaded = func() map[string]error { return nil } // it has no pool
	text = p.examine()
	require.Equal(t, 7, strings.Count(text, " is not loaded by this server"), text)
	require.Equal(t, 2, strings.Count(text, "ok graph: "), text)
	p.loaded, p.serves = nil, nil
	text = p.examine()
	require.Contains(t, text, "problem port: ")
	require.Contains(t, text, "is using the data folder")
}

// What the loader of a DeerFlow installation logs is what doctor reports: with its level, its fix, and further lines as details.
func TestDeerFlowIsReported(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	file := p.write("config.yaml", "models: []\n")
	p.flags["deerflow"], p.flags["data"] = file, filepath.Join(p.dir, "data")
	var found []Finding
	Examine(t.Context(), Examination{
		Source: config.Source{Mode: config.Serve, Flags: p.flags, Lookup: func(string) (string, bool) { return "", false }}, Environ: p.environ, Found: func(f Finding) { found = append(found, f) },
		DeerFlow: func(_ context.Context, cfg *config.Config, log *slog.Logger) {
			log.Debug("nothing")
			log.Info("settings read", "path", cfg.Server.DeerFlow)
			log.With("mcp_server", "x").Warn("slow", "at_most", "30s", "fix", "wait")
			log.Error("broken", "error", errors.New("line 1\n> 1 | x"))
		},
	})
	found = slices.DeleteFunc(found, func(f Finding) bool { return f.Check != "deerflow" })
	require.Equal(t, []Finding{
		{Check: "deerflow", Verdict: Fine, Text: "settings read; path: " + file},
		{Check: "deerflow", Verdict: Warning, Text: "slow; mcp server: x; at most: 30s", Fix: "wait"},
		{Check: "deerflow", Verdict: Problem, Text: "broken; error: line 1", Details: []string{"> 1 | x"}},
	}, found)
}
