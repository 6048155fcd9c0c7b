package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// started is a server whose start is watched.
type started struct {
	*process
	out *logtest.Buffer
}

// startIn starts the binary in a project.
func startIn(t *testing.T, pr project, python string, args ...string) started {
	t.Helper()
	bin, err := build()
	require.NoError(t, err)
	p := started{&process{t: t, log: &logtest.Buffer{}, done: make(chan error, 1)}, &logtest.Buffer{}}
	p.cmd = exec.Command(bin, append(args, "--config", filepath.Join(pr.dir, "langgraph.json"), "--port", "0", "--data", filepath.Join(pr.dir, "data"), "--python", python, "--workers", "2")...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.log
	require.NoError(t, p.cmd.Start())
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output:\n%s\nlog:\n%s", p.out, p.log)
		}
	})
	return p
}

// listens waits until the server listens.
func (p started) listens() {
	p.t.Helper()
	p.eventually("it listens", func() bool {
		_, rest, ok := strings.Cut(p.out.String(), "understudy listening on ")
		url, _, whole := strings.Cut(rest, "\n")
		p.url = url
		return ok && whole
	})
}

// ends waits for the end of the process and returns its exit code.
func (p started) ends() int {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
	case <-time.After(2 * time.Minute):
		p.t.Fatal("the server does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p started) ready() int {
	status, _ := p.try("GET", "/readyz", nil)
	return status
}

// venv makes a virtual environment with nothing in it.
func venv(t *testing.T) (interpreter string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	out, err := exec.Command(python(t), "-m", "venv", "--without-pip", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "bin", "python")
}

// Factories that fail are listed when dev starts: each with its place, and what to do.
func TestDevTriesFactories(t *testing.T) {
	t.Parallel()
	pr := newProject(t)
	pr.write("made.py", "from agent import graph\ndef works(config): return graph\ndef none(): return None\ndef raises(config):\n    return config['configurable']['tenant'] and graph\n")
	pr.write("langgraph.json", `{"graphs": {"works": "./made.py:works", "none": "./made.py:none", "raises": "./made.py:raises"}}`)
	p := startIn(t, pr, python(t), "dev")
	p.listens()
	p.eventually("calls are suggested", func() bool { return strings.Contains(p.out.String(), "Talk to it:") })
	out := p.out.String()
	require.Contains(t, out, "  ✗ none: it makes no graph: TypeError: Graph factory 'none' made a NoneType, not a graph\n      fix: return a graph from")
	require.Contains(t, out, "  ! raises: it cannot be built with an empty configuration: KeyError: 'tenant'\n      at made.py:5\n      fix: give what it reads")
	require.NotContains(t, out, "! works")
}

// broken are the usual mistakes, and what is said of each.
var broken = []struct{ name, path, text, error, at string }{
	{"import", "./one.py:graph", "import os\nimport a_module_that_nobody_has\n", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'", "one.py:2"},
	{"syntax", "./two.py:graph", "x = 1\n\ndef (:\n", "SyntaxError: invalid syntax", "two.py:3"},
	{"name", "./three.py:graphs", "x = 1\n", "Could not find graph 'graphs'", ""},
	{"file", "./four.py:graph", "", "No such file", ""},
	{"indirect", "./five.py:graph", "\n\nfrom six import graph\n", "ZeroDivisionError", "six.py:2"},
}

func breakGraphs(pr project, more string) {
	text := ""
	for _, b := range broken {
		if b.text != "" {
			pr.write(filepath.Base(strings.Split(b.path, ":")[0]), b.text)
		}
		text += fmt.Sprintf("%q: %q, ", b.name, b.path)
	}
	pr.write("six.py", "x = 1\ny = 1 / 0\n")
	pr.write("langgraph.json", `{"graphs": {`+strings.TrimSuffix(text+more, ", ")+`}, "env": ".env"}`)
}

// dev lists each graph while they load, with the place of each mistake, and loads it again when it is saved.
func TestDevListsGraphs(t *testing.T) {
	t.Parallel()
	pr := newProject(t)
	breakGraphs(pr, `"a": "./agent.py:graph", "talks": "./talks.py:graph"`)
	pr.write("talks.py", talks)
	p := startIn(t, pr, python(t), "dev")
	p.listens()
	p.eventually("all are listed", func() bool {
		return strings.Count(p.out.String(), "✗") == len(broken) && strings.Contains(p.out.String(), "✓ a")
	})
	p.eventually("an example for the first graph that works, with an input of its schema", func() bool {
		return regexp.MustCompile(`"assistant_id": "a",\n +"input": \{"`).MatchString(p.out.String())
	})
	for _, b := range broken {
		_, entry, _ := strings.Cut(p.out.String(), "✗ "+b.name)
		entry, _, _ = strings.Cut(entry, "✗")
		require.Contains(t, entry, b.error)
		if b.at != "" {
			require.Contains(t, entry, "at "+b.at+"\n")
		}
		require.Equal(t, b.name == "import", strings.Contains(entry, "fix: install the package that has the module a_module_that_nobody_has "), entry)
	}
	p.eventually("it is ready for the graph that loads", func() bool { return p.ready() == 200 })
	pr.write("one.py", "from agent import graph\n")
	p.eventually("the saved graph works", func() bool {
		_, out := p.try("POST", "/runs/wait", map[string]any{"assistant_id": "import", "input": map[string]any{}})
		return field(out, "out") == "one"
	})
	p.eventually("the reload is logged", func() bool {
		return regexp.MustCompile(`reloading…(.*\n)*.*reloaded .*took=\d`).MatchString(p.log.String())
	})
	readsWell(p)
}

const talks = `
import time

from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


def divide(n):
    return 1 / n


async def work(state):
    text = state["messages"][-1].content
    print("one\ntwo")
    if text == "fail":
        divide(0)
    if text == "ask":
        interrupt("go on?")
    if text == "block":
        time.sleep(1.6)
    return {"messages": []}


b = StateGraph(MessagesState)
b.add_node("my_node", work)
b.add_edge(START, "my_node")
b.add_edge("my_node", END)
graph = b.compile()
`

// readsWell checks the log of dev: output under its run, errors with the user's frames alone, interrupts, refused requests with path and reason.
func readsWell(p started) {
	t := p.t
	created := p.call("POST", "/threads", map[string]any{}, 200)
	thread := fmt.Sprint(field(created, "thread_id"))
	for _, c := range []struct{ text, want string }{
		{"hello", `(?m)^[\d:]{8} run (\S+)\n +│ one\n +│ two\n(?:.*\n)*?[\d:]{8} ✓ run \S+ of talks: success after \d[\d.]*(µs|ms|s)$`},
		{"fail", `(?m)^[\d:]{8} ✗ run \S+, node my_node: ZeroDivisionError: division by zero\n +talks.py:16 in work\n +divide\(0\)\n +talks.py:9 in divide\n +return 1 / n\n +\d+ frames of libraries left out; .*\n(?:.*\n)*?[\d:]{8} ✗ run \S+ of talks: error after \d`},
		{"ask", `(?m) ‖ run \S+ of talks: interrupted after \S+; it waits for an answer$`},
		{"block", `(?m) WARN  event loop blocked.*\n +node +my_node\n +at +talks.py:20\n +code +time.sleep\(1.6\)\n(.*\n)* +fix +await asyncio.sleep`},
	} {
		_, _ = p.try("POST", "/threads/"+thread+"/runs/wait", map[string]any{"assistant_id": "talks", "input": map[string]any{"messages": []any{map[string]any{"role": "user", "content": c.text}}}})
		p.eventually(c.text, func() bool { return regexp.MustCompile(c.want).MatchString(p.log.String()) })
	}
	_, _ = p.try("GET", "/nowhere/at/all", nil)
	_, _ = p.try("GET", "/threads/nope", nil)
	p.eventually("the requests", func() bool {
		log := p.log.String()
		return regexp.MustCompile(` POST /threads/…/runs/wait 200 \d`).MatchString(log) &&
			regexp.MustCompile(` GET /nowhere/at/all 404 \S+  Not Found\n`).MatchString(log) && regexp.MustCompile(` GET /threads/nope 422 \S+  Invalid thread ID`).MatchString(log)
	})
	require.NotContains(t, p.log.String(), "\x1b[", "no colors outside of a terminal")
}

// An interpreter that cannot run graphs is named within seconds, in a block that ends with the command that helps.
func TestInterpreterWithoutLanggraph(t *testing.T) {
	t.Parallel()
	pr := newProject(t)
	empty := venv(t)
	p := startIn(t, pr, empty, "dev")
	p.listens()
	began := time.Now()
	p.eventually("the log says why", func() bool { return strings.Contains(p.log.String(), "fix") })
	t.Logf("after %s", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), 10*time.Second, "3 s on an idle machine")
	p.eventually("all of it", func() bool { return strings.Contains(p.log.String(), "-m pip install langgraph\n") })
	require.Regexp(t, `reason +ModuleNotFoundError: No module named 'langgraph'\n +interpreter +`+empty+`\n +fix +`+empty+` -m ensurepip && `+empty+` -m pip install langgraph\n`, p.log.String())
	p.eventually("the list of graphs too", func() bool {
		return strings.Contains(p.out.String(), "✗ a: no worker starts: ModuleNotFoundError: No module named 'langgraph'\n      fix: "+empty+" -m ensurepip")
	})
	require.Equal(t, 503, p.ready())
	select {
	case <-p.done:
		t.Fatal("dev stays up")
	default:
	}
}

// The graphs of an interpreter that works only later are listed twice: with what keeps them away, and when they are there.
func TestInterpreterThatIsRepaired(t *testing.T) {
	t.Parallel()
	pr := newProject(t)
	pr.write("langgraph.json", `{"graphs": {"a": "./agent.py:graph", "b": "./agent.py:graph"}}`)
	pr.write("python", "#!/bin/sh\n[ -e '"+pr.dir+"/repaired' ] || { echo 'it is broken' >&2; exit 7; }\nexec '"+python(t)+"' \"$@\"\n")
	require.NoError(t, os.Chmod(filepath.Join(pr.dir, "python"), 0o700)) //nolint:gosec // a program
	p := startIn(t, pr, filepath.Join(pr.dir, "python"), "dev")
	p.listens()
	p.eventually("both are missing", func() bool { return strings.Count(p.out.String(), "✗") == 2 })
	require.Equal(t, 1, strings.Count(p.out.String(), "fix: "), "one advice for all of them")
	pr.write("repaired", "")
	p.eventually("both are there", func() bool {
		return strings.Contains(p.out.String(), "✓ a") && strings.Contains(p.out.String(), "✓ b")
	})
	p.eventually("an example of a call", func() bool { return strings.Contains(p.out.String(), `"assistant_id": "a"`) })
}

// serve ends with 3 when no graph loads, and is not ready while one does not.
func TestServeWithBrokenGraphs(t *testing.T) {
	t.Parallel()
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		pr := newProject(t)
		breakGraphs(pr, "")
		p := startIn(t, pr, python(t), "serve")
		require.Equal(t, 3, p.ends())
		require.Contains(t, p.log.String(), "no graph loads")
		require.Contains(t, p.log.String(), `"at":"six.py:2"`)
		require.Regexp(t, `"error":"no graph loads: graphs do not import: [^\n]+\\n  fix  [^\n]+"\}\n$`, p.log.String(), "the last lines say what to do")
	})
	t.Run("no langgraph", func(t *testing.T) {
		t.Parallel()
		p := startIn(t, newProject(t), venv(t), "serve")
		require.Equal(t, 3, p.ends())
		require.Contains(t, p.log.String(), "No module named 'langgraph'")
		require.Equal(t, 1, strings.Count(p.log.String(), "the server ends unless a worker starts"), "what it waits for is said at once: %s", p.log.String())
	})
	t.Run("no Python", func(t *testing.T) {
		t.Parallel()
		for _, program := range []string{"/bin/true", "/bin/ls"} {
			p := startIn(t, newProject(t), program, "dev")
			p.listens()
			p.eventually("dev lists what is missing", func() bool {
				return strings.Contains(p.out.String(), "✗ a: no worker starts: "+program+" is not a Python interpreter")
			})
			p.kill()
			p = startIn(t, newProject(t), program, "serve")
			require.Equal(t, 3, p.ends())
			require.Equal(t, 1, strings.Count(p.log.String(), "no worker starts"), p.log.String())
			require.Contains(t, p.log.String(), program+" is not a Python interpreter")
			require.NotContains(t, p.log.String(), "graph output")
		}
	})
	t.Run("some", func(t *testing.T) {
		t.Parallel()
		pr := newProject(t)
		breakGraphs(pr, `"a": "./agent.py:graph"`)
		p := startIn(t, pr, python(t), "serve")
		p.listens()
		p.call("POST", "/runs/wait", map[string]any{"assistant_id": "a", "input": map[string]any{}}, 200)
		_, out := p.try("GET", "/readyz", nil)
		require.Equal(t, 503, p.ready())
		names := make([]string, len(broken))
		for i, b := range broken {
			names[i] = b.name
		}
		slices.Sort(names)
		require.Equal(t, "failed: graphs "+strings.Join(names, ", ")+" do not import; see the log", field(out, "checks", "graphs"), "%v", out)
		p.eventually("the log says that it is not ready", func() bool { return strings.Contains(p.log.String(), "not ready: graphs "+strings.Join(names, ", ")) })
		require.Contains(t, p.log.String(), `"serves":"a"`)
	})
	t.Run("allowed", func(t *testing.T) {
		t.Parallel()
		pr := newProject(t)
		breakGraphs(pr, "")
		p := startIn(t, pr, python(t), "serve", "--allow-broken-graphs")
		p.listens()
		p.eventually("ready", func() bool { return p.ready() == 200 })
	})
}

