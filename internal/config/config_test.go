package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"understudy/internal/header"
)

// setup writes a langgraph.json and what it may name, and returns a source that reads it with no
// environment but env.
func setup(t *testing.T, json string, env map[string]string) Source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"langgraph.json": json, "agent.py": "", ".venv/bin/python": "", "vars": "LG_WEBHOOK_TOKEN=secret\nN_JOBS_PER_WORKER=3\n", "lib/x.py": ""} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	return Source{File: filepath.Join(dir, "langgraph.json"), Lookup: func(name string) (string, bool) { s, ok := env[name]; return s, ok }}
}

// A lease of days is a mistake: so long runs would wait for a server that is gone.
func TestLeaseHasBounds(t *testing.T) {
	t.Parallel()
	for lease, good := range map[time.Duration]bool{0: false, time.Second: true, time.Hour: true, 100 * time.Hour: false} {
		c := Default(Serve)
		c.Storage.Lease = lease
		if err := c.Validate(); good {
			require.NoError(t, err, lease)
		} else {
			require.ErrorContains(t, err, "write 1s to 1h", lease)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	src := setup(t, `{
	  "$schema": "x", "dependencies": [".", "./lib", "langchain_openai"], "python_version": "3.12", "env": "vars",
	  "graphs": {"b": "./agent.py:graph", "a": {"path": "pkg.mod:make", "description": "A"}},
	  "http": {"mount_prefix": "/api/", "disable_store": true, "disable_openai": true, "configurable_headers": {"includes": ["x-*"], "exclude": ["x-secret*"]},
	           "cors": {"allow_origins": ["https://a.example"]}},
	  "webhooks": {"headers": {"authorization": "Bearer ${{ env.LG_WEBHOOK_TOKEN }}"}, "url": {"allowed_ports": [443]}, "allowed_fields": ["run_id"]},
	  "checkpointer": {"serde": {"allowed_json_modules": [["a", "b"]], "pickle_fallback": false}}
	}`, nil)
	src.Flags = map[string]string{"port": "0", "data": "/data"}
	got, warnings, err := Load(src)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0].String(), `http.cors: pages of allowed origins cannot send POST`)

	dir := filepath.Dir(src.File)
	want := Default(Dev)
	want.File, want.Dir, want.Storage.Data, want.Server.Port = src.File, dir, "/data", 0
	want.Files = []string{filepath.Join(dir, "vars")}
	want.Workers.PythonPath = []string{dir, filepath.Join(dir, "lib")}
	want.Workers.Python, want.Workers.PythonVersion, want.Workers.JobsPerWorker = filepath.Join(dir, ".venv/bin/python"), "3.12", 3
	want.Env = map[string]string{"LG_WEBHOOK_TOKEN": "secret", "N_JOBS_PER_WORKER": "3"}
	want.Graphs = []Graph{{ID: "b", Path: filepath.Join(dir, "agent.py"), Attr: "graph"}, {ID: "a", Module: "pkg.mod", Attr: "make", Description: "A"}}
	want.HTTP = HTTP{
		MountPrefix: "/api", Disable: Disable{Store: true, OpenAI: true}, ConfigurableHeaders: header.Filter{Includes: []string{"x-*"}, Excludes: []string{"x-secret*"}},
		CORS: CORS{Given: true, AllowOrigins: []string{"https://a.example"}, AllowMethods: []string{"GET"}, AllowHeaders: []string{"Content-Type"}, MaxAge: 10 * time.Minute},
	}
	want.Webhooks = Webhooks{
		URL:     URLPolicy{RequireHTTPS: true, AllowedPorts: []int{443}, MaxURLLength: 2048, DisableLoopback: true},
		Headers: map[string]string{"authorization": "Bearer secret"}, AllowedFields: []string{"run_id"},
	}
	want.Serde = Serde{AllowedJSONModules: &Modules{List: [][]string{{"a", "b"}}}}
	want.places = map[string]string{"port": "--port", "data": "--data", "jobs-per-worker": "N_JOBS_PER_WORKER in env of langgraph.json"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "Lookup", "FindPython", "src", "offsets")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again, err := got.FindPython()
	require.NoError(t, err)
	require.Equal(t, want.Workers.Python, again)
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	const file = `{"graphs": {"a": "./agent.py:g"}, "env": {"N_JOBS_PER_WORKER": 3}}`
	tests := []struct {
		name  string
		env   map[string]string
		flags map[string]string
		want  int
	}{
		{name: "the file's env", want: 3},
		{name: "the environment", env: map[string]string{"N_JOBS_PER_WORKER": "4"}, want: 4},
		{name: "our own name", env: map[string]string{"N_JOBS_PER_WORKER": "4", "UNDERSTUDY_JOBS_PER_WORKER": "5"}, want: 5},
		{name: "a flag", env: map[string]string{"UNDERSTUDY_JOBS_PER_WORKER": "5"}, flags: map[string]string{"jobs-per-worker": "6"}, want: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := setup(t, file, tt.env)
			src.Flags = tt.flags
			c, _, err := Load(src)
			require.NoError(t, err)
			require.Equal(t, tt.want, c.Workers.JobsPerWorker)
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	src := setup(t, `{"graphs": {"a": "./agent.py:g"}}`, map[string]string{
		"BG_JOB_TIMEOUT_SECS": "0.5", "BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS": "7", "RESUMABLE_STREAM_TTL_SECONDS": "120", "LOG_LEVEL": "WARNING",
		"LOG_JSON": "true", "MOUNT_PREFIX": "/x", "UNDERSTUDY_MAX_BODY": "1MiB", "CORS_ALLOW_ORIGINS": "https://a, https://b", "UNDERSTUDY_GRACE": "2m",
	})
	c, _, err := Load(src)
	require.NoError(t, err)
	require.Equal(t, 500*time.Millisecond, c.Workers.RunTimeout)
	require.Equal(t, 2*time.Minute, c.Server.Grace)
	require.Equal(t, 2*time.Minute, c.Streams.ResumableTTL)
	require.Equal(t, slog.LevelWarn, c.Logging.Level)
	require.True(t, c.Logging.JSON)
	require.Equal(t, "/x", c.HTTP.MountPrefix)
	require.Equal(t, MiB, c.Server.MaxBody)
	require.Equal(t, []string{"https://a", "https://b"}, c.HTTP.CORS.AllowOrigins)
	require.True(t, c.HTTP.CORS.AllowCredentials)
}

// A file that an editor or a copy has harmed anywhere is refused with its place and what to do, and never in silence.
func TestHarmedFiles(t *testing.T) {
	t.Parallel()
	whole := `{"dependencies": ["."], "n": -1.5e2, "t": [true, false, null],
  "graphs": {"a": "./agent.py:graph", "b\\u00e9": {"path": "./agent.py:graph"}}, "env": {"A": "b \\\\ c"}}`
	for n := range whole {
		_, m := parseJSON([]byte(whole[:n]))
		require.NotNil(t, m, whole[:n])
		want := "ends too early; "
		if n == 0 {
			want = "is empty; write "
		}
		require.Contains(t, m.Text, want, whole[:n])
	}
	random, next := rand.New(rand.NewPCG(15, 1)), regexp.MustCompile(`; |JSON text stands`)
	for range 2_000 {
		harmed := []byte(whole)
		i := random.IntN(len(harmed))
		char := "{}[],:\"'\\#TFNntf019.-e \n\t\x00é"[random.IntN(24)]
		switch random.IntN(3) {
		case 0:
			harmed[i] = char
		case 1:
			harmed = slices.Delete(harmed, i, i+1)
		case 2:
			harmed = slices.Insert(harmed, i, char)
		}
		if _, m := parseJSON(harmed); m != nil {
			require.True(t, next.MatchString(m.Text), "%s: %s", m.Text, harmed)
			require.NotZero(t, m.Line)
			require.LessOrEqual(t, m.At, len(harmed))
		} else {
			require.True(t, json.Valid(harmed), "%s", harmed)
		}
	}
}

// A file that is there and cannot be read is named with what to do.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, _, err := Load(Source{Mode: Serve, File: dir})
	require.EqualError(t, err, dir+" is a folder; name the file: --config "+filepath.Join(dir, "langgraph.json"))
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Regexp(t, `cannot be read by user \d+ \(mode 0600\); run chmod a\+r `, unread(file, fs.ErrPermission)) // root reads everything
	require.Contains(t, unread(filepath.Join(dir, "no", "file"), fs.ErrPermission), "let this user enter the folders above it")
	require.Contains(t, unread(file, errors.New("input/output error")), "input/output error; name another file with --config")
}

// A graph whose file is not there comes with the one that may be meant.
func TestMisspeltFiles(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"./agnet.py": "perhaps agent.py is meant", "./other.py": "create it, or correct the path", "./none/agent.py": "create it, or correct the path"} {
		_, warnings, err := Load(setup(t, `{"graphs": {"a": "`+path+`:graph"}}`, nil))
		require.NoError(t, err)
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0].Text, "so runs of this graph will fail; "+want)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		json string
		want []string
	}{
		{name: "line comment", json: "{\n  // graphs\n  \"graphs\": {}}", want: []string{"langgraph.json:2:3: is a comment"}},
		{name: "hash comment", json: "{\"graphs\": # x\n {}}", want: []string{"langgraph.json:1:12: is a comment"}},
		{name: "trailing comma", json: "{\"graphs\": {\"a\": \"x.py:g\",}\n}", want: []string{"langgraph.json:1:27: has a comma"}},
		{name: "cut off", json: `{"graphs": {`, want: []string{"langgraph.json:1:13: ends too early"}},
		{name: "empty", json: ``, want: []string{"langgraph.json:1:1: is empty; write"}},
		{name: "cut off in a text", json: `{"graphs": {"a`, want: []string{"langgraph.json:1:15: ends too early"}},
		{name: "Python", json: `{"graphs": None}`, want: []string{"langgraph.json:1:12: is not JSON", "true, false or null"}},
		{name: "no comma", json: `{"a": 1 "b": 2}`, want: []string{"langgraph.json:1:9: is not JSON", "a comma is missing before it"}},
		{name: "two commas", json: `{"dependencies": ["."],, "graphs": {}}`, want: []string{"langgraph.json:1:24: is a comma too many; remove it"}},
		{name: "two commas in a list", json: `{"dependencies": [".",,"x"]}`, want: []string{"langgraph.json:1:23: is a comma too many; remove it"}},
		{name: "a comma first", json: `{, "graphs": {}}`, want: []string{"langgraph.json:1:2: is a comma too many; remove it"}},
		{name: "a comma first in a list", json: `{"dependencies": [, "."]}`, want: []string{"langgraph.json:1:19: is a comma too many; remove it"}},
		{name: "no value", json: `{"env": , "graphs": {}}`, want: []string{"langgraph.json:1:9: is a comma where a value is missing"}},
		{name: "no last value", json: `{"graphs": {"a": }}`, want: []string{"langgraph.json:1:18: closes an object whose last key has no value"}},
		{name: "no colon", json: `{"graphs" }`, want: []string{"langgraph.json:1:11: is not JSON", "write a colon between key and value"}},
		{name: "no quotes", json: `{graphs: {}}`, want: []string{"langgraph.json:1:2: is not JSON", "put keys in double quotes"}},
		{name: "single quotes", json: `{'graphs': 1}`, want: []string{"langgraph.json:1:2: has single quotes"}},
		{name: "more after the end", json: `{} {}`, want: []string{"unexpected text after the end"}},
		{name: "a key twice", json: `{"env": {}, "env": {}}`, want: []string{`"env" twice`}},
		{name: "bad UTF-8", json: "{\"a\": \"\xff\"}", want: []string{"langgraph.json:1:8: is not UTF-8"}},
		{name: "too deep", json: strings.Repeat("[", 200), want: []string{"nested deeper"}},
		{name: "not an object", json: `[]`, want: []string{"langgraph.json:1:1: langgraph.json: is a list"}},
		{name: "no graphs", json: `{}`, want: []string{`"graphs": {"agent": "./agent.py:graph"}`}},
		{name: "no attribute", json: `{"graphs": {"a": "./agent.py"}}`, want: []string{"langgraph.json:1:18: graphs.a: \"./agent.py\" names no attribute"}},
		{name: "remote with a key in its query", json: `{"graphs": {"a": {"url": "https://h/?key=sk-secret"}}}`, want: []string{`langgraph.json:1:26: graphs.a.url: "https://h/…" is no URL of a server: it has a query`}},
		{name: "remote", json: `{"graphs": {"a": {"url": "ftp://me:secret@x?q"}}}`, want: []string{"langgraph.json:1:26: graphs.a.url: the address is no URL of a server"}},
		{name: "remote headers", json: `{"graphs": {"a": {"url": "http://x", "headers": {"x-api-key": "${NOT_THERE}", "b": 1, "c d": "e"}}}}`, want: []string{`graphs.a.headers.x-api-key: variable NOT_THERE is not set`, "graphs.a.headers.b: a header is a name", "graphs.a.headers.c d: a header is a name"}},
		{name: "declared", json: `{"graphs": {"a": {"agent": {}}}}`, want: []string{"graphs.a.agent.model: is missing"}},
		{
			name: "concurrency",
			json: `{"graphs": {"a": {"path": "./agent.py:g", "concurrency": 0}, "b": {"url": "http://x", "concurrency": "2"}, "c": {"agent": {"model": "fake:x"}, "concurrency": 1.5}}}`,
			want: []string{
				"langgraph.json:1:58: graphs.a.concurrency: write a whole number from 1 to 100000", "graphs.b.concurrency: write a whole", "graphs.c.concurrency: write a whole",
			},
		},
		{name: "JavaScript", json: `{"graphs": {"a": "./a.ts:g"}}`, want: []string{"./a.ts is JavaScript"}},
		{
			name: "several at once", json: `{"graphs": 1, "python_version": 3.1, "env": [], "http": {"cors": {"allow_origin_regex": "("}, "mount_prefix": "x"}}`,
			want: []string{"graphs: is a number", `python_version: is a number; write it in quotes: "3.1"`, "env: is a list", "allow_origin_regex: is not a regular expression", "a prefix starts with a slash"},
		},
		{name: "encryption without a file", json: `{"graphs": {"a": "./agent.py:g"}, "encryption": {"path": "./a.py:e"}}`, want: []string{"encryption.path: there is no file"}},
		{name: "encryption without a path", json: `{"graphs": {"a": "./agent.py:g"}, "encryption": {"paths": "./a.py:e"}}`, want: []string{"encryption: has no path"}},
		{
			name: "webhook header", json: `{"graphs": {"a": "./agent.py:g"}, "webhooks": {"headers": {"x": "${{ env.HOME }}", "y": "${{ env.LG_WEBHOOK_NONE }}", "z": "${{ secrets.A }}"}}}`,
			want: []string{"HOME may not be sent", "LG_WEBHOOK_NONE is not set", "only variables"},
		},
		{
			name: "webhook policy", json: `{"graphs": {"a": "./agent.py:g"}, "webhooks": {"allowed_fields": ["x"], "url": {"allowed_domains": ["a.*"], "allowed_ports": [0]}}}`,
			want: []string{`"x" is not a field`, `"a.*"`, "from 1 to 65535"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _, err := Load(setup(t, tt.json, map[string]string{"HOME": "/root"}))
			require.Equal(t, &Config{Files: c.Files}, c, "nothing that could be used")
			require.Error(t, err)
			for _, want := range tt.want {
				require.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestMistakesInSettings(t *testing.T) {
	t.Parallel()
	src := setup(t, `{"graphs": {"a": "./agent.py:g"}}`, map[string]string{"BG_JOB_TIMEOUT_SECS": "soon", "UNDERSTUDY_WORKERS": "0", "UNDERSTUDY_LOG_JSON": "perhaps"})
	src.Flags = map[string]string{"port": "70000", "grace": "10", "synchronous": "off", "max-bodies": "1k", "python": "no-such-python"}
	_, _, err := Load(src)
	require.Error(t, err)
	for _, want := range []string{
		`BG_JOB_TIMEOUT_SECS: "soon": write a number of seconds`, `UNDERSTUDY_WORKERS: "0": at least one`, `UNDERSTUDY_LOG_JSON: "perhaps": write true or false`, `--port: "70000": write a port`,
		`--grace: "10": write a duration with its unit`, `--synchronous: "off": write full or normal`, `--max-bodies: "1KiB": write at least 300MiB, the limit of one body (--max-body)`,
	} {
		require.Contains(t, err.Error(), want)
	}
}

// Whatever is wrong with a setting, its mistake begins with the name by which it was set, and there is one.
func TestMistakesNameTheirSetting(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^(--[a-z-]+|[A-Z_]+): .`)
	found := map[string]bool{}
	for _, mode := range []Mode{Dev, Serve, Worker, Proxy} {
		for _, s := range Settings() {
			if !s.Of(mode) {
				continue
			}
			for _, value := range []string{"", "x", "0", "-1", "1", "1ns", "1k", "{", "99999999", "999999999999999999999", "/no/such/file"} {
				for _, name := range []string{"--" + s.Flag, s.Env} {
					src := setup(t, `{"graphs": {"a": {"agent": {"model": "fake:x"}}}}`, nil)
					src.Mode, src.Flags = mode, map[string]string{}
					if mode == Worker {
						src.Flags["database-url"] = "postgres://h/d"
					}
					if mode == Proxy {
						src.Flags["upstream"] = "http://h"
					}
					if name == s.Env {
						delete(src.Flags, s.Flag)
						src.Lookup = func(asked string) (string, bool) { return value, asked == s.Env && value != "" }
					} else {
						src.Flags[s.Flag] = value
					}
					_, _, err := Load(src)
					if err == nil {
						continue
					}
					var mistakes Mistakes
					require.ErrorAs(t, err, &mistakes)
					subjects := map[string]bool{}
					for _, m := range mistakes {
						got := named.FindStringSubmatch(m.String())
						require.NotNil(t, got, "%s %q: %s", name, value, m)
						require.False(t, subjects[got[1]], "%s %q: twice in %s", name, value, err)
						subjects[got[1]] = true
					}
					if name != s.Env || value != "" { // else it is what is missing
						require.True(t, subjects[name], "%s %q: %s", name, value, err)
					}
					found[s.Flag] = true
				}
			}
		}
	}
	require.Greater(t, len(found), 25, "so many can be wrong")
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	const file = `{"graphs": {"a": {"path": "./agent.py:g", "concurrency": 3}, "b": {"url": "http://x", "concurrency": 4}, "c": "./agent.py:g"}}`
	for _, tt := range []struct {
		name   string
		mode   Mode
		env    map[string]string
		flags  map[string]string
		runs   int
		graphs map[string]int
		warns  int
		wrong  string
	}{
		{name: "by default", flags: map[string]string{"workers": "3"}, runs: 30, graphs: map[string]int{"a": 3, "b": 4}},
		{name: "of a server", env: map[string]string{"UNDERSTUDY_CONCURRENCY": "7"}, runs: 7, graphs: map[string]int{"a": 3, "b": 4}},
		{
			name: "of graphs", env: map[string]string{"UNDERSTUDY_GRAPH_CONCURRENCY": "a=1, c = 0,x=2"}, flags: map[string]string{"workers": "1"}, runs: 10,
			graphs: map[string]int{"a": 1, "b": 4, "c": 0, "x": 2}, warns: 1,
		},
		{
			name: "LangGraph Server's way to only serve", env: map[string]string{"N_JOBS_PER_WORKER": "0", "DATABASE_URI": "postgres://h/d"},
			graphs: map[string]int{"a": 3, "b": 4},
		},
		{name: "nobody would execute", flags: map[string]string{"concurrency": "0"}, wrong: "understudy worker"},
		{name: "a worker of nobody", mode: Worker, wrong: "--database-url: missing"},
		{name: "an idle worker", mode: Worker, flags: map[string]string{"concurrency": "0", "database-url": "postgres://h/d"}, wrong: `--concurrency: "0"`},
		{name: "no number", flags: map[string]string{"graph-concurrency": "a=2,b"}, wrong: `--graph-concurrency: "a=2,b": write a graph`},
		{name: "below none", flags: map[string]string{"concurrency": "-1"}, wrong: `--concurrency: "-1": write how many`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := setup(t, file, tt.env)
			src.Mode, src.Flags = max(tt.mode, Serve), tt.flags
			c, warnings, err := Load(src)
			if tt.wrong != "" {
				require.ErrorContains(t, err, tt.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.runs, c.Runs())
			require.Equal(t, tt.graphs, c.Workers.GraphConcurrency)
			require.Len(t, warnings, tt.warns)
		})
	}
}

func TestOwnStorageIsRefused(t *testing.T) {
	t.Parallel()
	for key, section := range map[string]string{"checkpointer.path": `"checkpointer": {"path": "./x.py:c"}`, "store.path": `"store": {"path": "./x.py:s"}`} {
		_, _, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, `+section+`}`, nil))
		require.ErrorContains(t, err, key)
		require.ErrorContains(t, err, "understudy import")
	}
}

func TestStoreIndex(t *testing.T) {
	t.Parallel()
	load := func(index string) (*StoreIndex, error) {
		c, _, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, "store": {"index": `+index+`}}`, nil))
		if err != nil {
			return nil, err
		}
		return c.StoreIndex, nil
	}
	for _, tt := range []struct{ index, problem string }{
		{`{"embed": "openai:text-embedding-3-small"}`, "has no dims"},
		{`{"dims": 0, "embed": "openai:text-embedding-3-small"}`, "dims"},
		{`{"dims": 3}`, "has no embed"},
		{`{"dims": 3, "embed": "openai"}`, "names no model"},
		{`{"dims": 3, "embed": "opnai:x"}`, `there is no provider "opnai"`},
		{`{"dims": 3, "embed": "./none.py:embed"}`, "there is no file"},
		{`{"dims": 3, "embed": 3}`, "embed"},
		{`{"dims": 3, "embed": "openai:x", "fields": "text"}`, "fields"},
		{`3`, "store.index"},
	} {
		_, err := load(tt.index)
		require.ErrorContains(t, err, tt.problem, tt.index)
	}
	i, err := load(`{"dims": 1536, "embed": "openai:text-embedding-3-small", "fields": ["a", "b[*].c"]}`)
	require.NoError(t, err)
	require.Equal(t, &StoreIndex{Dims: 1536, Embed: "openai:text-embedding-3-small", Fields: []string{"a", "b[*].c"}}, i)
	i, err = load(`{"dims": 3, "embed": "./agent.py:embed"}`)
	require.NoError(t, err)
	require.True(t, i.IsPython())
	require.Equal(t, "embed", i.Attr)
	require.True(t, filepath.IsAbs(i.Path))
	i, err = load(`{"dims": 3, "embed": "my.package:embed"}`)
	require.NoError(t, err)
	require.Equal(t, "my.package", i.Module)
	i, err = load(`{}`)
	require.NoError(t, err)
	require.Nil(t, i)
}

func TestIgnoreAuth(t *testing.T) {
	t.Parallel()
	const file = `{"graphs": {"a": "./agent.py:g"}, "auth": {"path": "./agent.py:auth"}}`
	src := setup(t, file, nil)
	src.Flags = map[string]string{"ignore-auth": "true"}
	_, _, err := Load(src)
	require.NoError(t, err)
	src.Flags["host"] = "0.0.0.0"
	_, _, err = Load(src)
	require.ErrorContains(t, err, "loopback")
	_, _, err = Load(setup(t, `{"graphs": {"a": "./agent.py:g"}, "auth": {}, "encryption": null}`, nil))
	require.NoError(t, err, "an empty section asks for nothing, as there")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	src := setup(t, `{"graphs": {"a": "./none.py:g"}, "env": ".env", "dependnecies": ["."], "ui": {"a": "b.tsx", "x": "agent.py"}, "node_version": "20",
		"store": {"index": {}, "ttl": {"default_ttl": 1}}, "checkpointer": {"ttl": {"default_ttl": 1, "sweep": 1}, "backend": "mongo"}}`, nil)
	_, warnings, err := Load(src)
	require.NoError(t, err)
	var keys []string
	for _, w := range warnings {
		keys = append(keys, w.Key)
	}
	require.ElementsMatch(t, []string{"graphs.a", "env", "dependnecies", "ui.a", "ui.x", "node_version", "checkpointer.ttl.sweep", "checkpointer.backend"}, keys)
	require.Contains(t, warnings[2].String(), `did you mean "dependencies"?`)
}

func TestGraphConfigs(t *testing.T) {
	t.Parallel()
	load := func(text string) (*Config, error) {
		c, warnings, err := Load(setup(t, `{"graphs": {"a": "./agent.py:g"}}`, map[string]string{"LANGGRAPH_CONFIG": text}))
		if err == nil {
			require.Contains(t, fmt.Sprint(warnings), `LANGGRAPH_CONFIG: names "other", which is not a graph of langgraph.json; it has a`)
			require.NotContains(t, fmt.Sprint(warnings), `names "a"`)
		}
		return c, err
	}
	c, err := load(`{"a": {"tags":["t"], "configurable": {"n": 1}}, "other": {}}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"tags":["t"],"configurable":{"n":1}}`, string(c.GraphConfigs["a"]))
	for _, bad := range []string{`{`, `[]`, `{"a": 1}`, `{"a": null}`} {
		_, err := load(bad)
		require.ErrorContains(t, err, "LANGGRAPH_CONFIG", bad)
	}
}

func TestFindPython(t *testing.T) {
	t.Parallel()
	none := func(string) (string, bool) { return "", false }
	dir := t.TempDir()
	active := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(active, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(active, "bin/python"), nil, 0o755))
	got, err := FindPython("", dir, func(string) (string, bool) { return active, true })
	require.NoError(t, err)
	require.Equal(t, filepath.Join(active, "bin/python"), got)
	closed := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(closed, nil, 0o644))
	_, err = FindPython(closed, dir, none)
	require.ErrorContains(t, err, "let this user read and execute it")
	_, err = FindPython(filepath.Join(dir, "none"), dir, none)
	require.ErrorContains(t, err, "cannot be started")
}

// An environment without its interpreter is not passed over for one that has other packages.
func TestFindPythonBroken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links need rights there")
	}
	healthy := func(t *testing.T, dir string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bin/python"), nil, 0o755))
	}
	link := func(t *testing.T, target, path string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(target, path))
	}
	for name, test := range map[string]struct {
		make func(t *testing.T, venv string)
		want []string // parts of the error; nil: it is passed over
	}{
		"link":        {func(t *testing.T, venv string) { link(t, "/none/venv", venv) }, []string{" links to /none/venv, which does not exist"}},
		"cycle":       {func(t *testing.T, venv string) { link(t, venv, venv) }, []string{" links to "}},
		"interpreter": {func(t *testing.T, venv string) { link(t, "/none/python3.9", venv+"/bin/python") }, []string{"bin/python links to /none/python3.9, which"}},
		"chain": {func(t *testing.T, venv string) {
			link(t, "python3", venv+"/bin/python")
			link(t, "/none/python3.9", venv+"/bin/python3")
		}, []string{"bin/python links to /none/python3.9, which"}},
		"unfinished": {func(t *testing.T, venv string) {
			require.NoError(t, os.MkdirAll(venv, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), nil, 0o644))
		}, []string{" has no interpreter "}},
		"empty": {func(t *testing.T, venv string) { require.NoError(t, os.MkdirAll(venv, 0o755)) }, []string{" has no interpreter "}},
		"file":  {func(t *testing.T, venv string) { require.NoError(t, os.WriteFile(venv, []byte("name"), 0o644)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, active := t.TempDir(), t.TempDir()
			healthy(t, active)
			test.make(t, filepath.Join(dir, ".venv"))
			got, err := FindPython("", dir, func(string) (string, bool) { return active, true })
			if test.want == nil {
				require.NoError(t, err)
				require.Equal(t, filepath.Join(active, "bin/python"), got)
				return
			}
			for _, part := range append(test.want, "delete "+filepath.Join(dir, ".venv")+" and create it again (python3 -m venv "+filepath.Join(dir, ".venv")+")", "--python") {
				require.ErrorContains(t, err, part)
			}
		})
	}
	_, err := FindPython("", t.TempDir(), func(string) (string, bool) { return "/none/venv", true })
	require.ErrorContains(t, err, "VIRTUAL_ENV: /none/venv is no virtual environment; activate")
}

// Every setting is documented.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for _, s := range Settings() {
		for _, word := range append([]string{"--" + s.Flag, s.Env}, s.Also...) {
			require.Contains(t, string(page), "`"+word, s.Flag)
		}
	}
}

