package service

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
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/clock"
	"understudy/run/completion"
	"understudy/run/signals"
	"understudy/run/slots"
	"understudy/thread"
)

// queue claims runs that are due, keeps the leases of those that this server executes, and takes over runs of servers that died. The table of runs is the queue;
// what is here decides when to look into it.
type queue struct {
	store        run.Store
	shared       run.Shared // the store, when other servers work on it too; nil else
	bridge       bridge.Bridge
	graphs       run.Graphs
	clock        *clock.Clock
	now          func() time.Time
	instance     string
	lease        time.Duration
	resumableTTL time.Duration
	log          *slog.Logger
	takeovers    prometheus.Counter

	slots      *slots.Slots
	executions *executions
	executor   *executor
	settler    *settler
	signals    *signals.Sender
	watches    *watches
	// onHeartbeat is called with each look for leases that have ended: it wakes loops whose signals may have been lost.
	onHeartbeat func()

	wake    chan struct{} // capacity 1: something may be due
	recheck chan struct{} // capacity 1: runs of this server may have been cancelled, deleted or taken over

	blind bool // the last look for leases that have ended failed; owned by takeOver
	jumps int  // of the clock that takeOver knows of; owned by it too

	mu      sync.Mutex
	foreign map[string]bool // graphs of runs in the queue that only other servers serve
}

// queued notes that a run was left in the queue, and wakes the scheduler.
func (q *queue) queued() {
	q.arrived()
	q.signals.Send(run.Signal{})
}

// arrived wakes the scheduler for a run that may be in the queue.
func (q *queue) arrived() {
	q.slots.Arrived()
	q.wakeUp()
}

// wakeUp wakes the scheduler.
func (q *queue) wakeUp() { loop.Poke(q.wake) }

// claim makes a run this instance's: one attempt more, a lease, and room for the stream offsets of the coming minute.
func (q *queue) claim(r *run.Run, t *thread.Thread, now time.Time) {
	r.Status, r.Owner, r.LeaseUntil = run.Running, q.instance, now.Add(q.lease)
	r.Attempt++
	r.UpdatedAt = now
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	// Offsets go on above whatever was reserved before: the clock may have gone back since, or the process died.
	q.bridge.Advance(t.ID, t.StreamHigh)
	t.StreamHigh = max(t.StreamHigh, now.UnixMilli()) + streamBlock.Milliseconds()
}

// claimBatch is how many runs are claimed in one transaction: enough that commits do not limit how many begin, few enough that other servers find some.
const claimBatch = 16

// claimDue claims due runs until nothing is due or no job is free. It returns when to look again; zero when the next poke is early enough.
func (q *queue) claimDue(ctx context.Context) (time.Time, error) {
	if q.slots.Len() == 0 {
		return time.Time{}, nil
	}
	for {
		// Before looking, so that what is queued meanwhile is noticed.
		arrivals := q.slots.Arrivals()
		full := q.full() // slots wake when one of them has room again
		next, err := q.store.NextDue(ctx, full...)
		if err != nil {
			return time.Time{}, err
		}
		now := q.now()
		if !next.IsZero() && !next.After(now) {
			var sure bool
			if now, sure, err = q.clock.Sure(ctx); err != nil {
				return time.Time{}, err
			}
			if !sure {
				return now.Add(clock.Retry), nil
			}
		}
		if next.IsZero() || next.After(now) {
			if next.IsZero() {
				q.slots.Empty(arrivals) // what waits for a run of its thread is announced by that run's end
			}
			q.slots.Unowe()
			return next, nil
		}
		free := q.slots.ReserveQueued(claimBatch)
		if free == 0 {
			return time.Time{}, nil // slots wake when one is free
		}
		claimed, err := q.claimSome(ctx, free, now)
		q.slots.Release(free - len(claimed))
		for _, r := range claimed {
			q.executor.launch(r)
		}
		switch {
		case errors.Is(err, errFull):
		case fault.Is(err, fault.NotFound) && len(claimed) == 0:
			q.slots.Unowe()
			return q.now().Add(10 * time.Millisecond), nil // it was cancelled just now, or claimed by another instance: look again
		case err != nil && !fault.Is(err, fault.NotFound):
			return time.Time{}, err
		}
	}
}

