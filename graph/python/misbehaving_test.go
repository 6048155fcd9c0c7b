package python_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
)

// harmful are the options of a pool with graphs that harm their process, and one that does not.
func harmful(t *testing.T) python.Options {
	t.Helper()
	o := options(t)
	o.Graphs = map[string]python.Spec{
		"act": {Path: "./misbehaving.py:graph"}, "thread": {Path: "./misbehaving.py:threaded"}, "echo": {Path: "./graphs.py:echo"}, "waiting": {Path: "./graphs.py:waiting"},
	}
	return o
}

// do runs a graph with {"how", "size"} and returns the last event and the error.
func do(t *testing.T, p *python.Pool, name, how string, size int) (string, error) {
	t.Helper()
	events, err := collect(t, p.Graph(name), invocation(newMemory(), fmt.Sprintf(`{"how":%q,"size":%d}`, how, size), "updates", "custom"))
	if len(events) == 0 {
		return "", err
	}
	return events[len(events)-1].data, err
}

// well checks that a pool serves.
func well(t *testing.T, p *python.Pool) {
	t.Helper()
	same(t, must(t, p, "echo", invocation(newMemory(), `{}`, "updates")), got{"updates", "", `{"echo":{"n":1}}`})
}

// TestMisbehaving: whatever a graph does costs its own run, and at most its worker.
func TestMisbehaving(t *testing.T) {
	t.Parallel()
	p := start(t, harmful(t))
	const fine = "fine" // the run succeeds
	const dead = "dead" // its worker died
	causes := map[string]string{
		"os exit": "exit code 4", "segfault": "crashed in native code (SIGSEGV,", "abort": "crashed in native code (SIGABRT,", "kill": "(SIGKILL), as the kernel does", "fork": "exit code 5", "fork away": "exit code 6",
	}
	for _, c := range []struct {
		graph, how string
		size       int
		want       string // fine, dead, or the type of the exception
	}{
		{"act", "exit", 0, "SystemExit"},
		{"thread", "exit", 0, "SystemExit"},
		{"act", "import", 0, "ModuleNotFoundError"},
		{"act", "keyboard", 0, "KeyboardInterrupt"},
		{"thread", "keyboard", 0, "KeyboardInterrupt"},
		{"act", "base", 0, "BaseException"},
		{"thread", "base", 0, "BaseException"},
		{"act", "group", 0, "BaseExceptionGroup"},
		{"act", "recursion", 0, "RecursionError"},
		{"act", "unserialisable", 0, "TypeError"},
		{"act", "generator", 0, "TypeError"},
		{"act", "os exit", 0, dead},
		{"act", "segfault", 0, dead},
		{"act", "abort", 0, dead},
		{"act", "kill", 0, dead},
		{"act", "fork", 0, dead},
		{"act", "fork away", 0, dead},
		{"act", "close", 0, dead},
		{"act", "exit handler", 0, dead},
		{"act", "multiprocessing", 0, fine},
		{"act", "subprocess", 0, fine},
		{"act", "threads", 200, fine},
		{"act", "tasks", 10_000, fine},
		{"act", "print", 16 << 20, fine},
		{"thread", "print", 16 << 20, fine},
		{"act", "print without end", 16 << 20, fine},
		{"act", "write", 128 << 20, fine},
		{"act", "log", 20_000, fine},
		{"act", "environment", 0, fine},
		{"act", "huge event", 16 << 20, fine},
		{"act", "huge state", 16 << 20, fine},
		{"act", "huge state", 257 << 20, "FrameTooLarge"},
		{"act", "huge event", 257 << 20, "FrameTooLarge"},
		{"act", "stop loop", 0, dead},
		{"act", "close output", 0, fine},
	} {
		last, err := do(t, p, c.graph, c.how, c.size)
		if len(last) > 200 {
			last = last[:200]
		}
		var failure *graph.Failure
		switch {
		case c.want == fine:
			require.NoError(t, err, c.how)
			require.Contains(t, last, "out", c.how)
		case c.want == dead:
			require.ErrorIs(t, err, graph.ErrWorkerDied, c.how)
			var d *graph.Death
			require.ErrorAs(t, err, &d, c.how)
			require.Contains(t, d.Cause, causes[c.how], c.how)
			require.NotEmpty(t, d.Cause, c.how)
			require.NotEmpty(t, d.Fix, c.how)
			require.Contains(t, []string{"", "in or after node act"}, d.At, c.how) // the checkpoint before the node may not have got out
		default:
			require.ErrorAs(t, err, &failure, "%s: %s", c.how, last)
			require.Equal(t, c.want, failure.Type, "%s: %s", c.how, failure.Message)
			switch c.how {
			case "import":
				require.Contains(t, failure.Fix, "the module a_module_that_nobody_has (its name on PyPI may differ): "+os.Getenv("UNDERSTUDY_TEST_PYTHON")+" -m pip install")
			case "unserialisable", "generator":
				require.Contains(t, failure.Fix, "keep in the state what can be saved", c.how)
			case "huge state", "huge event":
				require.Regexp(t, `^a value of \d+ bytes is larger than the \d+ that can be saved or streamed at once: keep it in a file`, failure.Message)
				require.Contains(t, failure.Fix, "keep data of this size out of the state", c.how)
				require.Regexp(t, map[string]string{
					"huge state": `(?m)^too large: node 'act' returned \d+ bytes in key 'out'$`, "huge event": `(?m)^too large: \d+ bytes that are streamed in mode 'custom'$`,
				}[c.how], failure.Detail)
			case "exit":
				require.Contains(t, failure.Fix, "raise an exception that says what is wrong", c.how)
			default:
				require.Empty(t, failure.Fix, c.how)
			}
		}
		well(t, p)
	}
}

