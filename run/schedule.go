package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/thread"
)

// clockRetry is when a clock that jumped is compared again.
const clockRetry = 100 * time.Millisecond

// queued notes that a run was left in the queue, and wakes the scheduler.
func (s *Service) queued() {
	s.arrived()
	s.signal(Signal{})
}

// arrived wakes the scheduler for a run that may be in the queue.
func (s *Service) arrived() {
	s.slots.Arrived()
	loop.Poke(s.wake)
}

// claim makes a run this instance's: one attempt more, a lease, and room for the stream offsets of the coming minute.
func (s *Service) claim(r *Run, t *thread.Thread, now time.Time) {
	r.Status, r.Owner, r.LeaseUntil = Running, s.Instance, now.Add(s.Lease)
	r.Attempt++
	r.UpdatedAt = now
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	if s.shared != nil {
		r.published = &atomic.Int64{}
	}
	// Offsets go on above whatever was reserved before: the clock may have gone back since, or the process died.
	s.Bridge.Advance(t.ID, t.StreamHigh)
	t.StreamHigh = max(t.StreamHigh, now.UnixMilli()) + streamBlock.Milliseconds()
}

// claimBatch is how many runs are claimed in one transaction: enough that commits do not limit how many begin, few enough that other servers find some.
const claimBatch = 16

// claimDue claims due runs until nothing is due or no job is free. It returns when to look again; zero when the next poke is early enough.
func (s *Service) claimDue(ctx context.Context) (time.Time, error) {
	if s.slots.Len() == 0 {
		return time.Time{}, nil
	}
	for {
		// Before looking, so that what is queued meanwhile is noticed.
		arrivals := s.slots.Arrivals()
		full := s.full() // slots wake when one of them has room again
		next, err := s.Store.NextDue(ctx, full...)
		if err != nil {
			return time.Time{}, err
		}
		now := s.Now()
		if !next.IsZero() && !next.After(now) {
			var sure bool
			if now, sure, err = s.clock.Sure(ctx); err != nil {
				return time.Time{}, err
			}
			if !sure {
				return now.Add(clockRetry), nil
			}
		}
		if next.IsZero() || next.After(now) {
			if next.IsZero() {
				s.slots.Empty(arrivals) // what waits for a run of its thread is announced by that run's end
			}
			s.slots.Unowe()
			return next, nil
		}
		free := s.slots.ReserveQueued(claimBatch)
		if free == 0 {
			return time.Time{}, nil // slots wake when one is free
		}
		claimed, err := s.claimSome(ctx, free, now)
		s.slots.Release(free - len(claimed))
		for _, r := range claimed {
			s.launch(r)
		}
		switch {
		case errors.Is(err, errFull):
		case fault.Is(err, fault.NotFound) && len(claimed) == 0:
			s.slots.Unowe()
			return s.Now().Add(10 * time.Millisecond), nil // it was cancelled just now, or claimed by another instance: look again
		case err != nil && !fault.Is(err, fault.NotFound):
			return time.Time{}, err
		}
	}
}

