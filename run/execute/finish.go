package execute

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/logs"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/settle"
	"understudy/run/stream"
	"understudy/thread"
)

// maxFailures is how often a worker may die under a run in a row.
const maxFailures = 3

// ending is what the end of an execution wrote. Followers are notified of it after the commit.
type ending struct {
	row  *run.Run // as it was written; nil: the run was not ours any more, and nothing was
	gone bool     // the run was deleted
	more bool     // runs of the thread that wait for this one
	// endedElsewhere: another server has written that the run is over, and may have died before it notified followers.
	endedElsewhere bool
	// partial: answers were recorded that the run streamed and did not save.
	partial bool
	// unsettled: after a rollback only the graph knows the head, and can be asked only after the commit. failure is what the thread shows then.
	unsettled bool
	failure   json.RawMessage
}

// finish writes the end of an execution in one transaction, and then notifies followers.
func (x *Executor) finish(ctx context.Context, ex *Execution, out outcome) error {
	claimed := ex.Run
	var values json.RawMessage // for the webhook
	if claimed.Kwargs.Webhook != "" && !claimed.Kwargs.Temporary {
		res, err := x.headValues(ctx, claimed.Thread)
		if err != nil {
			return err
		}
		values = res
	}
	read := &settle.Readings{}
	if out.kind != succeeded && out.kind != handedBack && out.kind != dropped {
		// Most of these ends keep what was streamed. What takes time is done before the transaction.
		if err := x.Settler.Prepare(ctx, read, claimed, out.streamed); err != nil {
			return err
		}
	}
	c := &closing{x: x, ex: ex, out: out, last: ex.spans.Load().Last(out.kind.words().span, out.failure), values: values, read: read}
	var e ending
	written := false
	err := thread.SettleAsking(ctx, x.Snapshots, claimed.Thread, func(head *checkpointer.HeadInfo) error {
		c.head = head
		return x.Settler.WriteWith(ctx, read, func(tx run.Tx, read *settle.Readings) (err error) {
			c.read = read
			e, err = c.write(tx)
			written = err == nil && e.row != nil
			return err
		})
	})
	if err != nil {
		if written {
			ex.tried = &e
		}
		return fmt.Errorf("end run %s: %w", claimed.ID, err)
	}
	if e.unsettled {
		x.settle(ctx, claimed.Thread, e.failure)
	}
	if e.gone {
		x.Publisher.Deleted(claimed)
	}
	ex.continues = e.row != nil && e.row.Status == run.Pending
	x.announce(ctx, ex.Attempt, e, out)
	if e.row != nil && e.row.Status.Over() {
		x.Signals.Ended(e.row)
	}
	if e.gone || claimed.Kwargs.Temporary && e.row != nil && e.row.Status.Over() {
		x.Gone(claimed)
	}
	return nil
}

// FinishCancelled writes the end of a run that was cancelled, and that no server executes any more.
func (x *Executor) FinishCancelled(ctx context.Context, r *run.Run) error {
	ex := &Execution{Attempt: stream.AttemptElsewhere(r)}
	// When the commit has happened despite its error, the run is not found by a caller that tries again.
	return x.patiently(ctx, func() error { return x.finish(ctx, ex, outcome{kind: cancelled}) })
}

// settle makes a thread show its head after the commit of an end that could not.
func (x *Executor) settle(ctx context.Context, t id.Thread, failure json.RawMessage) {
	err := x.patiently(ctx, func() error { return x.Settler.Settle(ctx, t, failure) })
	if err != nil && !fault.Is(err, fault.NotFound) { // else the thread was deleted meanwhile
		x.Log.ErrorContext(ctx, "thread status left at busy until its next run", "thread_id", t, "error", err)
	}
}

// patiently repeats what, for up to a lease, while it fails because the storage is away.
func (x *Executor) patiently(ctx context.Context, what func() error) error {
	return (&patient{end: x.Lease, quit: x.Quit, outage: &x.outage}).try(ctx, what)
}

// committed reports whether an end was written though its commit returned an error, as when a connection dies before the answer comes. row is that of the run
// now; nil: there is none any more.
func (e *ending) committed(row *run.Run) bool {
	switch {
	case e == nil:
		return false
	case row == nil:
		return e.row.Status.Over() && (e.row.Kwargs.Temporary || rolledBack(e.row))
	}
	return row.Attempt == e.row.Attempt && row.Status == e.row.Status
}

// headValues are the values of a thread's head; nil when it has none.
func (x *Executor) headValues(ctx context.Context, t id.Thread) (json.RawMessage, error) {
	head, err := x.Snapshots.Head(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", t, err)
	}
	if head.ID == "" {
		return nil, nil
	}
	values, err := x.Snapshots.Values(ctx, checkpointer.Key{Thread: t, ID: head.ID})
	if err != nil {
		return nil, fmt.Errorf("values of thread %s: %w", t, err)
	}
	return values, nil
}

// AnnounceInterrupted notifies followers, after the commit, of pending runs that were ended.
func (x *Executor) AnnounceInterrupted(ctx context.Context, ended []*run.Run) {
	for _, r := range ended {
		x.metrics.ended[run.Interrupted].Inc()
		x.Publisher.PublishEnd(ctx, r)
		if r.Kwargs.Temporary {
			x.Gone(r)
		}
	}
}