// TestBlocking: a worker whose loop does not answer does not affect the others.
func TestBlocking(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.Workers = 2
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(20*time.Millisecond, 3*time.Second, time.Minute, 300*time.Millisecond, time.Minute)
	})
	await(t, "both workers", func() bool { return p.InService() == 2 })
	for _, how := range []string{"sleep", "spin", "spin in C"} {
		release := filepath.Join(t.TempDir(), "release")
		ended := make(chan error, 1)
		began := make(chan struct{})
		go func() {
			var last error
			inv := invocation(newMemory(), fmt.Sprintf(`{"how":%q,"out":%q}`, how, release), "custom")
			for _, err := range p.Graph("act").Stream(context.Background(), inv) {
				if last = err; err == nil {
					close(began)
				}
			}
			ended <- last
		}()
		<-began
		await(t, "one worker is known to be blocked", func() bool { return p.InService() == 1 })
		for range 5 {
			well(t, p)
		}
		require.Empty(t, ended, "%s: it goes on", how)
		require.NoError(t, os.WriteFile(release, nil, 0o600))
		require.NoError(t, <-ended, how)
		await(t, "both again", func() bool { return p.InService() == 2 })
	}
}

// TestThreadsThatSpin: a node in a thread takes part of the interpreter, not the loop; its cancel puts the worker out of service.
func TestThreadsThatSpin(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(50*time.Millisecond, 5*time.Second, time.Minute, 300*time.Millisecond, time.Minute)
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	for _, err := range p.Graph("thread").Stream(ctx, invocation(newMemory(), `{"how":"spin"}`, "custom")) {
		if err != nil {
			require.ErrorIs(t, err, enough)
			break
		}
		well(t, p)
		cancel(enough)
	}
	cancel(nil)
	well(t, p)
}

// TestEndlessEvents: a consumer that has enough ends a graph that never does.
func TestEndlessEvents(t *testing.T) {
	t.Parallel()
	p := start(t, harmful(t))
	n := 0
	for _, err := range p.Graph("act").Stream(context.Background(), invocation(newMemory(), `{"how":"endless"}`, "custom")) {
		require.NoError(t, err)
		if n++; n == 10_000 {
			break
		}
	}
	well(t, p)
	require.Equal(t, 1, p.Processes())
}

// TestFloodedLog: of what a graph prints, a bounded part is logged, and how much was left out.
func TestFloodedLog(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"print", "write"} {
		o := harmful(t)
		var log logtest.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		p := start(t, o)
		_, err := do(t, p, "act", how, 24<<20)
		require.NoError(t, err)
		await(t, how, func() bool { return strings.Contains(log.String(), "left out") })
		require.Less(t, len(log.String()), 6<<20)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.MemoryLimit = 400 << 20
	registry := prometheus.NewRegistry()
	o.Registry = registry
	var log logtest.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(20*time.Millisecond, 20*time.Second, time.Minute, 300*time.Millisecond, time.Minute)
	})
	// over the limit: no new runs, this one may end
	inv := invocation(newMemory(), `{"how":"memory","size":450000000,"out":1}`, "updates")
	require.NotEmpty(t, must(t, p, "act", inv))
	require.Contains(t, log.String(), "over its memory limit")
	well(t, p)
	await(t, "only its successor is left", func() bool { return p.Processes() == 1 })
	// far over: at once
	_, err := collect(t, p.Graph("act"), invocation(newMemory(), `{"how":"memory","size":900000000,"out":30}`, "updates"))
	require.ErrorIs(t, err, graph.ErrWorkerDied)
	require.Regexp(t, `this server ended it: it had \d+ MiB of memory and may have 400 \(--worker-memory\)`, err.Error())
	await(t, "that it was killed is counted", func() bool {
		return metricstest.Value(t, registry, "understudy_worker_deaths_total", "cause", "killed") == 1
	})
	well(t, p)
}

