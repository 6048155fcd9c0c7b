package run

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread"
	"understudy/thread/partial"
)

// outcome is how an execution ended.
type outcome struct {
	kind    outcomeKind
	failure *graph.Failure  // of failed
	said    *partial.Tokens // what the execution streamed of answers; nil: not kept, or not known
}

type outcomeKind int

const (
	succeeded   outcomeKind = iota
	failed                  // the graph raised
	interrupted             // somebody asked for it; how is on the row
	timedOut
	died       // the worker died under it
	handedBack // not its fault: shutdown, reload
	dropped    // the run is not ours any more: nothing to write
)

// execute runs one claim from its first record to its last, and has its end written by finish.
func (s *Service) execute(ctx context.Context, ex *execution, finish func(context.Context, *Run, outcome) error) {
	r := ex.run
	if r.Attempt > 1 {
		s.log.InfoContext(ctx, "run goes on", "run_id", r.ID, "thread_id", r.Thread, "attempt", r.Attempt)
	}
	began := s.Now()
	refused := s.takeTurn(ctx, ex)
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errTimeout)
	defer cancel()
	ctx, ended := s.span(ctx, r)
	var out outcome
	if refused != nil {
		out = s.outcomeOf(ctx, refused)
	} else {
		out = s.stream(ctx, ex)
	}
	out.said = ex.said
	ex.yield()
	ex.ending.Store(true)
	defer func() { ended(out) }()
	// From here on things are written whatever happened to ctx.
	after := context.WithoutCancel(ctx)
	if r.Kwargs.Resumable {
		s.flushRecords(after)
		if out.kind != dropped {
			s.flushStream(after, r)
		}
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := finish(after, r, out)
		if err == nil {
			break
		}
		// A full disk or a lost database: the outcome is kept until it can be written, for the thread must not be stuck. When the server
		// ends before that, the run is taken over by whoever starts next.
		s.log.ErrorContext(after, "cannot write the end of a run; trying again", "error", err)
		select {
		case <-time.After(wait):
		case <-s.quit:
			return
		}
	}
	s.metrics.over(out.kind, s.Now().Sub(began))
	s.log.InfoContext(after, "run ended", "graph", r.Graph, "outcome", out.kind.String(), "seconds", s.Now().Sub(began).Seconds())
}

// flushPatience bounds how long the end of a resumable run waits for Redis.
const flushPatience = 2 * time.Second

// flushStream waits until other instances can see what a resumable run has published, so that the next run of the thread, wherever it is executed,
// comes behind it in the live stream: records that arrive later get other ids there than the database has. It follows flushRecords, which takes
// longer than a healthy Redis. While Redis is away nothing waits.
func (s *Service) flushStream(ctx context.Context, r *Run) {
	if s.remote == nil || !r.Kwargs.Resumable || r.Kwargs.Temporary {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	if err := s.remote.Flush(ctx, r.Thread); errors.Is(err, context.DeadlineExceeded) {
		s.log.WarnContext(ctx, "Redis is slow: a run ends before its last stream records have arrived there", "run_id", r.ID, "thread_id", r.Thread, "waited", flushPatience.String())
	}
}

func (k outcomeKind) String() string {
	return [...]string{"success", "error", "cancelled", "timeout", "worker died", "handed back", "dropped"}[k]
}

// stream lets the graph run, and publishes what it emits.
func (s *Service) stream(ctx context.Context, ex *execution) (out outcome) {
	r := ex.run
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic while a run was streamed", "run_id", r.ID, "panic", p, "stack", string(debug.Stack()))
			out = outcome{kind: failed, failure: &graph.Failure{Type: "InternalError", Message: "An internal error occurred"}}
		}
	}()
	s.publishFolded(ctx, ex, s.record(r, bridge.Data, "metadata",
		[]byte(`{"run_id":"`+string(r.ID)+`","attempt":`+strconv.Itoa(r.Attempt)+`}`)))
	g, ok := s.Graphs.Graph(r.Graph)
	if !ok {
		return outcome{kind: failed, failure: &graph.Failure{Type: "GraphNotFound", Message: "Graph '" + r.Graph + "' is not served any more"}}
	}
	if s.Backfill != nil && !r.Kwargs.Temporary {
		// What is recorded onto a checkpoint that is not begins a conversation anew. A storage that cannot do this now
		// could not save what the run does either.
		if err := s.Backfill.Ensure(ctx, r.Thread, r.Kwargs.CheckpointID); err != nil {
			return s.outcomeOf(ctx, err)
		}
	}
	at := position{said: ex.said, passed: ex.yield}
	if s.shared != nil {
		at.storage = &patient{Store: s.Store, s: s, done: ctx.Done()}
	}
	inv, err := s.invocation(ctx, r, &at)
	if err != nil {
		return s.outcomeOf(ctx, err)
	}
	summarizer := s.Overlay.Summarizer(r.Thread)
	var held *bridge.Record // published with the next record, which decides whether readers of transcripts see it
	defer func() {
		if held != nil && out.kind != dropped {
			s.publish(ctx, r, held)
		}
	}()
	for ev, err := range g.Stream(ctx, inv) {
		if err != nil && at.away() && ctx.Err() == nil {
			s.log.WarnContext(ctx, "run goes back to the queue: nothing could be saved", "run_id", r.ID, "error", err)
			return outcome{kind: handedBack}
		}
		if err != nil {
			return s.outcomeOf(ctx, err)
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), errLost) {
			return outcome{kind: dropped} // whoever has the run tells how it goes on
		}
		if ev.Hold != nil {
			select {
			case <-ev.Hold:
			default:
				select {
				case <-ev.Hold:
				case <-ctx.Done():
				}
			}
			if ev.Lost != nil && ev.Lost() {
				continue
			}
		}
		kind := bridge.Data
		name := ev.Name
		if len(name) >= 8 && name[:8] == "messages" && name != "messages/complete" && name != "messages/metadata" {
			kind = bridge.Token
		}
		if ev.NS != "" {
			name += "|" + ev.NS
		}
		rec := s.record(r, kind, name, ev.Data)
		hold := s.mark(ctx, r, held, rec, &ev, &at, summarizer)
		if held != nil {
			s.publish(ctx, r, held)
			held = nil
		}
		if !rec.Summarizer { // also one that is held: it may say whose words come next
			ex.said.Add(name, ev.Data)
		}
		if hold {
			held = rec
			continue
		}
		s.publishFolded(ctx, ex, rec)
	}
	if err := ctx.Err(); err != nil {
		return s.outcomeOf(ctx, context.Cause(ctx))
	}
	return outcome{kind: succeeded}
}

