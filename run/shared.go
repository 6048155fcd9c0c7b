package run

import (
	"context"
	"fmt"
	"slices"
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
	// Lapsed gives running runs whose lease ended before a time, the longest ago first.
	Lapsed(ctx context.Context, before time.Time, limit int) ([]*Run, error)
	// TakeDeliveries is Deliveries, but what it returns is not due before until any more: no other instance gets it meanwhile.
	TakeDeliveries(ctx context.Context, q webhook.Query, until time.Time) (due []*webhook.Delivery, next time.Time, err error)
	// Clock is the time of the database.
	Clock(ctx context.Context) (time.Time, error)
	// Ended gives those of the runs that are over, or not there.
	Ended(ctx context.Context, runs []id.Run) ([]id.Run, error)
	// Tell gives signals to all instances, this one included. They may be lost.
	Tell(ctx context.Context, s ...Signal) error
	// Listen calls heard for each signal until ctx ends, whose cause it returns. After a time in which signals may have been lost, and at the
	// beginning, heard is called with the zero Signal. heard must not block.
	Listen(ctx context.Context, heard func(Signal)) error
}

// Signal is what instances tell each other, so that it is not found out only at the next look into the database, which is what counts. The
// zero Signal: there may be runs to claim.
type Signal struct {
	Thread id.Thread // it was deleted, if no run is named
	Run    id.Run    // its cancel was asked for, or it has ended
	Ended  string    // the instance that wrote the end of the run
}

// signalQueue bounds the signals that wait to be told. When it is full the rest is left out: heartbeats find it.
const signalQueue = 256

// signal hands one over to be told. It does not block.
func (s *Service) signal(sig Signal) {
	if s.shared == nil {
		return
	}
	c := s.signals
	if sig == (Signal{}) {
		c = s.offers // many are as good as one
	}
	select {
	case c <- sig:
	default:
	}
}

// tellAll tells signals until ctx ends, and then those that wait.
func (s *Service) tellAll(ctx context.Context) {
	for {
		var sig Signal
		select {
		case sig = <-s.signals:
		case sig = <-s.offers:
		case <-ctx.Done():
			select {
			case sig = <-s.signals:
			case sig = <-s.offers:
			default:
				return
			}
		}
		told := []Signal{sig}
	more:
		for len(told) < cap(s.signals) {
			select {
			case sig = <-s.signals:
				told = append(told, sig)
			default:
				break more
			}
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.heartbeat())
		if err := s.shared.Tell(limited, told...); err != nil {
			s.log.WarnContext(ctx, "other instances could not be told; they find out by themselves", "error", err)
		}
		cancel()
	}
}

// heard does what a signal asks for.
func (s *Service) heard(sig Signal) {
	if sig == (Signal{}) {
		s.arrived()
		return
	}
	s.heardOf(sig)
	if sig.Ended != "" {
		return
	}
	s.mu.Lock()
	_, ours := s.active[sig.Run]
	for _, ex := range s.active {
		ours = ours || ex.run.Thread == sig.Thread
	}
	s.mu.Unlock()
	if ours {
		loop.Poke(s.look)
	}
}

// listen hears signals until ctx ends.
func (s *Service) listen(ctx context.Context) error {
	err := s.shared.Listen(ctx, s.heard)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	takeOverBatch  = 100 // runs that are looked for in one go
	takeOverAtOnce = 4   // and taken over at the same time
)

