// Package settle writes what the ends of runs mean for their threads: status, head and error of the thread, partial answers, and what a rollback leaves.
package settle

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
	"understudy/run/webhook"
	"understudy/thread"
)

// Settler writes what the end of a run means for its thread.
type Settler struct{ Options }

// Options are what a settler is made of.
type Options struct {
	Store     Store
	Snapshots run.Snapshots
	Overlay   *overlay.Overlay // nil: no partial answers are kept
	Policy    *webhook.Policy  // of push notifications
	Now       func() time.Time
}

// Store is what a settler needs of the storage.
type Store interface {
	Write(ctx context.Context, fn func(run.Tx) error) error
	RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error
}

// New makes a settler.
func New(o Options) *Settler { return &Settler{o} }

// Rollback undoes a run: its checkpoints and its row go, its events stay, marked. The row stays, as failed, if the run was made so.
func Rollback(tx run.Tx, r *run.Run, now time.Time) error {
	if !r.Kwargs.KeepUndone {
		return Delete(tx, r, now)
	}
	r.Status, r.Error, r.EndedAt, r.UpdatedAt = run.Error, rolledBack, now, now
	return Undo(tx, r, now)
}

// Undo undoes a run that is over. Its row stays and says how it ended.
func Undo(tx run.Tx, r *run.Run, now time.Time) error {
	if err := undo(tx, r, now); err != nil {
		return err
	}
	return tx.UpdateRun(r)
}

// rolledBack is the error of a run whose row stays.
var rolledBack = run.ErrorJSON("UserRollback", "Rolled back by user")

// Delete undoes a run and deletes its row. Its events stay.
func Delete(tx run.Tx, r *run.Run, now time.Time) error {
	if err := undo(tx, r, now); err != nil {
		return err
	}
	if !r.StartedAt.IsZero() {
		last := r.EndedAt // its last event is numbered by it
		if !r.Status.Over() {
			last = now
		}
		if err := tx.MarkGone(r.Thread, last); err != nil {
			return err
		}
	}
	return tx.DeleteRun(r.Thread, r.ID)
}

// undo removes the checkpoints of a run and marks its events.
func undo(tx run.Tx, r *run.Run, now time.Time) error {
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
	return completion.RecordRollback(tx, r, now)
}

// Settle makes the row of a thread show its head. failure: the error of the run that ended; nil keeps none.
func (s *Settler) Settle(ctx context.Context, t id.Thread, failure json.RawMessage) error {
	return s.settleWith(ctx, t, func(*thread.Thread) (json.RawMessage, bool) { return failure, false })
}

// SettleDeleted is Settle after a run was deleted: unless that was the last one, the failure of the last one stays.
func (s *Settler) SettleDeleted(ctx context.Context, t id.Thread, last bool) error {
	return s.settleWith(ctx, t, failureAfter(last))
}

// SettleDeletedIn is SettleDeleted within a transaction. See thread.SettleIn.
func (s *Settler) SettleDeletedIn(tx run.Tx, t id.Thread, last bool, now time.Time) error {
	row, err := tx.Thread(t)
	if err != nil {
		return err
	}
	failure, failed := failureAfter(last)(row)
	_, err = s.SettleIn(tx, t, nil, failure, failed, now)
	return err
}

// failureAfter returns what of a thread's failure stays when a run is deleted: its error, and whether its status is that.
func failureAfter(last bool) func(row *thread.Thread) (failure json.RawMessage, failed bool) {
	return func(row *thread.Thread) (json.RawMessage, bool) {
		if last {
			return nil, false
		}
		return row.Error, row.Status == thread.Errored
	}
}

// settleWith is Settle with an error that depends on what the thread shows.
func (s *Settler) settleWith(ctx context.Context, t id.Thread, failure func(*thread.Thread) (json.RawMessage, bool)) error {
	return thread.SettleAsking(ctx, s.Snapshots, t, func(head *checkpointer.HeadInfo) error {
		return s.Store.Write(ctx, func(tx run.Tx) error {
			row, err := tx.Thread(t)
			if err != nil {
				return err
			}
			why, failed := failure(row)
			_, err = s.SettleIn(tx, t, head, why, failed, s.Now())
			return err
		})
	})
}

// SettleIn makes the row of a thread show its head within a transaction. See thread.SettleIn.
func (s *Settler) SettleIn(tx run.Tx, t id.Thread, head *checkpointer.HeadInfo, failure json.RawMessage, failed bool, now time.Time) (busy bool, err error) {
	return thread.SettleIn(tx, s.Snapshots, t, thread.Settling{Head: head, Failure: failure, Failed: failed, Now: now})
}

// MarkCancelled makes a cancel true in the database: a pending run is over at once (or gone, when rolled back), a running one refuses
// further writes and is finished by the server that executes it.
func (s *Settler) MarkCancelled(tx run.Tx, read *Readings, r *run.Run, action run.Action, now time.Time) error {
	r.Cancel = action
	r.UpdatedAt = now
	if r.Status == run.Running {
		return tx.UpdateRun(r)
	}
	if action == run.CancelRollback {
		return Rollback(tx, r, now) // an earlier attempt may have left checkpoints
	}
	r.Status, r.EndedAt = run.Interrupted, now
	if r.Kwargs.Tentative {
		if !r.StartedAt.IsZero() { // an earlier attempt had begun
			if err := completion.RecordEnd(tx, r, nil, false, now); err != nil {
				return err
			}
		}
		return Undo(tx, r, now)
	}
	if err := s.Push(tx, r, now); err != nil {
		return err
	}
	if err := tx.UpdateRun(r); err != nil || r.StartedAt.IsZero() || r.Kwargs.Temporary {
		return err
	}
	// An earlier attempt had begun.
	if _, err := s.KeepPartial(tx, r, nil, read, now); err != nil {
		return err
	}
	return completion.RecordEnd(tx, r, nil, false, now)
}

// Push notifies clients of A2A of the end of a run of their task: of one that was executed after its thread is settled. Poke the sender of webhooks after the commit.
func (s *Settler) Push(tx run.Tx, row *run.Run, now time.Time) error {
	if len(row.Kwargs.Push) == 0 || s.Policy.Disabled {
		return nil
	}
	state := webhook.TaskFailed
	switch row.Status {
	case run.Interrupted:
		state = webhook.TaskCanceled
	case run.Success:
		t, err := tx.Thread(row.Thread)
		if err != nil {
			return err
		}
		if state = webhook.TaskCompleted; t.Waits() {
			state = webhook.TaskInputRequired
		}
	}
	for _, p := range row.Kwargs.Push {
		if err := tx.InsertDelivery(p.Delivery(webhook.TaskEnd{Thread: row.Thread, Run: row.ID, State: state, At: now})); err != nil {
			return err
		}
	}
	return nil
}

// SettleEnded settles, once each, the threads of pending runs that were cancelled; temporary ones go. It returns those whose head only their graph
// knows, which cannot be asked within a transaction: call SettleLater for them.
func (s *Settler) SettleEnded(tx run.Tx, ended []*run.Run) (unsettled []id.Thread, err error) {
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
				_, err = s.SettleIn(tx, r.Thread, nil, row.Error, false, s.Now())
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

// SettleLater settles a thread after the commit, with the error that it shows already.
func (s *Settler) SettleLater(ctx context.Context, t id.Thread) error {
	err := s.settleWith(ctx, t, func(row *thread.Thread) (json.RawMessage, bool) { return row.Error, false })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("settle thread %s: %w", t, err)
	}
	return nil
}
