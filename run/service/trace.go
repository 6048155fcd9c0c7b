package service

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/execute"
)

// carry puts the trace of ctx, if there is one, where those who execute the run find it.
func carry(ctx context.Context, req *run.Request) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	req.TraceParent, req.TraceState = headers["traceparent"], headers["tracestate"]
}

// writeTrace is the other half of carry.
func writeTrace(configurable *jsonobj.Object, req *run.Request) {
	if req.TraceParent == "" {
		return
	}
	configurable.SetText(execute.TraceParentKey, req.TraceParent)
	if req.TraceState != "" {
		configurable.SetText(execute.TraceStateKey, req.TraceState)
	}
}