// takeOver puts runs whose lease has ended back into the queue, whoever had them, and looks for what signals should have told. It gives when to look
// again: at a heartbeat, or when the next lease ends before.
func (s *Service) takeOver(ctx context.Context) (next time.Time, err error) {
	for {
		// No lease is judged by a clock that may have been set, or have stood still, since the last heartbeat.
		if err := s.clock.Compare(ctx); err != nil {
			s.blind = true
			return time.Time{}, err
		}
		now := s.Now()
		next = now.Add(s.heartbeat())
		if jumps := s.clock.Jumps(); jumps != s.jumps {
			// Leases are of the time before. Those who live measure and renew within a heartbeat: it is looked away now and the next time.
			s.jumps, s.blind = jumps, true
			break
		}
		// Leases of those who live are renewed long before they end.
		ending, err := s.shared.Lapsed(ctx, next, takeOverBatch)
		if err != nil {
			s.blind = true
			return time.Time{}, err
		}
		if s.blind {
			// While the database was away nobody could renew a lease: those who live do it at their next heartbeat.
			s.blind = false
			break
		}
		n := slices.IndexFunc(ending, func(r *Run) bool { return r.LeaseUntil.After(now) })
		if n < 0 {
			n = len(ending)
		} else {
			next = ending[n].LeaseUntil.Add(time.Millisecond)
		}
		if err := s.takeOverAll(ctx, ending[:n], deathsOf(ending)); err != nil {
			return time.Time{}, err
		}
		if n < takeOverBatch {
			break
		}
	}
	s.watchAll()
	s.arrived()
	loop.Poke(s.crons)
	s.webhooks.Poke()
	return next, nil
}

// takeOverAll takes over some at once: one that is held back, by a transaction of an instance that stands still, must not hold back the others.
func (s *Service) takeOverAll(ctx context.Context, lapsed []*Run, deaths map[string]death) error {
	var g errgroup.Group
	g.SetLimit(takeOverAtOnce)
	for _, r := range lapsed {
		g.Go(func() error {
			if err := s.takeOverRun(ctx, r, deaths); err != nil {
				return fmt.Errorf("take over run %s: %w", r.ID, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (s *Service) takeOverRun(ctx context.Context, lapsed *Run, deaths map[string]death) error {
	var row *Run
	err := s.Store.Write(ctx, func(tx Tx) error {
		row = nil
		r, err := tx.Run(lapsed.Thread, lapsed.ID)
		if err != nil {
			return err
		}
		if r.Status != Running || r.Attempt != lapsed.Attempt || r.LeaseUntil.After(s.Now()) {
			return nil // it has ended, or somebody was faster
		}
		row = r
		if r.Cancel != "" {
			return nil
		}
		s.survived(ctx, r, deaths)
		r.Status, r.Owner, r.LeaseUntil = Pending, "", time.Time{}
		return tx.UpdateRun(r)
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil || row == nil:
		return err
	case row.Cancel != "":
		return s.finish(ctx, row, outcome{kind: interrupted})
	}
	s.metrics.takeovers.Inc()
	s.log.WarnContext(ctx, "run taken over: its lease has ended", "run_id", row.ID, "thread_id", row.Thread, "attempt", row.Attempt, "owner", lapsed.Owner)
	s.queued()
	return nil
}

// recoverShared is Recover while other instances work on the same data.
func (s *Service) recoverShared(ctx context.Context, busy []id.Thread) error {
	if err := s.clock.Compare(ctx); err != nil {
		return fmt.Errorf("the time of the database: %w", err)
	}
	s.started = s.Now()
	if _, err := s.takeOver(ctx); err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	for _, t := range busy {
		active, err := s.Store.ActiveRuns(ctx, t)
		if err != nil {
			return fmt.Errorf("settle thread %s: %w", t, err)
		}
		if len(active) > 0 {
			continue
		}
		if err := s.settle(ctx, t, nil); err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("settle thread %s: %w", t, err)
		}
	}
	return nil
}

// awaitEnd waits until a run that another instance executes has stopped.
func (s *Service) awaitEnd(ctx context.Context, t id.Thread, r id.Run) error {
	return s.await(ctx, t, r, func(now Status) bool { return now != Running })
}

// await looks a run up until its status is one that is waited for, or the run is gone.
func (s *Service) await(ctx context.Context, t id.Thread, r id.Run, reached func(Status) bool) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		row, err := s.Store.Run(ctx, t, r)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		switch {
		case fault.Is(err, fault.Unavailable): // it may come back, and whoever waits has time
		case err != nil:
			return err
		case reached(row.Status):
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