// FuzzParse: no file may make the reader panic, and a refused one says why.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"graphs": {"a": "./agent.py:g"}, "http": {"cors": {}}, "webhooks": {"url": {}}}`))
	f.Add([]byte(`{"graphs": {"a": {"path": "a.b:c"}}, "checkpointer": {"serde": {"allowed_json_modules": true}}}`))
	f.Add([]byte("\xef\xbb\xbf{\"env\": {\"A\": 1}} // x"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c := Default(Dev)
		c.File, c.Dir = "/none/langgraph.json", "/none"
		_, mistakes := parseFile(src, c, func(string) (string, bool) { return "", false })
		for _, m := range mistakes {
			if m.Text == "" || m.Line < 1 || m.Column < 1 {
				t.Errorf("mistake without place or text: %+v", m)
			}
		}
	})
}

func TestAuth(t *testing.T) {
	t.Parallel()
	const long = "0123456789abcdef0123456789abcdef"
	load := func(sections string) (*Config, error) {
		src := setup(t, `{"graphs": {"a": "./agent.py:g"}, `+sections+`}`, map[string]string{"SHORT": "short", "LONG": long})
		src.Flags = map[string]string{"ignore-auth": "true"}
		c, _, err := Load(src)
		return c, err
	}
	c, err := load(`"auth": {"path": "./agent.py:auth", "disable_studio_auth": true, "openapi": {"security": [{"k": []}], "n": 1.50, "t": true},
		"cache": {"cache_keys": ["authorization"], "ttl_seconds": 5, "max_size": 10}},
		"http": {"app": "my.package:app", "middleware_order": "auth_first", "enable_custom_route_auth": true, "disable_event_streaming": true}`)
	require.NoError(t, err)
	require.Equal(t, Auth{
		Python: Object{Path: filepath.Join(c.Dir, "agent.py"), Attr: "auth"}, DisableStudio: true, OpenAPI: []byte(`{"security":[{"k":[]}],"n":1.50,"t":true}`),
		Cache: &AuthCache{Keys: []string{"Authorization"}, TTL: 5 * time.Second, Size: 10},
	}, c.Auth)
	require.Equal(t, filepath.Join(c.Dir, "agent.py")+":auth", c.Auth.Python.Spec())
	require.Equal(t, "my.package:app", c.HTTP.App.Spec())
	require.True(t, c.HTTP.AuthFirst && c.HTTP.GuardRoutes && c.HTTP.Disable.EventStreaming)
	for sections, problem := range map[string]string{
		`"auth": {"path": "./auth.ts:auth"}`:                               "auth.ts is JavaScript, which needs LangGraph's own JavaScript server",
		`"auth": {"path": "./none.py:auth"}`:                               "there is no file",
		`"auth": {"path": "./agent.py"}`:                                   "names no object",
		`"auth": {"path": 3}`:                                              "auth.path: is a number",
		`"auth": {"openapi": 3}`:                                           "auth.openapi: is a number",
		`"auth": {"cache": {"ttl_seconds": 1}}`:                            "has no cache_keys",
		`"http": {"app": "./none.py:app"}`:                                 "there is no file",
		`"http": {"middleware_order": "app_first"}`:                        "middleware_first",
		`"auth": {"api_keys": true, "path": "./agent.py:auth"}`:            "write one",
		`"auth": {"pth": "./agent.py:auth"}`:                               "authenticates no request",
		`"auth": {"policy": "owner"}`:                                      "authenticates no request",
		`"auth": {"cache": {"cache_keys": ["x"], "ttl_seconds": 1}}`:       "authenticates no request",
		`"auth": {"api_keys": 1}`:                                          "auth.api_keys: is a number",
		`"auth": {"policy": "everyone"}`:                                   `write "owner"`,
		`"auth": {"jwt": {}}`:                                              "says not how tokens are checked",
		`"auth": {"jwt": {"issuer": "me"}}`:                                "jwks_url",
		`"auth": {"jwt": {"jwks_url": "keys"}}`:                            "https://",
		`"auth": {"jwt": {"secret_env": "NONE"}}`:                          "variable NONE is not set",
		`"auth": {"jwt": {"secret_env": "SHORT"}}`:                         "has 5 bytes",
		`"auth": {"jwt": {"secret_env": "LONG", "jwks_url": "https://x"}}`: "secret_env and jwks_url",
		`"auth": {"jwt": {"secret_env": "LONG", "algorithms": ["RS256"]}}`: `"RS256" is not one of HS256`,
		`"auth": {"jwt": {"issuer": "https://x", "algorithms": ["none"]}}`: `"none" is not one of RS256`,
		`"auth": {"jwt": {"issuer": "https://x", "audience": 3}}`:          "auth.jwt.audience: is a number",
	} {
		_, err := load(sections)
		require.ErrorContains(t, err, problem, sections)
	}
	for _, nothing := range []string{`null`, `{}`, `{"api_keys": false}`, `{"disable_studio_auth": true}`, `{"openapi": {}}`} {
		_, err := load(`"auth": ` + nothing)
		require.NoError(t, err, nothing)
	}
	c, err = load(`"auth": {"api_keys": true, "policy": "shared", "jwt": {"issuer": "https://x", "audience": "a", "jwks_url": "https://y", "algorithms": ["ES256"], "identity_claim": "email"}}`)
	require.NoError(t, err)
	require.Equal(t, Auth{Keys: true, Shared: true, JWT: &JWT{Issuer: "https://x", Audience: []string{"a"}, JWKSURL: "https://y", Algorithms: []string{"ES256"}, Identity: "email"}}, c.Auth)
	src := setup(t, `{"graphs": {"a": "./agent.py:g"}, "auth": {"jwt": {"issuer": "https://x"}}}`, nil)
	_, warnings, err := Load(src)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Equal(t, "auth.jwt.audience", warnings[0].Key)
	c, err = load(`"auth": {"jwt": {"secret_env": "LONG", "audience": ["a", "b"]}}`)
	require.NoError(t, err)
	require.Equal(t, &JWT{Secret: []byte(long), Audience: []string{"a", "b"}}, c.Auth.JWT)
}

