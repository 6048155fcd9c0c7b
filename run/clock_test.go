package run_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// Servers whose clocks are twenty minutes apart share the work as if they were right: no run is taken from the one that executes it, delayed runs
// and crons begin when they are due, and rows have the time of the database.
func TestClocksThatAreWrong(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	hanging, ticks := make(chan id.Run, 64), make(chan time.Time, 64)
	graphs := map[string]script{"hang": hang(hanging), "tick": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		ticks <- time.Now()
		return nil
	}}}
	var all []*instance
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		all = append(all, c.start(graphs, func(o *run.Options) {
			o.Lease, o.Grace = 2*time.Second, time.Millisecond
			o.Now = func() time.Time { return time.Now().Add(ahead) }
		}))
	}
	sane := func(at time.Time) {
		t.Helper()
		require.WithinDuration(t, time.Now(), at, 30*time.Second)
	}
	threads := map[id.Thread]id.Run{}
	for _, in := range all {
		for range 2 {
			th := in.newThread()
			r, err := in.runs.Create(t.Context(), th, request("hang"))
			require.NoError(t, err)
			sane(r.CreatedAt)
			threads[th] = r.ID
			next(t, hanging)
		}
	}
	for _, in := range all {
		req := request("tick")
		req.After = 2 * time.Second
		due := time.Now().Add(req.After)
		_, err := in.runs.Create(t.Context(), in.newThread(), req)
		require.NoError(t, err)
		onTime(t, due, next(t, ticks))
	}
	for _, in := range all {
		cron, err := in.runs.CreateCron(t.Context(), run.NewCron{AssistantID: "tick", Schedule: "* * * * * */3", Enabled: true,
			Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)}})
		require.NoError(t, err)
		sane(*cron.Next)
		for range 2 {
			at := next(t, ticks)
			onTime(t, at.Truncate(3*time.Second), at)
		}
		require.NoError(t, in.runs.DeleteCron(t.Context(), cron.ID))
	}
	// More than three leases have passed.
	for th, r := range threads {
		row, err := all[0].runs.Get(t.Context(), th, r)
		require.NoError(t, err)
		require.Equal(t, run.Running, row.Status)
		require.Equal(t, 1, row.Attempt, "it was taken over")
		sane(row.UpdatedAt)
		sane(row.LeaseUntil)
	}
	require.Empty(t, hanging)
}

// onTime allows for a busy machine, not for a clock that is minutes off.
func onTime(t *testing.T, due, began time.Time) {
	t.Helper()
	require.False(t, began.Before(due.Add(-50*time.Millisecond)), "%s early", due.Sub(began))
	require.Less(t, began.Sub(due), 5*time.Second)
}