// claimSome claims up to n runs that are due by a time in one transaction. With those that it has claimed it returns why there are not more: errFull, or fault.NotFound
// when no other can be claimed. After another error there are none.
func (s *Service) claimSome(ctx context.Context, n int, now time.Time) ([]*Run, error) {
	var claimed []*Run
	var short error
	undo := func() {
		for _, r := range claimed {
			s.slots.Leave(r.Graph)
		}
		claimed, short = claimed[:0], nil
	}
	err := s.Store.Write(ctx, func(tx Tx) error {
		undo() // an attempt
		for len(claimed) < n {
			r, err := tx.DueRun(now, s.full()...) // a job that became free meanwhile brought its place along
			if fault.Is(err, fault.NotFound) {
				short = err
				return nil
			}
			if err != nil {
				return err
			}
			if !s.serves(r.Graph) || !s.slots.Enter(r.Graph) {
				short = errFull
				return nil
			}
			claimed = append(claimed, r)
			t, err := tx.Thread(r.Thread)
			if err != nil {
				return err
			}
			began := s.Now() // not now: a lease begins when the transaction has the run
			s.claim(r, t, began)
			if err := tx.UpdateThread(t); err != nil {
				return err
			}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			if err := recordStart(tx, r, began); err != nil {
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
var errFull = errors.New("as many runs of the graph as may are executed")

// serves reports whether the runs of a graph are for this instance. Those of a graph that it does not know are for others that share the storage:
// newer ones, as while all are being replaced. Without shared storage the run is claimed and ends with the error that there is no such graph.
func (s *Service) serves(name string) bool {
	if _, ok := s.Graphs.Graph(name); ok || s.shared == nil {
		return true
	}
	s.mu.Lock()
	known := s.foreign[name]
	s.foreign[name] = true
	s.mu.Unlock()
	if !known {
		s.log.Warn("runs of a graph that is not served here are left to other instances", "graph", name)
	}
	return false
}

// full gives the graphs of which no run may begin here now, sorted.
func (s *Service) full() (graphs []string) {
	graphs = s.slots.Full()
	s.mu.Lock()
	defer s.mu.Unlock()
	for graph := range s.foreign {
		if _, known := s.Graphs.Graph(graph); !known {
			graphs = append(graphs, graph)
		}
	}
	slices.Sort(graphs)
	return graphs
}

// launch starts executing a claimed run, for which a slot was reserved.
func (s *Service) launch(r *Run) { s.launchWith(r, false, s.finish) }

// launchWith is launch, of a run that may not be written yet, and whose end finish writes.
func (s *Service) launchWith(r *Run, unwritten bool, finish func(context.Context, *Run, outcome) error) *execution {
	ctx, cancel := context.WithCancelCause(about(context.Background(), r)) // outlives the request that made it; ended by cancel and by shutdown
	ex := &execution{run: r, said: s.tokens(r), cancel: cancel, done: make(chan struct{})}
	ex.unwritten.Store(unwritten)
	s.metrics.claimed(r)
	var before <-chan struct{} // an execution of the thread that has ended, but has not published all of its records
	s.mu.Lock()
	for _, other := range s.active {
		switch {
		case other.run.Thread != r.Thread:
		case s.shared != nil && !other.ending.Load():
			other.cancel(errLost) // the thread could be claimed: this server stood still, and does not know yet
		default:
			before = other.done
		}
	}
	s.active[r.ID] = ex
	if r.Crashes == suspectCrashes { // one that is doubted waits first
		ex.turn = s.slots.LineUp()
	}
	if s.closing {
		cancel(errShutdown)
	}
	s.mu.Unlock()
	s.executions.Add(1)
	if r.Attempt == 1 {
		s.near.begin(r) // there may be a follower already
	}
	go func() {
		defer s.executions.Done()
		if before != nil {
			<-before // so that streams of the thread show one run after the other
		}
		if r.Attempt > 1 {
			s.near.begin(r)
		}
		s.execute(ctx, ex, finish)
		s.near.end(r.ID)
		ex.turns.Wait()
		ex.turn.Leave()
		cancel(nil)
		s.mu.Lock()
		if s.active[r.ID] == ex { // else the next attempt has been claimed by now
			delete(s.active, r.ID)
		}
		s.mu.Unlock()
		s.slots.Done(r.Graph)
		close(ex.done)
	}()
	return ex
}

// renew extends leases and offset reservations, and detects runs that this instance has lost or that are to be cancelled.
func (s *Service) renew(ctx context.Context) error {
	s.mu.Lock()
	mine := make([]*execution, 0, len(s.active))
	for _, ex := range s.active {
		if !ex.unwritten.Load() {
			mine = append(mine, ex)
		}
	}
	s.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
	if s.shared != nil {
		// A lease that is renewed by a clock that was set back would have ended for the others. Renewing by an old comparison is better than not at all.
		limited, cancel := context.WithTimeout(ctx, s.heartbeat()/4)
		_, _, _ = s.clock.Sure(limited)
		cancel()
	}
	// In the same order everywhere: a storage that locks threads one by one must not find two that wait for each other.
	slices.SortFunc(mine, func(a, b *execution) int { return strings.Compare(string(a.run.Thread), string(b.run.Thread)) })
	if s.shared == nil {
		return s.renewAll(ctx, mine)
	}
	// All at once, unless one is held up: by the deletion of a large thread, or an instance that stands still in a transaction. It must not cost
	// the others their leases.
	quick, cancel := context.WithTimeout(ctx, s.heartbeat()/2)
	err := s.renewAll(quick, mine)
	cancel()
	if err == nil || ctx.Err() != nil || len(mine) == 1 {
		return err
	}
	s.log.WarnContext(ctx, "leases are renewed one by one", "runs", len(mine), "error", err)
	var g errgroup.Group
	g.SetLimit(takeOverAtOnce)
	for _, ex := range mine {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, s.heartbeat())
			defer cancel()
			return s.renewAll(limited, []*execution{ex})
		})
	}
	return g.Wait()
}

// renewAll is renew of some executions, sorted by their threads, in one transaction.
func (s *Service) renewAll(ctx context.Context, mine []*execution) error {
	stop := map[*execution]error{}
	err := s.Store.Write(ctx, func(tx Tx) error {
		clear(stop)
		now := s.Now()
		for _, ex := range mine {
			r, err := tx.Run(ex.run.Thread, ex.run.ID)
			switch {
			case fault.Is(err, fault.NotFound):
				stop[ex] = errGone
				continue
			case err != nil:
				return err
			case r.Attempt != ex.run.Attempt || r.Status != Running:
				if r.Attempt != ex.run.Attempt || !r.Status.Over() {
					stop[ex] = errLost
				}
				continue
			case r.Cancel != "":
				stop[ex] = errCancelled
				continue
			}
			r.LeaseUntil = now.Add(s.Lease)
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
func (s *Service) renewNow(ctx context.Context) (time.Time, error) { return time.Time{}, s.renew(ctx) }

// sweep drops kept records whose time is over.
func (s *Service) sweep(ctx context.Context) error {
	return s.Store.Write(ctx, func(tx Tx) error {
		_, err := tx.DeleteRecords(s.Now().Add(-s.ResumableTTL))
		return err
	})
}