// Only a server of a developer that nothing else protects checks by which name it is addressed.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	load := func(mode Mode, section string, flags map[string]string) (*Config, error) {
		src := setup(t, `{"graphs": {"a": "./agent.py:g"}`+section+`}`, nil)
		src.Mode, src.Flags = mode, flags
		c, _, err := Load(src)
		return c, err
	}
	for name, tt := range map[string]struct {
		mode    Mode
		section string
		flags   map[string]string
		want    bool
	}{
		"dev":                       {Dev, ``, nil, true},
		"by name":                   {Dev, ``, map[string]string{"host": "localhost"}, true},
		"IPv6":                      {Dev, ``, map[string]string{"host": "::1"}, true},
		"for others":                {Dev, ``, map[string]string{"host": "0.0.0.0"}, false},
		"with keys":                 {Dev, `, "auth": {"api_keys": true}`, nil, false},
		"with keys that are unused": {Dev, `, "auth": {"api_keys": true}`, map[string]string{"ignore-auth": "true"}, true},
		"serve":                     {Serve, ``, nil, false},
	} {
		c, err := load(tt.mode, tt.section, tt.flags)
		require.NoError(t, err, name)
		require.Equal(t, tt.want, c.ChecksHost(), name)
	}
	c, err := load(Dev, ``, map[string]string{"allowed-hosts": " Dev.Example., *.ngrok.app,*"})
	require.NoError(t, err)
	require.Equal(t, []string{"dev.example", "*.ngrok.app", "*"}, c.Server.AllowedHosts)
	for _, bad := range []string{"https://dev.example", "dev.example:80", "*.", "a,,b", "*example", "a b", "[::1]", "a*"} {
		_, err := load(Dev, ``, map[string]string{"allowed-hosts": bad})
		require.ErrorContains(t, err, "write names without scheme and port", bad)
	}
}

