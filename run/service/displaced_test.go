package service_test

import (
	"context"
	"encoding/json"
	"errors"
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
)

// stubborn is a graph that notices its end only when the test lets it.
func stubborn(started chan<- id.Run, end <-chan struct{}) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		started <- inv.Run
		<-ctx.Done()
		<-end
		return context.Cause(ctx)
	}}
}

// A run whose cancel was asked for goes when it has stopped, and whoever follows it is told.
func TestDeleteOfARunThatIsBeingCancelled(t *testing.T) {
	t.Parallel()
	started, end := make(chan id.Run, 1), make(chan struct{})
	w := newWorld(t, map[string]script{"g": stubborn(started, end)}, nil)
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, request("g"))
	require.NoError(t, err)
	next(t, started)
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID, r.ID}, run.CancelInterrupt, false))
	deleted := make(chan error, 1)
	go func() { deleted <- w.runs.Delete(t.Context(), th, r.ID) }()
	select {
	case err := <-deleted:
		t.Fatalf("the run was deleted under its execution: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(end)
	require.NoError(t, next(t, deleted))
	w.events(f) // to the end
	_, err = w.runs.Get(t.Context(), th, r.ID)
	require.True(t, fault.Is(err, fault.NotFound))
}

// The run of a cron displaces others as that of a client does.
func TestACronInterruptsRuns(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 4)
	w := newWorld(t, map[string]script{"hang": hang(started), "echo": echo}, nil)
	th := w.thread()
	running, f, err := w.runs.Start(t.Context(), th, request("hang"))
	require.NoError(t, err)
	next(t, started)
	waiting, g, err := w.runs.Start(t.Context(), th, request("echo"))
	require.NoError(t, err)
	due := time.Now().Add(-time.Minute)
	payload := json.RawMessage(`{"assistant_id":"` + string(id.DefaultAssistant("echo")) + `","input":{},"multitask_strategy":"interrupt"}`)
	require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		return tx.InsertCron(&run.Cron{
			ID: id.NewCron(), Assistant: id.DefaultAssistant("echo"), Thread: th, Schedule: "0 0 1 1 *", Payload: payload, Next: &due,
			Metadata: json.RawMessage(`{}`), Enabled: true, CreatedAt: due, UpdatedAt: due,
		})
	}))
	_, err = w.runs.Crons().Create(t.Context(), run.NewCron{AssistantID: "echo", Schedule: "0 0 1 1 *"}) // which has the service look for what is due
	require.NoError(t, err)
	w.events(g) // whoever follows the one that had not begun is told
	w.events(f)
	require.Equal(t, run.Interrupted, w.status(th, running.ID))
	require.Equal(t, run.Interrupted, w.status(th, waiting.ID))
}

// liar is a storage that says once of a commit that happened that nobody knows whether it did.
type liar struct {
	run.Shared
	lies *atomic.Bool
}

func (l liar) Write(ctx context.Context, fn func(run.Tx) error) error {
	err := l.Shared.Write(ctx, fn)
	if err == nil && l.lies.CompareAndSwap(true, false) {
		return fault.Wrap(fault.Unavailable, "the connection to the database was lost during a commit: whether it happened is not known", errors.New("EOF"))
	}
	return err
}

// A run that has ended without the server knowing is told of when it finds out.
func TestAnEndThatNobodyKnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var lies atomic.Bool
	let := make(chan struct{})
	c.wrap = func(s run.Shared) run.Shared { return liar{s, &lies} }
	a := c.start(map[string]script{"g": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		<-let
		lies.Store(true) // the next thing to be written is the end
		return nil
	}}, "echo": echo}, func(o *service.Options) { o.Lease = time.Hour })
	th := a.newThread()
	r, f, err := a.runs.Start(t.Context(), th, request("g"))
	require.NoError(t, err)
	waits, err := a.runs.Create(t.Context(), th, request("echo"))
	require.NoError(t, err)
	close(let)
	a.events(f)
	require.Equal(t, run.Success, a.status(th, r.ID))
	a.reaches(th, waits.ID, run.Success)
}

// A thread that somebody else holds does not cost the other runs of a server their leases.
func TestAThreadThatIsHeldCostsOthersNoLease(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	c := newCluster(t)
	started := make(chan id.Run, 8)
	graphs := map[string]script{"g": hang(started)}
	a := c.start(graphs, func(o *service.Options) { o.Lease = lease })
	var all []*run.Run
	for range 4 {
		r, err := a.runs.Create(t.Context(), a.newThread(), request("g"))
		require.NoError(t, err)
		next(t, started)
		all = append(all, r)
	}
	c.start(graphs, func(o *service.Options) { o.Lease = lease })
	held, let := make(chan struct{}), make(chan struct{})
	over := make(chan error, 1)
	go func() {
		over <- c.open().Runs().Write(context.Background(), func(tx run.Tx) error {
			if _, err := tx.Run(all[1].Thread, all[1].ID); err != nil {
				return err
			}
			close(held)
			<-let
			return nil
		})
	}()
	next(t, held)
	since := time.Now()
	require.Eventually(t, func() bool { // for more than two leases the others are renewed
		got, err := a.runs.Get(t.Context(), all[0].Thread, all[0].ID)
		return err == nil && got.LeaseUntil.After(since.Add(3*lease))
	}, time.Minute, 10*time.Millisecond)
	close(let)
	require.NoError(t, next(t, over))
	for i, r := range all {
		got, err := a.runs.Get(t.Context(), r.Thread, r.ID)
		require.NoError(t, err)
		if i != 1 {
			require.Equal(t, 1, got.Attempt, "the lease of run %d was lost", i)
		}
	}
}

// dark is a bridge that carries nothing.
type dark struct{ bridge.Bridge }

func (dark) Subscribe(context.Context, id.Thread, *bridge.Offset) (bridge.Subscription, error) {
	return nil, bridge.ErrInterrupted
}

// Whoever waits on a thread needs no live stream; whoever wants one is refused before the run is made.
func TestWaitingWhileStreamsAreInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.carry = func(b bridge.Bridge) bridge.Bridge { return dark{b} }
	started := make(chan id.Run, 1)
	a := c.start(map[string]script{"echo": echo, "hang": hang(started)}, nil)
	th := a.newThread()
	_, _, err := a.runs.Start(t.Context(), th, request("echo"))
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	all, err := a.runs.List(t.Context(), th, run.Query{})
	require.NoError(t, err)
	require.Empty(t, all)

	r, f, err := a.runs.BeginWait(t.Context(), th, request("echo"))
	require.NoError(t, err)
	res, err := f.Result(t.Context())
	require.NoError(t, err)
	require.Nil(t, res.Error)
	f.Close(true)
	require.Equal(t, run.Success, a.status(th, r.ID))

	leaves := request("hang")
	leaves.OnDisconnect = "cancel"
	r, f, err = a.runs.BeginWait(t.Context(), th, leaves)
	require.NoError(t, err)
	next(t, started)
	f.Close(true)
	a.reaches(th, r.ID, run.Interrupted)
}
