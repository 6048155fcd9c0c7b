package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/checkpointer"
	"understudy/id"
)

// Settle updates the row for a head: its values, its interrupts, and the resulting status. failure is the error of the run that
// ended, nil when there was none; busy reports that other runs are pending or running.
func (t *Thread) Settle(head checkpointer.HeadInfo, failure json.RawMessage, busy bool, now time.Time) {
	t.Touched = true
	t.Head = head.ID
	t.Interrupts = head.Interrupts
	t.Error = failure
	t.UpdatedAt, t.StateUpdatedAt = now, now
	switch {
	case busy:
		t.Status = Busy
	case len(head.Next) > 0:
		t.Status = Interrupted
	default:
		t.Status = Idle
	}
}

// SettleTx is the part of a transaction that settles a thread.
type SettleTx interface {
	Thread(t id.Thread) (*Thread, error)
	UpdateThread(t *Thread) error
	HasActiveRuns(t id.Thread) (bool, error)
	Head(t id.Thread) (*checkpointer.Tuple, error)
}

// Described returns the description of a stored checkpoint; checkpointer.ErrUndescribed when only its graph knows it.
type Described interface {
	HeadOf(t *checkpointer.Tuple) (checkpointer.HeadInfo, error)
}

// Settling is the content of a thread's row in addition to its head.
type Settling struct {
	// Head is the graph's answer about the head, used only while that checkpoint is still the head; nil: the rows describe it.
	Head    *checkpointer.HeadInfo
	Failure json.RawMessage // error of the run that ended; nil: none
	Failed  bool            // the thread shows status error unless other runs are active
	Now     time.Time
	Waits   *bool // set to whether the head waits at an interrupt; nil: not needed
}

// SettleAsking calls settle, which makes a row show its thread's head. When settle returns checkpointer.ErrUndescribed, because no row describes that head, it asks
// the graph and calls settle again with the answer; the first time head is nil.
func SettleAsking(ctx context.Context, graph interface {
	Head(ctx context.Context, t id.Thread) (checkpointer.HeadInfo, error)
}, t id.Thread, settle func(head *checkpointer.HeadInfo) error,
) error {
	var head *checkpointer.HeadInfo
	for {
		err := settle(head)
		if !errors.Is(err, checkpointer.ErrUndescribed) {
			return err
		}
		asked, err := graph.Head(ctx, t)
		if err != nil {
			return fmt.Errorf("head of thread %s: %w", t, err)
		}
		head = &asked
	}
}

// SettleIn updates the row of a thread for its head as seen by this transaction. busy reports whether runs of the thread are pending or
// running; it is also valid together with checkpointer.ErrUndescribed.
func SettleIn(tx SettleTx, rows Described, t id.Thread, s Settling) (busy bool, err error) {
	row, err := tx.Thread(t)
	if err != nil {
		return false, err
	}
	if busy, err = tx.HasActiveRuns(t); err != nil {
		return false, err
	}
	tuple, err := tx.Head(t)
	if err != nil {
		return busy, err
	}
	head := s.Head
	if head != nil && head.ID != idOf(tuple) { // the answer is older than this transaction
		head = nil
	}
	if head == nil {
		info, err := rows.HeadOf(tuple)
		if err != nil {
			return busy, err
		}
		head = &info
	}
	if s.Waits != nil {
		*s.Waits = len(head.Next) > 0
	}
	row.Settle(*head, s.Failure, busy, s.Now)
	if s.Failed && !busy {
		row.Status = Errored
	}
	return busy, tx.UpdateThread(row)
}

// idOf returns the id of a checkpoint; "" for nil.
func idOf(t *checkpointer.Tuple) id.Checkpoint {
	if t == nil {
		return ""
	}
	return t.ID
}