// A server that other machines reach needs authentication, or --no-auth.
func TestPublicAddress(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode  Mode
		auth  string
		flags map[string]string
		ok    bool
	}{
		"open":                    {Serve, ``, map[string]string{"host": "0.0.0.0"}, false},
		"open, IPv6":              {Serve, ``, map[string]string{"host": "::"}, false},
		"open, by name":           {Serve, ``, map[string]string{"host": "server.example"}, false},
		"an empty section":        {Serve, `, "auth": {}`, map[string]string{"host": "0.0.0.0"}, false},
		"loopback":                {Serve, ``, map[string]string{"host": "127.0.0.1"}, true},
		"said so":                 {Serve, ``, map[string]string{"host": "0.0.0.0", "no-auth": "true"}, true},
		"keys":                    {Serve, `, "auth": {"api_keys": true}`, map[string]string{"host": "0.0.0.0"}, true},
		"handlers":                {Serve, `, "auth": {"path": "./agent.py:auth"}`, map[string]string{"host": "0.0.0.0"}, true},
		"certificates of clients": {Serve, ``, map[string]string{"host": "0.0.0.0", "tls-cert": "c", "tls-key": "k", "tls-client-ca": "a"}, true},
		"development":             {Dev, ``, map[string]string{"host": "0.0.0.0"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := setup(t, `{"graphs": {"a": "./agent.py:g"}`+tt.auth+`}`, nil)
			src.Mode, src.Flags = tt.mode, tt.flags
			if _, _, err := Load(src); tt.ok {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "--no-auth")
			}
		})
	}
}

