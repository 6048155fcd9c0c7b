package main

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"understudy/internal/config"
	"understudy/internal/tracing"
)

// flushTime is how long spans that wait may take to be sent at the end.
const flushTime = 5 * time.Second

// startTraces returns what makes spans, nil when the environment asks for none, and a function that sends those that wait. With DeerFlow, LangSmith and Langfuse get them too, as its variables
// say. A server serves without traces rather than not at all.
func startTraces(ctx context.Context, log *slog.Logger, cfg *config.Config) (trace.TracerProvider, func()) {
	var services func(string) string
	if cfg.Server.DeerFlow != "" {
		services = func(name string) string { v, _ := cfg.Lookup(name); return v }
	}
	provider, err := tracing.FromEnv(ctx, version(), services)
	switch {
	case err != nil && provider == nil:
		log.WarnContext(ctx, "traces are not sent", "error", err)
	case err != nil:
		log.WarnContext(ctx, "traces are not sent everywhere", "error", err)
	}
	if provider == nil {
		return nil, func() {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not sent", "error", err) }))
	log.InfoContext(ctx, "traces are sent by OTLP over HTTP")
	return provider, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.WarnContext(ctx, "traces were not sent", "error", err)
		}
	}
}
