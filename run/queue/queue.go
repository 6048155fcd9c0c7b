// Package queue decides when to look into the table of runs, which is the queue: it claims runs that are due, renews leases, and takes over runs of servers
// that died.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/clock"
	"understudy/run/completion"
	"understudy/run/execute"
	"understudy/run/settle"
	"understudy/run/signals"
	"understudy/run/slots"
	"understudy/run/spans"
	"understudy/run/stream"
	"understudy/thread"
)

// streamBlock is how far ahead of the clock a thread's offsets may go before the next heartbeat reserves more.
const streamBlock = 60 * time.Second

// Options are what a queue is made of.
type Options struct {
	Store        run.Store
	Shared       run.Shared // the store, when other servers work on it too; nil else
	Bridge       bridge.Bridge
	Graphs       run.Graphs
	Clock        *clock.Clock
	Instance     string
	Lease        time.Duration
	ResumableTTL time.Duration
	KeepSpans    time.Duration // 0: as long as their run
	Log          *slog.Logger
	Registry     prometheus.Registerer // nil: metrics are not exported

	Slots      *slots.Slots
	Executions *execute.Executions
	Executor   *execute.Executor
	Settler    *settle.Settler
	Signals    *signals.Sender
	Watches    *stream.Watches
	Wake       chan struct{} // capacity 1: something may be due. Slots pokes it too
	// Elsewhere reports whether a graph cannot be used here and another server serves it.
	Elsewhere func(graph string) bool
	// Others returns the graphs whose runs other servers execute; known is false while that is not known. nil: there are no others.
	Others func() (graphs []string, known bool)
	// OnPoll is called with each look for leases that have ended: it wakes loops whose signals may have been lost.
	OnPoll func()
}

// Queue claims runs that are due, keeps the leases of those that this server executes, and takes over runs of servers that died. The table of runs is the queue;
// what is here decides when to look into it.
type Queue struct {
	Options
	takeovers prometheus.Counter

	recheck chan struct{} // capacity 1: runs of this server may have been cancelled, deleted or taken over

	blind      bool // the last look for leases that have ended failed; owned by takeOver
	unwritable bool // the database took no write when runs were to be taken over last
	jumps      int  // of the clock that takeOver knows of; owned by it too

	lapsing map[id.Run]lapsing // of servers that seem to be dead, for two leases; owned by takeOver

	left map[string]bool // graphs whose runs were left to others when claimDue looked last; owned by it

	logged    time.Time // when it was logged that runs wait; owned by claimDue
	abandoned bool      // it was logged that no server executes runs that wait; owned by claimDue

	mu      sync.Mutex
	foreign map[string]bool // graphs of runs in the queue that only other servers serve
}

// New makes a queue, whose Run claims.
func New(o Options) *Queue {
	q := &Queue{Options: o, recheck: make(chan struct{}, 1), lapsing: map[id.Run]lapsing{}, foreign: map[string]bool{}, left: map[string]bool{}}
	q.watch(o.Registry)
	return q
}

// Run claims runs that are due, and keeps the leases of those that are executed here, until ctx ends.
func (q *Queue) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if q.Shared != nil {
		q.Log.InfoContext(ctx, "sharing the queue with other servers", "instance", q.Instance, "lease", q.Lease.String())
		g.Go(func() error { return q.listen(ctx) })
		g.Go(func() error { return q.loop("signals").Run(ctx, q.recheck, q.renewNow) })
		g.Go(func() error { return q.loop("takeover").Run(ctx, nil, q.takeOver) })
	}
	g.Go(func() error { return q.loop("queue").Run(ctx, q.Wake, q.claimDue) })
	g.Go(func() error { return q.loop("leases").Every(ctx, q.Lease/4, q.Renew) })
	g.Go(func() error { return q.loop("sweep").Every(ctx, min(time.Minute, q.ResumableTTL), q.sweep) })
	return g.Wait()
}

// loop names a background task.
func (q *Queue) loop(name string) loop.Loop {
	return loop.Loop{Name: name, Log: q.Log, Now: q.Clock.Now}
}

// Queued notes that a run was left in the queue, and wakes the scheduler.
func (q *Queue) Queued() {
	q.arrived()
	q.Signals.Send(run.Signal{})
}

// arrived wakes the scheduler for a run that may be in the queue.
func (q *Queue) arrived() {
	q.Slots.Arrived()
	q.WakeUp()
}

// WakeUp wakes the scheduler.
func (q *Queue) WakeUp() { loop.Poke(q.Wake) }

// clockSkew bounds by how much the clocks of servers differ that follow the database's.
const clockSkew = time.Second

