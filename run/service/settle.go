package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/completion"
	"understudy/thread"
)

// settler writes what the end of a run means for its thread.
type settler struct{ settlerOptions }

// settlerOptions are what a settler is made of.
type settlerOptions struct {
	Store     settlerStore
	Snapshots run.Snapshots
	Overlay   *overlay.Overlay // nil: no partial answers are kept
	Now       func() time.Time
}

// settlerStore is what a settler needs of the storage.
type settlerStore interface {
	Write(ctx context.Context, fn func(run.Tx) error) error
	RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error
}

// newSettler makes a settler.
func newSettler(o settlerOptions) *settler { return &settler{o} }

// rollback undoes a run: its checkpoints and its row go, its events stay, marked.
func rollback(tx run.Tx, r *run.Run, now time.Time) error {
	if err := dropPartial(tx, r); err != nil {
		return err
	}
	// Another run that is executed may have begun on these checkpoints. Its next one names their values without repeating them.
	active, err := tx.ActiveRuns(r.Thread)
	if err != nil {
		return err
	}
	inUse := slices.ContainsFunc(active, func(other *run.Run) bool { return other.ID != r.ID && other.Status == run.Running })
	if err := tx.DeleteRunCheckpoints(r.Thread, r.ID, inUse); err != nil {
		return err
	}
	if err := tx.RollBackEvents(r.Thread, r.ID); err != nil {
		return err
	}
	if err := completion.RecordRollback(tx, r, now); err != nil {
		return err
	}
	return tx.DeleteRun(r.Thread, r.ID)
}

// settle makes the row of a thread show its head. failure: the error of the run that ended; nil keeps none.
func (s *settler) settle(ctx context.Context, t id.Thread, failure json.RawMessage) error {
	return s.settleWith(ctx, t, func(*thread.Thread) json.RawMessage { return failure })
}

// settleWith is settle with an error that depends on what the thread shows.
func (s *settler) settleWith(ctx context.Context, t id.Thread, failure func(*thread.Thread) json.RawMessage) error {
	var head *checkpointer.HeadInfo
	for {
		err := s.Store.Write(ctx, func(tx run.Tx) error {
			row, err := tx.Thread(t)
			if err != nil {
				return err
			}
			_, err = s.settleIn(tx, t, head, failure(row), false, s.Now())
			return err
		})
		if !errors.Is(err, checkpointer.ErrUndescribed) {
			return err
		}
		asked, err := s.Snapshots.Head(ctx, t)
		if err != nil {
			return fmt.Errorf("head of thread %s: %w", t, err)
		}
		head = &asked
	}
}

// headValues are the values of a thread's head; nil when it has none.
func (s *settler) headValues(ctx context.Context, t id.Thread) (json.RawMessage, error) {
	head, err := s.Snapshots.Head(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", t, err)
	}
	if head.ID == "" {
		return nil, nil
	}
	values, err := s.Snapshots.Values(ctx, checkpointer.Key{Thread: t, ID: head.ID})
	if err != nil {
		return nil, fmt.Errorf("values of thread %s: %w", t, err)
	}
	return values, nil
}

// settleIn makes the row of a thread show its head within a transaction. See thread.SettleIn.
func (s *settler) settleIn(tx run.Tx, t id.Thread, head *checkpointer.HeadInfo, failure json.RawMessage, failed bool, now time.Time) (more bool, err error) {
	return thread.SettleIn(tx, s.Snapshots, t, thread.Settling{Head: head, Failure: failure, Failed: failed, Now: now})
}

// markCancelled makes a cancel true in the database: a pending run is over at once (or gone, when rolled back), a running one refuses
// further writes and is finished by the server that executes it.
func (s *settler) markCancelled(tx run.Tx, read *readings, r *run.Run, action run.Action, now time.Time) error {
	r.Cancel = action
	r.UpdatedAt = now
	if r.Status == run.Running {
		return tx.UpdateRun(r)
	}
	if action == run.CancelRollback {
		return rollback(tx, r, now) // an earlier attempt may have left checkpoints
	}
	r.Status, r.EndedAt = run.Interrupted, now
	if err := tx.UpdateRun(r); err != nil || r.StartedAt.IsZero() || r.Kwargs.Temporary {
		return err
	}
	// An earlier attempt had begun.
	if _, err := s.keepPartial(tx, r, nil, read, now); err != nil {
		return err
	}
	return completion.RecordEnd(tx, r, nil, now)
}

// settleEnded settles, once each, the threads of pending runs that were cancelled; temporary ones go. It returns those whose head only their graph
// knows, which cannot be asked within a transaction: call settleLater for them.
func (s *settler) settleEnded(tx run.Tx, ended []*run.Run) (unsettled []id.Thread, err error) {
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
func (s *settler) settleLater(ctx context.Context, t id.Thread) error {
	err := s.settleWith(ctx, t, func(row *thread.Thread) json.RawMessage { return row.Error })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("settle thread %s: %w", t, err)
	}
	return nil
}
