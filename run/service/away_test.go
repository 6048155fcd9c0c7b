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
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// unsteady is a storage that can go away. What it refuses is counted.
type unsteady struct {
	run.Shared
	full    bool // it only writes nothing
	away    atomic.Bool
	refused atomic.Int64
}

func (u *unsteady) gone() error {
	if !u.away.Load() {
		return nil
	}
	u.refused.Add(1)
	return fault.Wrap(fault.Unavailable, "the database cannot be reached", errors.New("connection refused"))
}

func (u *unsteady) Write(ctx context.Context, fn func(run.Tx) error) error {
	if err := u.gone(); err != nil {
		return err
	}
	return u.Shared.Write(ctx, fn)
}

func (u *unsteady) LoadCheckpoint(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	if u.full {
		return u.Shared.LoadCheckpoint(ctx, k)
	}
	if err := u.gone(); err != nil {
		return nil, err
	}
	return u.Shared.LoadCheckpoint(ctx, k)
}

func (u *unsteady) Lapsed(ctx context.Context, before time.Time, limit int) ([]*run.Run, error) {
	if u.full {
		return u.Shared.Lapsed(ctx, before, limit)
	}
	if err := u.gone(); err != nil {
		return nil, err
	}
	return u.Shared.Lapsed(ctx, before, limit)
}

// until waits until the storage has refused something.
func (u *unsteady) until(t *testing.T, more int64) {
	t.Helper()
	was := u.refused.Load()
	require.Eventually(t, func() bool { return u.refused.Load() >= was+more }, time.Minute, 5*time.Millisecond)
}

func saveOne(ctx context.Context, inv graph.Invocation, checkpoint id.Checkpoint) error {
	return inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key:  checkpointer.Key{Thread: inv.Thread, ID: checkpoint},
		Data: json.RawMessage(`{"channel_values":{},"channel_versions":{}}`), Metadata: json.RawMessage(`{}`), Run: inv.Run,
	}}})
}

// A database that restarts costs a run time, and nothing else: not the run, not what it shows.
func TestARunWaitsForItsStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var storage *unsteady
	c.wrap = func(s run.Shared) run.Shared {
		storage = &unsteady{Shared: s}
		return storage
	}
	saving := make(chan id.Run, 1)
	in := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		storage.away.Store(true)
		saving <- inv.Run
		if _, err := inv.Saver.Load(ctx, checkpointer.Key{Thread: inv.Thread}); err != nil {
			return err
		}
		emit("values", `{"n":1}`)
		storage.away.Store(true)
		saving <- inv.Run
		return saveOne(ctx, inv, "1f000000-0000-6000-8000-000000000001")
	}}}, nil)
	req := request("g")
	req.Resumable = true
	th := in.newThread()
	r, err := in.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, r.ID, next(t, saving))
		storage.until(t, 3)
		storage.away.Store(false)
	}
	in.reaches(th, r.ID, run.Success)
	got, err := in.runs.Get(t.Context(), th, r.ID)
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt)
	records, err := in.store.Records(t.Context(), th, bridge.Offset{}, 0)
	require.NoError(t, err)
	var events []string
	for i, rec := range records {
		events = append(events, rec.Event)
		require.Equal(t, [2]int64{1, int64(i + 1)}, [2]int64{int64(rec.Attempt), rec.Index})
		if i == 1 {
			break // the record of the end is kept after it
		}
	}
	require.Equal(t, []string{"metadata", "values"}, events)
}

// A run whose storage stays away goes back to the queue: it is not its fault, and it does not end in an error.
func TestARunWhoseStorageStaysAwayIsHandedBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var storage *unsteady
	c.wrap = func(s run.Shared) run.Shared {
		storage = &unsteady{Shared: s}
		return storage
	}
	given := make(chan error, 1)
	in := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		if inv.Attempt > 1 {
			return nil
		}
		storage.away.Store(true)
		given <- saveOne(ctx, inv, "1f000000-0000-6000-8000-000000000001")
		return &graph.Failure{Type: "OperationalError", Message: "what Python makes of it"}
	}}}, func(o *service.Options) { o.Lease = 100 * time.Millisecond })
	th := in.newThread()
	r, err := in.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	require.ErrorContains(t, next(t, given), "cannot be reached")
	storage.away.Store(false)
	in.reaches(th, r.ID, run.Success)
	got, err := in.runs.Get(t.Context(), th, r.ID)
	require.NoError(t, err)
	require.Zero(t, got.Failures)
}

// When the database comes back after longer than a lease, or takes writes again, those who live renew theirs before anybody takes over.
func TestLeasesThatNobodyCouldRenewAreNotTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"away": false, "full": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unrenewed(t, full)
		})
	}
}

func unrenewed(t *testing.T, full bool) {
	c := newCluster(t)
	var storages []*unsteady
	c.wrap = func(s run.Shared) run.Shared {
		storages = append(storages, &unsteady{Shared: s, full: full})
		return storages[len(storages)-1]
	}
	lease := func(o *service.Options) { o.Lease = 2 * time.Second }
	started, end := make(chan id.Run, 4), make(chan struct{})
	g := map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		started <- inv.Run
		select {
		case <-end:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}}}
	in := c.start(g, lease)
	for range 2 {
		c.start(nil, lease)
	}
	away := func(is bool) {
		for _, s := range storages {
			s.away.Store(is)
		}
	}
	th := in.newThread()
	r, err := in.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	next(t, started)
	away(true)
	require.Eventually(t, func() bool {
		row, err := in.store.Run(t.Context(), th, r.ID)
		return err == nil && row.LeaseUntil.Before(time.Now())
	}, time.Minute, 20*time.Millisecond)
	for _, s := range storages {
		s.until(t, 1) // each has tried
	}
	away(false)
	require.Eventually(t, func() bool {
		row, err := in.store.Run(t.Context(), th, r.ID)
		return err == nil && row.LeaseUntil.After(time.Now())
	}, time.Minute, 20*time.Millisecond)
	close(end)
	in.reaches(th, r.ID, run.Success)
	got, err := in.runs.Get(t.Context(), th, r.ID)
	require.NoError(t, err)
	require.Equal(t, 1, got.Attempt)
}

