package service_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
)

// A single server goes by its machine's clock. However that jumps, forward and back: no run that goes on loses its lease, and every delayed run and every
// cron that the clock passes begins once, also when the clock passes the time again.
func TestWallClockJumps(t *testing.T) {
	t.Parallel()
	const step, lease = 10 * time.Minute, 400 * time.Millisecond
	var offset atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	var mu sync.Mutex
	began := map[id.Run]int{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(began)
	}
	hanging := make(chan id.Run, 64)
	w := newWorld(t, map[string]script{"hang": hang(hanging), "tick": {stream: func(_ context.Context, inv graph.Invocation, _ func(string, string)) error {
		mu.Lock()
		defer mu.Unlock()
		began[inv.Run]++
		return nil
	}}}, func(o *service.Options) { o.Lease, o.Grace, o.Now = lease, time.Millisecond, clock })
	// Clocks stand at five minutes past the steps, what is due is due on the steps: how long the test takes decides nothing.
	grid := time.Now().UTC().Truncate(24 * time.Hour)
	set := func(steps int) { offset.Store(int64(time.Until(grid.Add(time.Duration(steps)*step + step/2)))) }
	set(0)

	kept := w.thread()
	long, err := w.runs.Create(t.Context(), kept, request("hang"))
	require.NoError(t, err)
	next(t, hanging)
	cron, err := w.runs.Crons().Create(t.Context(), run.NewCron{
		AssistantID: "tick", Schedule: "0 */2 * * *", Enabled: true,
		Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)},
	})
	require.NoError(t, err)
	due := *cron.Next
	delayed := map[id.Run]time.Time{}
	want, fired := 0, 0
	r := rand.New(rand.NewPCG(31, 0))
	for n := range 16 {
		to := r.IntN(36)
		if n%2 == 1 {
			to = -r.IntN(36)
		}
		set(to + n*6)
		now := clock()
		for run, at := range delayed {
			if !at.After(now) {
				want++
				delete(delayed, run)
			}
		}
		if !due.After(now) {
			want++
			fired++
		}
		// These wake what looks for due runs and crons, and are begun after them.
		far, err := w.runs.Crons().Create(t.Context(), run.NewCron{
			AssistantID: "tick", Schedule: "0 0 1 1 *", Enabled: true,
			Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)},
		})
		require.NoError(t, err)
		marker := request("tick")
		marker.After = time.Millisecond
		at := w.thread()
		last, err := w.runs.Create(t.Context(), at, marker)
		require.NoError(t, err)
		want++
		w.wait(at, last.ID)
		require.Eventually(t, func() bool { return count() >= want }, time.Minute, 5*time.Millisecond, "step %d: something is lost", n)
		require.NoError(t, w.runs.Crons().Delete(t.Context(), far.ID))
		row, err := w.runs.Crons().Get(t.Context(), cron.ID)
		require.NoError(t, err)
		if due.After(now) {
			require.Equal(t, due, *row.Next)
		} else {
			require.True(t, row.Next.After(now))
			require.LessOrEqual(t, row.Next.Sub(now), 2*time.Hour)
		}
		due = *row.Next

		for range 2 {
			req := request("tick")
			req.After = time.Duration(r.IntN(36))*step + step/2
			d, err := w.runs.Create(t.Context(), w.thread(), req)
			require.NoError(t, err)
			delayed[d.ID] = d.CreatedAt
		}
		// The lease goes on from where the clock is now.
		require.Eventually(t, func() bool {
			row, err := w.runs.Get(t.Context(), kept, long.ID)
			require.NoError(t, err)
			require.Equal(t, run.Running, row.Status)
			require.Equal(t, 1, row.Attempt)
			return row.LeaseUntil.Sub(clock()).Abs() <= lease
		}, time.Minute, 5*time.Millisecond)
	}
	require.Equal(t, want, count())
	for _, times := range began {
		require.Equal(t, 1, times)
	}
	require.Empty(t, hanging)
	require.NotEmpty(t, delayed)
	require.Greater(t, fired, 2)
}