// What is missing or dangerous in auth.oidc is said before anyone tries to sign in.
func TestOIDC(t *testing.T) {
	t.Parallel()
	load := func(section string) (*Config, []Warning, error) {
		src := setup(t, `{"graphs": {"a": "./agent.py:g"}, "env": {"SECRET": "s"}, "auth": {"oidc": `+section+`}}`, nil)
		src.Mode = Serve
		return Load(src)
	}
	c, warnings, err := load(`{"issuer": "https://login.example/", "client_id": "me", "client_secret_env": "SECRET", "url": "https://agents.example/", "session_seconds": 600}`)
	require.NoError(t, err)
	require.NotContains(t, warnings, "oidc")
	require.True(t, c.Auth.Native())
	require.Equal(t, &OIDC{
		Issuer: "https://login.example/", ClientID: "me", ClientSecret: "s", Name: "single sign-on", URL: "https://agents.example", Session: 10 * time.Minute, Idle: 10 * time.Minute,
	}, c.Auth.OIDC)
	for section, want := range map[string]string{
		`{}`: `has no issuer`,
		`{"issuer": "login.example", "client_id": "me"}`:                                            `"login.example" is no address`,
		`{"issuer": "https://login.example"}`:                                                       `has no client_id`,
		`{"issuer": "https://login.example", "client_id": "me", "client_secret_env": "NONE"}`:       `variable NONE is not set`,
		`{"issuer": "https://login.example", "client_id": "me", "scopes": ["email"]}`:               `lack openid`,
		`{"issuer": "https://login.example", "client_id": "me", "url": "https://agents.example/a"}`: `scheme and host only`,
		`{"issuer": "https://login.example", "client_id": "me", "url": "agents.example"}`:           `scheme and host only`,
		`{"issuer": "https://login.example", "client_id": "me", "session_seconds": 1}`:              `60`,
		`{"issuer": "https://login.example", "client_id": "me", "secret": "x"}`:                     `secret`,
	} {
		_, warnings, err := load(section)
		if err == nil {
			err = fmt.Errorf("%v", warnings)
		}
		require.ErrorContains(t, err, want, section)
	}
	_, warnings, err = load(`{"issuer": "http://login.example", "client_id": "me"}`)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(warnings), "without TLS")
}

