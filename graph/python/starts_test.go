package python_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
)

// An error that keeps the worker's own code from starting ends its process, is logged once with the interpreter and a fix, and ends runs
// with Python's last line once starts have failed for Pool.patience.
func TestWorkersThatCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files     map[string]string // of packages that hide those of the interpreter
		why, mend string
		hangs     bool
	}{
		"no langgraph": {
			files: map[string]string{"langgraph.py": "raise ModuleNotFoundError(\"No module named 'langgraph'\")"},
			why:   "ModuleNotFoundError: No module named 'langgraph'", mend: "-m pip install langgraph",
		},
		"an old langgraph": {
			files: map[string]string{"langgraph/__init__.py": "", "langgraph/version.py": "__version__ = '0.2.76'"},
			why:   "graphs need langgraph " + python.MinLanggraph + " or later, and this is 0.2.76", mend: "-m pip install --upgrade langgraph",
		},
		"a broken langgraph": {
			files: map[string]string{"langgraph/__init__.py": "raise ZeroDivisionError('half installed')"},
			why:   "ZeroDivisionError: half installed", mend: "-m pip install --upgrade --force-reinstall langgraph",
		},
		"no ormsgpack": {
			files: map[string]string{"ormsgpack.py": "raise ModuleNotFoundError(\"No module named 'ormsgpack'\")"},
			why:   "No module named 'ormsgpack'", mend: "-m pip install langgraph",
		},
		"an exit": {
			files: map[string]string{"langgraph/__init__.py": "raise SystemExit('not today')"},
			why:   "SystemExit: not today", mend: "-m pip install",
		},
		"a thread that stays": {
			files: map[string]string{"langgraph/__init__.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\nraise ImportError('with a thread')"},
			why:   "ImportError: with a thread", mend: "-m pip install",
		},
		"an import that hangs": {
			files: map[string]string{"langgraph/__init__.py": "import time\ntime.sleep(3600)"},
			why:   "it was not ready after", hangs: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range c.files {
				at := filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
				require.NoError(t, os.WriteFile(at, []byte(text+"\n"), 0o600))
			}
			o := harmful(t)
			o.Env = append(o.Env, "PYTHONPATH="+dir)
			o.Workers = 2
			log := &logtest.Buffer{}
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
			const patience = 5 * time.Second
			began := time.Now()
			p := run(t, o, func(p *python.Pool) {
				p.SetPatience(patience)
				if c.hangs {
					p.SetStartWithin(patience)
				}
			})
			_, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`, "updates"))
			var failure *graph.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, "WorkerStartError", failure.Type)
			require.Contains(t, failure.Message, c.why)
			require.GreaterOrEqual(t, time.Since(began), patience, "the cause might have passed")
			text := log.String()
			require.Equal(t, 1, strings.Count(text, "no worker starts"), text)
			require.Contains(t, text, o.Python)
			require.Contains(t, text, c.mend)
			require.NotContains(t, text, "Traceback", "details are logged as such")
			require.NotContains(t, text, "graph output")
		})
	}
}

// An interpreter that exists only after starts have failed is used without a new start of the server. The advice of the log is in the failure of runs too. Once
// the graphs are reported as imported, no question about them is refused for the failures before.
func TestInterpreterFoundLater(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lacks langgraph": "import sys\nsys.exit(\"ModuleNotFoundError: No module named 'langgraph'\")",
		"is no Python":    "",
		"gets langgraph":  "import sys\nsys.exit(\"ModuleNotFoundError: No module named 'langgraph'\")",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, log := harmful(t), &logtest.Buffer{}
			good := o.Python
			dir := t.TempDir()
			script := "#!/bin/sh\nexit 1\n"
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(text+"\n"), 0o600))
				script = fmt.Sprintf("#!/bin/sh\nPYTHONPATH='%s' exec '%s' \"$@\"\n", dir, good)
			}
			o.Python = filepath.Join(dir, "python")
			require.NoError(t, os.WriteFile(o.Python, []byte(script), 0o700))
			var created atomic.Bool
			before := o.Python
			o.FindPython = func() (string, error) {
				if created.Load() {
					return good, nil
				}
				return before, nil
			}
			o.Workers, o.Logger = 2, slog.New(slog.NewTextHandler(log, nil))
			var p *python.Pool
			refused := make(chan error, 10*len(o.Graphs))
			o.Loaded = func(name string, err error, _ time.Duration) {
				if err == nil {
					refused <- p.Broken(name)
				}
			}
			p = run(t, o, func(pool *python.Pool) {
				p = pool
				p.SetPatience(time.Minute)
				p.SetBackoff(10*time.Millisecond, 100*time.Millisecond)
			})
			failing := func() error {
				_, err := p.Graph("echo").Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
				return err
			}
			var failure *graph.Failure
			require.ErrorAs(t, failing(), &failure)
			require.Equal(t, graph.WorkerStartError, failure.Type)
			var why *python.StartError
			require.ErrorAs(t, p.Never(0), &why)
			require.Equal(t, why.Fix, failure.Fix)
			require.NoError(t, python.Build(t.Context(), p.Graph("echo")), "nothing is known of the graph")
			if name == "gets langgraph" { // it stays the interpreter
				require.NoError(t, os.Remove(filepath.Join(dir, "sitecustomize.py")))
			} else {
				created.Store(true)
			}
			well(t, p)
			require.Equal(t, created.Load(), strings.Contains(log.String(), "another interpreter was found"))
			for range o.Graphs {
				require.NoError(t, <-refused)
			}
			require.NoError(t, failing())
			require.NoError(t, p.Up())
		})
	}
}

// A program that runs no Python is recognized at once, and named once with what to do: by the log, or by the caller when that ends. It is not started again
// and again.
func TestProgramsThatAreNoPython(t *testing.T) {
	t.Parallel()
	program := func(mode os.FileMode, text string) string {
		file := filepath.Join(t.TempDir(), "program")
		require.NoError(t, os.WriteFile(file, []byte(text), mode))
		return file
	}
	for name, file := range map[string]string{
		"does nothing": "/bin/true", "fails": "/bin/false", "refuses": "/bin/ls", "repeats": "/bin/echo",
		"a script that prints": program(0o700, "#!/bin/sh\necho understudy\necho some >&2\n"), "no program": program(0o700, "\x00\x01"), "not for us": program(0o600, "#!/bin/sh\n"),
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the caller ends: %v", name, ends), func(t *testing.T) {
				t.Parallel()
				log := &logtest.Buffer{}
				asked := make(chan struct{}, 1000)
				p := run(t, python.Options{
					Python: file, Dir: t.TempDir(), Graphs: map[string]python.Spec{"g": {Path: "./g.py:graph"}}, Workers: 2,
					Logger: slog.New(slog.NewTextHandler(log, nil)), Unstartable: func() bool { asked <- struct{}{}; return ends },
				})
				require.Error(t, p.Ready(t.Context()))
				<-asked
				var why *python.StartError
				require.ErrorAs(t, p.Never(time.Hour), &why)
				require.True(t, why.Hopeless)
				require.Equal(t, file, why.Interpreter)
				require.Contains(t, why.Reason, file+" is not a Python interpreter")
				require.Contains(t, why.Fix, "--python")
				require.Regexp(t, `^no worker starts\n  reason  .*\n  interpreter  .*\n  fix  .*$`, why.Error())
				if ends {
					require.Empty(t, log.String())
				} else {
					await(t, "the log", func() bool { return log.String() != "" })
					require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
					require.Contains(t, log.String(), "is not a Python interpreter")
				}
				require.LessOrEqual(t, p.Made(), 4, "on a slow machine both workers may be tried again before it is known")
			})
		}
	}
}

// Python 2 cannot read the worker's code. It is named as too old, not as a program that is no interpreter.
func TestPython2IsTooOld(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n[ \"$1\" = -c ] || exit 1\necho understudy 2.7\n"), 0o700)) //nolint:gosec // to be run
	p := run(t, python.Options{Python: file, Dir: t.TempDir(), Graphs: map[string]python.Spec{"g": {Path: "./g.py:graph"}}, Workers: 1, Logger: slog.New(slog.DiscardHandler)})
	require.Error(t, p.Ready(t.Context()))
	var why *python.StartError
	require.ErrorAs(t, p.Never(time.Hour), &why)
	require.Equal(t, python.StartError{Reason: file + ": langgraph needs Python 3.10 or later, and this is 2.7", Interpreter: file, Fix: python.NewerPython, Hopeless: true}, *why)
}

// What a worker writes before its own code runs is logged when that does.
func TestOutputBeforeTheWorker(t *testing.T) {
	t.Parallel()
	o, log := options(t), &logtest.Buffer{}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte("import sys\nprint('early', file=sys.stderr)\n"), 0o600))
	o.Env, o.Workers, o.Logger = append(o.Env, "PYTHONPATH="+dir), 1, slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	well(t, p)
	require.Contains(t, log.String(), "line=early")
}

// The fix for a virtual environment without pip begins with pip.
func TestFix(t *testing.T) {
	t.Parallel()
	venv := t.TempDir()
	interpreter := filepath.Join(venv, "bin", "python")
	require.NoError(t, os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), nil, 0o600))
	install := interpreter + " -m pip install langgraph"
	require.Equal(t, interpreter+" -m ensurepip && "+install, python.Fix(interpreter, "No module named 'langgraph'"))
	require.NoError(t, os.MkdirAll(filepath.Join(venv, "lib", "python3.12", "site-packages", "pip"), 0o700))
	require.Equal(t, install, python.Fix(interpreter, "No module named 'langgraph'"))
	// An interpreter that other programs share gets no packages of graphs: they get an environment of their own. What has langgraph is theirs already.
	require.Equal(t, "next to langgraph.json: /none/bin/python3 -m venv .venv && .venv/bin/python -m pip install langgraph (where --python names another, name .venv/bin/python)", python.Fix("/none/bin/python3", "No module named 'langgraph'"))
	require.Equal(t, "next to langgraph.json: '/no ne/it'\\''s/python3' -m venv .venv && .venv/bin/python -m pip install langgraph (where --python names another, name .venv/bin/python)", python.Fix("/no ne/it's/python3", "No module named 'langgraph'"))
	require.Equal(t, "/none/bin/python3 -m pip install --upgrade langgraph", python.Fix("/none/bin/python3", "graphs need langgraph 0.6 or later, and this is 0.2"))
	project, other := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(project, "requirements.txt"), []byte("langgraph>=1\nhttpx\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(other, "requirements.txt"), []byte("httpx\n"), 0o600))
	require.Equal(t, interpreter+" -m pip install -r "+filepath.Join(project, "requirements.txt"), python.Fix(interpreter, "No module named 'langgraph'", other, project))
	require.Equal(t, install, python.Fix(interpreter, "No module named 'langgraph'", other))
	require.Equal(t, interpreter+" -m pip install --upgrade --force-reinstall langgraph", python.Fix(interpreter, "Traceback (most recent call last):\n  File \"/x/site-packages/langgraph/graph/__init__.py\", line 1, in <module>\nImportError: half installed", project))
	require.Contains(t, python.Fix(interpreter, "MemoryError", project), "see the last lines that Python wrote")
	// A file of the project that hides a module of Python.
	for _, name := range []string{"logging", "json", "types"} {
		at := filepath.Join(project, name+".py")
		require.NoError(t, os.WriteFile(at, nil, 0o600))
		for _, text := range []string{"AttributeError: module '" + name + "' has no attribute 'x'", "  File \"" + at + "\", line 1, in <module>\nNameError: name 'x' is not defined", "ImportError: cannot import name 'x' from '" + name + "' (" + at + ")"} {
			require.Equal(t, "rename the file "+at+": it hides the module "+name+" of Python", python.Fix(interpreter, text, other, project))
		}
	}
	// It does not matter that a file has such a name when the exception is of something else.
	require.Equal(t, install, python.Fix(interpreter, "No module named 'langgraph'", other))
	require.Equal(t, python.NewerPython, python.Fix(interpreter, "langgraph needs Python 3.10 or later, and this is 3.9.18"))
	conda := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(conda, "conda-meta"), 0o700))
	require.Equal(t, conda+"/bin/python -m pip install langgraph", python.Fix(conda+"/bin/python", "No module named 'langgraph'"))
	system := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(system, "lib", "python3.12"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(system, "lib", "python3.12", "EXTERNALLY-MANAGED"), nil, 0o600))
	interpreter = filepath.Join(system, "bin", "python3")
	require.Equal(t, "next to langgraph.json: "+interpreter+" -m venv .venv && .venv/bin/python -m pip install langgraph (where --python names another, name .venv/bin/python)", python.Fix(interpreter, "No module named 'langgraph'"))
}

// A message that the worker cannot handle ends it: it would be silent, hold its place, and its runs would wait.
func TestWorkerCodeThatFails(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"message", "write", "done"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := harmful(t)
			file := filepath.Join(t.TempDir(), "spoil.py")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, spoil, how), 0o600))
			o.Graphs["spoil"] = python.Spec{Path: file + ":graph"}
			log := &logtest.Buffer{}
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
			p := start(t, o)
			pid := p.Pids()[0]
			_, err := collect(t, p.Graph("spoil"), invocation(newMemory(), `{}`, "updates"))
			if how != "message" { // the next one may come when the run has ended
				require.ErrorIs(t, err, graph.ErrWorkerDied)
			}
			await(t, "the traceback", func() bool { return strings.Contains(log.String(), "ZeroDivisionError") })
			await(t, "the end of the worker", func() bool {
				pids := p.Pids()
				return len(pids) == 0 || pids[0] != pid
			})
			well(t, p)
		})
	}
}

// spoil is a graph that breaks the worker's code while it runs.
const spoil = `
import types
import graphs
from understudy_worker import wire

def fail(*_):
    1 / 0

def graph(config):
    how = %q
    if how == "message":
        wire.ormsgpack = types.SimpleNamespace(unpackb=fail)
    elif how == "write":
        wire.Wire.flush = fail
    else:
        wire.Wire.send = fail
    return graphs.echo
`

// editable returns options with one graph, the text of its file, and what saves another text there.
func editable(t *testing.T) (o python.Options, good string, save func(text string)) {
	t.Helper()
	text, err := os.ReadFile("testdata/graphs/graphs.py")
	require.NoError(t, err)
	o = options(t)
	o.Dir = t.TempDir()
	save = func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), []byte(text), 0o600))
	}
	save(string(text))
	o.Graphs = map[string]python.Spec{"echo": {Path: "./mine.py:echo"}}
	return o, string(text), save
}

// A worker that starts when the file of a graph has become broken does not make the graph one that has always been broken: runs stay with workers
// that have it, the pool has no problem, and a reload that would break the graph is refused.
func TestAWorkerThatStartsAfterABadSave(t *testing.T) {
	t.Parallel()
	o, _, save := editable(t)
	o.Workers = 2
	// The second worker waits for its turn: until the first is ready, and the file is broken.
	gate := filepath.Join(o.Dir, "gate")
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "sitecustomize.py"), fmt.Appendf(nil, `
import os, time
try:
    os.mkdir(%q)
except FileExistsError:
    while not os.path.exists(%q):
        time.sleep(0.01)
`, gate, gate+"/open"), 0o600))
	o.Env = append(o.Env, "PYTHONPATH="+o.Dir)
	p := start(t, o)
	save("import nothing_of_this_name\n")
	require.NoError(t, os.WriteFile(gate+"/open", nil, 0o600))
	await(t, "the second worker", func() bool { return p.InService() == 2 })
	require.Empty(t, p.Problems())
	for range 4 {
		same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
	}
	var refused *python.ReloadError
	require.ErrorAs(t, p.Reload(t.Context(), o, time.Minute), &refused)
	require.Contains(t, refused.Error(), "nothing_of_this_name")
	require.Nil(t, refused.Why)
	save("import os\nos._exit(3)\n")
	require.ErrorAs(t, p.Reload(t.Context(), o, time.Minute), &refused)
	require.Equal(t, "echo", refused.Why.Graph)
	require.Contains(t, refused.Why.Fix, "-X faulthandler ./mine.py")
	same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
}

// Each graph is reported once, with the time that its import took or its traceback, also when several workers import it, and as soon as it is known.
// Of one that takes long the log says at which line of the user it is.
func TestGraphsAreReportedAsTheyLoad(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	slow := filepath.Join(dir, "slow.py")
	require.NoError(t, os.WriteFile(slow, fmt.Appendf(nil, "import os, time\ndef wait():\n    while not os.path.exists(%q):\n        time.sleep(0.01)  # here\nwait()\nfrom graphs import echo as graph\n", gate), 0o600))
	broken := filepath.Join(dir, "broken.py")
	require.NoError(t, os.WriteFile(broken, []byte("\nimport nothing_of_this_name\n"), 0o600))
	o.Graphs = map[string]python.Spec{"a": {Path: "./graphs.py:echo"}, "b": {Path: broken + ":graph"}, "c": {Path: slow + ":graph"}}
	o.Workers = 3
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	registry := prometheus.NewRegistry()
	o.Registry, o.LogBlocking = registry, true
	type report struct {
		name string
		err  error
	}
	reports := make(chan report, 20)
	o.Loaded = func(name string, err error, _ time.Duration) { reports <- report{name, err} }
	p := run(t, o)
	got := map[string]error{}
	for range 2 { // before the slow one
		select {
		case r := <-reports:
			got[r.name] = r.err
		case <-time.After(time.Minute):
			t.Fatal("nothing is reported while a graph loads")
		}
	}
	require.NotContains(t, got, "c")
	for name, err := range p.Imports() {
		require.ErrorIs(t, err, python.ErrImporting, name)
	}
	require.Len(t, p.Imports(), 3)
	// On a slow machine the imports before it have a line, too.
	await(t, "where the import is", func() bool {
		return strings.Contains(log.String(), fmt.Sprintf(`"at":"%s:4","code":"time.sleep(0.01)  # here"`, slow))
	})
	require.Regexp(t, `"msg":"still importing a graph[^\n]*"graph":"c"`, log.String())
	require.Zero(t, metricstest.Value(t, registry, "understudy_worker_blocked_total"), "there is no run yet")
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	await(t, "all workers", func() bool { return p.InService() == 3 })
	r := <-reports
	got[r.name] = r.err
	require.Empty(t, reports, "once")
	require.NoError(t, got["a"])
	require.NoError(t, got["c"])
	var failure *graph.Failure
	require.ErrorAs(t, got["b"], &failure)
	require.Contains(t, failure.Detail, "line 2")
	imports := p.Imports()
	require.Len(t, imports, 3)
	require.NoError(t, imports["a"])
	require.ErrorAs(t, imports["b"], &failure)
	require.NoError(t, imports["c"])
}

// An interpreter of another version than langgraph.json asks for works, and is warned of once, with both versions and a fix.
func TestAnotherVersionOfPython(t *testing.T) {
	t.Parallel()
	for want, warned := range map[string]int{"": 0, "3": 0, "3.99": 1, "2.7": 1} {
		o := harmful(t)
		o.PythonVersion, o.Workers = want, 2
		log := &logtest.Buffer{}
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
		p := start(t, o)
		await(t, "both workers", func() bool { return p.InService() == 2 })
		_, version := p.Versions()
		require.Equal(t, warned, strings.Count(log.String(), "python_version="+want+" "), log.String())
		require.Equal(t, warned, strings.Count(log.String(), "python="+version+" "))
		well(t, p)
	}
}

// What a graph was compiled with and is not used is warned of once, not by each worker; settings that mean no saver are none.
func TestSaversOfGraphs(t *testing.T) {
	t.Parallel()
	const source = `
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

b = StateGraph(dict)
b.add_node("a", lambda s: s)
b.add_edge(START, "a")
own, none, off = b.compile(checkpointer=InMemorySaver()), b.compile(), b.compile(checkpointer=False)
`
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "saved.py"), []byte(source), 0o600))
	o := harmful(t)
	o.Workers, o.Graphs = 2, map[string]python.Spec{}
	for _, name := range []string{"own", "none", "off"} {
		o.Graphs[name] = python.Spec{Path: filepath.Join(dir, "saved.py") + ":" + name}
	}
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	await(t, "both workers", func() bool { return p.InService() == 2 })
	require.Equal(t, 1, strings.Count(log.String(), "which is not used"), log.String())
	require.Contains(t, log.String(), `msg="a graph was compiled with a checkpointer (InMemorySaver) of its own, which is not used" graph=own fix="call compile() without it`)
}