// claimSome claims up to n runs that are due by a time in one transaction. With those that it has claimed it returns why there are not more: errFull, or fault.NotFound
// when no other can be claimed. After another error there are none.
func (q *queue) claimSome(ctx context.Context, n int, now time.Time) ([]*run.Run, error) {
	var claimed []*run.Run
	var short error
	undo := func() {
		for _, r := range claimed {
			q.slots.Leave(r.Graph)
		}
		claimed, short = claimed[:0], nil
	}
	err := q.store.Write(ctx, func(tx run.Tx) error {
		undo() // an attempt
		for len(claimed) < n {
			r, err := tx.DueRun(now, q.full()...) // a job that became free meanwhile brought its place along
			if fault.Is(err, fault.NotFound) {
				short = err
				return nil
			}
			if err != nil {
				return err
			}
			if !q.serves(r.Graph) || !q.slots.Enter(r.Graph) {
				short = errFull
				return nil
			}
			claimed = append(claimed, r)
			t, err := tx.Thread(r.Thread)
			if err != nil {
				return err
			}
			began := q.now() // not now: a lease begins when the transaction has the run
			q.claim(r, t, began)
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
		return nil
	})
	if err != nil {
		undo()
		return nil, err
	}
	return claimed, short
}

// errFull: a run that was created meanwhile took the last place of its graph, or others serve it.
var errFull = errors.New("concurrency limit of the graph reached")

// serves reports whether the runs of a graph are for this instance. Those of a graph that it does not know are for others that share the storage:
// newer ones, as while all are being replaced. Without shared storage the run is claimed and ends with the error that there is no such graph.
func (q *queue) serves(name string) bool {
	if _, ok := q.graphs.Graph(name); ok || q.shared == nil {
		return true
	}
	q.mu.Lock()
	known := q.foreign[name]
	q.foreign[name] = true
	q.mu.Unlock()
	if !known {
		q.log.Warn("graph not served here; its runs are left to other servers", "graph", name)
	}
	return false
}

// full returns the graphs of which no run may begin here now, sorted.
func (q *queue) full() (graphs []string) {
	graphs = q.slots.Full()
	q.mu.Lock()
	defer q.mu.Unlock()
	for graph := range q.foreign {
		if _, known := q.graphs.Graph(graph); !known {
			graphs = append(graphs, graph)
		}
	}
	slices.Sort(graphs)
	return graphs
}

// renew extends leases and offset reservations, and detects runs that this instance has lost or that are to be cancelled.
func (q *queue) renew(ctx context.Context) error {
	mine := q.executions.written()
	if len(mine) == 0 {
		return nil
	}
	if q.shared != nil {
		// A lease that is renewed by a clock that was set back would have ended for the others. Renewing by an old comparison is better than not at all.
		limited, cancel := context.WithTimeout(ctx, q.lease/16)
		_, _, _ = q.clock.Sure(limited)
		cancel()
	}
	// In the same order everywhere: a storage that locks threads one by one must not find two that wait for each other.
	slices.SortFunc(mine, func(a, b *execution) int { return strings.Compare(string(a.run.Thread), string(b.run.Thread)) })
	if q.shared == nil {
		return q.renewAll(ctx, mine)
	}
	// All at once, unless one is held up: by the deletion of a large thread, or an instance that stands still in a transaction. It must not cost
	// the others their leases.
	quick, cancel := context.WithTimeout(ctx, q.lease/8)
	err := q.renewAll(quick, mine)
	cancel()
	if err == nil || ctx.Err() != nil || len(mine) == 1 {
		return err
	}
	q.log.WarnContext(ctx, "leases are renewed one by one", "runs", len(mine), "error", err)
	var g errgroup.Group
	g.SetLimit(takeOverAtOnce)
	for _, ex := range mine {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, q.lease/4)
			defer cancel()
			return q.renewAll(limited, []*execution{ex})
		})
	}
	return g.Wait()
}

// renewAll is renew of some executions, sorted by their threads, in one transaction.
func (q *queue) renewAll(ctx context.Context, mine []*execution) error {
	stop := map[*execution]error{}
	err := q.store.Write(ctx, func(tx run.Tx) error {
		clear(stop)
		now := q.now()
		for _, ex := range mine {
			r, err := tx.Run(ex.run.Thread, ex.run.ID)
			switch {
			case fault.Is(err, fault.NotFound):
				stop[ex] = errGone
				continue
			case err != nil:
				return err
			case r.Attempt != ex.run.Attempt || r.Status != run.Running:
				if r.Attempt != ex.run.Attempt || !r.Status.Over() {
					stop[ex] = errLost
				}
				continue
			case r.Cancel != "":
				stop[ex] = errCancelled
				continue
			}
			r.LeaseUntil = now.Add(q.lease)
			if err := tx.UpdateRun(r); err != nil {
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
	for ex, cause := range stop {
		ex.cancel(cause)
	}
	return nil
}

// renewNow is renew as a step of a loop.
func (q *queue) renewNow(ctx context.Context) (time.Time, error) { return time.Time{}, q.renew(ctx) }

// sweep drops kept records whose time is over.
func (q *queue) sweep(ctx context.Context) error {
	return q.store.Write(ctx, func(tx run.Tx) error {
		_, err := tx.DeleteRecords(q.now().Add(-q.resumableTTL))
		return err
	})
}

// load is Service.Load.
func (q *queue) load() (most, used int) { return q.slots.Len(), q.executions.len() }

// queueBound is up to where runs are counted: the count is asked for every few seconds, and a longer queue is long enough.
const queueBound = 100_000

// state is Service.Queue.
func (q *queue) state(ctx context.Context) (run.Queue, error) {
	return q.store.Queue(ctx, q.now(), queueBound)
}