// A changed key that is read at a start only is named, as long as it differs from that of the start; what is reloaded is not.
func TestNeedRestart(t *testing.T) {
	t.Parallel()
	load := func(more string) *Config {
		c, _, err := Load(setup(t, `{"graphs": {"a": {"agent": {"model": "scripted:x.json"}}}`+more+`}`, nil))
		require.NoError(t, err)
		return c
	}
	start := load(`, "http": {"disable_mcp": true}, "history": {"traces": "off"}`)
	for more, want := range map[string][]string{
		`, "history": {"traces": "off"}, "http": {"disable_mcp": true}`: nil,
		`, "http": {"disable_mcp": true}`:                               {"history.traces"},
		`, "http": {"disable_mcp": false, "cors": {"allow_origins": ["*"], "allow_methods": ["*"]}}, "history": {"traces": "off"}, "auth": {"api_keys": true}`:                                          {"auth.api_keys", "http.cors", "http.disable_mcp"},
		`, "http": {"disable_mcp": true}, "history": {"traces": "off"}, "env": {"A": "b"}, "ui": {"a": "x.tsx"}, "ui_config": {"shared": ["x"]}, "checkpointer": {"serde": {"pickle_fallback": false}}`: nil,
		`, "http": {"disable_mcp": true}, "history": {"traces": "off"}, "checkpointer": {"serde": {"pickle_fallback": false}, "ttl": {"default_ttl": 5}}, "store": {"ttl": {"default_ttl": 5}}`:         {"checkpointer.ttl", "store.ttl"},
	} {
		require.Equal(t, want, append([]string(nil), start.NeedRestart(load(more))...), more)
		require.Empty(t, start.NeedRestart(start))
	}
	require.Empty(t, (&Config{}).NeedRestart(&Config{}), "no file")
}