// announce publishes the end of an execution for followers, and wakes what waited for it. It is called after the commit.
func (x *Executor) announce(ctx context.Context, a *stream.Attempt, e ending, out outcome) {
	row := e.row
	if row == nil {
		if out.kind != dropped { // else it was known before
			x.metrics.fencedLost.Inc()
		}
		return // the server that took or deleted the run notified the followers
	}
	if out.kind == died {
		logDeath(ctx, x.Log, row, out.death)
	}
	if row.Status == run.Pending {
		x.Queued()
		return
	}
	if e.endedElsewhere { // repeating that does no harm
		x.Publisher.PublishEnd(ctx, row)
		x.Webhooks.Poke()
		x.Queued() // if nothing waits, a look into the queue was for nothing
		return
	}
	x.metrics.ended[row.Status].Inc()
	if row.Kwargs.Webhook != "" || len(row.Kwargs.Push) > 0 {
		x.Webhooks.Poke()
	}
	if f := out.failure; f != nil && !out.logged && row.Status == run.Error {
		logRaised(ctx, x.Log, row, f)
	}
	var records []*bridge.Record
	if row.Error != nil {
		shown := x.Publisher.Record(row, bridge.Data, "error", row.Error)
		shown.Ephemeral, shown.Kept = true, false
		records = append(records, shown)
	}
	if e.partial {
		x.Followers.Forget(row.Thread)
	}
	end := x.Publisher.Terminal(row)
	x.Publisher.Publish(ctx, a, append(records, end)...)
	// Not earlier: before the commit the next run was blocked; before the records were published, its own would have come first.
	if e.more {
		x.Queued()
	}
	x.Publisher.KeepEnd(ctx, row, end)
}

// logRaised logs what a graph raised: the error in one line, and its traceback if it has one.
func logRaised(ctx context.Context, log *slog.Logger, row *run.Run, f *graph.Failure) {
	text, traceback := f.Error(), f.Detail
	if first, rest, _ := strings.Cut(strings.TrimSpace(f.Detail), "\n"); strings.HasPrefix(first, f.Type+": ") {
		text, traceback = first, rest // of a graph in Go: the text as it is not shown to clients, and the stack of a panic
	}
	if f.Server {
		text, traceback = f.Detail, ""
	}
	attrs := []any{"run_id", row.ID, "thread_id", row.Thread, "error", text}
	if traceback != "" {
		attrs = append(attrs, "traceback", traceback)
	}
	if f.Fix != "" {
		attrs = append(attrs, "fix", f.Fix)
	}
	if f.Server {
		log.ErrorContext(ctx, "a run failed because the server could not save or read for it", attrs...)
		return
	}
	log.WarnContext(ctx, logs.GraphRaised, attrs...)
}

// logDeath logs that the worker of a run died, and whether the run is tried again.
func logDeath(ctx context.Context, log *slog.Logger, row *run.Run, d *graph.Death) {
	attrs := []any{"run_id", row.ID, "thread_id", row.Thread, "deaths_since_checkpoint", row.Failures, "of", maxFailures}
	if d != nil {
		attrs = append(attrs, "cause", d.Text())
		if d.Fix != "" {
			attrs = append(attrs, "fix", d.Fix)
		}
	}
	if row.Status == run.Pending {
		log.WarnContext(ctx, "the worker of a run died; trying the run again in a worker of its own", attrs...)
		return
	}
	log.ErrorContext(ctx, "the worker of a run died; the run ends", attrs...)
}

// workerDied is the error of a run whose worker died too often.
func workerDied(d *graph.Death) json.RawMessage {
	text := fmt.Sprintf("The process running the graph died %d times without a checkpoint in between.", maxFailures)
	if d != nil {
		text += " The last time: " + d.Text() + "."
		if d.Fix != "" {
			text += " Next step: " + d.Fix + "."
		}
	}
	return run.ErrorJSON(run.WorkerDied, text)
}

// retryReason returns why another attempt continues a run, for the record of it and for the log.
func retryReason(out outcome) (completion.Reason, string) {
	switch {
	case out.kind == handedBack:
		return completion.HandedBack, "its server stopped, loaded the graphs anew, or cannot load this one"
	case out.death == nil:
		return completion.WorkerDied, "the process running the graph died"
	}
	return completion.WorkerDied, "the process running the graph died: " + out.death.Text()
}

// conclude makes the row of a run show how an execution of it ended: it is over, or pending again. It returns the error that its thread shows.
func (x *Executor) conclude(row *run.Run, out outcome, now time.Time) (failure json.RawMessage) {
	row.Owner, row.LeaseUntil, row.UpdatedAt, row.EndedAt, row.Turn = "", time.Time{}, now, now, run.NoTurn
	switch out.kind {
	case died, handedBack:
		if out.kind == died {
			row.Failures++
		}
		if row.Failures < maxFailures || out.kind == handedBack {
			row.Status, row.EndedAt = run.Pending, time.Time{}
			return nil
		}
		failure = workerDied(out.death)
		row.Status, row.Error = run.Error, failure
	case succeeded:
		row.Status = run.Success
	case cancelled:
		row.Status = run.Interrupted
		failure = userInterrupt
		if row.Cancel == run.CancelRollback {
			failure = userRollback
		}
	case timedOut:
		failure = run.ErrorJSON("TimeoutError", fmt.Sprintf("The run took longer than %s.", x.Timeout))
		row.Status, row.Error = run.Timeout, failure
	default:
		failure = run.ErrorJSON(out.failure.Type, out.failure.Message)
		row.Status, row.Error = run.Error, failure
	}
	return failure
}

// What the error of a thread says after a cancel, as LangGraph Server has it.
var (
	userInterrupt = json.RawMessage(`{"error":"UserInterrupt","message":"interrupt requested via POST /threads/{thread_id}/runs/{run_id}/cancel"}`)
	userRollback  = json.RawMessage(`{"error":"UserRollback","message":"rollback requested via POST /threads/{thread_id}/runs/{run_id}/cancel"}`)
)
