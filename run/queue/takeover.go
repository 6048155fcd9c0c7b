package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/crash"
)

// handle does what a signal requests.
func (q *Queue) handle(sig run.Signal) {
	if sig == (run.Signal{}) {
		q.arrived()
		return
	}
	q.Watches.HeardOf(sig)
	if sig.Ended != "" {
		return
	}
	if q.Executions.Concern(sig) {
		loop.Poke(q.recheck)
	}
}

// listen hears signals until ctx ends.
func (q *Queue) listen(ctx context.Context) error {
	err := q.Shared.Listen(ctx, q.handle)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	takeOverBatch  = 100 // runs that are looked for in one go
	takeOverAtOnce = 4   // and taken over at the same time
)

// takeOver puts runs whose lease has ended back into the queue, whichever server had them, and looks for what lost signals would have reported. It returns when to look
// again: at a heartbeat, or when the next lease ends before.
func (q *Queue) takeOver(ctx context.Context) (next time.Time, err error) {
	for {
		// No lease is judged by a clock that may have been set, or have stood still, since the last heartbeat.
		if err := q.Clock.Compare(ctx); err != nil {
			q.blind = true
			return time.Time{}, err
		}
		now := q.Clock.Now()
		next = now.Add(q.Lease / 4)
		if jumps := q.Clock.Jumps(); jumps != q.jumps {
			// Leases are of the time before. Servers that live measure and renew within a heartbeat: nothing is taken over now and the next time.
			q.jumps, q.blind = jumps, true
			break
		}
		// Leases of those who live are renewed long before they end.
		ending, err := q.Shared.Lapsed(ctx, next, takeOverBatch)
		if err != nil {
			q.blind = true
			return time.Time{}, err
		}
		if q.blind {
			// While the database was away no server could renew a lease: those that live do it at their next heartbeat.
			q.blind = false
			break
		}
		n := slices.IndexFunc(ending, func(r *run.Run) bool { return r.LeaseUntil.After(now) })
		if n < 0 {
			n = len(ending)
		} else {
			next = ending[n].LeaseUntil.Add(time.Millisecond)
		}
		done, err := q.takeOverAll(ctx, ending[:n], crash.DeathsOf(q.ofDead(ending, now)))
		if err != nil {
			// A database that takes no writes, because its disk is full, has let no server renew a lease either.
			q.unwritable = done == 0 && fault.Is(err, fault.Unavailable)
			return time.Time{}, err
		}
		if n < takeOverBatch {
			q.unwritable = false
			break
		}
	}
	q.Watches.WatchAll()
	q.arrived()
	q.OnPoll()
	return next, nil
}

// lapsing is a run whose lease was about to end.
type lapsing struct {
	run  *run.Run // what crash.DeathsOf reads
	seen time.Time
}

// ofDead returns the runs that servers which seem to be dead have executed: those whose leases are about to end, and those that were seen before. A run that began
// after the last renewal has a lease that ends later than those of the others, which have been taken over by then.
func (q *Queue) ofDead(ending []*run.Run, now time.Time) []*run.Run {
	maps.DeleteFunc(q.lapsing, func(_ id.Run, l lapsing) bool { return now.Sub(l.seen) > 2*q.Lease })
	for _, r := range ending {
		q.lapsing[r.ID] = lapsing{&run.Run{ID: r.ID, Owner: r.Owner, Turn: r.Turn}, now}
	}
	var all []*run.Run
	for _, l := range q.lapsing {
		all = append(all, l.run)
	}
	return all
}

// takeOverAll takes over some at once: one that is held back, by a transaction of an instance that stands still, must not hold back the others. It returns
// for how many that worked.
func (q *Queue) takeOverAll(ctx context.Context, lapsed []*run.Run, deaths crash.Deaths) (done int64, err error) {
	var g errgroup.Group
	var worked atomic.Int64
	g.SetLimit(takeOverAtOnce)
	for _, r := range lapsed {
		g.Go(func() error {
			if err := q.takeOverRun(ctx, r, deaths); err != nil {
				return fmt.Errorf("take over run %s: %w", r.ID, err)
			}
			worked.Add(1)
			return nil
		})
	}
	err = g.Wait()
	return worked.Load(), err
}

