// Package execute executes claimed runs, from their first record to the transaction that ends them. An Execution has one goroutine; its graph saves checkpoints,
// each of which is refused once the run has another attempt, and what it emits goes to run/stream.
package execute

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/diskspace"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/logctx"
	"understudy/internal/logs"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/crash"
	"understudy/run/settle"
	"understudy/run/signals"
	"understudy/run/slots"
	"understudy/run/spans"
	"understudy/run/stream"
	"understudy/run/webhook"
	"understudy/thread"
)

// Options are what an executor is made of.
type Options struct {
	Store     run.Store
	Shared    bool // other servers work on the store
	Graphs    run.Graphs
	Snapshots run.Snapshots
	Items     graph.Store
	Backfill  thread.Backfill  // nil: every thread was recorded from its beginning
	Overlay   *overlay.Overlay // nil: clients see what the graph itself has
	Wire      run.Wire
	Policy    *webhook.Policy
	Now       func() time.Time
	Instance  string
	Lease     time.Duration
	Timeout   time.Duration  // of an attempt
	Version   string         // of the API, in metadata of runs
	URL       string         // of the API, there
	Inside    *access.Inside // credentials of graphs that call it; nil: it asks for none
	Log       *slog.Logger
	Tracer    trace.Tracer          // nil: spans are not exported
	Spans     spans.Policy          // what is recorded of spans
	Registry  prometheus.Registerer // nil: metrics are not exported
	Quit      <-chan struct{}       // closed when the grace period is over

	Slots      *slots.Slots
	Executions *Executions
	Publisher  *stream.Publisher
	Followers  *stream.Followers
	Settler    *settle.Settler
	Signals    *signals.Sender
	Webhooks   *webhook.Sender
	// Queued notes that a run was left in the queue.
	Queued func()
	// Gone is called with a run whose row is gone when its execution has ended: with its thread, or by itself. nil: nothing is called.
	Gone func(*run.Run)
}

// Executor executes claimed runs from their first record to their last, and writes how they ended.
type Executor struct {
	Options
	metrics *metrics
	outage  outage
}

// fullPatience is how long the end of a run is retried on a full disk before those who wait for it learn that.
const fullPatience = 2 * time.Second

// unsavedAgain is how often the log says that the end of a run cannot be written yet. Attempts are more frequent.
const unsavedAgain = 10 * time.Second

// attempts are those to write the end of a run that failed.
type attempts struct {
	count  int
	logged time.Time // zero: never
}

// due counts one, and reports whether the log is to have it.
func (a *attempts) due(now time.Time) bool {
	a.count++
	if !a.logged.IsZero() && now.Sub(a.logged) < unsavedAgain {
		return false
	}
	a.logged = now
	return true
}

// patience is how long the end of a run that cannot be written because of err is retried before those who wait for it learn that: a database that is slow or away
// comes back within a lease, but a full disk does not become empty.
func (x *Executor) patience(err error) time.Duration {
	if errors.Is(err, diskspace.ErrFull) {
		return min(x.Lease, fullPatience)
	}
	return x.Lease
}

// New makes an executor.
func New(o Options) *Executor {
	if o.Gone == nil {
		o.Gone = func(*run.Run) {}
	}
	return &Executor{Options: o, metrics: newMetrics(o.Registry), outage: outage{log: o.Log, after: outageAfter}}
}

