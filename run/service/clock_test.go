package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
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
		all = append(all, c.start(graphs, func(o *service.Options) {
			o.Lease, o.Grace = 4*time.Second, time.Millisecond
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
		cron, err := in.runs.Crons().Create(t.Context(), run.NewCron{
			AssistantID: "tick", Schedule: "* * * * * */3", Enabled: true,
			Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)},
		})
		require.NoError(t, err)
		sane(*cron.Next)
		for range 2 {
			at := next(t, ticks)
			onTime(t, at.Truncate(3*time.Second), at)
		}
		require.NoError(t, in.runs.Crons().Delete(t.Context(), cron.ID))
	}
	// More than two leases have passed.
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

// shifting is a storage whose database tells another time than the machine.
type shifting struct {
	run.Shared
	ahead *atomic.Int64
	asked *atomic.Int64
}

func (s shifting) Clock(ctx context.Context) (time.Time, error) {
	now, err := s.Shared.Clock(ctx)
	s.asked.Add(1)
	return now.Add(time.Duration(s.ahead.Load())), err
}

// A database whose time jumps, as one does that another machine goes on with, ends nobody's lease: those who live renew before anybody judges. Nor does
// a server's own clock that is set back: it is compared before leases are renewed by it.
func TestTimeJumps(t *testing.T) {
	t.Parallel()
	var ahead, asked, own atomic.Int64
	c := newCluster(t)
	c.wrap = func(s run.Shared) run.Shared { return shifting{s, &ahead, &asked} }
	hanging := make(chan id.Run, 64)
	graphs := map[string]script{"hang": hang(hanging), "echo": echo}
	var all []*instance
	threads := map[id.Thread]id.Run{}
	for range 3 {
		in := c.start(graphs, func(o *service.Options) {
			o.Lease, o.Grace = 6*time.Second, time.Millisecond
			if len(all) == 0 {
				o.Now = func() time.Time { return time.Now().Add(time.Duration(own.Load())) }
			}
		})
		all = append(all, in)
		for range 2 {
			th := in.newThread()
			r, err := in.runs.Create(t.Context(), th, request("hang"))
			require.NoError(t, err)
			threads[th] = r.ID
			next(t, hanging)
		}
	}
	for _, jump := range []struct{ database, own time.Duration }{
		{database: 10 * time.Minute},
		{database: -20 * time.Minute},
		{database: 30 * time.Minute},
		{own: -10 * time.Minute},
		{own: -10 * time.Minute},
		{own: -10 * time.Minute},
		{own: -10 * time.Minute},
	} {
		ahead.Add(int64(jump.database))
		own.Add(int64(jump.own))
		was := asked.Load()
		// Each asks with each heartbeat: all have had two, and one to judge by.
		require.Eventually(t, func() bool { return asked.Load() >= was+int64(6*len(all)) }, time.Minute, 20*time.Millisecond)
		for th, r := range threads {
			row, err := all[0].runs.Get(t.Context(), th, r)
			require.NoError(t, err)
			require.Equal(t, run.Running, row.Status)
			require.Equal(t, 1, row.Attempt, "it was taken over")
			require.WithinDuration(t, time.Now().Add(time.Duration(ahead.Load())), row.LeaseUntil, 30*time.Second, "it goes by the time of the database")
		}
		th := all[0].newThread()
		r, err := all[0].runs.Create(t.Context(), th, request("echo"))
		require.NoError(t, err)
		all[0].reaches(th, r.ID, run.Success)
	}
	require.Empty(t, hanging)
}

// A server whose own clock jumps asks the database before it claims by it: nothing that is due later begins.
func TestClockJumpsBetweenHeartbeats(t *testing.T) {
	t.Parallel()
	var ahead, asked, none atomic.Int64
	c := newCluster(t)
	c.wrap = func(s run.Shared) run.Shared { return shifting{s, &none, &asked} }
	began := make(chan struct{}, 64)
	in := c.start(map[string]script{"tick": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		began <- struct{}{}
		return nil
	}}}, func(o *service.Options) {
		o.Lease = time.Hour // no heartbeat in this test
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	req := request("tick")
	req.After = 5 * time.Minute
	th := in.newThread()
	later, err := in.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	at := time.Now().Add(time.Hour)
	cron, err := in.runs.Crons().Create(t.Context(), run.NewCron{
		AssistantID: "tick", Schedule: fmt.Sprintf("%d %d * * *", at.UTC().Minute(), at.UTC().Hour()), Enabled: true,
		Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)},
	})
	require.NoError(t, err)
	lookForCrons := func() {
		far, err := in.runs.Crons().Create(t.Context(), run.NewCron{AssistantID: "tick", Schedule: "0 0 1 1 *", Enabled: true, Payload: map[string]json.RawMessage{"input": json.RawMessage(`{}`)}})
		require.NoError(t, err)
		require.NoError(t, in.runs.Crons().Delete(t.Context(), far.ID))
	}
	lookForRuns := func() {
		other := request("tick")
		other.After = 24 * time.Hour
		_, err := in.runs.Create(t.Context(), in.newThread(), other)
		require.NoError(t, err)
	}
	for _, jump := range []struct {
		by   time.Duration
		look func()
	}{{3 * time.Hour, lookForRuns}, {-6 * time.Hour, lookForCrons}, {9 * time.Hour, lookForCrons}, {3 * time.Hour, lookForRuns}} {
		was := asked.Load()
		ahead.Add(int64(jump.by))
		// Whoever looks what is due finds that the clock jumped.
		jump.look()
		require.Eventually(t, func() bool { return asked.Load() > was }, time.Minute, 10*time.Millisecond)
		// What is due now begins all the same.
		soon := request("tick")
		soon.After = time.Millisecond
		other := in.newThread()
		r, err := in.runs.Create(t.Context(), other, soon)
		require.NoError(t, err)
		next(t, began)
		in.reaches(other, r.ID, run.Success)
		require.Equal(t, run.Pending, in.status(th, later.ID))
		row, err := in.runs.Crons().Get(t.Context(), cron.ID)
		require.NoError(t, err)
		require.Equal(t, *cron.Next, *row.Next, "it fired")
	}
	require.Empty(t, began)
}