// Next to the config.yaml of DeerFlow a missing langgraph.json is no mistake of the user's: it is served with a flag. Other files of that name say nothing.
func TestMissingFileBesideDeerFlows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text     string
		deerflow bool
	}{
		"DeerFlow":         {"models:\n- name: m\n  use: langchain_openai:ChatOpenAI\n  api_key: $OPENAI_API_KEY\n", true},
		"another program":  {"models: [a, b]\n", false},
		"models of others": {"models:\n- name: m\n", false},
		"no YAML":          {"models: [", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(c.text), 0o600))
			_, _, err := Load(Source{Mode: Serve, File: filepath.Join(dir, "langgraph.json"), Flags: map[string]string{}, Lookup: func(string) (string, bool) { return "", false }})
			require.ErrorContains(t, err, "does not exist; ")
			require.Equal(t, c.deerflow, strings.Contains(err.Error(), "--deerflow"), err)
			require.Equal(t, !c.deerflow, strings.Contains(err.Error(), "understudy init"), err)
		})
	}
}

// What is named in place of DeerFlow's config.yaml is a mistake that says what to write.
func TestDeerFlowsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("models: []\n"), 0o600))
	for path, want := range map[string]string{dir: "--deerflow: " + dir + " is a folder; name the file: --deerflow=" + file, filepath.Join(dir, "none.yaml"): "there is no ", file: ""} {
		cfg, _, err := Load(Source{Mode: Serve, Flags: map[string]string{"deerflow": path, "data": dir}, Lookup: func(string) (string, bool) { return "", false }})
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, file, cfg.Server.DeerFlow)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// Who reaches an open DeerFlow is its administrator: it listens for other machines only with --no-auth, as servers without any authentication.
func TestOpenDeerFlowNeedsNoAuth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host, disabled, mode, noAuth string
		keys                         bool // langgraph.json has API keys, which the Gateway API does not ask for
		refused                      bool
	}{
		"open with keys":    {host: "0.0.0.0", disabled: "1", keys: true, refused: true},
		"accounts":          {host: "0.0.0.0"},
		"this machine":      {host: "127.0.0.1", disabled: "1"},
		"open":              {host: "0.0.0.0", disabled: "1", refused: true},
		"open in words":     {host: "0.0.0.0", disabled: "True", refused: true},
		"no":                {host: "0.0.0.0", disabled: "0"},
		"production":        {host: "0.0.0.0", disabled: "1", mode: "Production"},
		"behind a firewall": {host: "0.0.0.0", disabled: "1", noAuth: "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte("models: []\n"), 0o600))
			env := map[string]string{"DEER_FLOW_AUTH_DISABLED": c.disabled, "DEER_FLOW_ENV": c.mode}
			for _, inFile := range []bool{false, true} {
				lookup := func(name string) (string, bool) { v := env[name]; return v, v != "" && !inFile }
				if inFile {
					require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("DEER_FLOW_AUTH_DISABLED="+c.disabled+"\nDEER_FLOW_ENV="+c.mode+"\n"), 0o600))
				}
				flags := map[string]string{"deerflow": file, "data": dir, "host": c.host}
				if c.noAuth != "" {
					flags["no-auth"] = c.noAuth
				}
				src := Source{Mode: Serve, Flags: flags, Lookup: lookup}
				if c.keys {
					src.File = filepath.Join(dir, "langgraph.json")
					require.NoError(t, os.WriteFile(src.File, []byte(`{"graphs": {"a": {"agent": {"model": "fake:hello"}}}, "auth": {"api_keys": true}}`), 0o600))
				}
				_, _, err := Load(src)
				if c.refused {
					require.ErrorContains(t, err, "start with --no-auth")
				} else {
					require.NoError(t, err)
				}
			}
		})
	}
}

