package python_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Tests of states that pass: interpreters that do not start for a while, files that are removed, loops that are busy for a while.

// gate is an interpreter that fails while it is shut.
type gate struct {
	t            *testing.T
	shut, failed string // files: there while it is shut; a line for each start that failed
	path         string
}

func newGate(t *testing.T, interpreter string) *gate {
	t.Helper()
	dir := t.TempDir()
	g := &gate{t: t, shut: filepath.Join(dir, "shut"), failed: filepath.Join(dir, "failed"), path: filepath.Join(dir, "python")}
	script := fmt.Sprintf("#!/bin/sh\nif [ -e '%s' ]; then echo failed >> '%s'; echo 'out of order' >&2; exit 1; fi\nexec '%s' \"$@\"\n", g.shut, g.failed, interpreter)
	require.NoError(t, os.WriteFile(g.path, []byte(script), 0o700)) //nolint:gosec // it is run
	return g
}

func (g *gate) close() { require.NoError(g.t, os.WriteFile(g.shut, nil, 0o600)) }

// openAfter waits until starts have failed, and lets those that come succeed.
func (g *gate) openAfter(failures int) {
	await(g.t, "starts that fail", func() bool {
		text, _ := os.ReadFile(g.failed)
		return strings.Count(string(text), "\n") >= failures
	})
	require.NoError(g.t, os.Remove(g.shut))
}

// kill kills the only worker and waits until the pool knows.
func kill(t *testing.T, p *python.Pool) {
	t.Helper()
	await(t, "a worker", func() bool { return len(p.Pids()) > 0 }) // a slow machine may have replaced the first one
	pid := p.Pids()[0]
	worker, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, worker.Kill())
	await(t, "the end of the worker", func() bool { return !slices.Contains(p.Pids(), pid) })
}

// Runs outlast an interpreter that does not start for a while: after a start of the server, after a death of their worker, and in a worker of
// their own.
func TestStartsThatFailForAWhile(t *testing.T) {
	t.Parallel()
	for _, isolated := range []bool{false, true} {
		for _, fresh := range []bool{false, true} {
			t.Run(fmt.Sprintf("isolated=%t fresh=%t", isolated, fresh), func(t *testing.T) {
				t.Parallel()
				o := options(t)
				g := newGate(t, o.Python)
				o.Python = g.path
				var p *python.Pool
				if fresh {
					g.close()
					p = run(t, o)
				} else {
					p = start(t, o)
					g.close()
					kill(t, p)
				}
				ended := make(chan error, 1)
				go func() {
					inv := invocation(newMemory(), `{}`, "updates")
					inv.Isolated = isolated
					_, err := collect(t, p.Graph("echo"), inv)
					ended <- err
				}()
				g.openAfter(6)
				require.NoError(t, <-ended)
			})
		}
	}
}

// Runs end when starts have failed for Pool.patience.
func TestStartsThatGoOnFailing(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := newGate(t, o.Python)
	o.Python = g.path
	p := start(t, o, func(p *python.Pool) { p.SetPatience(time.Second) })
	g.close()
	kill(t, p)
	for _, isolated := range []bool{false, true} {
		inv := invocation(newMemory(), `{}`, "updates")
		inv.Isolated = isolated
		_, err := collect(t, p.Graph("echo"), inv)
		var failure *graph.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, "WorkerStartError", failure.Type)
		require.Contains(t, failure.Message, "out of order")
	}
}

// Workers need no file of the server: none is written, and they start when the folder for temporary files is gone.
func TestNothingOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmp")
	require.NoError(t, os.Mkdir(dir, 0o700))
	t.Setenv("TMPDIR", dir)
	p := start(t, options(t))
	well(t, p)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, os.Remove(dir))
	kill(t, p)
	well(t, p)
	inv := invocation(newMemory(), `{}`, "updates")
	inv.Isolated = true
	_, err = collect(t, p.Graph("echo"), inv)
	require.NoError(t, err)
}

const slow = `
import os, time
import graphs

loaded = False

def graph(config):
    global loaded
    while not loaded:
        loaded = os.path.exists(%q)
        time.sleep(0.01)
    return graphs.echo
`

// A worker that is silent for a while, because a graph imports much when it is first used, keeps its place.
func TestSilenceThatEnds(t *testing.T) {
	t.Parallel()
	o := options(t)
	dir := t.TempDir()
	release, file := filepath.Join(dir, "release"), filepath.Join(dir, "slow.py")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, slow, release), 0o600))
	o.Graphs["slow"] = python.Spec{Path: file + ":graph"}
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(20*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond, time.Minute, time.Minute)
	})
	pids := p.Pids()
	ended := make(chan error, 1)
	run := func() {
		_, err := collect(t, p.Graph("slow"), invocation(newMemory(), `{}`, "updates"))
		ended <- err
	}
	go run()
	await(t, "another worker", func() bool { return p.Processes() == 2 })
	require.Contains(t, log.String(), "worker does not answer")
	well(t, p)
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.NoError(t, <-ended)
	await(t, "the first worker alone", func() bool { return p.Processes() == 1 })
	require.Contains(t, log.String(), "worker answers again")
	require.NotContains(t, log.String(), "worker died")
	run()
	require.NoError(t, <-ended)
	await(t, "the first worker still", func() bool { return fmt.Sprint(p.Pids()) == fmt.Sprint(pids) })
}

// A worker whose silence does not end is retired.
func TestSilenceThatGoesOn(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	p := start(t, o, func(p *python.Pool) {
		p.SetTimes(20*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond, time.Minute, time.Minute)
		p.SetLost(time.Second)
	})
	first := p.Pids()
	release := filepath.Join(t.TempDir(), "release")
	ended := make(chan error, 1)
	go func() {
		_, err := collect(t, p.Graph("act"), invocation(newMemory(), fmt.Sprintf(`{"how":"sleep","out":%q}`, release), "custom"))
		ended <- err
	}()
	await(t, "another worker instead", func() bool {
		pids := p.Pids()
		return len(pids) == 1 && pids[0] != first[0]
	})
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	require.NoError(t, <-ended, "its run ends well")
	await(t, "only the other one", func() bool { return p.Processes() == 1 })
}

// A question is not to blame when no worker starts, nor when the worker dies that has it, as other runs make them: it can be asked again.
func TestQuestionsWithoutWorkers(t *testing.T) {
	t.Parallel()
	o := options(t)
	g := newGate(t, o.Python)
	o.Python = g.path
	file := filepath.Join(t.TempDir(), "deadly.py")
	require.NoError(t, os.WriteFile(file, []byte("import os\n\ndef graph(config):\n    os.kill(os.getpid(), 9)\n"), 0o600))
	o.Graphs["deadly"] = python.Spec{Path: file + ":graph"}
	p := start(t, o, func(p *python.Pool) { p.SetPatience(time.Second) })
	questions := func(graphID, why string) {
		t.Helper()
		at := checkpointer.Key{Thread: id.NewThread()}
		cfg := graph.Config{Thread: at.Thread, Saver: newMemory()}
		_, update := p.Graph(graphID).Update(t.Context(), cfg, at, [][]graph.StateUpdate{{{Values: json.RawMessage(`{"n":1}`)}}})
		_, describe := p.Graph(graphID).Describe(t.Context(), cfg, graph.DescribeWhat{Kind: "schemas"})
		for _, err := range []error{update, describe} {
			require.Equal(t, fault.Unavailable, fault.KindOf(err), "%v", err)
			require.ErrorContains(t, err, why)
		}
	}
	questions("deadly", "died while it worked on the request")
	well(t, p)
	g.close()
	kill(t, p)
	questions("echo", "out of order")
}
