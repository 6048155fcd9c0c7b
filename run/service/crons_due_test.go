package service_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// Thousands of crons that are due at the same time fire within their minute, each once.
func TestManyCronsDueAtOnce(t *testing.T) {
	t.Parallel()
	const crons = 1000
	var offset atomic.Int64
	w := newWorld(t, map[string]script{"echo": echo}, func(o *service.Options) {
		o.Jobs = -1 // runs wait in the queue
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	th := w.thread()
	first, err := w.runs.Crons().Create(t.Context(), run.NewCron{
		AssistantID: "echo", Schedule: "0 0 1 1 *", Enabled: true,
		Payload: map[string]json.RawMessage{"input": json.RawMessage(`{"n":1}`)},
	})
	require.NoError(t, err)
	require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		for i := 1; i < crons; i++ {
			c := *first
			c.ID = id.NewCron()
			if i%100 == 0 {
				c.Thread = th
			}
			if err := tx.InsertCron(&c); err != nil {
				return err
			}
		}
		return nil
	}))
	began := time.Now()
	w.stop()
	offset.Store(int64(366 * 24 * time.Hour))
	w.start()
	require.Eventually(t, func() bool {
		next, err := w.rows.Runs().NextCron(t.Context(), true)
		require.NoError(t, err)
		return next.After(*first.Next)
	}, time.Minute, 50*time.Millisecond)
	t.Logf("%d crons fired in %v", crons, time.Since(began))
	threads, err := w.rows.Threads().CountThreads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.Equal(t, crons-crons/100+1+1, threads, "a thread for each cron that has none")
	recent, _, err := w.runs.Recent(t.Context(), run.Recent{Cron: first.ID, Limit: 10})
	require.NoError(t, err)
	require.Len(t, recent, 1, "a run says which cron made it")
	rows, err := w.runs.List(t.Context(), th, run.Query{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, rows, crons/100-1)
}

// refusing is a storage that fails to insert a run once.
type refusing struct {
	run.Store
	refused atomic.Bool
}

type refusingTx struct {
	run.Tx
	of *refusing
}

func (r *refusing) Write(ctx context.Context, fn func(run.Tx) error) error {
	return r.Store.Write(ctx, func(tx run.Tx) error { return fn(refusingTx{tx, r}) })
}

func (tx refusingTx) InsertRun(r *run.Run) error {
	if !tx.of.refused.Swap(true) {
		return fault.New(fault.Unavailable, "the disk is full")
	}
	return tx.Tx.InsertRun(r)
}

// A cron whose run cannot be saved fires when it can: it does not move on without it.
func TestACronThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	storage := &refusing{}
	storage.refused.Store(true)
	w := newWorldOn(t, func(s run.Store) run.Store {
		storage.Store = s
		return storage
	}, map[string]script{"echo": echo}, func(o *service.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	th := w.thread()
	_, err := w.runs.Crons().Create(t.Context(), run.NewCron{
		Thread: th, AssistantID: "echo", Schedule: "0 0 1 1 *", Enabled: true, Payload: map[string]json.RawMessage{"input": json.RawMessage(`{"n":1}`)},
	})
	require.NoError(t, err)
	w.stop()
	offset.Store(int64(366 * 24 * time.Hour))
	storage.refused.Store(false)
	w.start()
	require.Eventually(t, func() bool {
		runs, err := w.runs.List(t.Context(), th, run.Query{Limit: 10})
		return err == nil && len(runs) == 1
	}, time.Minute, 10*time.Millisecond)
	require.True(t, storage.refused.Load())
}