func TestMemoryLimitEndsWhatGoesOn(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.MemoryLimit = 400 << 20
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(20*time.Millisecond, 20*time.Second, time.Minute, 300*time.Millisecond, 500*time.Millisecond)
	})
	_, err := collect(t, p.Graph("act"), invocation(newMemory(), `{"how":"memory","size":450000000,"out":600}`, "updates"))
	require.ErrorIs(t, err, graph.ErrWorkerDied)
	// On a busy machine the checkpoint before the node may not have got out by then.
	require.Regexp(t, `this server ended it: it had \d+ MiB of memory and may have 400 \(--worker-memory\)(, in or after node act)?$`, err.Error())
	well(t, p)
}

func TestMaxRuns(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.MaxRuns = 5
	p := start(t, o)
	pids := map[int]bool{}
	for range 12 {
		well(t, p)
		for _, pid := range p.Pids() {
			pids[pid] = true
		}
	}
	await(t, "a third worker", func() bool {
		well(t, p)
		for _, pid := range p.Pids() {
			pids[pid] = true
		}
		return len(pids) >= 3
	})
	await(t, "one is left", func() bool { return p.Processes() == 1 })
}

// TestImportsThatHarm: a graph whose import kills or blocks its worker is left out; the others are served.
func TestImportsThatHarm(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"segfault": "import ctypes; ctypes.string_at(0)",
		"exit":     "import os; os._exit(9)",
		"block":    "import time; time.sleep(3600)",
		"stop":     "raise KeyboardInterrupt",
		"leave":    "import sys; sys.exit(2)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := harmful(t)
			dir := t.TempDir()
			file := filepath.Join(dir, "harm.py")
			require.NoError(t, os.WriteFile(file, []byte(code+"\n"), 0o600))
			o.Graphs = map[string]python.Spec{"echo": {Path: "./graphs.py:echo"}, "harm": {Path: file + ":graph"}}
			o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
			p := python.New(o)
			p.SetImportWithin(5 * time.Second)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			defer func() { cancel(); require.NoError(t, <-ended) }()
			well(t, p)
			_, err := collect(t, p.Graph("harm"), invocation(newMemory(), `{}`, "updates"))
			var failure *graph.Failure
			require.ErrorAs(t, err, &failure)
			problems := p.Problems()
			require.Len(t, problems, 1)
			require.ErrorAs(t, problems["harm"], &failure)
			kills := name == "segfault" || name == "exit"
			require.Equal(t, kills, strings.HasSuffix(failure.Fix, o.Python+" -X faulthandler "+file), failure.Fix)
		})
	}
}

// TestNoWorkerStarts: runs fail with the reason, and do not wait forever.
func TestNoWorkerStarts(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	o.Python = filepath.Join(t.TempDir(), "no-python")
	p := python.New(o)
	p.SetPatience(2 * time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	_, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`, "updates"))
	var failure *graph.Failure
	require.ErrorAs(t, err, &failure)
	require.Contains(t, failure.Message, "no-python")
	cancel()
	require.NoError(t, <-ended)
}

// A worker that closes its connection and does not exit is killed by the server, which says so and blames no want of memory.
func TestWorkerThatClosesItsConnection(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "mine.py"), []byte(`import os
import stat
import time

from langgraph.graph import START, StateGraph


async def node(state):
    for fd in map(int, os.listdir("/dev/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.close(fd)
        except OSError:
            pass
    time.sleep(3600)


graph = StateGraph(dict).add_node("node", node).add_edge(START, "node").compile()
`), 0o600))
	o.Graphs = map[string]python.Spec{"mine": {Path: "./mine.py:graph"}}
	p := start(t, o)
	_, err := collect(t, p.Graph("mine"), invocation(newMemory(), `{"a":1}`, "updates"))
	var died *graph.Death
	require.ErrorAs(t, err, &died)
	require.Equal(t, "this server ended it: it had closed its connection to the server, and did not exit", died.Cause)
	require.Contains(t, died.Fix, "os.closerange")
}
