package python_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/graph/python"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
)

// Code that blocks the event loop is reported while it blocks, with run, node, place and advice, and counted; code that waits as it should,
// or in a thread, is not.
func TestBlockingCodeIsReported(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.Dir = t.TempDir()
	release := filepath.Join(o.Dir, "release")
	file := filepath.Join(o.Dir, "mine.py")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, blocker, release), 0o600))
	o.Graphs = map[string]python.Spec{"blocks": {Path: "./mine.py:blocks"}, "threads": {Path: "./mine.py:threads"}, "waits": {Path: "./mine.py:waits"}}
	o.LogBlocking = true
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	registry := prometheus.NewRegistry()
	o.Registry = registry
	p := start(t, o)
	// The line that runs is quoted, also when the file was saved meanwhile.
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append([]byte("# one\n# two\n# three\n"), saved...), 0o600))
	times := func() float64 { return metricstest.Value(t, registry, "understudy_worker_blocked_total") }
	for _, name := range []string{"threads", "waits"} {
		_, err := collect(t, p.Graph(name), invocation(newMemory(), `{}`, "updates"))
		require.NoError(t, err)
		require.Zero(t, times(), name)
	}
	inv := invocation(newMemory(), `{}`, "updates")
	ended := make(chan error, 1)
	go func() {
		_, err := collect(t, p.Graph("blocks"), inv)
		ended <- err
	}()
	const message = "event loop blocked"
	await(t, "a report while the loop is blocked", func() bool { return strings.Contains(log.String(), message) })
	require.Empty(t, ended)
	text := log.String()
	for _, want := range []string{
		`"at":"mine.py:15"`, `"node":"my_node"`, `"code":"time.sleep(0.01)  # the place"`, `"run_id":"` + string(inv.Run) + `"`,
		`"thread_id":"` + string(inv.At.Thread) + `"`, `"fix":"await asyncio.sleep(…)`, `mine.py:19 work`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "graph output", "the mark is no output")
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.NoError(t, <-ended)
	await(t, "the end", func() bool { return strings.Contains(log.String(), "event loop runs again") })
	require.Equal(t, 1.0, times())
	require.Greater(t, metricstest.Value(t, registry, "understudy_worker_blocked_seconds_total"), 1.0)
	// The same place again is counted, and not logged for some time.
	require.NoError(t, os.Remove(release))
	go func() {
		_, err := collect(t, p.Graph("blocks"), invocation(newMemory(), `{}`, "updates"))
		ended <- err
	}()
	await(t, "the second time", func() bool { return times() == 2 })
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.NoError(t, <-ended)
	require.Equal(t, 1, strings.Count(log.String(), message))
}

const blocker = `import asyncio
import os
import time
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    n: Any

def block():
    while not os.path.exists(%q):
        time.sleep(0.01)  # the place


async def work(state):
    block()


async def wait(state):
    await asyncio.sleep(1.6)


def compile(node):
    b = StateGraph(State)
    b.add_node("my_node", node)
    b.add_edge(START, "my_node")
    b.add_edge("my_node", END)
    return b.compile()


blocks = compile(work)
threads = compile(lambda state: time.sleep(1.6))
waits = compile(wait)
`

// A reload gives runs their grace, also those of a worker whose loop does not answer: their node would run twice.
func TestReloadWaitsForBlockedRuns(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.Dir = t.TempDir()
	release := filepath.Join(o.Dir, "release")
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), fmt.Appendf(nil, blocker, release), 0o600))
	o.Graphs = map[string]python.Spec{"blocks": {Path: "./mine.py:blocks"}, "waits": {Path: "./mine.py:waits"}}
	o.LogBlocking = true
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(10*time.Millisecond, 20*time.Millisecond, time.Minute, time.Minute, time.Minute)
	})
	ended := make(chan error, 1)
	go func() {
		_, err := collect(t, p.Graph("blocks"), invocation(newMemory(), `{}`, "updates"))
		ended <- err
	}()
	await(t, "a report while the loop is blocked", func() bool { return strings.Contains(log.String(), "event loop blocked") })
	require.NoError(t, p.Reload(t.Context(), o, time.Minute))
	_, err := collect(t, p.Graph("waits"), invocation(newMemory(), `{}`, "updates"))
	require.NoError(t, err, "the new workers execute runs meanwhile")
	require.Empty(t, ended)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.NoError(t, <-ended)
}