// Claim makes a run this instance's: one attempt more, a lease, and room for the stream offsets of the coming minute.
func (q *Queue) Claim(r *run.Run, t *thread.Thread, now time.Time) {
	r.Status, r.Owner, r.LeaseUntil = run.Running, q.Instance, now.Add(q.Lease)
	r.Attempt++
	r.UpdatedAt = now
	if r.StartedAt.IsZero() {
		r.StartedAt = now
		// Events are numbered by these times: the run comes after the end of the one before, which another server may have written by its own clock.
		if ended := t.UpdatedAt; !ended.Before(now) && ended.Sub(now) < clockSkew {
			r.StartedAt = ended.Add(time.Microsecond)
		}
	}
	// Offsets continue above whatever was reserved before: the clock may have gone back since, or the process died.
	q.Bridge.Advance(t.ID, t.StreamHigh)
	t.StreamHigh = max(t.StreamHigh, now.UnixMilli()) + streamBlock.Milliseconds()
}

// claimBatch is how many runs are claimed in one transaction: enough that commits do not limit how many begin, few enough that other servers find some.
const claimBatch = 16

// claimDue claims due runs until nothing is due or no job is free. It returns when to look again; zero when the next poke is early enough.
func (q *Queue) claimDue(ctx context.Context) (time.Time, error) {
	if q.Slots.Len() == 0 {
		return q.unexecuted(ctx)
	}
	for {
		// Before looking, so that what is queued meanwhile is noticed.
		arrivals := q.Slots.Arrivals()
		full := q.full() // slots wake when one of them has room again
		next, err := q.Store.NextDue(ctx, full...)
		if err != nil {
			return time.Time{}, err
		}
		now := q.Clock.Now()
		if !next.IsZero() && !next.After(now) {
			var sure bool
			if now, sure, err = q.Clock.Sure(ctx); err != nil {
				return time.Time{}, err
			}
			if !sure {
				return now.Add(clock.Retry), nil
			}
		}
		if next.IsZero() || next.After(now) {
			if next.IsZero() {
				q.Slots.Empty(arrivals) // what waits for a run of its thread is announced by that run's end
			}
			q.Slots.Unowe()
			return next, nil
		}
		free := q.Slots.ReserveQueued(claimBatch)
		if free == 0 {
			return q.crowded(ctx, next, now), nil // slots wake when one is free
		}
		claimed, err := q.claimSome(ctx, free, now)
		q.Slots.Release(free - len(claimed))
		for _, r := range claimed {
			q.Executor.Launch(r)
		}
		switch {
		case errors.Is(err, errFull):
		case fault.Is(err, fault.NotFound) && len(claimed) == 0:
			q.Slots.Unowe()
			return q.Clock.Now().Add(10 * time.Millisecond), nil // it was cancelled just now, or claimed by another instance: look again
		case err != nil && !fault.Is(err, fault.NotFound):
			return time.Time{}, err
		}
	}
}

const (
	// crowdedAfter is how long a run may wait for a slot before that is logged, and crowdedEvery how often.
	crowdedAfter = 5 * time.Second
	crowdedEvery = time.Minute
)

// crowded logs that runs wait because all slots are taken, the first since some time. It returns when to look again.
func (q *Queue) crowded(ctx context.Context, since, now time.Time) time.Time {
	if waited := now.Sub(since); waited >= crowdedAfter && now.Sub(q.logged) >= crowdedEvery {
		q.logged = now
		busiest, count, oldest := q.Executions.Busiest()
		q.Log.WarnContext(ctx, "runs wait: this server executes as many as it may", "concurrency", q.Slots.Len(), "first_waits", waited.Round(time.Second).String(),
			"most_of_graph", busiest, "of_it", count, "oldest_runs_for", now.Sub(oldest).Round(time.Second).String(),
			"fix", `raise --concurrency; limit a graph that takes too many by its "concurrency" in langgraph.json`)
	}
	return now.Add(crowdedAfter)
}

// unexecuted logs, on a server that executes nothing, that a run waits which no other server executes, once until there is none. It returns when to look again.
func (q *Queue) unexecuted(ctx context.Context) (time.Time, error) {
	if q.Others == nil {
		return time.Time{}, nil
	}
	now := q.Clock.Now()
	graphs, known := q.Others()
	if !known {
		return now.Add(crowdedAfter), nil
	}
	next, err := q.Store.NextDue(ctx, graphs...)
	if err != nil {
		return time.Time{}, err
	}
	waits := !next.IsZero() && now.Sub(next) >= crowdedAfter
	if waits && !q.abandoned {
		q.Log.WarnContext(ctx, "runs wait, and no server executes them: this one has --concurrency 0, and no other executes their graphs",
			"first_waits", now.Sub(next).Round(time.Second).String(), "fix", "start understudy worker with the same langgraph.json and database, or this server without --concurrency 0")
	}
	q.abandoned = waits
	return now.Add(crowdedAfter), nil
}

