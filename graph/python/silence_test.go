//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// questions are all that a graph can be asked.
var questions = map[string]func(context.Context, graph.Graph, graph.Config) error{
	"graph": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Describe(ctx, cfg, graph.DescribeWhat{Kind: "graph"})
		return err
	},
	"graph with xray": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Describe(ctx, cfg, graph.DescribeWhat{Kind: "graph", XRay: -1})
		return err
	},
	"schemas": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Describe(ctx, cfg, graph.DescribeWhat{Kind: "schemas"})
		return err
	},
	"subgraphs": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Describe(ctx, cfg, graph.DescribeWhat{Kind: "subgraphs"})
		return err
	},
	"state": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Explain(ctx, cfg, checkpointer.Key{Thread: cfg.Thread}, true)
		return err
	},
	"update": func(ctx context.Context, g graph.Graph, cfg graph.Config) error {
		_, err := g.Update(ctx, cfg, checkpointer.Key{Thread: cfg.Thread}, [][]graph.StateUpdate{{{Values: json.RawMessage(`{"n":1}`), AsNode: "echo"}}})
		return err
	},
}

// When a worker hangs, its replacement answers its questions and executes the runs that it has not read.
func TestQuestionsLeaveAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	p := start(t, options(t), func(p *python.Pool) {
		p.SetTimes(50*time.Millisecond, 5*time.Second, 6*time.Second, time.Minute, time.Minute)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hung := p.Pids()[0]
	require.NoError(t, syscall.Kill(hung, syscall.SIGSTOP))
	var all sync.WaitGroup
	run := make(chan error, 1)
	go func() {
		_, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`, "updates"))
		run <- err
	}()
	for name, ask := range questions {
		all.Go(func() {
			m := newMemory()
			if err := ask(ctx, p.Graph("echo"), graph.Config{Thread: id.NewThread(), Saver: m}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if name == "update" && len(m.puts("")) != 1 {
				t.Errorf("the update was saved %d times", len(m.puts("")))
			}
		})
	}
	all.Wait()
	require.NoError(t, <-run)
	require.NoError(t, syscall.Kill(hung, syscall.SIGCONT))
	well(t, p)
}

// blocking is a module with a factory that blocks the event loop, and a graph whose updates with n = 2 do. Each time a line is appended to a file.
const blocking = `
import time
from typing import TypedDict
from langgraph.graph import StateGraph

class State(TypedDict):
    n: int

def block():
    with open(%q, "a") as f:
        f.write("blocked\n")
    time.sleep(3600)

def factory(config):
    block()

async def route(state):
    if state["n"] == 2:
        block()
    return "__end__"

b = StateGraph(State)
b.add_node("node", lambda state: state)
b.set_entry_point("node")
b.add_conditional_edges("node", route, ["__end__"])
updated = b.compile()
`

// A question that blocks its worker blocks one more, and ends when that is given up. A question that has saved something is not asked again.
func TestQuestionsThatBlockTheirWorkers(t *testing.T) {
	t.Parallel()
	for name, times := range map[string]int{"factory": 2, "updated": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			dir := t.TempDir()
			file, attempts := filepath.Join(dir, "blocking.py"), filepath.Join(dir, "attempts")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, blocking, attempts), 0o600))
			o.Graphs = map[string]python.Spec{name: {Path: file + ":" + name}, "echo": {Path: "./graphs.py:echo"}}
			p := start(t, o, func(p *python.Pool) {
				p.SetTimes(20*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond, time.Minute, time.Minute)
				p.SetLost(3 * time.Second)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cfg := graph.Config{Thread: id.NewThread(), Saver: newMemory()}
			var err error
			if name == "factory" {
				err = questions["schemas"](ctx, p.Graph(name), cfg)
			} else {
				step := func(n int) []graph.StateUpdate {
					return []graph.StateUpdate{{Values: fmt.Appendf(nil, `{"n":%d}`, n), AsNode: "node"}}
				}
				_, err = p.Graph(name).Update(ctx, cfg, checkpointer.Key{Thread: cfg.Thread}, [][]graph.StateUpdate{step(1), step(1), step(2)})
			}
			require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
			require.ErrorContains(t, err, "has not answered for 3s")
			text, readErr := os.ReadFile(attempts)
			require.NoError(t, readErr)
			require.Len(t, text, times*len("blocked\n"))
			well(t, p)
		})
	}
}

// Runs that are cancelled before their worker has begun them end like others: it stays in service, with the runs of others.
func TestCancelledBeforeTheyBegin(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	o := harmful(t)
	o.Workers, o.Logger = 1, slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	well(t, p)
	pid := p.Pids()[0]
	const runs = 5
	for range 3 {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, runs)
		for range runs {
			go func() {
				for _, err := range p.Graph("echo").Stream(ctx, invocation(newMemory(), `{}`, "updates")) {
					if err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
		}
		await(t, "the runs", func() bool { return p.Calls() == runs })
		cancel()
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		for range runs {
			<-ended // with the cause, or in time
		}
		await(t, "the ends", func() bool { return p.Calls() == 0 })
		well(t, p)
	}
	require.NotContains(t, log.String(), "still alive")
	require.Equal(t, []int{pid}, p.Pids())
}

// A worker whose node blocks the loop for some seconds keeps its place, whatever waits: a start takes as long, and another process makes a busy machine slower.
func TestWorkersThatAnswerSoonKeepTheirPlace(t *testing.T) {
	t.Parallel()
	p := start(t, harmful(t), func(p *python.Pool) {
		p.SetTimes(100*time.Millisecond, time.Minute, time.Minute, time.Minute, time.Minute)
	})
	release := filepath.Join(t.TempDir(), "release")
	began := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for _, err := range p.Graph("act").Stream(t.Context(), invocation(newMemory(), fmt.Sprintf(`{"how":"sleep","out":%q}`, release), "custom")) {
			if err != nil {
				t.Error(err)
				return
			}
			close(began)
		}
	})
	<-began
	await(t, "the silence", func() bool { return p.Quiet() > 300*time.Millisecond })
	for range 3 {
		all.Go(func() { well(t, p) })
	}
	await(t, "three seconds of silence", func() bool { return p.Quiet() > 3*time.Second })
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	all.Wait()
	require.Equal(t, 1, p.Made())
}

// once is a module with a graph that calls a model, one that appends a line to a file, and a factory that writes a file half a second later.
const once = `
import asyncio
from langchain_core.language_models import FakeListChatModel
from langgraph.graph import MessagesState, StateGraph

def build(node):
    return StateGraph(MessagesState).add_node("node", node).set_entry_point("node").compile()

async def ask(state):
    return {"messages": [await FakeListChatModel(responses=["yes"]).ainvoke("?")]}

async def act(state):
    with open(%q, "a") as f:
        f.write("begun\n")

async def later(config):
    await asyncio.sleep(0.5)
    open(%q, "w").close()
    return build(act)

asking, acting = build(ask), build(act)
`

// A run begins on one worker only, also when the worker has answered and this server has not read that yet.
func TestRunsBeginOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	dir := t.TempDir()
	file, begun, past := filepath.Join(dir, "once.py"), filepath.Join(dir, "begun"), filepath.Join(dir, "past")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, once, begun, past), 0o600))
	o.Graphs = map[string]python.Spec{"asking": {Path: file + ":asking"}, "acting": {Path: file + ":acting"}, "later": {Path: file + ":later"}}
	p := start(t, o, func(p *python.Pool) { p.SetTimes(time.Hour, time.Minute, time.Minute, time.Minute, time.Minute) })
	heard, deaf := make(chan struct{}), make(chan struct{})
	inv := invocation(newMemory(), `{"messages":[]}`, "updates")
	inv.Called = func(graph.ModelCall) { // by the goroutine that reads what the worker says
		close(heard)
		<-deaf
	}
	var all sync.WaitGroup
	run := func(name string, inv graph.Invocation) {
		all.Go(func() {
			if _, err := collect(t, p.Graph(name), inv); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	run("asking", inv)
	<-heard
	run("acting", invocation(newMemory(), `{"messages":[]}`, "updates"))
	await(t, "the run", func() bool { return p.Unread() == 1 })
	all.Go(func() {
		if err := questions["schemas"](t.Context(), p.Graph("later"), graph.Config{Thread: id.NewThread(), Saver: newMemory()}); err != nil {
			t.Error(err)
		}
	})
	await(t, "half a second in which the run could begin", func() bool { _, err := os.Stat(past); return err == nil })
	p.Rest()
	await(t, "another worker", func() bool { return p.Made() == 2 })
	await(t, "the run", func() bool { _, err := os.Stat(begun); return err == nil })
	close(deaf)
	all.Wait()
	text, err := os.ReadFile(begun)
	require.NoError(t, err)
	require.Equal(t, "begun\n", string(text))
}
