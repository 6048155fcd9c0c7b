package service

import (
	"context"
	"fmt"
	"slices"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/execute"
	"understudy/run/settle"
)

// errNoneToCancel is the answer to a cancellation that names no run.
var errNoneToCancel = fault.New(fault.NotFound, "No runs found to cancel.")

// Cancel cancels runs of a thread; fault.NotFound if none of them is there. With wait it returns after they have stopped.
func (s *Service) Cancel(ctx context.Context, t id.Thread, runs []id.Run, action run.Action, wait bool) error {
	return s.cancel(ctx, action, wait, func(tx run.Tx) (matched []*run.Run, err error) {
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

// CancelAll cancels the runs of all threads that have the status: pending, running or all. Runs that are created meanwhile continue. When there
// is no such run: fault.NotFound.
func (s *Service) CancelAll(ctx context.Context, status string, action run.Action) error {
	var of run.Active
	if status != "all" {
		of.Status = run.Status(status)
	}
	n, err := s.Store.CountActive(ctx, of)
	if err != nil {
		return err
	}
	of.Until = n.Last // of the runs themselves, because clocks of servers differ
	found := 0
	for above := id.Thread(""); ; {
		n, last, err := s.CancelSome(ctx, of, above, action)
		if err != nil {
			return err
		}
		if found += n; last == "" {
			break
		}
		above = last
	}
	if found == 0 {
		return errNoneToCancel
	}
	return nil
}

// CountActive counts the runs that are selected. It looks at run.MaxActive of each status at most.
func (s *Service) CountActive(ctx context.Context, of run.Active) (run.ActiveCount, error) {
	return s.Store.CountActive(ctx, of)
}

// CancelSome cancels the selected runs of the next threads above one, in order of their IDs. It returns how many runs it has cancelled, and the last of these
// threads; "": there were none. A run that ends meanwhile is not cancelled and not counted.
func (s *Service) CancelSome(ctx context.Context, of run.Active, above id.Thread, action run.Action) (cancelled int, last id.Thread, err error) {
	batch, err := s.Store.ActiveThreads(ctx, of, above, cancelBatch) // sorted: a storage that locks them one by one wants the same order everywhere
	if err != nil || len(batch) == 0 {
		return 0, "", err
	}
	err = s.cancel(ctx, action, false, func(tx run.Tx) (matched []*run.Run, err error) {
		for _, t := range batch {
			active, err := tx.ActiveRuns(t)
			if err != nil {
				return nil, err
			}
			for _, r := range active {
				if of.Chooses(r) {
					matched = append(matched, r)
				}
			}
		}
		cancelled = len(matched) // the transaction may run again
		return matched, nil
	})
	if err != nil {
		return 0, "", err
	}
	return cancelled, batch[len(batch)-1], nil
}

func (s *Service) cancel(ctx context.Context, action run.Action, wait bool, match func(run.Tx) ([]*run.Run, error)) error {
	var ended []*run.Run
	var stopped []id.Run
	var unsettled []id.Thread
	var written []*run.Run // by a transaction that may be committed
	now := s.Now()
	err := s.settler.Write(ctx, func(tx run.Tx, read *settle.Readings) error {
		ended, stopped, unsettled, written = nil, nil, nil, nil
		matched, err := match(tx)
		if err != nil {
			return err
		}
		for _, r := range matched {
			if r.Status == run.Running {
				stopped = append(stopped, r.ID)
			} else {
				ended = append(ended, r)
			}
			if err := s.settler.MarkCancelled(tx, read, r, action, now); err != nil {
				return fmt.Errorf("cancel run %s: %w", r.ID, err)
			}
		}
		if unsettled, err = s.settler.SettleEnded(tx, ended); err != nil {
			return err
		}
		written = matched
		return nil
	})
	if err != nil && !s.cancelled(ctx, written) {
		return err
	}
	here, elsewhere := s.executor.Stop(stopped, execute.ErrCancelled)
	// The cancel is true; what follows from it is done even if the client goes away.
	after := context.WithoutCancel(ctx)
	s.sendPush(ended)
	s.executor.AnnounceInterrupted(after, ended)
	for _, t := range unsettled {
		if err := s.settler.SettleLater(after, t); err != nil {
			return err
		}
	}
	if !wait {
		return nil
	}
	for _, ex := range here {
		if err := ex.Wait(ctx); err != nil {
			return err
		}
	}
	for _, r := range elsewhere {
		if err := s.followers.AwaitEnd(ctx, "", r); err != nil {
			return fmt.Errorf("wait for the end of run %s: %w", r, err)
		}
	}
	return nil
}

// cancelled reports whether the cancel of runs was written though the answer to the commit was lost.
func (s *Service) cancelled(ctx context.Context, runs []*run.Run) bool {
	if len(runs) == 0 {
		return false
	}
	ctx, cancel := s.confirming(ctx)
	defer cancel()
	row, err := run.Confirm(ctx, s.Store, runs[0].Thread, runs[0].ID)
	return err == nil && (row == nil || row.Cancel != "")
}
