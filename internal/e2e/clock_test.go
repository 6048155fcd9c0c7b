package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// setBack makes the clock of Python an hour slow while a file is there.
const setBack = `
import os, time
_ns = time.time_ns
time.time_ns = lambda: _ns() - (3600 * 10**9 if os.path.exists(os.environ["CLOCK_FILE"]) else 0)
`

// TestClockOfWorkersGoesBack: a turn that is taken after the clock was set back follows the one before.
func TestClockOfWorkersGoesBack(t *testing.T) {
	pr := newProject(t)
	mark := filepath.Join(pr.dir, "back")
	pr.write("site/sitecustomize.py", setBack)
	pr.write(".env", "PYTHONPATH="+filepath.Join(pr.dir, "site")+"\nCLOCK_FILE="+mark+"\n")
	pr.write("agent.py", `
import operator
from typing import Annotated
from typing_extensions import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict, total=False):
    items: Annotated[list[str], operator.add]

b = StateGraph(State)
b.add_node("a", lambda s: {"items": ["node"]})
b.add_edge(START, "a")
b.add_edge("a", END)
graph = b.compile()
`)
	data := t.TempDir()
	config := filepath.Join(pr.dir, "langgraph.json")
	p := serve(t, data, "--config", config)
	id := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	turn := func(word string) any {
		return field(p.call("POST", "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "a", "input": map[string]any{"items": []string{word}}}, 200), "items")
	}
	require.Equal(t, []any{"one", "node"}, turn("one"))
	p.kill()
	require.NoError(t, os.WriteFile(mark, nil, 0o600))
	p = serve(t, data, "--config", config)
	require.Equal(t, []any{"one", "node", "two", "node"}, turn("two"))
	require.Equal(t, []any{"one", "node", "two", "node"}, field(p.call("GET", "/threads/"+id+"/state", nil, 200), "values", "items"))
	require.Equal(t, []any{"one", "node", "two", "node", "three", "node"}, turn("three"))
	history := p.call("GET", "/threads/"+id+"/history?limit=100", nil, 200).([]any)
	require.Greater(t, len(history), 8)
	for i, state := range history[:len(history)-1] {
		require.Equal(t, field(history[i+1], "checkpoint", "checkpoint_id"), field(state, "parent_checkpoint", "checkpoint_id"), "the parent of each comes next")
	}
}