// claimSome claims up to n runs that are due by a time in one transaction. With those that it has claimed it returns why there are not more: errFull, or fault.NotFound
// when no other can be claimed. After another error there are those that were claimed despite it.
func (q *Queue) claimSome(ctx context.Context, n int, now time.Time) ([]*run.Run, error) {
	var claimed []*run.Run
	var short error
	written := false
	undo := func() {
		for _, r := range claimed {
			q.Slots.Leave(r.Graph)
		}
		claimed, short = claimed[:0], nil
	}
	err := q.Store.Write(ctx, func(tx run.Tx) error {
		undo() // an attempt
		written = false
		for len(claimed) < n {
			r, err := tx.DueRun(now, q.full()...) // a job that became free meanwhile brought its place along
			if fault.Is(err, fault.NotFound) {
				short = err
				break
			}
			if err != nil {
				return err
			}
			if !q.serves(r.Graph) || !q.Slots.Enter(r.Graph) {
				short = errFull
				break
			}
			claimed = append(claimed, r)
			t, err := tx.Thread(r.Thread)
			if err != nil {
				return err
			}
			began := q.Clock.Now() // not now: a lease begins when the transaction has the run
			q.Claim(r, t, began)
			if err := tx.UpdateThread(t); err != nil {
				return err
			}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			if err := completion.RecordStart(tx, r, began); err != nil {
				return err
			}
		}
		written = true
		return nil
	})
	if err != nil && written {
		claimed = q.confirm(ctx, claimed)
		return claimed, err
	}
	if err != nil {
		undo()
		return nil, err
	}
	return claimed, short
}

// confirm returns those of some runs that were claimed though the answer to the commit was lost: they have no other server that would execute them. It leaves
// the places of the others.
func (q *Queue) confirm(ctx context.Context, claimed []*run.Run) []*run.Run {
	if q.Shared != nil { // servers that share the storage take over what is not executed
		limited, cancel := context.WithTimeout(ctx, q.Lease/4)
		defer cancel()
		ctx = limited
	}
	return slices.DeleteFunc(claimed, func(r *run.Run) bool {
		row, err := run.Confirm(ctx, q.Store, r.Thread, r.ID)
		lost := err != nil || row == nil || !r.SameClaim(row)
		if lost {
			q.Slots.Leave(r.Graph)
		}
		return lost
	})
}

// errFull: a run that was created meanwhile took the last place of its graph, or others serve it.
var errFull = errors.New("concurrency limit of the graph reached")

// serves reports whether the runs of a graph are for this instance. Those of a graph that it does not know are for others that share the storage:
// newer ones, as while all are being replaced. Without shared storage the run is claimed and ends with the error that there is no such graph.
func (q *Queue) serves(name string) bool {
	if _, ok := q.Graphs.Graph(name); ok || q.Shared == nil {
		return true
	}
	q.mu.Lock()
	known := q.foreign[name]
	q.foreign[name] = true
	q.mu.Unlock()
	if !known {
		q.Log.Warn("graph not served here; its runs are left to other servers", "graph", name)
	}
	return false
}

// leave returns the graphs that cannot be used here and that other servers serve, and logs those that it did not return before. Only claimDue calls it.
func (q *Queue) leave() (graphs []string) {
	for _, name := range q.Graphs.Names() {
		left := q.Elsewhere(name)
		if left {
			graphs = append(graphs, name)
		}
		if left == q.left[name] {
			continue
		}
		q.left[name] = left
		if left {
			q.Log.Warn("graph cannot be used here; its runs are left to other servers that serve it", "graph", name, "fix", "understudy doctor shows what is wrong with it")
		} else {
			q.Log.Info("runs of a graph are executed here again: it has loaded, or no other server serves it", "graph", name)
		}
	}
	return graphs
}

// full returns the graphs of which no run may begin here now, sorted. Only claimDue calls it.
func (q *Queue) full() (graphs []string) {
	graphs = append(q.leave(), q.Slots.Full()...)
	q.mu.Lock()
	defer q.mu.Unlock()
	for graph := range q.foreign {
		if _, known := q.Graphs.Graph(graph); !known {
			graphs = append(graphs, graph)
		}
	}
	slices.Sort(graphs)
	return graphs
}

