package web

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"understudy/access/audit"
	"understudy/internal/compress"
	"understudy/server/internal/connection"
)

// Transport reads bodies, and sends answers, streams and messages of WebSockets, within limits that all routes share. It knows no service: handlers
// of routes embed it next to those that they need.
type Transport struct {
	Log      *slog.Logger
	Failures Failures
	Metrics  *metrics
	Encoders *compress.Pool
	tracer   trace.Tracer // nil: no spans
	Audit    *audit.Log   // nil: none

	// Follow returns what reports whether the credentials of a request were withdrawn; nil, also what it returns: they cannot be.
	Follow func(c *fiber.Ctx) func(ctx context.Context) bool

	MaxBody                              int64
	Heartbeat, BodyTimeout, WriteTimeout time.Duration // as in Options
	bodyRest                             time.Duration
	logReasons                           bool

	Bodies Budget // memory of bodies
	Slots  Budget // of open streams
	Reads  Budget // memory of long answers

	tabs    tabs         // streams of browsers
	resting atomic.Int64 // watched streams that wait for their next frame

	// Requests continue after streams have ended, and answers of temporary runs longer than both. These contexts have the lifetime of the server.
	Streaming    context.Context //nolint:containedctx // as above
	EndStreams   context.CancelCauseFunc
	Requests     context.Context //nolint:containedctx // as above
	EndRequest   context.CancelCauseFunc
	temporary    context.Context //nolint:containedctx // as above
	EndTemporary context.CancelCauseFunc

	// Lingering are connections whose request was answered before its body had arrived.
	Lingering  connection.Crowd
	Outlets    connection.Outlets // of open responses and WebSockets
	released   atomic.Int64       // bytes of large bodies since memory was returned to the system
	reclaiming atomic.Bool
}

// Config configures a transport, with fields as in Options of package server.
type Config struct {
	Logger     *slog.Logger
	LogReasons bool
	Registry   *prometheus.Registry
	Tracer     trace.Tracer // nil: no spans
	Audit      *audit.Log   // nil: none

	MaxBody, MaxBodies, MaxReads int64 // bytes
	MaxStreams                   int
	Heartbeat, WriteTimeout      time.Duration
	BodyTimeout, BodyRest        time.Duration
}

// New returns a Transport. Its owner ends its contexts, and closes Lingering.
func New(o Config) *Transport {
	t := &Transport{
		Log: o.Logger, Failures: Failures{Log: o.Logger}, Encoders: compress.NewPool(encodersAtOnce), tracer: o.Tracer, Audit: o.Audit, logReasons: o.LogReasons,
		tabs: tabs{log: o.Logger}, MaxBody: o.MaxBody, Heartbeat: o.Heartbeat, BodyTimeout: o.BodyTimeout, bodyRest: o.BodyRest, WriteTimeout: o.WriteTimeout,
	}
	t.Outlets.WriteTimeout = o.WriteTimeout
	t.Metrics = newMetrics(o.Registry, &t.Bodies, &t.Reads)
	t.Bodies.Limit, t.Reads.Limit, t.Slots.Limit = o.MaxBodies, o.MaxReads, int64(o.MaxStreams)
	t.Streaming, t.EndStreams = context.WithCancelCause(context.Background())
	t.Requests, t.EndRequest = context.WithCancelCause(context.Background())
	t.temporary, t.EndTemporary = context.WithCancelCause(context.Background())
	return t
}

// Life is how long an answer that is sent while its run continues may take. Readers of other runs come back for the rest, on this server or another one; a
// temporary run leaves nothing to come back for, so its client has the time that the run has.
func (t *Transport) Life(r *Request) context.Context {
	if r.temporary {
		return t.temporary
	}
	return t.Streaming
}
