package run

import (
	"context"
	"fmt"
	"time"

	"understudy/internal/fault"
	"understudy/thread"
)

// reserve takes up to n free jobs.
func (s *Service) reserve(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return 0
	}
	n = min(n, s.free)
	s.free -= n
	return n
}

func (s *Service) release(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.free += n
	s.mu.Unlock()
	s.pokeQueue()
}

// queued notes that a run was left in the queue, and wakes the scheduler.
func (s *Service) queued() {
	s.waiting.Store(true)
	poke(s.wake)
}

// pokeQueue wakes the scheduler if there may be runs that wait: mostly there are none, and looking costs a query.
func (s *Service) pokeQueue() {
	if s.waiting.Load() {
		poke(s.wake)
	}
}

// claim makes a run this instance's: one attempt more, a lease, and room for the stream offsets of the coming minute.
func (s *Service) claim(r *Run, t *thread.Thread, now time.Time) {
	r.Status, r.Owner, r.LeaseUntil = Running, s.Instance, now.Add(leaseTime)
	r.Attempt++
	r.UpdatedAt = now
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	// Offsets go on above whatever was reserved before: the clock may have gone back since, or the process died.
	s.Bridge.Advance(t.ID, t.StreamHigh)
	t.StreamHigh = max(t.StreamHigh, now.UnixMilli()) + streamBlock.Milliseconds()
}

// claimDue claims due runs until nothing is due or no job is free. It gives when to look again; zero when a poke will tell.
func (s *Service) claimDue(ctx context.Context) (time.Time, error) {
	for {
		// Before looking, so that what is queued meanwhile is noticed.
		s.waiting.Store(false)
		next, err := s.Store.NextDue(ctx)
		if err != nil {
			s.waiting.Store(true)
			return time.Time{}, err
		}
		if next.IsZero() {
			return next, nil // what waits for a run of its thread is poked by that run's end
		}
		s.waiting.Store(true)
		if next.After(s.Now()) {
			return next, nil
		}
		if s.reserve(1) == 0 {
			return time.Time{}, nil // whoever ends pokes
		}
		var r *Run
		err = s.Store.Write(ctx, func(tx Tx) error {
			var err error
			now := s.Now()
			if r, err = tx.DueRun(now); err != nil {
				return err
			}
			t, err := tx.Thread(r.Thread)
			if err != nil {
				return err
			}
			s.claim(r, t, now)
			if err := tx.UpdateThread(t); err != nil {
				return err
			}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			return recordStart(tx, r, now)
		})
		if err != nil {
			s.unreserve()
			if fault.Is(err, fault.NotFound) {
				return s.Now().Add(10 * time.Millisecond), nil // it was cancelled just now, or claimed by another instance: look again
			}
			return time.Time{}, err
		}
		s.launch(r)
	}
}

// unreserve gives a job back without waking the scheduler, which is the caller.
func (s *Service) unreserve() {
	s.mu.Lock()
	s.free++
	s.mu.Unlock()
}

// launch starts executing a claimed run, for which a job was reserved.
func (s *Service) launch(r *Run) {
	ctx, cancel := context.WithCancelCause(context.Background()) // outlives the request that made it; ended by cancel and by shutdown
	ex := &execution{run: r, cancel: cancel, done: make(chan struct{})}
	var before <-chan struct{} // an execution of the thread that has ended, but has not told everybody
	s.mu.Lock()
	for _, other := range s.active {
		if other.run.Thread == r.Thread {
			before = other.done
		}
	}
	s.active[r.ID] = ex
	if s.closing {
		cancel(errShutdown)
	}
	s.mu.Unlock()
	s.executions.Add(1)
	go func() {
		defer s.executions.Done()
		if before != nil {
			<-before // so that streams of the thread show one run after the other
		}
		s.execute(ctx, ex)
		cancel(nil)
		s.mu.Lock()
		if s.active[r.ID] == ex { // else the next attempt has been claimed by now
			delete(s.active, r.ID)
		}
		s.free++
		s.mu.Unlock()
		close(ex.done)
		s.pokeQueue()
	}()
}

// renew extends leases and offset reservations, and learns of runs that are not ours any more or are to be cancelled.
func (s *Service) renew(ctx context.Context) error {
	s.mu.Lock()
	mine := make([]*execution, 0, len(s.active))
	for _, ex := range s.active {
		mine = append(mine, ex)
	}
	s.mu.Unlock()
	if len(mine) == 0 {
		return nil
	}
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
				if !r.Status.Over() {
					stop[ex] = errLost
				}
				continue
			case r.Cancel != "":
				stop[ex] = errCancelled
				continue
			}
			r.LeaseUntil = now.Add(leaseTime)
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

// sweep drops kept records whose time is over.
func (s *Service) sweep(ctx context.Context) error {
	return s.Store.Write(ctx, func(tx Tx) error {
		_, err := tx.DeleteRecords(s.Now().Add(-s.ResumableTTL))
		return err
	})
}