// Renew extends leases and offset reservations, and detects runs that this instance has lost or that are to be cancelled.
func (q *Queue) Renew(ctx context.Context) error {
	mine := q.Executions.Written()
	if len(mine) == 0 {
		return nil
	}
	if q.Shared != nil {
		// A lease that is renewed by a clock that was set back would have ended for the others. Renewing by an old comparison is better than not at all.
		limited, cancel := context.WithTimeout(ctx, q.Lease/16)
		_, _, _ = q.Clock.Sure(limited)
		cancel()
	}
	// In the same order everywhere: a storage that locks threads one by one must not find two that wait for each other.
	slices.SortFunc(mine, func(a, b *execute.Execution) int { return strings.Compare(string(a.Run.Thread), string(b.Run.Thread)) })
	if q.Shared == nil {
		return q.renewAll(ctx, mine)
	}
	// All at once, unless one is held up: by the deletion of a large thread, or an instance that stands still in a transaction. It must not cost
	// the others their leases.
	quick, cancel := context.WithTimeout(ctx, q.Lease/8)
	err := q.renewAll(quick, mine)
	cancel()
	if err == nil || ctx.Err() != nil || len(mine) == 1 {
		return err
	}
	q.Log.WarnContext(ctx, "leases are renewed one by one", "runs", len(mine), "error", err)
	var g errgroup.Group
	g.SetLimit(takeOverAtOnce)
	for _, ex := range mine {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, q.Lease/4)
			defer cancel()
			return q.renewAll(limited, []*execute.Execution{ex})
		})
	}
	return g.Wait()
}

// renewAll extends the leases of some executions, sorted by their threads, in one transaction.
func (q *Queue) renewAll(ctx context.Context, mine []*execute.Execution) error {
	stop, waiting := map[*execute.Execution]error{}, make([]*spans.Batch, len(mine))
	for i, ex := range mine {
		waiting[i] = ex.NoteSpans()
	}
	err := q.Store.Write(ctx, func(tx run.Tx) error {
		clear(stop)
		now := q.Clock.Now()
		for i, ex := range mine {
			r, err := tx.Run(ex.Run.Thread, ex.Run.ID)
			switch {
			case fault.Is(err, fault.NotFound):
				stop[ex] = execute.ErrGone
				continue
			case err != nil:
				return err
			case r.Attempt != ex.Run.Attempt || r.Status != run.Running:
				if r.Attempt != ex.Run.Attempt || !r.Status.Over() {
					stop[ex] = execute.ErrLost
				}
				continue
			case r.Cancel != "":
				stop[ex] = execute.ErrCancelled
				continue
			}
			r.LeaseUntil = now.Add(q.Lease)
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			if err := ex.PutSpans(tx, waiting[i]); err != nil {
				return err
			}
			t, err := tx.Thread(r.Thread)
			if err != nil {
				return err
			}
			t.StreamHigh = max(t.StreamHigh, now.Add(streamBlock).UnixMilli())
			if err := tx.UpdateThread(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("renew leases: %w", err)
	}
	for i, ex := range mine {
		if stop[ex] == nil {
			ex.SpansStored(waiting[i])
		}
	}
	for ex, cause := range stop {
		ex.Cancel(cause)
	}
	return nil
}

// renewNow is renew as a step of a loop.
func (q *Queue) renewNow(ctx context.Context) (time.Time, error) { return time.Time{}, q.Renew(ctx) }

// sweep drops kept records, spans, and keys of requests whose time is over.
func (q *Queue) sweep(ctx context.Context) error {
	err := q.Store.Write(ctx, func(tx run.Tx) error {
		_, err := tx.DeleteRecords(q.Clock.Now().Add(-q.ResumableTTL))
		return err
	})
	for full := true; full && err == nil; {
		err = q.Store.Write(ctx, func(tx run.Tx) error {
			n, err := tx.DeleteIdempotencyRecords(idempotency.Expired(q.Clock.Now()), keysAtOnce)
			full = n == keysAtOnce
			return err
		})
	}
	for full := q.KeepSpans > 0; full && err == nil; {
		err = q.Store.Write(ctx, func(tx run.Tx) error {
			n, err := tx.DeleteSpans(q.Clock.Now().Add(-q.KeepSpans), spansAtOnce)
			full = n == spansAtOnce
			return err
		})
	}
	return err
}

// spansAtOnce bounds the batches of spans that one transaction deletes.
const spansAtOnce = 200

// keysAtOnce bounds the keys of requests that one transaction deletes.
const keysAtOnce = 1000

// Load returns how many runs this server executes, at most and now.
func (q *Queue) Load() (most, used int) { return q.Slots.Len(), q.Executions.Len() }

// queueBound is up to where runs are counted: the count is read every few seconds, and a longer queue is long enough.
const queueBound = 100_000

// State returns the state of the queue of all servers.
func (q *Queue) State(ctx context.Context) (run.Queue, error) {
	return q.Store.Queue(ctx, q.Clock.Now(), queueBound)
}