// DeerFlow has its keys in the .env of its folder. What the environment has counts more.
func TestDeerFlowsVariables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  string // the file's folder
		in   string // the folder of config.yaml
		want string
	}{
		"next to config.yaml": {env: ".", in: ".", want: "file"},
		"above backend":       {env: ".", in: "backend", want: "file"},
		"above another":       {env: ".", in: "other"},
		"none":                {env: "elsewhere", in: "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, c.in), 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, c.env), 0o700))
			file := filepath.Join(dir, c.in, "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte("models: []\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.env, ".env"), []byte("KEY=file\nOTHER=file\n"), 0o600))
			cfg, _, err := Load(Source{Mode: Serve, Flags: map[string]string{"deerflow": file, "data": dir}, Lookup: func(name string) (string, bool) { return "given", name == "OTHER" }})
			require.NoError(t, err)
			got, _ := cfg.Lookup("KEY")
			require.Equal(t, c.want, got)
			got, _ = cfg.Lookup("OTHER")
			require.Equal(t, "given", got)
		})
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("models: []\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("A=1\nnonsense\n"), 0o600))
	cfg, warnings, err := Load(Source{Mode: Serve, Flags: map[string]string{"deerflow": file, "data": dir}, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0].Text, filepath.Join(dir, ".env")+":2: write NAME=value")
	got, _ := cfg.Lookup("A")
	require.Equal(t, "1", got, "other lines count, as in DeerFlow")

	require.NoError(t, os.WriteFile(filepath.Join(dir, ".env"), []byte("LANGGRAPH_AES_KEY=short\n"), 0o600))
	_, _, err = Load(Source{Mode: Serve, Flags: map[string]string{"deerflow": file, "data": dir}, Lookup: func(string) (string, bool) { return "", false }})
	require.ErrorContains(t, err, "LANGGRAPH_AES_KEY in "+filepath.Join(dir, ".env")+": key 1 has 5 bytes", "a mistake names the file that has it")
}

// Started in a folder below that of the project, or in the one above it, the error names the file that there is.
func TestFileInANearbyFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	project := filepath.Join(dir, "a [b]", "project")
	require.NoError(t, os.MkdirAll(filepath.Join(project, "src", "deep"), 0o700))
	file := filepath.Join(project, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {}}`), 0o600))
	for _, from := range []string{"src", filepath.Join("src", "deep"), ".."} {
		_, _, err := Load(Source{Mode: Serve, File: filepath.Join(project, from, "langgraph.json"), Flags: map[string]string{}, Lookup: func(string) (string, bool) { return "", false }})
		require.ErrorContains(t, err, "does not exist; "+file+" does: start in its folder, or name it with --config '"+file+"'")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	_, _, err := Load(Source{Mode: Serve, File: filepath.Join(dir, "empty", "langgraph.json"), Flags: map[string]string{}, Lookup: func(string) (string, bool) { return "", false }})
	require.ErrorContains(t, err, "have `understudy init` write one")
}
