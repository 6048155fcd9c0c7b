package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// deaf is a storage whose signals are not heard: what happens elsewhere is found at heartbeats alone.
type deaf struct{ run.Shared }

func (deaf) Listen(ctx context.Context, _ func(run.Signal)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// blind is a storage that shows nothing at heartbeats: what happens elsewhere is told by signals alone.
type blind struct {
	run.Shared
	started *atomic.Bool
}

func (b blind) Lapsed(ctx context.Context, before time.Time, limit int) ([]*run.Run, error) {
	if b.started.CompareAndSwap(false, true) {
		return b.Shared.Lapsed(ctx, before, limit) // of Recover
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// ways are the ways in which an instance learns of others.
var ways = map[string]func(run.Shared) run.Shared{
	"by signals":    func(s run.Shared) run.Shared { return blind{s, &atomic.Bool{}} },
	"at heartbeats": func(s run.Shared) run.Shared { return deaf{s} },
}

// quick is a lease with heartbeats that tests can wait for.
const quick = 2 * time.Second

func texts(records []*bridge.Record) (out []string) {
	for _, r := range records {
		out = append(out, r.Event+" "+string(r.Data))
	}
	return out
}

// pair is an instance that only serves, and one that executes. What one streams the other does not see.
func pair(t *testing.T, way func(run.Shared) run.Shared, g script) (api, worker *instance) {
	t.Helper()
	c := newCluster(t)
	c.wrap = way
	graphs := map[string]script{"g": g}
	api = c.start(graphs, func(o *service.Options) { o.Local, o.Jobs, o.Lease = true, -1, quick })
	worker = c.start(graphs, func(o *service.Options) { o.Local, o.Lease = true, quick })
	return api, worker
}

func TestARunIsNoticedElsewhere(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan id.Run, 1)
			api, worker := pair(t, way, hang(started))
			r, err := api.runs.Create(t.Context(), api.newThread(), request("g"))
			require.NoError(t, err)
			require.Equal(t, r.ID, next(t, started))
			// A cancel too, and whoever waits for it is told of the end.
			f, err := api.runs.Join(t.Context(), r.Thread, r.ID)
			require.NoError(t, err)
			defer f.Close(false)
			require.NoError(t, api.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true))
			res, err := f.Result(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(res.Error), "UserInterrupt")
			require.Equal(t, run.Interrupted, worker.status(r.Thread, r.ID))
		})
	}
}

// A stream of what another instance executes says that it has nothing, and ends with what is known; a wait answers with it.
func TestEndsOfRunsElsewhere(t *testing.T) {
	t.Parallel()
	fail := script{stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":1}`)
		if strings.Contains(string(inv.Input), "fail") {
			return &graph.Failure{Type: "ValueError", Message: "boom"}
		}
		return nil
	}}
	gap := func(r id.Run) string {
		return fmt.Sprintf(`gap {"code":"stream_elsewhere","run_id":%q,"message":"Another server executed the run, and without Redis its stream is not shared.","recovery":"reload_durable_state"}`, r)
	}
	const boom = `{"error":"ValueError","message":"boom"}`
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, _ := pair(t, way, fail)
			th := api.newThread()
			thread, err := api.runs.StreamThread(t.Context(), th, nil, nil)
			require.NoError(t, err)
			defer thread.Close(false)

			bad := request("g")
			bad.Input = json.RawMessage(`{"fail":true}`)
			r, f, err := api.runs.Start(t.Context(), th, bad)
			require.NoError(t, err)
			require.Equal(t, []string{gap(r.ID), "error " + boom}, api.events(f))
			if name == "by signals" { // streams of threads have no other way
				records, err := thread.Next(t.Context())
				require.NoError(t, err)
				require.Len(t, records, 3)
				require.Equal(t, []string{gap(r.ID), "error " + boom, fmt.Sprintf(`metadata {"status":"run_done","run_id":%q}`, r.ID)}, texts(records))
			}

			_, f, err = api.runs.Start(t.Context(), th, bad)
			require.NoError(t, err)
			defer f.Close(false)
			res, err := f.Result(t.Context())
			require.NoError(t, err)
			require.JSONEq(t, boom, string(res.Error))

			// What is kept of a resumable run is shown.
			kept := request("g")
			kept.Resumable = true
			r, f, err = api.runs.Start(t.Context(), th, kept)
			require.NoError(t, err)
			require.Equal(t, []string{gap(r.ID), fmt.Sprintf(`metadata {"run_id":%q,"attempt":1}`, r.ID), `values {"n":1}`}, api.events(f))

			// Of a run that leaves nothing there is nothing.
			r, f, err = api.runs.Start(t.Context(), "", request("g"))
			require.NoError(t, err)
			require.Equal(t, []string{gap(r.ID)}, api.events(f))
			_, f, err = api.runs.Start(t.Context(), "", request("g"))
			require.NoError(t, err)
			defer f.Close(false)
			res, err = f.Result(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(res.Error), "ResultUnavailable")
		})
	}
}

// Who follows a pending run, or its thread, is told when another instance ends it.
func TestWhatWaitsEndsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	idle := func(o *service.Options) { o.Local, o.Jobs = true, -1 }
	a, b := c.start(map[string]script{"g": echo}, idle), c.start(map[string]script{"g": echo}, idle)
	for name, end := range map[string]func(r *run.Run){
		"cancelled": func(r *run.Run) {
			require.NoError(t, b.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, false))
		},
		"rolled back": func(r *run.Run) { require.NoError(t, b.runs.Delete(t.Context(), r.Thread, r.ID)) },
		"its thread deleted": func(r *run.Run) {
			require.NoError(t, b.store.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(r.Thread) }))
			b.runs.ThreadDeleted(r.Thread)
		},
	} {
		th := a.newThread()
		r, f, err := a.runs.Start(t.Context(), th, request("g"))
		require.NoError(t, err)
		all, err := a.runs.StreamThread(t.Context(), th, nil, nil)
		require.NoError(t, err)
		end(r)
		got := a.events(f)
		if name == "its thread deleted" {
			for err == nil { // it may hear of the run's end before that of its thread
				_, err = all.Next(t.Context())
			}
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.Len(t, got, 1, name)
			require.True(t, strings.HasPrefix(got[0], "gap "), name)
		}
		all.Close(false)
	}
}

// An instance that is told to stop hands back what has not ended, and another goes on with it without waiting for the lease.
func TestDrain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	onA, onB := make(chan id.Run, 1), make(chan id.Run, 1)
	a := c.start(map[string]script{"g": hang(onA)}, func(o *service.Options) { o.Grace = 1 })
	r, err := a.runs.Create(t.Context(), a.newThread(), request("g"))
	require.NoError(t, err)
	next(t, onA)
	c.wrap = ways["by signals"] // it never looks for leases
	b := c.start(map[string]script{"g": hang(onB)}, nil)
	a.stop()
	require.Equal(t, r.ID, next(t, onB))
	row, err := b.runs.Get(t.Context(), r.Thread, r.ID)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{row.Attempt, row.Failures})
	// What it had not begun goes on too.
	later, err := b.runs.Create(t.Context(), b.newThread(), request("g"))
	require.NoError(t, err)
	require.Equal(t, later.ID, next(t, onB))
	for _, r := range []*run.Run{r, later} {
		err := b.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true)
		require.True(t, err == nil || fault.Is(err, fault.NotFound), err)
	}
}
