package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/storage/sqlite"
	"understudy/thread"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	refused := make(chan error, 1)
	w := newWorld(t, map[string]script{"hang": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		started <- inv.Run
		<-ctx.Done()
		// What a cancelled run still wants to write is refused: the cancel is true at once.
		refused <- inv.Saver.Save(context.WithoutCancel(ctx), graph.Save{At: checkpointer.Key{Thread: inv.Thread, ID: "c"}})
		return context.Cause(ctx)
	}}}, nil)
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
	require.ErrorIs(t, <-refused, graph.ErrFenced)
	require.Equal(t, run.Interrupted, w.status(th, r.ID))
	require.Contains(t, string(w.row(th).Error), "UserInterrupt")
	require.Len(t, w.events(f), 1, "the stream just ends")

	err = w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true)
	require.True(t, fault.Is(err, fault.NotFound) && strings.HasPrefix(err.Error(), "No matching runs to cancel."))
	err = w.runs.Cancel(t.Context(), th, []id.Run{id.NewRun()}, run.CancelInterrupt, true)
	require.EqualError(t, err, "No runs found to cancel.")
}

func TestCancelOfAllRunsFindsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	req := request("echo")
	req.After = time.Hour
	for _, status := range []string{"pending", "all"} {
		_, _, err := w.runs.Start(t.Context(), w.thread(), req)
		require.NoError(t, err)
		require.EqualError(t, w.runs.CancelAll(t.Context(), "running", run.CancelInterrupt), "No runs found to cancel.")
		require.NoError(t, w.runs.CancelAll(t.Context(), status, run.CancelInterrupt))
		err = w.runs.CancelAll(t.Context(), status, run.CancelInterrupt)
		require.EqualError(t, err, "No runs found to cancel.")
		require.True(t, fault.Is(err, fault.NotFound))
	}
}

// What a filter selects is cancelled batch by batch, each run once, and nothing else: not other graphs, not what is created after the count.
func TestCancelOfAFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo, "other": echo}, nil)
	begin := func(graph string) *run.Run {
		req := request(graph)
		req.After = time.Hour
		r, err := w.runs.Create(t.Context(), w.thread(), req)
		require.NoError(t, err)
		return r
	}
	var chosen []*run.Run
	for range 120 {
		chosen = append(chosen, begin("echo"))
	}
	others := []*run.Run{begin("other")}
	of := run.Active{Status: run.Pending, Graph: "echo", Until: id.NewRun()}
	others = append(others, begin("echo"))
	count := func() int {
		n, err := w.runs.CountActive(t.Context(), of)
		require.NoError(t, err)
		return n.Runs
	}
	require.Equal(t, 120, count())
	// One is cancelled before its turn comes.
	require.NoError(t, w.runs.Cancel(t.Context(), chosen[100].Thread, []id.Run{chosen[100].ID}, run.CancelInterrupt, false))
	total, calls := 0, 0
	for above := id.Thread(""); ; calls++ {
		n, last, err := w.runs.CancelSome(t.Context(), of, above, run.CancelInterrupt)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 50)
		if total += n; last == "" {
			break
		}
		require.Greater(t, last, above)
		above = last
	}
	require.Equal(t, 119, total)
	require.Equal(t, 3, calls)
	require.Zero(t, count())
	for _, r := range chosen {
		require.Equal(t, run.Interrupted, w.status(r.Thread, r.ID))
	}
	for _, r := range others {
		require.Equal(t, run.Pending, w.status(r.Thread, r.ID))
	}
}

func TestCancelOfADelayedRun(t *testing.T) {
	t.Parallel()
	for _, action := range []run.Action{run.CancelInterrupt, run.CancelRollback} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]script{"echo": echo}, nil)
			th := w.thread()
			req := request("echo")
			req.After = time.Hour
			r, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			require.Equal(t, thread.Busy, w.row(th).Status)
			require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, action, false))
			require.Empty(t, w.events(f), "whoever follows it is told")
			require.Equal(t, thread.Idle, w.row(th).Status)
			if action == run.CancelInterrupt {
				require.Equal(t, run.Interrupted, w.status(th, r.ID))
			} else {
				_, err := w.runs.Get(t.Context(), th, r.ID)
				require.True(t, fault.Is(err, fault.NotFound))
			}
		})
	}
}

func TestADelayedRunLetsOthersPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	req := request("echo")
	req.After = 300 * time.Millisecond
	late, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	now, err := w.runs.Create(t.Context(), th, request("echo"))
	require.NoError(t, err)
	w.wait(th, now.ID)
	require.Equal(t, run.Pending, w.status(th, late.ID))
	require.Equal(t, thread.Busy, w.row(th).Status)
	w.wait(th, late.ID)
	require.Equal(t, run.Success, w.status(th, late.ID))
}

func TestAReaderWhoLeavesCancels(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started)}, nil)
	th := w.thread()
	req := request("hang")
	req.OnDisconnect = "cancel"
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	<-started
	f.Close(true)
	w.wait(th, r.ID)
	require.Equal(t, run.Interrupted, w.status(th, r.ID))
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Timeout = 50 * time.Millisecond })
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, run.Timeout, w.status(th, r.ID))
}

// A start finishes cancels that the last server did not, however many there are, before the service works.
func TestManyCancelsAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	w.stop()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: w.dir})
	require.NoError(t, err)
	var all []*run.Run
	now := time.Now()
	require.NoError(t, rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		for range 1100 {
			row := &thread.Thread{ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Busy}
			r := &run.Run{
				ID: id.NewRun(), Thread: row.ID, Assistant: id.DefaultAssistant("echo"), Graph: "echo", Metadata: json.RawMessage(`{}`), Status: run.Running, Strategy: run.Enqueue,
				CreatedAt: now, UpdatedAt: now, StartedAt: now, Attempt: 1, Owner: "another", Cancel: run.CancelInterrupt, Kwargs: run.Arguments{Config: json.RawMessage(`{}`)},
			}
			r.Kwargs.Resumable = true
			all = append(all, r)
			if err := errors.Join(tx.InsertThread(row), tx.InsertRun(r)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, rows.Close())
	w.start()
	for _, r := range all {
		require.Equal(t, run.Interrupted, w.status(r.Thread, r.ID))
	}
}