// A worker whose server ends while it loads graphs leaves without a word: a traceback in the log would look like an error of the graph.
func TestStopWhileGraphsLoad(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: it finds the worker's socket by SO_PEERCRED")
	}
	dir := t.TempDir()
	// It loads until the server has closed the worker's socket.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slow.py"), []byte(`
import os, socket, stat, struct
from langgraph.graph import MessagesState, StateGraph
print("loading begins", flush=True)
for fd in range(3, 256):
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            continue
    except OSError:
        continue
    s = socket.socket(fileno=os.dup(fd))
    peer, _, _ = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if peer == os.getppid():  # not one of the event loop
        s.setblocking(True)
        s.recv(1, socket.MSG_PEEK)
graph = StateGraph(MessagesState).add_node("n", lambda s: {}).set_entry_point("n").compile()
`), 0o600))
	o := harmful(t)
	o.Dir, o.Graphs = dir, map[string]python.Spec{"slow": {Path: "./slow.py:graph"}}
	log := &waitedLog{text: "loading begins", there: make(chan struct{})}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	p := python.New(o)
	go func() { ended <- p.Run(ctx) }()
	select {
	case <-log.there:
	case err := <-ended:
		require.FailNow(t, "the pool ended", "%v\n%s", err, log.String())
	}
	stop()
	require.NoError(t, <-ended)
	require.NotContains(t, log.String(), "Traceback")
}

// waitedLog is a log in which a text is waited for.
type waitedLog struct {
	logtest.Buffer
	text  string
	there chan struct{} // closed when the text is
	once  sync.Once
}

func (l *waitedLog) Write(b []byte) (int, error) {
	n, err := l.Buffer.Write(b)
	if strings.Contains(string(b), l.text) {
		l.once.Do(func() { close(l.there) })
	}
	return n, err
}

// A reload that is given up while graphs hang in their import ends the process that it has started; runs stay with the workers from before, and the corrected file is
// loaded.
func TestAReloadThatIsGivenUp(t *testing.T) {
	t.Parallel()
	o, good, save := editable(t)
	p := start(t, o)
	began := filepath.Join(o.Dir, "began")
	save("import os, time\nwith open('began.part', 'w') as f:\n    f.write(str(os.getpid()))\nos.rename('began.part', 'began')\ntime.sleep(1000)\n")
	ctx, giveUp := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Reload(ctx, o, time.Minute) }()
	pid := 0
	await(t, "the import", func() bool {
		text, err := os.ReadFile(began)
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		return err == nil
	})
	another := errors.New("another file was saved")
	giveUp(another)
	require.ErrorIs(t, <-ended, another)
	await(t, "the end of the process", func() bool {
		at, err := os.FindProcess(pid)
		return err != nil || at.Signal(syscall.Signal(0)) != nil
	})
	same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
	save(good)
	require.NoError(t, p.Reload(t.Context(), o, time.Minute))
	same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
}

// As in LangGraph Server, no loop runs while graphs are imported: modules run coroutines to ask what tools there are.
func TestCoroutinesOfImports(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"asks": {Path: "./asks.py:graph"}, "echo": {Path: "./graphs.py:echo"}}
	p := start(t, o)
	same(t, must(t, p, "asks", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"use":{"items":["at once","by hand","in the node"]}}`})
	must(t, p, "echo", invocation(newMemory(), `{}`, "values"))
}

// What keeps Python from beginning is named with the variable that is wrong; an interpreter that is gone as such.
func TestPythonThatCannotBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variable, value, reason, fix string }{
		{"PYTHONHOME", "/nonexistent", "Fatal Python error: ", "correct or remove PYTHONHOME in the file"},
		{"PYTHONHASHSEED", "x", "PYTHONHASHSEED", "correct or remove PYTHONHASHSEED in the file"},
		{"PYTHONMALLOC", "x", "PYTHONMALLOC", "correct or remove PYTHONMALLOC in the file"},
		{"PYTHONIOENCODING", "x", "unknown encoding: x", "correct or remove PYTHONIOENCODING in the file"},
		{"", "", "no worker can be started: ", "/none/bin/python is not there any more"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Parallel()
			o, log := harmful(t), &logtest.Buffer{}
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
			if c.variable == "" {
				o.Python = "/none/bin/python"
			} else {
				o.Env = append(o.Env, c.variable+"="+c.value)
			}
			run(t, o)
			await(t, "the reason", func() bool { return strings.Contains(log.String(), "no worker starts") })
			require.Contains(t, log.String(), c.reason)
			require.Contains(t, log.String(), c.fix)
			require.NotContains(t, log.String(), "force-reinstall")
		})
	}
}