// execute runs one claim from its first record to its last, and has its end written by finish.
func (x *Executor) execute(ctx context.Context, ex *Execution, finish func(context.Context, *Execution, outcome) error) {
	r := ex.Run
	if r.Attempt > 1 {
		x.Log.InfoContext(ctx, "run resumed", "run_id", r.ID, "thread_id", r.Thread, "attempt", r.Attempt)
	}
	began := x.Now()
	refused := x.takeTurn(ctx, ex)
	ctx, cancel := context.WithTimeoutCause(ctx, x.Timeout, errTimeout)
	defer cancel()
	ctx, ended := x.span(ctx, r)
	recorder := x.recorder(ctx, r)
	ex.spans.Store(recorder)
	var out outcome
	if refused != nil {
		out = x.outcomeOf(ctx, refused)
	} else {
		out = x.stream(ctx, ex)
	}
	out.streamed = ex.streamed
	ex.yield()
	ex.ending.Store(true)
	defer func() {
		recorder.Close(out.kind.words().span)
		ended(out)
	}()
	// From here on, writes ignore the cancellation of ctx.
	after := context.WithoutCancel(ctx)
	ends := time.Now()
	var failed attempts
	unsaved := func(err error) {
		if failed.due(time.Now()) {
			x.Log.ErrorContext(after, stream.UnsavedLog, "error", err, "attempts", failed.count)
		}
		x.unsaved(after, ex, out, ends, err)
	}
	if r.Kwargs.Resumable {
		x.Publisher.FlushRecords(after, min(x.Lease, fullPatience), func(err error) { // its end comes behind them in the database
			if time.Since(ends) >= x.patience(err) {
				unsaved(err)
			}
		})
		if out.kind != dropped {
			x.Publisher.FlushStream(after, r)
		}
	}
	for wait := loop.NewBackoff(50*time.Millisecond, 5*time.Second); ; {
		err := finish(after, ex, out)
		if err == nil {
			break
		}
		unsaved(err)
		pause := wait.Next()
		if left := x.patience(err) - time.Since(ends); left > 0 {
			pause = min(pause, left) // so that clients do not wait for a pause in addition
		}
		select {
		case <-time.After(pause):
		case <-x.Quit:
			x.leave(after, ex, out, finish)
			return
		}
	}
	x.metrics.over(out.kind, x.Now().Sub(began))
	ending := out.kind.words().log
	if out.kind == succeeded && ex.waits {
		ending = "interrupted" // for the log alone: its status is success, as in LangGraph Server
	}
	message := logs.RunEnded
	switch {
	case out.kind == dropped:
		message = logs.AttemptDropped
	case ex.continues:
		message = logs.AttemptEnded
	}
	x.Log.InfoContext(after, message, "graph", r.Graph, "attempt", r.Attempt, "outcome", ending, "stateless", r.Kwargs.Temporary, logctx.Took(x.Now().Sub(began)))
}

// unsaved reports that the end of an execution, which was reached at a time, cannot be written: a full disk or a lost database. The outcome is kept until it
// can be, for the thread must not be stuck. When the server ends before that, the next attempt continues the run (leave).
func (x *Executor) unsaved(ctx context.Context, ex *Execution, out outcome, ended time.Time, err error) {
	if out.kind != handedBack && time.Since(ended) >= x.patience(err) {
		x.Publisher.PublishUnsaved(ctx, ex.Attempt, err)
	}
}

// leave hands a run back whose end could not be written before the server stopped, with the space that the storage keeps for deletes: that takes less than
// its end would. A run that stays as running counts as one that may have killed its server. On a shared store the lease ends, and a server that lives takes over.
func (x *Executor) leave(ctx context.Context, ex *Execution, out outcome, finish func(context.Context, *Execution, outcome) error) {
	if x.Shared {
		return
	}
	if out.kind != died && out.kind != dropped { // these are as small, and a death counts
		out = outcome{kind: handedBack}
	}
	if err := finish(diskspace.WithReserve(ctx), ex, out); err != nil {
		x.Log.ErrorContext(ctx, "a run could not be handed back; the next start counts it as one that may have killed this server", "error", err,
			"fix", "make room on the disk, or see that it can be written, before the next start")
		return
	}
	x.Log.InfoContext(ctx, "the end of a run could not be written; the next start continues it from its last checkpoint")
}

