package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// ending is what the end of an execution wrote, to be told after the commit.
type ending struct {
	row  *Run // as it was written; nil: the run was not ours any more, and nothing was
	more bool // runs of the thread that wait for this one
}

// finish writes the end of an execution in one transaction, and then tells who follows.
func (s *Service) finish(ctx context.Context, claimed *Run, out outcome) error {
	var values json.RawMessage // for the webhook
	if claimed.Kwargs.Webhook != "" && !claimed.Kwargs.Temporary {
		res, err := s.headValues(ctx, claimed.Thread)
		if err != nil {
			return err
		}
		values = res
	}
	var head *checkpointer.HeadInfo // told by the graph, when the rows do not
	for {
		var e ending
		err := s.Store.Write(ctx, func(tx Tx) (err error) {
			e, err = s.end(tx, claimed, out, head, values)
			return err
		})
		if errors.Is(err, checkpointer.ErrUndescribed) && head == nil {
			asked, err := s.Snapshots.Head(ctx, claimed.Thread)
			if err != nil {
				return fmt.Errorf("head of thread %s: %w", claimed.Thread, err)
			}
			head = &asked
			continue
		}
		if err != nil {
			return fmt.Errorf("end run %s: %w", claimed.ID, err)
		}
		s.tell(ctx, e, out)
		return nil
	}
}

// headValues are the values of a thread's head; nil when it has none.
func (s *Service) headValues(ctx context.Context, t id.Thread) (json.RawMessage, error) {
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

// tell publishes what the end of an execution means for those who follow, and wakes who waited for it. Only what is committed is told.
func (s *Service) tell(ctx context.Context, e ending, out outcome) {
	row := e.row
	if row == nil {
		return // whoever took or deleted the run told the followers
	}
	if row.Status == Pending {
		s.queued()
		return
	}
	if row.Kwargs.Webhook != "" {
		poke(s.outbox)
	}
	if f := out.failure; f != nil && f.Detail != "" && row.Status == Error {
		s.log.WarnContext(ctx, "graph raised", "run_id", row.ID, "thread_id", row.Thread, "error", f.Error(), "traceback", f.Detail)
	}
	var records []*bridge.Record
	if row.Error != nil {
		shown := s.record(row, bridge.Data, "error", row.Error)
		shown.Ephemeral, shown.Kept = true, false
		records = append(records, shown)
	}
	s.publish(ctx, row, append(records, s.terminal(row))...)
	// Before the commit, whoever looked found the next run blocked; before the records, it would have begun ahead of them.
	if e.more {
		s.queued()
	}
}

// end moves a claimed run out of running, and its thread along: one transaction, on the rows as they are now. head is what the graph
// told of the thread's head; nil: the rows say it, or the error is checkpointer.ErrUndescribed.
func (s *Service) end(tx Tx, claimed *Run, out outcome, head *checkpointer.HeadInfo, values json.RawMessage) (ending, error) {
	row, err := tx.Run(claimed.Thread, claimed.ID)
	if fault.Is(err, fault.NotFound) {
		return ending{}, nil
	}
	if err != nil {
		return ending{}, err
	}
	if row.Attempt != claimed.Attempt || row.Status != Running {
		return ending{}, nil
	}
	if row.Cancel != "" { // it came while the graph ended
		out = outcome{kind: interrupted}
	}
	now := s.Now()
	row.Owner, row.LeaseUntil, row.UpdatedAt, row.EndedAt = "", time.Time{}, now, now
	var failure json.RawMessage // of the thread
	rolledBack := false
	switch out.kind {
	case dropped:
		return ending{}, nil
	case died, handedBack:
		if out.kind == died {
			row.Failures++
		}
		if row.Failures < maxFailures || out.kind == handedBack {
			row.Status, row.EndedAt = Pending, time.Time{}
			return ending{row: row}, tx.UpdateRun(row)
		}
		failure = errorJSON("WorkerDied", fmt.Sprintf("The process running the graph died %d times in a row.", maxFailures))
		row.Status, row.Error = Error, failure
	case succeeded:
		row.Status = Success
	case interrupted:
		row.Status = Interrupted
		rolledBack = row.Cancel == CancelRollback
		failure = userInterrupt
		if rolledBack {
			failure = userRollback
		}
	case timedOut:
		failure = errorJSON("TimeoutError", fmt.Sprintf("The run took longer than %s.", s.Timeout))
		row.Status, row.Error = Timeout, failure
	default:
		failure = errorJSON(out.failure.Type, out.failure.Message)
		row.Status, row.Error = Error, failure
	}
	e := ending{row: row}
	switch {
	case row.Kwargs.Temporary: // it goes with its thread
	case rolledBack:
		err = rollback(tx, row, now)
	default:
		err = tx.UpdateRun(row)
	}
	if err != nil {
		return e, err
	}
	if row.Kwargs.Webhook != "" && !s.Webhooks.Disabled {
		if err := tx.InsertDelivery(s.delivery(row, values, failure, now)); err != nil {
			return e, err
		}
	}
	if row.Kwargs.Temporary {
		return e, tx.DeleteThread(row.Thread)
	}
	if e.more, err = s.settleIn(tx, row.Thread, head, failure, row.Status == Error || row.Status == Timeout, now); err != nil || rolledBack {
		return e, err
	}
	return e, recordEnd(tx, row, now)
}

// settleIn makes the row of a thread show its head within a transaction. It reports whether runs of the thread are pending or running.
func (s *Service) settleIn(tx Tx, t id.Thread, head *checkpointer.HeadInfo, failure json.RawMessage, failed bool, now time.Time) (more bool, err error) {
	row, err := tx.Thread(t)
	if err != nil {
		return false, err
	}
	active, err := tx.ActiveRuns(t)
	if err != nil {
		return false, err
	}
	if head == nil {
		tuple, err := tx.Head(t)
		if err != nil {
			return false, err
		}
		told, err := s.Snapshots.HeadOf(tuple)
		if err != nil {
			return false, err
		}
		head = &told
	}
	row.Settle(*head, failure, len(active) > 0, now)
	if failed && len(active) == 0 {
		row.Status = thread.Errored
	}
	return len(active) > 0, tx.UpdateThread(row)
}

// What the error of a thread says after a cancel, as LangGraph Server has it.
var (
	userInterrupt = json.RawMessage(`{"error":"UserInterrupt","message":"interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel"}`)
	userRollback  = json.RawMessage(`{"error":"UserRollback","message":"rollback requested via POST /threads/{thread_id}/runs/{run_id}/cancel"}`)
)

func errorJSON(kind, message string) json.RawMessage {
	o := &jsonobj.Object{}
	o.SetText("error", kind)
	o.SetText("message", message)
	return o.JSON()
}
