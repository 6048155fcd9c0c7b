package execute

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"understudy/internal/logctx"
	"understudy/run"
	"understudy/run/spans"
	"understudy/run/usage"
)

// about returns a context in which log lines say which run they are about.
func about(ctx context.Context, r *run.Run) context.Context {
	attrs := []slog.Attr{slog.String("run_id", string(r.ID)), slog.String("thread_id", string(r.Thread)), slog.Int("attempt", r.Attempt)}
	if id := gjson.GetBytes(r.Kwargs.Config, "configurable.langgraph_request_id").String(); id != "" {
		attrs = append(attrs, slog.String("request_id", id))
	}
	return logctx.With(ctx, attrs...)
}

// span begins the span of an attempt, and before it one of the time in the queue. The returned function ends it.
func (x *Executor) span(ctx context.Context, r *run.Run) (context.Context, func(outcome)) {
	if x.Tracer == nil {
		return ctx, func(outcome) {}
	}
	parents := gjson.GetManyBytes(r.Kwargs.Config, "configurable."+run.TraceParentKey, "configurable."+run.TraceStateKey)
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parents[0].String(), "tracestate": parents[1].String()})
	which := trace.WithAttributes(
		attribute.String("run_id", string(r.ID)), attribute.String("thread_id", string(r.Thread)), attribute.String("graph_id", r.Graph),
		attribute.String("assistant_id", string(r.Assistant)), attribute.Int("attempt", r.Attempt), attribute.String("instance", x.Instance))
	if r.Attempt == 1 && r.StartedAt.After(r.CreatedAt) {
		_, waited := x.Tracer.Start(ctx, "queue", trace.WithTimestamp(r.CreatedAt), which)
		waited.End(trace.WithTimestamp(r.StartedAt))
	}
	ctx, span := x.Tracer.Start(ctx, "run "+r.Graph, trace.WithSpanKind(trace.SpanKindConsumer), which)
	return ctx, func(out outcome) {
		span.SetAttributes(attribute.String("outcome", out.kind.words().label))
		switch out.kind {
		case failed, died, timedOut:
			text := out.kind.words().label
			if out.failure != nil {
				text = out.failure.Type // its message may hold what users wrote
			}
			span.SetStatus(codes.Error, text)
		}
		span.End()
	}
}

// saving begins the span of a save of checkpoints.
func (x *Executor) saving(ctx context.Context, of trace.Span) (context.Context, func(checkpoints int, err error)) {
	if x.Tracer == nil || !of.IsRecording() {
		return ctx, func(int, error) {}
	}
	ctx, span := x.Tracer.Start(trace.ContextWithSpan(ctx, of), "save")
	return ctx, func(checkpoints int, err error) {
		span.SetAttributes(attribute.Int("checkpoints", checkpoints))
		if err != nil {
			span.SetStatus(codes.Error, "not saved")
		}
		span.End()
	}
}

// recorder returns what records the spans of an attempt; nil: nothing does. A temporary run leaves nothing, so its spans are exported only.
func (x *Executor) recorder(ctx context.Context, r *run.Run) *spans.Recorder {
	began := r.StartedAt
	if r.Attempt > 1 {
		began = x.Now()
	}
	user := ""
	if x.Tracer != nil { // only exported spans have it
		user = usage.IdentityOf(r)
	}
	return spans.NewRecorder(spans.Options{
		Attempt: r.Attempt, Began: began, Graph: r.Graph, Policy: x.Spans, Store: !r.Kwargs.Temporary, Now: x.Now, Log: x.Log.With("run_id", r.ID),
		Tracer: x.Tracer, Context: ctx, Thread: r.Thread, User: user, Input: asked(r), Asked: r.Kwargs.Context, Config: r.Kwargs.Config, Metadata: r.Metadata,
	})
}

// asked is what a run was given: its input, or its command.
func asked(r *run.Run) json.RawMessage {
	if len(r.Kwargs.Input) == 0 || string(r.Kwargs.Input) == "null" {
		return r.Kwargs.Command
	}
	return r.Kwargs.Input
}