// stream lets the graph run, and publishes what it emits.
func (x *Executor) stream(ctx context.Context, ex *Execution) (out outcome) {
	r := ex.Run
	defer func() {
		if p := recover(); p != nil {
			x.Log.ErrorContext(ctx, "panic while a run was streamed", "run_id", r.ID, "panic", p, "stack", string(debug.Stack()))
			out = outcome{kind: failed, failure: &graph.Failure{Type: "InternalError", Message: graph.Masked}, logged: true}
		}
	}()
	x.Publisher.PublishFolded(ctx, ex.Attempt, x.Publisher.Record(r, bridge.Data, "metadata",
		[]byte(`{"run_id":"`+string(r.ID)+`","attempt":`+strconv.Itoa(r.Attempt)+`}`)))
	g, ok := x.Graphs.Graph(r.Graph)
	if !ok {
		return outcome{kind: failed, failure: &graph.Failure{Type: "GraphNotFound", Message: "Graph '" + r.Graph + "' is not served any more"}}
	}
	if x.Backfill != nil && !r.Kwargs.Temporary {
		// Events recorded on a parent that has none would begin a new transcript. A storage that cannot record the parent now could not save what the
		// run does either.
		if err := x.Backfill.Ensure(ctx, r.Thread, r.Kwargs.CheckpointID); err != nil {
			return x.outcomeOf(ctx, err)
		}
	}
	at := position{streamed: ex.streamed, passed: ex.yield}
	if x.Shared {
		at.storage = &patient{Store: x.Store, end: 3 * x.Lease, quit: x.Quit, done: ctx.Done(), outage: &x.outage}
	}
	inv, err := x.invocation(ctx, ex, &at)
	if err != nil {
		return x.outcomeOf(ctx, err)
	}
	summarizer := x.Overlay.Summarizer(r.Thread)
	var held *bridge.Record // published with the next record, which decides whether readers of transcripts see it
	defer func() {
		if held != nil && out.kind != dropped {
			x.Publisher.Publish(ctx, ex.Attempt, held)
		}
	}()
	for ev, err := range g.Stream(ctx, inv) {
		if err != nil && at.away() && ctx.Err() == nil {
			x.Log.WarnContext(ctx, "run goes back to the queue: nothing could be saved", "run_id", r.ID, "error", err)
			return outcome{kind: handedBack}
		}
		if err != nil {
			return x.outcomeOf(ctx, err)
		}
		saved := committed(ctx, &ev)
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrLost) {
			return outcome{kind: dropped} // the server that has the run publishes its records
		}
		if !saved {
			continue
		}
		if r.Kwargs.Temporary && interrupts(&ev) {
			ex.waits = true // it has no checkpoint that finish could find them in
		}
		rec := x.recordOf(r, &ev)
		hold := x.mark(ctx, r, held, rec, &ev, &at, summarizer)
		if held != nil {
			x.Publisher.Publish(ctx, ex.Attempt, held)
			held = nil
		}
		if !rec.Summarizer { // also one that is held: it may say whose words come next
			ex.streamed.Add(rec.Event, ev.Data)
		}
		if hold {
			held = rec
			continue
		}
		x.Publisher.PublishFolded(ctx, ex.Attempt, rec)
	}
	if err := ctx.Err(); err != nil {
		return x.outcomeOf(ctx, context.Cause(ctx))
	}
	return outcome{kind: succeeded}
}

// recordOf returns the record of an event: its name has the namespace of the graph that emitted it.
func (x *Executor) recordOf(r *run.Run, ev *graph.Event) *bridge.Record {
	kind, name := bridge.Data, ev.Name
	if strings.HasPrefix(name, "messages") && name != "messages/complete" && name != "messages/metadata" {
		kind = bridge.Token
	}
	if ev.NS != "" {
		name += "|" + ev.NS
	}
	return x.Publisher.Record(r, kind, name, ev.Data)
}

// committed waits until an event may be shown, and reports whether it may: it shows what a checkpoint has, which may not be saved any more.
func committed(ctx context.Context, ev *graph.Event) bool {
	if ev.Hold == nil {
		return true
	}
	select {
	case <-ev.Hold:
	default:
		select {
		case <-ev.Hold:
		case <-ctx.Done():
			return false
		}
	}
	return ev.Lost == nil || !ev.Lost()
}

// interrupts reports whether an event shows interrupts of the root graph.
func interrupts(ev *graph.Event) bool {
	const key = "__interrupt__"
	return ev.NS == "" && (ev.Name == "values" || ev.Name == "updates") && bytes.Contains(ev.Data, []byte(`"`+key+`"`)) &&
		len(gjson.GetBytes(ev.Data, key).Array()) > 0
}

