package execute

import (
	"encoding/json"
	"errors"
	"time"

	"understudy/checkpointer"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/crash"
	"understudy/run/settle"
	"understudy/run/spans"
	"understudy/run/webhook"
	"understudy/thread"
)

// closing moves a claimed run out of running, and its thread along: one transaction, on the rows as they are then. What takes time is done before.
type closing struct {
	x      *Executor
	ex     *Execution
	out    outcome
	last   *spans.Last
	values json.RawMessage        // of the thread's head, for the webhook
	read   *settle.Readings       // what runs streamed
	head   *checkpointer.HeadInfo // what the graph returned as the thread's head; nil: the rows have it, or write fails with checkpointer.ErrUndescribed
}

// write is called again, with the same closing, when its transaction has to be repeated.
func (c *closing) write(tx run.Tx) (ending, error) {
	claimed, out := c.ex.Run, c.out
	run.Expect(tx, func(e run.Expecting) { e.ExpectEnd(claimed) })
	row, err := tx.Run(claimed.Thread, claimed.ID)
	if fault.Is(err, fault.NotFound) {
		row, err = nil, nil
	}
	switch {
	case err != nil:
		return ending{}, err
	case c.ex.tried.committed(row):
		return *c.ex.tried, nil
	case row == nil:
		return ending{gone: true}, nil
	case row.Attempt == claimed.Attempt && row.Status.Over():
		return ending{row: row, endedElsewhere: true}, nil
	case row.Attempt != claimed.Attempt || row.Status != run.Running:
		return ending{}, crash.Acquit(tx, row)
	}
	if row.Cancel != "" { // it came while the graph ended
		out.kind, out.failure = cancelled, nil
	}
	if out.kind == dropped {
		return ending{}, nil
	}
	now := c.x.Now()
	failure := c.x.conclude(row, out, now)
	if row.Status == run.Pending {
		return ending{row: row}, c.retry(tx, row, out, now)
	}
	if err := c.end(tx, row, out, failure, now); err != nil {
		return ending{row: row}, err
	}
	if row.Kwargs.Temporary {
		return ending{row: row}, tx.DeleteThread(row.Thread)
	}
	return c.settle(tx, row, out, failure, now)
}

// retry writes that the run waits for its next attempt.
func (c *closing) retry(tx run.Tx, row *run.Run, out outcome, now time.Time) error {
	if err := tx.UpdateRun(row); err != nil {
		return err
	}
	reason, cause := retryReason(out)
	if err := completion.RecordRetry(tx, row, reason, cause, now); err != nil {
		return err
	}
	if err := c.ex.notes.Record(tx, row); err != nil {
		return err
	}
	if err := c.ex.calls.Put(tx, row.ID); err != nil {
		return err
	}
	return c.last.Put(tx, row.ID, out.kind.words().span, out.failure)
}

// end writes the run, or deletes what it made, and the delivery of its webhook.
func (c *closing) end(tx run.Tx, row *run.Run, out outcome, failure json.RawMessage, now time.Time) (err error) {
	switch {
	case row.Kwargs.Temporary: // it goes with its thread
	case rolledBack(row):
		err = settle.Rollback(tx, row, now)
	case inVain(row):
		err = c.undo(tx, row, out, now)
	default:
		err = tx.UpdateRun(row)
	}
	if err != nil || row.Kwargs.Webhook == "" || c.x.Policy.Disabled {
		return err
	}
	return tx.InsertDelivery(c.x.Policy.Delivery(webhook.End{
		Thread: row.Thread, Run: row.ID, URL: row.Kwargs.Webhook, Object: c.x.Wire.Run(row), Started: row.StartedAt, Ended: row.EndedAt, Values: c.values, Failure: failure,
	}))
}

// undo removes what a run did. Its row stays, with what it used and how it ended.
func (c *closing) undo(tx run.Tx, row *run.Run, out outcome, now time.Time) error {
	if err := c.last.Put(tx, row.ID, out.kind.words().span, out.failure); err != nil {
		return err
	}
	if err := completion.RecordEnd(tx, row, c.ex.calls, false, now); err != nil {
		return err
	}
	return settle.Undo(tx, row, now)
}

// settle writes what the thread shows after the run, and what was recorded of it.
func (c *closing) settle(tx run.Tx, row *run.Run, out outcome, failure json.RawMessage, now time.Time) (e ending, err error) {
	e.row = row
	undone, head := rolledBack(row) || inVain(row), c.head
	if undone { // the head that was looked up before is deleted now
		head = nil
	}
	e.more, err = thread.SettleIn(tx, c.x.Snapshots, row.Thread, thread.Settling{
		Head: head, Failure: failure, Failed: !undone && (row.Status == run.Error || row.Status == run.Timeout), Now: now, Waits: &c.ex.waits,
	})
	if undone && errors.Is(err, checkpointer.ErrUndescribed) {
		e.unsettled, e.failure, err = true, failure, nil
	}
	if err != nil || undone {
		return e, err
	}
	if err := c.last.Put(tx, row.ID, out.kind.words().span, out.failure); err != nil {
		return e, err
	}
	if err := c.x.Settler.Push(tx, row, now); err != nil {
		return e, err
	}
	if e.partial, err = c.x.Settler.KeepPartial(tx, row, out.streamed, c.read, now); err != nil {
		return e, err
	}
	if err := c.ex.notes.Record(tx, row); err != nil {
		return e, err
	}
	waits := row.Status == run.Success && c.ex.waits
	if waits { // few do, and the row of a thread holds its values
		t, err := tx.Thread(row.Thread)
		if err != nil {
			return e, err
		}
		waits = t.Waits()
	}
	return e, completion.RecordEnd(tx, row, c.ex.calls, waits, now)
}

// rolledBack reports whether a run that is over leaves nothing.
func rolledBack(row *run.Run) bool {
	return row.Status == run.Interrupted && row.Cancel == run.CancelRollback
}

// inVain reports whether a run that is over leaves nothing but its row.
func inVain(row *run.Run) bool { return row.Kwargs.Tentative && row.Status != run.Success }
