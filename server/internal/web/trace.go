package web

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headers adapts the headers of a request to propagators.
type headers struct{ c *fiber.Ctx }

func (h headers) Get(name string) string { return h.c.Get(name) }
func (h headers) Set(string, string)     {}
func (h headers) Keys() []string         { return nil }

var w3c propagation.TraceContext

// StartSpan begins the span of a request, within the client's trace. Probes have none.
func (t *Transport) StartSpan(c *fiber.Ctx, r *Request) {
	if t.tracer == nil || Probes[c.Path()] {
		return
	}
	ctx := w3c.Extract(context.Background(), headers{c})
	_, r.Span = t.tracer.Start(ctx, r.method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.begun),
		trace.WithAttributes(attribute.String("http.request.method", r.method), attribute.String("request_id", r.ID)))
}

// endSpan ends the span of a request. ended is the cause of the end of an open response; "" for others.
func (t *Transport) endSpan(r *Request, route string, status int, ended string) {
	if r.Span == nil {
		return
	}
	r.Span.SetName(r.method + " " + route)
	r.Span.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
	for _, a := range []attribute.KeyValue{attribute.String("thread_id", r.Thread), attribute.String("run_id", r.Run), attribute.String("ended", ended)} {
		if a.Value.AsString() != "" {
			r.Span.SetAttributes(a)
		}
	}
	if status >= 500 || ended == "failed" {
		r.Span.SetStatus(codes.Error, "")
	}
	r.Span.End()
}
