package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// project is a folder with a langgraph.json and the graph that it names.
type project struct {
	t   *testing.T
	dir string
}

const answering = `
import asyncio, os
from typing_extensions import TypedDict
from langgraph.graph import END, START, StateGraph
from helper import WORD

class State(TypedDict, total=False):
    wait: float
    out: str

async def wait(state):
    await asyncio.sleep(state.get("wait", 0))
    return {}

def answer(state):
    return {"out": WORD + os.environ.get("SUFFIX", "")}

b = StateGraph(State)
b.add_node("wait", wait)
b.add_node("answer", answer)
b.add_edge(START, "wait")
b.add_edge("wait", "answer")
b.add_edge("answer", END)
graph = b.compile()
`

func newProject(t *testing.T) project {
	t.Helper()
	p := project{t, t.TempDir()}
	p.write("langgraph.json", `{"graphs": {"a": "./agent.py:graph"}, "env": ".env"}`)
	p.write(".env", "SUFFIX=\n")
	p.write("agent.py", answering)
	p.write("helper.py", `WORD = "one"`)
	return p
}

func (p project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(p.t, os.WriteFile(path, []byte(text), 0o600))
}

func TestReload(t *testing.T) {
	pr := newProject(t)
	p := serve(t, t.TempDir(), "--config", filepath.Join(pr.dir, "langgraph.json"), "--grace", "60s")
	ask := func(graph string) any {
		return field(p.call("POST", "/runs/wait", map[string]any{"assistant_id": graph, "input": map[string]any{}}, 200), "out")
	}
	logged := func(text string) func() bool {
		return func() bool { return strings.Contains(p.log.String(), text) }
	}
	require.Equal(t, "one", ask("a"))

	// A running run ends with the code with which it began.
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	r := field(p.call("POST", "/threads/"+id+"/runs", map[string]any{"assistant_id": "a", "input": map[string]any{"wait": 8}}, 200), "run_id").(string)
	p.eventually("it runs", func() bool {
		return field(p.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status") == "running"
	})
	pr.write("helper.py", `WORD = "two"`)
	p.eventually("new runs see the change", func() bool { return ask("a") == "two" })
	p.eventually("the old run ends", func() bool {
		return field(p.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status") == "success"
	})
	require.Equal(t, "one", field(p.call("GET", "/threads/"+id+"/state", nil, 200), "values", "out"))

	// What does not import changes nothing, and the log says where.
	pr.write("helper.py", "\n\nWORD = nonsense\n")
	p.eventually("the log says it", logged("at=helper.py:3"))
	require.Contains(t, p.log.String(), "nonsense")
	require.Equal(t, "two", ask("a"))
	pr.write("agent.py", "def (:\n")
	p.eventually("a mistake in the syntax too", logged("SyntaxError"))
	require.Equal(t, "two", ask("a"))

	// Schemas, environment, new graphs and graphs that are gone.
	pr.write("agent.py", strings.Replace(answering, "wait: float", "wait: float\n    another: int", 1))
	pr.write("helper.py", `WORD = "three"`)
	pr.write(".env", "SUFFIX=!\nLANGGRAPH_CONFIG='{\"a\": {\"recursion_limit\": 50}}'\n")
	p.eventually("all of it", func() bool { return ask("a") == "three!" })
	p.eventually("the configuration of the default assistant", func() bool {
		return field(p.call("GET", "/assistants/"+assistantOf(p, "a"), nil, 200), "config", "recursion_limit") == 50.0
	})
	require.Contains(t, fmt.Sprint(p.call("GET", "/assistants/"+assistantOf(p, "a")+"/schemas", nil, 200)), "another")
	pr.write("deeper/b.py", "from agent import graph\n")
	pr.write("langgraph.json", `{"graphs": {"b": {"path": "./deeper/b.py:graph", "description": "new"}}}`)
	p.eventually("the new graph", func() bool {
		status, _ := p.try("POST", "/runs/wait", map[string]any{"assistant_id": "b", "input": map[string]any{}})
		return status == 200
	})
	require.NotEmpty(t, assistantOf(p, "b"))
	p.call("POST", "/runs/wait", map[string]any{"assistant_id": "a", "input": map[string]any{}}, 422)

	// A mistake in the file itself.
	pr.write("langgraph.json", `{"graphs": `)
	p.eventually("the log says it", logged("langgraph.json:1:"))
	require.Equal(t, "three", ask("b"))
}

func assistantOf(p *process, graph string) string {
	p.t.Helper()
	for _, a := range p.call("POST", "/assistants/search", map[string]any{"graph_id": graph}, 200).([]any) {
		return field(a, "assistant_id").(string)
	}
	return ""
}

// TestReloadHandsBack: runs still running after the grace period resume in the new workers, from their last checkpoint.
func TestReloadHandsBack(t *testing.T) {
	pr := newProject(t)
	p := serve(t, t.TempDir(), "--config", filepath.Join(pr.dir, "langgraph.json"), "--grace", "1s")
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	r := field(p.call("POST", "/threads/"+id+"/runs", map[string]any{"assistant_id": "a", "input": map[string]any{"wait": 6}}, 200), "run_id").(string)
	p.eventually("it runs", func() bool {
		return field(p.call("GET", "/threads/"+id+"/state", nil, 200), "next") != nil
	})
	pr.write("helper.py", `WORD = "two"`)
	p.eventually("it ends", func() bool {
		return field(p.call("GET", "/threads/"+id+"/runs/"+r, nil, 200), "status") == "success"
	})
	require.Equal(t, "two", field(p.call("GET", "/threads/"+id+"/state", nil, 200), "values", "out"))
}