// A server that lost a run and claims it again does not wait for what it had begun before.
func TestAnAttemptThatIsLostHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	release := make(chan struct{})
	began, told := make(chan id.Run, 1), make(chan error, 1)
	in := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		if inv.Attempt > 1 {
			return nil
		}
		began <- inv.Run
		<-ctx.Done()
		told <- context.Cause(ctx)
		<-release // it does not end when it is told to
		return context.Cause(ctx)
	}}}, func(o *service.Options) { o.Lease = 2 * time.Second })
	th := in.newThread()
	r, err := in.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	next(t, began)
	require.Eventually(t, func() bool {
		require.NoError(t, in.store.Runs().Write(t.Context(), func(tx run.Tx) error {
			row, err := tx.Run(th, r.ID)
			if err != nil || row.Status != run.Running || row.Attempt > 1 {
				return err
			}
			row.LeaseUntil = time.Now().Add(-time.Second)
			return tx.UpdateRun(row)
		}))
		return in.status(th, r.ID) == run.Success
	}, time.Minute, 20*time.Millisecond)
	require.ErrorContains(t, next(t, told), "taken the run over")
	close(release)
}

// once is a storage that takes one write of a caller who says so, as if the process were killed after it.
type once struct{ run.Shared }

type writesLeft struct{}

func (o once) Write(ctx context.Context, fn func(run.Tx) error) error {
	if n, limited := ctx.Value(writesLeft{}).(*atomic.Int64); limited && n.Add(-1) < 0 {
		return fault.New(fault.Unavailable, "killed")
	}
	return o.Shared.Write(ctx, fn)
}

// A cancel leaves nothing to be done after its commit: an instance that dies then leaves no thread busy.
func TestACancelOfWhatWaitsIsOneWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.wrap = func(s run.Shared) run.Shared { return once{s} }
	in := c.start(map[string]script{"echo": echo}, func(o *service.Options) { o.Jobs = -1 })
	cancels := map[string]func(ctx context.Context, r *run.Run) error{
		"one": func(ctx context.Context, r *run.Run) error {
			return in.runs.Cancel(ctx, r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true)
		},
		"rolled back": func(ctx context.Context, r *run.Run) error {
			return in.runs.Cancel(ctx, r.Thread, []id.Run{r.ID}, run.CancelRollback, true)
		},
		"deleted": func(ctx context.Context, r *run.Run) error { return in.runs.Delete(ctx, r.Thread, r.ID) },
		"all": func(ctx context.Context, _ *run.Run) error {
			return in.runs.CancelAll(ctx, "pending", run.CancelInterrupt)
		},
	}
	for name, cancel := range cancels {
		r, err := in.runs.Create(t.Context(), in.newThread(), request("echo"))
		require.NoError(t, err)
		stateless, err := in.runs.Create(t.Context(), "", request("echo"))
		require.NoError(t, err)
		limit := &atomic.Int64{}
		limit.Store(1)
		require.NoError(t, cancel(context.WithValue(t.Context(), writesLeft{}, limit), r), name)
		row, err := in.store.Threads().Thread(t.Context(), r.Thread)
		require.NoError(t, err)
		require.Equal(t, thread.Idle, row.Status, name)
		if name == "all" {
			_, err := in.store.Threads().Thread(t.Context(), stateless.Thread)
			require.True(t, fault.Is(err, fault.NotFound), "the thread of a stateless run goes with it")
		}
	}
}

// A server whose storage is away when it ends does not wait for it: a run that has more records than may wait is let go with the grace period.
func TestShutdownWhileRecordsWaitForTheStorage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var storage *unsteady
	c.wrap = func(s run.Shared) run.Shared {
		storage = &unsteady{Shared: s}
		return storage
	}
	full, emitted := make(chan struct{}), atomic.Int64{}
	in := c.start(map[string]script{"g": {stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
		storage.away.Store(true)
		close(full)
		for ctx.Err() == nil {
			emit("values", `{}`)
			emitted.Add(1)
		}
		return context.Cause(ctx)
	}}}, func(o *service.Options) { o.Grace = time.Millisecond })
	req := request("g")
	req.Resumable = true
	th := in.newThread()
	r, err := in.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	next(t, full)
	require.Eventually(t, func() bool { return emitted.Load() >= 1024 }, time.Minute, time.Millisecond)
	// Nor do readers that come meanwhile, but for their heartbeats.
	joined := make(chan error, 1)
	go func() {
		f, err := in.runs.Join(t.Context(), th, r.ID)
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err = f.Result(ctx)
			f.Close(false)
		}
		joined <- err
	}()
	require.ErrorIs(t, next(t, joined), context.DeadlineExceeded)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		in.stop()
	}()
	next(t, stopped)
}
