// Package logctx adds attributes of a request or a run to every log line of its context: they are
// set once on the context.
package logctx

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Took is the attribute of how long something took: duration_ms, in milliseconds with three digits.
func Took(d time.Duration) slog.Attr {
	return slog.Float64("duration_ms", float64(d.Microseconds())/1000)
}

type key struct{}

// With adds attributes to all lines that are logged with the context. Those of the same key before are replaced.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	had, _ := ctx.Value(key{}).([]slog.Attr)
	all := make([]slog.Attr, 0, len(had)+len(attrs))
	for _, a := range had {
		if !slices.ContainsFunc(attrs, func(b slog.Attr) bool { return b.Key == a.Key }) {
			all = append(all, a)
		}
	}
	return context.WithValue(ctx, key{}, append(all, attrs...))
}

// Handler adds to each line what its context holds: trace_id and span_id among it when there is a span, unless the line says so itself.
func Handler(h slog.Handler) slog.Handler { return handler{Handler: h} }

type handler struct {
	slog.Handler
	has []string // keys that all lines of this logger have
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	attrs, _ := ctx.Value(key{}).([]slog.Attr)
	span := trace.SpanContextFromContext(ctx)
	if len(attrs) == 0 && !span.IsValid() {
		return h.Handler.Handle(ctx, r)
	}
	has := slices.Clip(h.has)
	r.Attrs(func(a slog.Attr) bool {
		has = append(has, a.Key)
		return true
	})
	r = r.Clone()
	for _, a := range attrs {
		if !slices.Contains(has, a.Key) {
			r.AddAttrs(a)
		}
	}
	if span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clip(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return handler{h.Handler.WithAttrs(attrs), has}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), nil}
}