// A declared agent is replaced when langgraph.json changes. A mistake in it changes nothing.
func TestReloadOfDeclaredAgents(t *testing.T) {
	t.Parallel()
	pr := project{t, t.TempDir()}
	declare := func(model string) {
		pr.write("langgraph.json", `{"graphs": {"chat": {"agent": {"model": "scripted:`+model+`", "tools": ["calculator"]}}}}`)
	}
	script := func(name, says string) {
		f, err := os.ReadFile("../../examples/assistant/script.json")
		require.NoError(t, err)
		pr.write(name, strings.ReplaceAll(string(f), "The answer is", says))
	}
	script("one.json", "First:")
	script("two.json", "Second:")
	declare("one.json")
	p := startIn(t, pr, "python3", "dev")
	p.listens()
	p.eventually("it is listed", func() bool { return strings.Contains(p.out.String(), "✓ chat") })
	says := func() string {
		_, out := p.try("POST", "/runs/wait", map[string]any{"assistant_id": "chat", "input": map[string]any{"messages": []any{map[string]any{"role": "user", "content": "What is 6 times 7?"}}}})
		return fmt.Sprint(out)
	}
	require.Contains(t, says(), "First:")
	declare("two.json")
	p.eventually("the new one answers", func() bool { return strings.Contains(says(), "Second:") })
	declare("three.json")
	p.eventually("the mistake is logged", func() bool { return strings.Contains(p.log.String(), "three.json") })
	require.Contains(t, says(), "Second:")
}
