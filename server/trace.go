package server

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

// startSpan begins the span of a request, within the client's trace. Probes have none.
func (t *transport) startSpan(c *fiber.Ctx, r *request) {
	if t.tracer == nil || probes[c.Path()] {
		return
	}
	ctx := w3c.Extract(context.Background(), headers{c})
	_, r.span = t.tracer.Start(ctx, r.method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.begun),
		trace.WithAttributes(attribute.String("http.request.method", r.method), attribute.String("request_id", r.id)))
}

// endSpan ends the span of a request. ended is the cause of the end of an open response; "" for others.
func (t *transport) endSpan(r *request, route string, status int, ended string) {
	if r.span == nil {
		return
	}
	r.span.SetName(r.method + " " + route)
	r.span.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
	for _, a := range []attribute.KeyValue{attribute.String("thread_id", r.thread), attribute.String("run_id", r.run), attribute.String("ended", ended)} {
		if a.Value.AsString() != "" {
			r.span.SetAttributes(a)
		}
	}
	if status >= 500 || ended == "failed" {
		r.span.SetStatus(codes.Error, "")
	}
	r.span.End()
}
