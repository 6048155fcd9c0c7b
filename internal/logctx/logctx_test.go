package logctx_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"understudy/internal/logctx"
)

func TestLinesSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(logctx.Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})))
	line := func() string {
		defer out.Reset()
		return out.String()
	}
	ctx := logctx.With(t.Context(), slog.String("request_id", "q"))
	inner := logctx.With(ctx, slog.String("run_id", "r"), slog.String("request_id", "p"))
	log.InfoContext(t.Context(), "m")
	require.Equal(t, "msg=m\n", line())
	log.InfoContext(ctx, "m", "a", 1)
	require.Equal(t, "msg=m a=1 request_id=q\n", line())
	log.InfoContext(inner, "m")
	require.Equal(t, "msg=m run_id=r request_id=p\n", line())
	log.InfoContext(inner, "m", "run_id", "own")
	require.Equal(t, "msg=m run_id=own request_id=p\n", line())
	log.With("run_id", "own").InfoContext(inner, "m")
	require.Equal(t, "msg=m run_id=own request_id=p\n", line())
	log.With("a", 1).With("b", 2).InfoContext(ctx, "m")
	require.Equal(t, "msg=m a=1 b=2 request_id=q\n", line())

	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	log.InfoContext(trace.ContextWithSpanContext(context.Background(), span), "m")
	require.Equal(t, "msg=m trace_id=01000000000000000000000000000000 span_id=0200000000000000\n", line())
}