func (x *Executor) outcomeOf(ctx context.Context, err error) outcome {
	cause := err
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	var f *graph.Failure
	var away *fault.Error
	switch {
	case errors.Is(cause, ErrCancelled):
		return outcome{kind: cancelled}
	case errors.Is(cause, errTimeout):
		return outcome{kind: timedOut}
	case errors.Is(cause, ErrShutdown), errors.Is(err, graph.ErrReloading), errors.Is(err, graph.ErrElsewhere):
		return outcome{kind: handedBack}
	case errors.Is(cause, ErrGone), errors.Is(cause, ErrLost), errors.Is(err, graph.ErrFenced):
		return outcome{kind: dropped} // finish looks at the row: a cancel is found there
	case errors.Is(err, graph.ErrWorkerDied):
		out := outcome{kind: died}
		_ = errors.As(err, &out.death)
		return out
	case errors.As(err, &f):
		return outcome{kind: failed, failure: f}
	case x.Shared && fault.Is(err, fault.Unavailable):
		return outcome{kind: handedBack} // the storage is away, which is not the run's fault
	case errors.As(err, &away) && away.Kind == fault.Unavailable:
		x.Log.ErrorContext(ctx, "running a graph failed", "error", err)
		return outcome{kind: failed, failure: &graph.Failure{Type: "ServiceUnavailable", Message: away.Message}, logged: true}
	default:
		x.Log.ErrorContext(ctx, "running a graph failed", "error", err)
		return outcome{kind: failed, failure: &graph.Failure{Type: "InternalError", Message: graph.Masked}, logged: true}
	}
}

// Launch starts executing a claimed run, for which a slot was reserved.
func (x *Executor) Launch(r *run.Run) { x.launchWith(r, false, x.finish) }

// launchWith is Launch, of a run that may not be written yet, and whose end finish writes.
func (x *Executor) launchWith(r *run.Run, unwritten bool, finish func(context.Context, *Execution, outcome) error) *Execution {
	ctx, cancel := context.WithCancelCause(encryption.With(about(context.Background(), r), encryption.OfRun(r.Kwargs.Config))) // outlives the request that made it; ended by cancel and by shutdown
	ex := &Execution{Attempt: stream.NewAttempt(r), streamed: x.Settler.Tokens(r), done: make(chan struct{})}
	ex.Cancel = func(cause error) {
		cancel(cause)
		if errors.Is(cause, ErrGone) { // the bridge carries the end to followers, except to those that failed over
			x.Publisher.Deleted(r)
		}
	}
	ex.unwritten.Store(unwritten)
	x.metrics.claimed(r)
	if crash.Suspect(r) && !crash.Doubted(r) { // one that is doubted waits first
		ex.turn = x.Slots.LineUp()
	}
	before := x.Executions.add(ex, x.Shared)
	if r.Attempt == 1 {
		x.Publisher.Begin(r) // there may be a follower already
	}
	go func() {
		defer x.Executions.running.Done()
		if before != nil {
			<-before // so that streams of the thread show one run after the other
		}
		if r.Attempt > 1 {
			x.Publisher.Begin(r)
		}
		x.execute(ctx, ex, finish)
		x.Publisher.End(r)
		if errors.Is(context.Cause(ctx), ErrGone) {
			x.Publisher.Forget(r)
		}
		ex.turns.Wait()
		ex.turn.Leave()
		cancel(nil)
		x.Executions.remove(ex)
		x.Slots.Done(r.Graph)
		close(ex.done)
	}()
	return ex
}

// Stop cancels executions of this process, and returns them to wait for. It notifies other servers of runs that they execute, and returns those too.
func (x *Executor) Stop(runs []id.Run, cause error) (here []*Execution, elsewhere []id.Run) {
	for _, r := range runs {
		if ex := x.Executions.get(r); ex != nil {
			ex.Cancel(cause)
			here = append(here, ex)
		} else if x.Shared {
			x.Signals.Send(run.Signal{Run: r})
			elsewhere = append(elsewhere, r)
		}
	}
	return here, elsewhere
}