func (s *Service) outcomeOf(ctx context.Context, err error) outcome {
	cause := err
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	var f *graph.Failure
	switch {
	case errors.Is(cause, errCancelled):
		return outcome{kind: interrupted}
	case errors.Is(cause, errTimeout):
		return outcome{kind: timedOut}
	case errors.Is(cause, errShutdown), errors.Is(err, graph.ErrReloading):
		return outcome{kind: handedBack}
	case errors.Is(cause, errGone), errors.Is(cause, errLost), errors.Is(err, graph.ErrFenced):
		return outcome{kind: dropped} // finish looks at the row: a cancel is found there
	case errors.Is(err, graph.ErrWorkerDied):
		return outcome{kind: died}
	case errors.As(err, &f):
		return outcome{kind: failed, failure: f}
	case s.shared != nil && fault.Is(err, fault.Unavailable):
		return outcome{kind: handedBack} // the storage is away, which is not the run's fault
	default:
		s.log.ErrorContext(ctx, "a graph could not be run", "error", err)
		return outcome{kind: failed, failure: &graph.Failure{Type: "InternalError", Message: "An internal error occurred"}}
	}
}

// commandOf returns the command that a run executes. One that says nothing is none: the run takes its input, or resumes its thread.
func commandOf(k *Arguments) json.RawMessage {
	if jsonobj.Of(k.Command).Len() == 0 {
		return nil
	}
	return k.Command
}

