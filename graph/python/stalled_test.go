//go:build linux

package python_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph/python"
	"understudy/internal/logtest"
)

// holding is a module with graphs that hold Python's global lock, each after it has written a file.
const holding = `import ctypes
import os
import re
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    n: Any


def begun():
    open(%q, "w").close()


async def loop(state):
    begun()
    re.match(r"(a+)+$", "a" * 60 + "b")  # loop


def thread(state):
    begun()
    re.match(r"(a+)+$", "a" * 60 + "b")  # thread


async def asleep(state):
    begun()
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # asleep


def build(node):
    return StateGraph(State).add_node("my_node", node).add_edge(START, "my_node").add_edge("my_node", END).compile()


in_loop, in_thread, in_sleep = build(loop), build(thread), build(asleep)
`

// Code that holds Python's global lock, and a process that is stopped, are logged with run, place and advice, and others can learn why they wait; a run that was
// sent to the worker meanwhile is executed by another one.
func TestCodeThatHoldsTheLockIsReported(t *testing.T) {
	t.Parallel()
	const blocked = "event loop blocked: all runs of this worker wait for this code"
	for name, want := range map[string][]string{
		"in_loop":   {blocked, `"at":"mine.py:19"`, `"code":"re.match(r\"(a+)+$\", \"a\" * 60 + \"b\")  # loop"`, "another process"},
		"in_thread": {blocked, `"at":"mine.py:24"`, `# thread`, "another process"},
		"in_sleep":  {blocked, `"at":"mine.py:29"`, `# asleep`, "another process"},
		"stopped":   {"a worker process is stopped", "kill -CONT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			echo := python.Spec{Path: filepath.Join(o.Dir, "graphs.py") + ":echo"}
			o.Dir = t.TempDir()
			begun := filepath.Join(o.Dir, "begun")
			require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), fmt.Appendf(nil, holding, begun), 0o600))
			o.Graphs = map[string]python.Spec{"echo": echo, "in_loop": {Path: "./mine.py:in_loop"}, "in_thread": {Path: "./mine.py:in_thread"}, "in_sleep": {Path: "./mine.py:in_sleep"}}
			log := &logtest.Buffer{}
			o.Logger = slog.New(slog.NewJSONHandler(log, nil))
			p := start(t, o)
			well(t, p)
			pid := p.Pids()[0]
			if name == "stopped" {
				require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			} else {
				inv := invocation(newMemory(), `{}`, "updates")
				want = append(want, `"graph":"`+name+`"`, `"node":"my_node"`, `"run_id":"`+string(inv.Run)+`"`, `"thread_id":"`+string(inv.At.Thread)+`"`)
				go func() { _, _ = collect(t, p.Graph(name), inv) }()
				await(t, "the node", func() bool { _, err := os.Stat(begun); return err == nil })
			}
			began := time.Now()
			other := make(chan struct{})
			go func() {
				defer close(other)
				well(t, p)
			}()
			await(t, "a report", func() bool { return strings.Contains(log.String(), want[0]) })
			t.Logf("reported after %s", time.Since(began))
			for _, part := range want {
				require.Contains(t, log.String(), part)
			}
			held := p.HeldUp()
			if name == "stopped" {
				require.Contains(t, held, "a worker does not answer: its process is stopped for ")
			} else {
				require.Contains(t, held, "a worker does not answer: its event loop is blocked by node my_node of graph "+name+" for ")
			}
			<-other
			t.Logf("the other run ended after %s", time.Since(began))
			require.NotContains(t, log.String(), "graph output", "the stack is no output")
			if name == "stopped" {
				require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
				await(t, "an answer", func() bool { return p.HeldUp() == "" })
			}
		})
	}
}

// An import that holds the lock is logged with its place.
func TestImportThatHoldsTheLock(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), []byte("import re\n\nre.match(r\"(a+)+$\", \"a\" * 60 + \"b\")\n"), 0o600))
	o.Graphs = map[string]python.Spec{"mine": {Path: "./mine.py:graph"}}
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewJSONHandler(log, nil))
	run(t, o)
	await(t, "the place", func() bool { return strings.Contains(log.String(), `"at":"mine.py:3"`) })
	require.Contains(t, log.String(), "still importing a graph")
}

// A graph is not blamed when code of another one keeps the workers busy while it is built.
func TestBuildWhileAWorkerIsBlocked(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Logger = slog.New(slog.DiscardHandler)
	p := start(t, o)
	require.NoError(t, syscall.Kill(p.Pids()[0], syscall.SIGSTOP))
	began := time.Now()
	require.NoError(t, python.Build(t.Context(), p.Graph("echo")))
	t.Logf("built after %s", time.Since(began))
	ctx, cancel := context.WithCancelCause(t.Context())
	for _, pid := range p.Pids() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	built := make(chan error, 1)
	go func() { built <- python.Build(ctx, p.Graph("echo")) }()
	await(t, "the question", func() bool { return p.Calls()+p.Waiting() > 0 })
	cancel(errors.New("it takes longer than 10s"))
	require.NoError(t, <-built)
}

// Of workers that are stopped at the same time one is replaced at once. The others may be slow because the machine is, and more processes make that worse.
func TestOneWorkerAtATimeIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Workers = 3
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(100*time.Millisecond, time.Second, time.Minute, time.Minute, time.Minute)
	})
	await(t, "all workers", func() bool { return p.InService() == 3 })
	for _, pid := range p.Pids() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	well(t, p)
	require.Equal(t, 4, p.Made())
}

// held is a memory whose checkpoints are loaded when free is closed.
type held struct {
	*memory
	asked, free chan struct{}
}

func (h *held) Load(ctx context.Context, at checkpointer.Key) (*checkpointer.Tuple, error) {
	close(h.asked)
	<-h.free
	return h.memory.Load(ctx, at)
}

// A run whose checkpoint is still loaded does not hold its worker up, so that another one is named for it.
func TestRunsThatWereNotSentHoldNothingUp(t *testing.T) {
	t.Parallel()
	p := start(t, harmful(t))
	release := filepath.Join(t.TempDir(), "release")
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := collect(t, p.Graph("act"), invocation(newMemory(), fmt.Sprintf(`{"how":"sleep","out":%q}`, release), "custom")); err != nil {
			t.Error(err)
		}
	})
	await(t, "a run", func() bool { return slices.Equal(p.Holders(), []string{"node act of graph act"}) })
	h := &held{newMemory(), make(chan struct{}), make(chan struct{})}
	inv := invocation(h.memory, `{}`, "updates")
	inv.Saver = h
	all.Go(func() {
		if _, err := collect(t, p.Graph("echo"), inv); err != nil {
			t.Error(err)
		}
	})
	<-h.asked
	require.Equal(t, []string{"node act of graph act"}, p.Holders())
	close(h.free)
	for p.Unread() == 0 && p.Calls() == 2 {
		_ = p.Holders() // while it is sent
	}
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	all.Wait()
}
