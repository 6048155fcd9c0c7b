package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"understudy/access/audit"
	"understudy/internal/compress"
	"understudy/server/internal/connection"
)

// transport reads bodies, and sends answers, streams and messages of WebSockets, within limits that all routes share. It knows no service: handlers
// of routes embed it next to those that they need.
type transport struct {
	log      *slog.Logger
	metrics  *metrics
	encoders *compress.Pool
	tracer   trace.Tracer // nil: no spans
	audit    *audit.Log   // nil: none

	maxBody                              int64
	heartbeat, bodyTimeout, writeTimeout time.Duration // as in Options
	logReasons                           bool

	bodies budget // memory of bodies
	slots  budget // of open streams
	reads  budget // memory of long answers

	// Requests continue after streams have ended, and answers of temporary runs longer than both. These contexts have the lifetime of the server.
	streaming    context.Context //nolint:containedctx // as above
	endStreams   context.CancelCauseFunc
	requests     context.Context //nolint:containedctx // as above
	endRequest   context.CancelCauseFunc
	temporary    context.Context //nolint:containedctx // as above
	endTemporary context.CancelCauseFunc

	// lingering are connections whose request was answered before its body had arrived.
	lingering  connection.Crowd
	outlets    connection.Outlets // of open responses and WebSockets
	released   atomic.Int64       // bytes of large bodies since memory was returned to the system
	reclaiming atomic.Bool
}

func newTransport(o Options) *transport {
	t := &transport{
		log: o.Logger, encoders: compress.NewPool(encodersAtOnce), tracer: o.Tracer, audit: o.Audit, logReasons: o.LogReasons,
		maxBody: o.MaxBody, heartbeat: o.Heartbeat, bodyTimeout: o.BodyTimeout, writeTimeout: o.WriteTimeout,
	}
	t.outlets.WriteTimeout = o.WriteTimeout
	t.metrics = newMetrics(o.Registry, &t.bodies, &t.reads)
	t.bodies.limit, t.reads.limit, t.slots.limit = o.MaxBodies, o.MaxReads, int64(o.MaxStreams)
	t.streaming, t.endStreams = context.WithCancelCause(context.Background())
	t.requests, t.endRequest = context.WithCancelCause(context.Background())
	t.temporary, t.endTemporary = context.WithCancelCause(context.Background())
	return t
}

// life is how long an answer that is sent while its run continues may take. Readers of other runs come back for the rest, on this server or another one; a
// temporary run leaves nothing to come back for, so its client has the time that the run has.
func (t *transport) life(r *request) context.Context {
	if r.temporary {
		return t.temporary
	}
	return t.streaming
}