// invocation is what the graph is called with. The first attempt gets the input; a later one goes on from what an earlier one saved.
func (s *Service) invocation(ctx context.Context, r *Run, at *position) (graph.Invocation, error) {
	k := r.Kwargs
	config := jsonobj.Of(k.Config)
	metadata := jsonobj.Of(config.Get("metadata"))
	metadata.Set("run_attempt", strconv.AppendInt(nil, int64(r.Attempt), 10))
	metadata.SetText("langgraph_api_version", s.ServerVersion)
	metadata.SetText("langgraph_plan", "self-hosted")
	metadata.SetText("langgraph_host", "self-hosted")
	metadata.SetText("langgraph_api_url", s.URL)
	config.Set("metadata", metadata.JSON())
	if len(k.ContextKeys) > 0 {
		keys, err := json.Marshal(k.ContextKeys)
		if err != nil {
			return graph.Invocation{}, err
		}
		configurable := jsonobj.Of(config.Get("configurable"))
		configurable.Set("__context_keys__", keys)
		config.Set("configurable", configurable.JSON())
	}
	inv := graph.Invocation{
		Config:    graph.Config{Thread: r.Thread, Config: config.JSON(), Context: k.Context, CheckpointMap: k.CheckpointMap, Store: s.Items},
		Run:       r.ID,
		Attempt:   r.Attempt,
		Arguments: k.Arguments,
		At:        checkpointer.Key{Thread: r.Thread, NS: k.CheckpointNS, ID: k.CheckpointID},
		Isolated:  r.Failures > 0,
	}
	inv.Command = commandOf(&k)
	if r.Attempt > 1 && r.Passed && k.Durability != "exit" && !k.Temporary {
		inv.Input, inv.Command = nil, nil
		inv.At, inv.CheckpointMap = checkpointer.Key{Thread: r.Thread}, nil
	}
	if inv.At.ID != "" && !k.Temporary { // a fork does not load the head that its checkpoints have to come after
		row, err := s.Store.Thread(ctx, r.Thread)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return inv, err
		}
		if err == nil {
			inv.After = row.Head
		}
	}
	deleted, err := s.clean(ctx, r, &inv, at)
	if err != nil {
		return inv, err
	}
	if !k.Temporary {
		passed := &atomic.Bool{}
		passed.Store(r.Passed && r.Failures == 0 && r.Crashes == 0)
		var storage thread.SaverStore[Tx] = s.Store
		if at.storage != nil {
			storage = at.storage
			if inv.Store != nil {
				inv.Store = patientItems{inv.Store, at.storage}
			}
		}
		r.calls = &calls{log: s.log.With("run_id", r.ID)}
		inv.Called = r.calls.add
		fence := func(tx Tx) error {
			if err := s.fence(tx, r); err != nil {
				return err
			}
			return putCalls(tx, r)
		}
		saver := thread.NewSaver(storage, fence, func(tx Tx, _ *checkpointer.Put) error {
			if passed.Load() {
				return nil
			}
			return tx.MarkPassed(r.ID)
		})
		saver.Keys = s.Overlay.Key
		saver.NoteDeleted(deleted)
		inv.Saver = positioned{saver, r.calls, at, passed, s, trace.SpanFromContext(ctx)}
	}
	return inv, nil
}

// fence refuses writes of an execution that does not own its run any more, or whose cancel was asked for.
func (s *Service) fence(tx Tx, r *Run) error {
	expect(tx, func(e Expecting) { e.ExpectSave(r) })
	attempt, status, cancel, err := tx.Fence(r.ID)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && (attempt != r.Attempt || status != Running):
		s.metrics.fencedLost.Inc()
		s.log.Warn("write refused: the run is not this server's any more", "run_id", r.ID, "thread_id", r.Thread, "attempt", r.Attempt)
		return graph.ErrFenced
	case err == nil && cancel != "":
		s.metrics.fencedCancelled.Inc()
		return graph.ErrFenced
	}
	return err
}

func (s *Service) record(r *Run, kind bridge.Kind, event string, data []byte) *bridge.Record {
	rec := &bridge.Record{Run: r.ID, Kind: kind, Event: event, Data: data, Kept: r.Kwargs.Resumable}
	if s.shared != nil {
		rec.Attempt = r.Attempt
	}
	return rec
}

// publish sends records on the thread's stream, and keeps those of resumable runs.
func (s *Service) publish(ctx context.Context, r *Run, records ...*bridge.Record) {
	if b, brief := s.briefs.Load(r.Thread); brief && b.(*briefStream).publish(context.WithoutCancel(ctx), records) {
		return
	}
	durable := r.Kwargs.Resumable && !r.Kwargs.Temporary
	if durable && r.published != nil {
		for _, rec := range records {
			if rec.Kept && !rec.Ephemeral {
				rec.Index = r.published.Add(1)
			}
		}
	}
	if err := s.Bridge.Publish(context.WithoutCancel(ctx), r.Thread, records); err != nil {
		s.log.ErrorContext(ctx, "cannot publish", "run_id", r.ID, "error", err)
		return
	}
	s.near.published(r.ID, records)
	if !durable {
		return
	}
	for _, rec := range records {
		if rec.Kept && !rec.Ephemeral && (rec.Kind != bridge.Terminal || s.remote == nil) { // see keepEnd
			s.keepRecord(kept{thread: r.Thread, record: rec})
		}
	}
}

// keepEnd keeps the record of a run's end, which can only be published after the commit: the next run may have begun elsewhere by then, and the live
// stream has the record behind that one's first. It is kept under the offset it has there, or was given if that is not known in time.
func (s *Service) keepEnd(ctx context.Context, r *Run, end *bridge.Record) {
	if s.remote == nil || !end.Kept || !durable(r) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushPatience)
	defer cancel()
	at, _ := s.remote.FlushEnd(ctx, r.Thread, end) // on an error it is what was given
	stored := *end
	stored.Offset = at
	s.keepRecord(kept{thread: r.Thread, record: &stored})
}
