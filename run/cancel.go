package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

// Why an execution was stopped: causes of its context.
var (
	errCancelled = errors.New("the run was cancelled")
	errGone      = errors.New("the run or its thread was deleted")
	errShutdown  = fmt.Errorf("the server shuts down: %w", graph.ErrHandedOver)
	errTimeout   = errors.New("the run took longer than it may")
	errLost      = fmt.Errorf("another instance has taken the run over: %w", graph.ErrHandedOver)
)

// errNoneToCancel is the answer to a cancellation that names no run.
var errNoneToCancel = fault.New(fault.NotFound, "No runs found to cancel.")

// markCancelled makes a cancel true in the database: a pending run is over at once (or gone, when rolled back), a running one refuses
// further writes and is finished by whoever executes it.
func (s *Service) markCancelled(tx Tx, read *readings, r *Run, action Action, now time.Time) error {
	r.Cancel = action
	r.UpdatedAt = now
	if r.Status == Running {
		return tx.UpdateRun(r)
	}
	if action == CancelRollback {
		return rollback(tx, r, now) // an earlier attempt may have left checkpoints
	}
	r.Status, r.EndedAt = Interrupted, now
	if err := tx.UpdateRun(r); err != nil || r.StartedAt.IsZero() || r.Kwargs.Temporary {
		return err
	}
	// An earlier attempt had begun.
	if _, err := s.keepPartial(tx, r, nil, read, now); err != nil {
		return err
	}
	return recordEnd(tx, r, now)
}

// Cancel cancels runs of a thread. With wait it returns after they have stopped.
func (s *Service) Cancel(ctx context.Context, t id.Thread, runs []id.Run, action Action, wait bool) error {
	return s.cancel(ctx, action, wait, func(tx Tx) (matched []*Run, err error) {
		found := 0
		named := slices.Clone(runs)
		slices.Sort(named)
		for _, r := range slices.Compact(named) {
			row, err := tx.Run(t, r)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found++
			if !row.Status.Over() && row.Cancel == "" {
				matched = append(matched, row)
			}
		}
		switch {
		case found == 0:
			return nil, errNoneToCancel
		case len(matched) == 0:
			return nil, fault.New(fault.NotFound, "No matching runs to cancel. Please verify the thread ID and run IDs are correct, and the runs haven't been deleted or completed.")
		}
		return matched, nil
	})
}

// cancelBatch bounds the threads whose runs are cancelled in one transaction.
const cancelBatch = 50

// CancelAll cancels the runs of all threads that have the status: pending, running or all. Runs that are created meanwhile go on. When there
// is no such run: fault.NotFound.
func (s *Service) CancelAll(ctx context.Context, status string, action Action) error {
	var batch []id.Thread // sorted: a storage that locks them one by one wants the same order everywhere
	found := 0
	for last := id.Thread(""); ; last = batch[len(batch)-1] {
		var err error
		if batch, err = s.Store.ActiveThreads(ctx, last, cancelBatch); err != nil {
			return err
		}
		if len(batch) == 0 {
			break
		}
		of := 0
		err = s.cancel(ctx, action, false, func(tx Tx) (matched []*Run, err error) {
			for _, t := range batch {
				active, err := tx.ActiveRuns(t)
				if err != nil {
					return nil, err
				}
				for _, r := range active {
					if r.Cancel == "" && (status == "all" || status == string(r.Status)) {
						matched = append(matched, r)
					}
				}
			}
			of = len(matched) // the transaction may run again
			return matched, nil
		})
		if err != nil {
			return err
		}
		found += of
	}
	if found == 0 {
		return errNoneToCancel
	}
	return nil
}

