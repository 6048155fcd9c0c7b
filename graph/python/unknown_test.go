package python_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/python"
	"understudy/graph/spantest"
	"understudy/internal/logtest"
)

const misspelled = `
from operator import add
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command

class Inner(TypedDict):
    other: str

class State(TypedDict):
    messages: Annotated[list, add]
    count: int

def inner(state):
    return {"other": "known here"}

_inner = StateGraph(Inner)
_inner.add_node("inner", inner)
_inner.add_edge(START, "inner")

def plain(state):
    return {"mesages": ["lost"], "count": 1}

def command(state):
    return Command(update={"cuont": 2})

def several(state):
    return [Command(update={"messages": ["kept"]}), {"more": 3}]

builder = StateGraph(State)
builder.add_node("plain", plain)
builder.add_node("command", command)
builder.add_node("several", several)
builder.add_node("below", _inner.compile())
builder.add_edge(START, "plain")
builder.add_edge("plain", "command")
builder.add_edge("command", "several")
builder.add_edge("several", "below")
graph = builder.compile()
`

// A misspelled key is lost in LangGraph, and the log says so once: which node returned it, and which key was meant. More keys than the state has are no mistake.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "misspelled.py"), []byte(misspelled), 0o600))
	o := options(t)
	o.Dir = dir
	o.Graphs = map[string]python.Spec{"typos": {Path: "./misspelled.py:graph"}}
	var log logtest.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := start(t, o)
	for range 2 {
		_, tracing := spantest.Of(t, 0)
		inv := invocation(newMemory(), `{"mesages":[]}`, "values")
		inv.Tracing = tracing
		events := must(t, p, "typos", inv)
		require.JSONEq(t, `{"messages":["kept"],"count":1}`, events[len(events)-1].data)
	}
	for _, text := range []string{
		"the input has the key 'mesages', which the graph's input does not have; it is ignored. Did you mean 'messages'?",
		"node 'plain' returned the key 'mesages', which the state does not have; it is ignored. Did you mean 'messages'? Keys: count, messages",
		"node 'command' returned the key 'cuont', which",
	} {
		await(t, text, func() bool { return strings.Contains(log.String(), text) })
		require.Equal(t, 1, strings.Count(log.String(), text), log.String())
	}
	require.Equal(t, 3, strings.Count(log.String(), "it is ignored"), log.String())
}