func (q *Queue) takeOverRun(ctx context.Context, lapsed *run.Run, deaths crash.Deaths) error {
	var row *run.Run
	err := q.Store.Write(ctx, func(tx run.Tx) error {
		row = nil
		r, err := tx.Run(lapsed.Thread, lapsed.ID)
		if err != nil {
			return err
		}
		if r.Status != run.Running || r.Attempt != lapsed.Attempt || r.LeaseUntil.After(q.Clock.Now()) {
			return nil // it has ended, or another server was faster
		}
		if q.unwritable {
			// The first write that succeeds. It extends the leases by two heartbeats: servers that are alive renew them within that time.
			r.LeaseUntil = q.Clock.Now().Add(q.Lease / 2)
			return tx.UpdateRun(r)
		}
		row = r
		if r.Cancel != "" {
			return nil
		}
		q.countDeath(ctx, r, deaths)
		return q.putBack(tx, r)
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil || row == nil:
		return err
	case row.Cancel != "":
		return q.Executor.FinishCancelled(ctx, row)
	}
	q.takeovers.Inc()
	q.Log.WarnContext(ctx, "run taken over: its lease has ended", "run_id", row.ID, "thread_id", row.Thread, "attempt", row.Attempt, "owner", lapsed.Owner)
	q.Queued()
	return nil
}

// putBack puts the run of a server that died back into the queue.
func (q *Queue) putBack(tx run.Tx, r *run.Run) error {
	now := q.Clock.Now()
	r.Status, r.Owner, r.LeaseUntil, r.UpdatedAt = run.Pending, "", time.Time{}, now
	if err := tx.UpdateRun(r); err != nil {
		return err
	}
	return completion.RecordRetry(tx, r, completion.ServerDied, "the server that executed it died, or lost the database for longer than a lease", now)
}

// Recover takes over what a server that died left behind. No thread of busy stays busy without a run. Call it once before Run.
func (q *Queue) Recover(ctx context.Context, busy []id.Thread) error {
	if q.Shared == nil {
		if err := q.takeBack(ctx); err != nil {
			return err
		}
	} else if _, err := q.takeOver(ctx); err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	for _, t := range busy {
		if q.Shared != nil { // another server may execute a run of it
			active, err := q.Store.ActiveRuns(ctx, t)
			if err != nil {
				return fmt.Errorf("settle thread %s: %w", t, err)
			}
			if len(active) > 0 {
				continue
			}
		}
		if err := q.Settler.Settle(ctx, t, nil); err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("settle thread %s: %w", t, err)
		}
	}
	return nil
}

// takeBack puts the runs that the last server on this data left as running back into the queue.
func (q *Queue) takeBack(ctx context.Context) error {
	var cancelled []*run.Run
	taken := 0
	err := q.Store.Write(ctx, func(tx run.Tx) error {
		cancelled, taken = nil, 0
		runs, err := tx.ActiveRuns("")
		if err != nil {
			return err
		}
		runs = slices.DeleteFunc(runs, func(r *run.Run) bool { return r.Status != run.Running })
		deaths := crash.DeathsOf(runs)
		for _, r := range runs {
			if r.Cancel != "" {
				cancelled = append(cancelled, r)
				continue
			}
			q.countDeath(ctx, r, deaths)
			if err := q.putBack(tx, r); err != nil {
				return err
			}
			taken++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	q.takeovers.Add(float64(taken))
	for _, r := range cancelled {
		if err := q.Executor.FinishCancelled(ctx, r); err != nil {
			return fmt.Errorf("finish cancel of run %s: %w", r.ID, err)
		}
	}
	return nil
}

// countDeath counts the death of the owner of a run that is taken over.
func (q *Queue) countDeath(ctx context.Context, r *run.Run, deaths crash.Deaths) {
	deaths.Count(r)
	plan := deaths.Plan(r)
	q.Log.WarnContext(ctx, "server died while it executed a run", "run_id", r.ID, "thread_id", r.Thread, "attempt", r.Attempt, "owner", r.Owner, "suspicion", r.Crashes, "next", plan)
}
