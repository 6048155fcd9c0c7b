package spans

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"understudy/graph"
	"understudy/run"
)

// OTLP returns the spans of a run as a collector takes them at /v1/traces, in JSON, below one span for the run. Spans that run end now. The same run
// has the same IDs each time. Inputs and outputs are among them only with content.
func OTLP(ctx context.Context, r *run.Run, list []Span, content bool, now time.Time) ([]byte, error) {
	got := &collected{}
	exporter, err := otlptrace.New(ctx, got)
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(ids{string(r.ID)}),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "understudy"))))
	var ended ended
	provider.RegisterSpanProcessor(&ended)

	opts := Options{Graph: r.Graph, Thread: r.Thread, Tracer: provider.Tracer("understudy")}
	root := Span{ID: "run", Name: r.Graph, Start: r.CreatedAt, End: r.EndedAt, Status: statusOf(r)}
	for _, s := range list {
		if !r.Status.Over() || s.End.After(root.End) {
			root.End = later(root.End, s.End)
		}
	}
	if !r.Status.Over() {
		root.End, root.Status = now, graph.SpanRunning
	}
	o := &offline{opts: opts, now: now, spans: map[string]*Span{}, begun: map[string]context.Context{}}
	for i := range list {
		s := &list[i]
		if !content {
			s.Input, s.Output = nil, nil
		}
		o.spans[s.ID] = s
	}
	top, span := opts.Tracer.Start(named(ctx, root.ID), "invoke_agent "+r.Graph, trace.WithNewRoot(), trace.WithTimestamp(root.Start), trace.WithAttributes(opts.turn()...))
	o.top = top
	for i := range list {
		o.begin(&list[i])
	}
	for i := range list {
		s := list[i]
		if s.End.IsZero() {
			s.End = later(now, s.Start)
		}
		exportEnd(trace.SpanFromContext(o.begun[s.ID]), &s)
	}
	exportEnd(span, &root)

	if err := exporter.ExportSpans(ctx, ended.spans); err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	for _, of := range got.spans {
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				s.TraceId, s.SpanId, s.ParentSpanId = hexed(s.TraceId), hexed(s.SpanId), hexed(s.ParentSpanId)
			}
		}
	}
	body, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracepb.TracesData{ResourceSpans: got.spans})
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	return body, nil
}

// hexed returns the bytes that protojson prints as the hex digits of an ID. protojson writes bytes as base64; OTLP wants hex. Decoding the hex digits as base64
// makes protojson print them.
func hexed(ident []byte) []byte {
	out, _ := base64.StdEncoding.DecodeString(hex.EncodeToString(ident)) // never fails: hex digits are in its alphabet, and IDs have a multiple of four of them
	return out
}

// offline makes OpenTelemetry spans of spans that are stored.
type offline struct {
	opts  Options
	now   time.Time
	top   context.Context //nolint:containedctx // only its span is read
	spans map[string]*Span
	begun map[string]context.Context
}

// begin begins a span below its parent, which may be listed behind it, and returns the context of the span.
func (o *offline) begin(s *Span) context.Context {
	if ctx, done := o.begun[s.ID]; done {
		return ctx
	}
	o.begun[s.ID] = o.top // a parent that is below its own child
	parent := o.top
	if p := o.spans[s.Parent]; p != nil {
		parent = o.begin(p)
	}
	ctx := trace.ContextWithSpan(o.top, o.opts.start(named(parent, s.ID), s))
	o.begun[s.ID] = ctx
	return ctx
}

type nameKey struct{}

// named says which span is begun next, for its ID.
func named(ctx context.Context, ident string) context.Context {
	return context.WithValue(ctx, nameKey{}, ident)
}

// ids makes the IDs of the spans of a run of their own IDs.
type ids struct{ run string }

func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	sum := sha256.Sum256([]byte(g.run))
	t := trace.TraceID(sum[:16])
	return t, g.NewSpanID(ctx, t)
}

func (g ids) NewSpanID(ctx context.Context, _ trace.TraceID) (s trace.SpanID) {
	ident, _ := ctx.Value(nameKey{}).(string)
	sum := sha256.Sum256([]byte(g.run + " " + ident))
	binary.BigEndian.PutUint64(s[:], max(1, binary.BigEndian.Uint64(sum[:])))
	return s
}

// ended keeps spans that have ended.
type ended struct{ spans []sdktrace.ReadOnlySpan }

func (*ended) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (e *ended) OnEnd(s sdktrace.ReadOnlySpan)                 { e.spans = append(e.spans, s) }
func (*ended) Shutdown(context.Context) error                  { return nil }
func (*ended) ForceFlush(context.Context) error                { return nil }

// collected is a client that keeps what it is given.
type collected struct{ spans []*tracepb.ResourceSpans }

func (*collected) Start(context.Context) error { return nil }
func (*collected) Stop(context.Context) error  { return nil }
func (c *collected) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.spans = append(c.spans, spans...)
	return nil
}