func (s *Service) cancel(ctx context.Context, action Action, wait bool, match func(Tx) ([]*Run, error)) error {
	var ended []*Run
	var stopped []id.Run
	var unsettled []id.Thread
	now := s.Now()
	err := s.writeReading(ctx, func(tx Tx, read *readings) error {
		ended, stopped, unsettled = nil, nil, nil
		matched, err := match(tx)
		if err != nil {
			return err
		}
		for _, r := range matched {
			if r.Status == Running {
				stopped = append(stopped, r.ID)
			} else {
				ended = append(ended, r)
			}
			if err := s.markCancelled(tx, read, r, action, now); err != nil {
				return fmt.Errorf("cancel run %s: %w", r.ID, err)
			}
		}
		unsettled, err = s.settleEnded(tx, ended)
		return err
	})
	if err != nil {
		return err
	}
	waits, elsewhere := s.stop(stopped, errCancelled)
	// The cancel is true; what follows from it is done even if the client goes away.
	after := context.WithoutCancel(ctx)
	s.tellInterrupted(after, ended)
	for _, t := range unsettled {
		if err := s.settleLater(after, t); err != nil {
			return err
		}
	}
	if !wait {
		return nil
	}
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, r := range elsewhere {
		if err := s.awaitEnd(ctx, "", r); err != nil {
			return fmt.Errorf("wait for the end of run %s: %w", r, err)
		}
	}
	return nil
}

// tellInterrupted tells, after the commit, of pending runs that were ended.
func (s *Service) tellInterrupted(ctx context.Context, ended []*Run) {
	for _, r := range ended {
		s.metrics.ended[Interrupted].Inc()
		s.publishEnd(ctx, r)
	}
}

// settleEnded settles, once each, the threads of pending runs that were cancelled; temporary ones go. It gives those whose head only their graph
// can tell, which cannot be asked within a transaction: settleLater.
func (s *Service) settleEnded(tx Tx, ended []*Run) (unsettled []id.Thread, err error) {
	seen := map[id.Thread]bool{}
	for _, r := range ended {
		if seen[r.Thread] {
			continue
		}
		seen[r.Thread] = true
		if r.Kwargs.Temporary {
			err = tx.DeleteThread(r.Thread)
		} else {
			var row *thread.Thread
			if row, err = tx.Thread(r.Thread); err == nil {
				_, err = s.settleIn(tx, r.Thread, nil, row.Error, false, s.Now())
			}
		}
		switch {
		case errors.Is(err, checkpointer.ErrUndescribed):
			unsettled = append(unsettled, r.Thread)
		case err != nil && !fault.Is(err, fault.NotFound):
			return nil, fmt.Errorf("settle thread %s: %w", r.Thread, err)
		}
	}
	return unsettled, nil
}

// settleLater settles a thread after the commit, with the error that it shows already.
func (s *Service) settleLater(ctx context.Context, t id.Thread) error {
	err := s.settleWith(ctx, t, func(row *thread.Thread) json.RawMessage { return row.Error })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("settle thread %s: %w", t, err)
	}
	return nil
}

// stop cancels executions of this process, and gives what to wait for. It tells other instances of runs that they have, and gives them too.
func (s *Service) stop(runs []id.Run, cause error) (waits []<-chan struct{}, elsewhere []id.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		if ex := s.active[r]; ex != nil {
			ex.cancel(cause)
			waits = append(waits, ex.done)
		} else if s.shared != nil {
			s.signal(Signal{Run: r})
			elsewhere = append(elsewhere, r)
		}
	}
	return waits, elsewhere
}

// publishEnd tells followers that a run is over.
func (s *Service) publishEnd(ctx context.Context, r *Run) {
	end := s.terminal(r)
	if s.shared != nil {
		// Another instance may be at work on the thread, and gives the offsets under which the database has its records.
		end.Attempt, end.Kept = 0, false
	}
	s.publish(ctx, r, end)
	s.ended(r)
}

func (s *Service) terminal(r *Run) *bridge.Record {
	return s.record(r, bridge.Terminal, "metadata", []byte(`{"status":"run_done","run_id":"`+string(r.ID)+`"}`))
}
