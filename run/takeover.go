package run

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run/webhook"
)

// Shared is a Store that several instances work on at once. All go by its time.
type Shared interface {
	Store
	// Lapsed returns running runs whose lease ended before a time, the longest ago first.
	Lapsed(ctx context.Context, before time.Time, limit int) ([]*Run, error)
	// TakeDeliveries is Deliveries, but what it returns is not due before until any more: no other instance gets it meanwhile.
	TakeDeliveries(ctx context.Context, q webhook.Query, until time.Time) (due []*webhook.Delivery, next time.Time, err error)
	// Clock is the time of the database.
	Clock(ctx context.Context) (time.Time, error)
	// Ended returns those of the runs that are over, or not there.
	Ended(ctx context.Context, runs []id.Run) ([]id.Run, error)
	// Tell sends signals to all servers, this one included. They may be lost.
	Tell(ctx context.Context, s ...Signal) error
	// Listen calls heard for each signal until ctx ends, whose cause it returns. After a time in which signals may have been lost, and at the
	// beginning, heard is called with the zero Signal. heard must not block.
	Listen(ctx context.Context, heard func(Signal)) error
}

// heard does what a signal asks for.
func (q *queue) heard(sig Signal) {
	if sig == (Signal{}) {
		q.arrived()
		return
	}
	q.watches.heardOf(sig)
	if sig.Ended != "" {
		return
	}
	if q.executions.concern(sig) {
		loop.Poke(q.recheck)
	}
}

// listen hears signals until ctx ends.
func (q *queue) listen(ctx context.Context) error {
	err := q.shared.Listen(ctx, q.heard)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	takeOverBatch  = 100 // runs that are looked for in one go
	takeOverAtOnce = 4   // and taken over at the same time
)

// takeOver puts runs whose lease has ended back into the queue, whichever server had them, and looks for what lost signals should have said. It returns when to look
// again: at a heartbeat, or when the next lease ends before.
func (q *queue) takeOver(ctx context.Context) (next time.Time, err error) {
	for {
		// No lease is judged by a clock that may have been set, or have stood still, since the last heartbeat.
		if err := q.clock.Compare(ctx); err != nil {
			q.blind = true
			return time.Time{}, err
		}
		now := q.now()
		next = now.Add(q.lease / 4)
		if jumps := q.clock.Jumps(); jumps != q.jumps {
			// Leases are of the time before. Servers that live measure and renew within a heartbeat: nothing is taken over now and the next time.
			q.jumps, q.blind = jumps, true
			break
		}
		// Leases of those who live are renewed long before they end.
		ending, err := q.shared.Lapsed(ctx, next, takeOverBatch)
		if err != nil {
			q.blind = true
			return time.Time{}, err
		}
		if q.blind {
			// While the database was away no server could renew a lease: those that live do it at their next heartbeat.
			q.blind = false
			break
		}
		n := slices.IndexFunc(ending, func(r *Run) bool { return r.LeaseUntil.After(now) })
		if n < 0 {
			n = len(ending)
		} else {
			next = ending[n].LeaseUntil.Add(time.Millisecond)
		}
		done, err := q.takeOverAll(ctx, ending[:n], deathsOf(ending))
		if err != nil {
			// A database that takes no writes, for its disk is full, has let no server renew a lease either.
			q.blind = done == 0 && fault.Is(err, fault.Unavailable)
			return time.Time{}, err
		}
		if n < takeOverBatch {
			break
		}
	}
	q.watches.watchAll()
	q.arrived()
	q.onHeartbeat()
	return next, nil
}

// takeOverAll takes over some at once: one that is held back, by a transaction of an instance that stands still, must not hold back the others. It returns
// for how many that worked.
func (q *queue) takeOverAll(ctx context.Context, lapsed []*Run, deaths map[string]death) (done int64, err error) {
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

func (q *queue) takeOverRun(ctx context.Context, lapsed *Run, deaths map[string]death) error {
	var row *Run
	err := q.store.Write(ctx, func(tx Tx) error {
		row = nil
		r, err := tx.Run(lapsed.Thread, lapsed.ID)
		if err != nil {
			return err
		}
		if r.Status != Running || r.Attempt != lapsed.Attempt || r.LeaseUntil.After(q.now()) {
			return nil // it has ended, or somebody was faster
		}
		row = r
		if r.Cancel != "" {
			return nil
		}
		q.survived(ctx, r, deaths)
		r.Status, r.Owner, r.LeaseUntil = Pending, "", time.Time{}
		return tx.UpdateRun(r)
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil || row == nil:
		return err
	case row.Cancel != "":
		return q.executor.finish(ctx, row, outcome{kind: interrupted})
	}
	q.metrics.takeovers.Inc()
	q.log.WarnContext(ctx, "run taken over: its lease has ended", "run_id", row.ID, "thread_id", row.Thread, "attempt", row.Attempt, "owner", lapsed.Owner)
	q.queued()
	return nil
}

// recover is Service.Recover.
func (q *queue) recover(ctx context.Context, busy []id.Thread) error {
	if q.shared == nil {
		if err := q.takeBack(ctx); err != nil {
			return err
		}
	} else if _, err := q.takeOver(ctx); err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	for _, t := range busy {
		if q.shared != nil { // another server may execute a run of it
			active, err := q.store.ActiveRuns(ctx, t)
			if err != nil {
				return fmt.Errorf("settle thread %s: %w", t, err)
			}
			if len(active) > 0 {
				continue
			}
		}
		if err := q.settler.settle(ctx, t, nil); err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("settle thread %s: %w", t, err)
		}
	}
	return nil
}

// takeBack puts the runs that the last server on this data left as running back into the queue.
func (q *queue) takeBack(ctx context.Context) error {
	var cancelled []*Run
	taken := 0
	err := q.store.Write(ctx, func(tx Tx) error {
		cancelled, taken = nil, 0
		runs, err := tx.ActiveRuns("")
		if err != nil {
			return err
		}
		runs = slices.DeleteFunc(runs, func(r *Run) bool { return r.Status != Running })
		deaths := deathsOf(runs)
		for _, r := range runs {
			if r.Cancel != "" {
				cancelled = append(cancelled, r)
				continue
			}
			q.survived(ctx, r, deaths)
			r.Status, r.Owner, r.LeaseUntil = Pending, "", time.Time{}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			taken++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	q.metrics.takeovers.Add(float64(taken))
	for _, r := range cancelled {
		if err := q.executor.finish(ctx, r, outcome{kind: interrupted}); err != nil {
			return fmt.Errorf("finish cancel of run %s: %w", r.ID, err)
		}
	}
	return nil
}

// survived counts the death of the owner of a run.
func (q *queue) survived(ctx context.Context, r *Run, deaths map[string]death) {
	d := deaths[r.Owner]
	switch waited := r.suspect() && r.Turn == NoTurn; {
	case r.Crashes >= maxCrashes, waited && d.blamed:
	case waited, r.Turn == Company && d.blamed:
		r.Crashes = 1
	case r.Turn == Alone:
		r.Crashes++
	case d.single:
		r.Crashes = max(r.Crashes+1, suspectCrashes)
	default:
		r.Crashes = max(r.Crashes, min(r.Crashes+1, suspectCrashes))
	}
	r.Turn = NoTurn
	q.log.WarnContext(ctx, "server died while it executed a run", "run_id", r.ID, "thread_id", r.Thread, "attempt", r.Attempt, "owner", r.Owner, "crashes", r.Crashes)
}
