package pregel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/message"
)

// spanKey is for the span that code runs in: its node's, or a tool's.
type spanKey struct{}

// spanOf returns the ID of the span that ctx is in; 0: none.
func spanOf(ctx context.Context) uint64 {
	id, _ := ctx.Value(spanKey{}).(uint64)
	return id
}

// beginSpan reports the begin of a span, and returns a context in it. The span's ID is 0 for a run that is not traced.
func (x *exec) beginSpan(ctx context.Context, s graph.SpanBegin) (context.Context, uint64) {
	s.ID, s.At = x.spans.Add(1), time.Now()
	if s.Parent == 0 {
		s.Parent = spanOf(ctx)
	}
	x.tracing.Begin(s)
	return context.WithValue(ctx, spanKey{}, s.ID), s.ID
}

// endSpan reports how a span ended.
func (x *exec) endSpan(s graph.SpanEnd, err error) {
	s.At = time.Now()
	var gi *GraphInterrupt
	var pc *parentCommand
	switch {
	case err == nil, errors.As(err, &pc):
		s.Status = cmp.Or(s.Status, graph.SpanSuccess)
	case errors.As(err, &gi):
		s.Status = graph.SpanInterrupted
	case errors.Is(err, context.Canceled), errors.Is(err, errSibling), x.ctx.Err() != nil:
		s.Status = graph.SpanCancelled
	default:
		s.Status, s.Error = graph.SpanError, x.spanError(err)
	}
	x.tracing.End(s)
}

// spanError describes an error. Without content it has no texts, which may contain what users wrote, but the stack of a panic.
func (x *exec) spanError(err error) *graph.Failure {
	f := &graph.Failure{Type: errorName(err)}
	var p *panicked
	var q *PanicError
	switch {
	case errors.As(err, &p):
		f.Detail = string(p.stack)
	case errors.As(err, &q):
		f.Detail = string(q.Stack)
	}
	if x.tracing.Content > 0 {
		f.Message = err.Error()
		if len(f.Message) > x.tracing.Content {
			f.Message = f.Message[:x.tracing.Content]
		}
	}
	return f
}

// traced runs an attempt of a task in a span.
func (tc *taskContext) traced(ctx context.Context, run func(context.Context) error) error {
	l, t := tc.l, tc.t
	if l.x.tracing == nil || t.hidden() || t.name == START {
		return run(ctx)
	}
	ctx, id := l.x.beginSpan(ctx, graph.SpanBegin{Parent: cmp.Or(t.under, l.under), Kind: graph.NodeSpan, Name: t.name, NS: t.ns, Node: t.name, Step: l.step})
	err := run(ctx)
	l.x.endSpan(graph.SpanEnd{ID: id}, err)
	return err
}

// traceModel begins the span of a model call.
func (c *ModelCall) traceModel(ctx context.Context) {
	if c.tc == nil || c.tc.l.x.tracing == nil {
		return
	}
	x, t := c.tc.l.x, c.tc.t
	s := graph.SpanBegin{Kind: graph.ModelSpan, Name: cmp.Or(gjson.GetBytes(c.info.Metadata, "ls_model_name").String(), "model"), NS: t.ns, Node: t.name, Step: c.tc.l.step}
	s.Provider = gjson.GetBytes(c.info.Metadata, "ls_provider").String()
	if x.tracing.Content > 0 && c.info.Input != nil {
		s.Input = graph.ContentOfMessages(c.info.Input(), x.tracing.Content)
	}
	_, c.traced.ID = x.beginSpan(ctx, s)
}

// Token notes that a token has come, for the time to the first one. Chunk does it too.
func (c *ModelCall) Token() {
	if c.traced.ID > 0 && c.traced.First.IsZero() {
		c.traced.First = time.Now()
	}
}

// traceEnd ends the span of a model call. msg is nil when it failed.
func (c *ModelCall) traceEnd(msg *message.Message, err error) {
	if c.traced.ID == 0 {
		return
	}
	s, x := c.traced, c.tc.l.x
	c.traced.ID = 0
	if msg != nil {
		s.Model, s.Message = c.model(msg), msg.ID
		if u := msg.Usage; u != nil {
			s.Usage = &graph.SpanUsage{Input: u.InputTokens, Output: u.OutputTokens, Total: u.TotalTokens, Cached: gjson.GetBytes(u.InputDetails, "cache_read").Int()}
		}
		if x.tracing.Content > 0 {
			s.Output = graph.ContentOf(msg.AppendJSON(nil), x.tracing.Content)
		}
	}
	x.endSpan(s, err)
}

// model returns the name of the model that made a message.
func (c *ModelCall) model(msg *message.Message) string {
	return cmp.Or(gjson.GetBytes(msg.ResponseMetadata, "model_name").String(), gjson.GetBytes(c.info.Metadata, "ls_model_name").String())
}

// ToolSpan is the span of a tool that runs in a node. nil: the run is not traced.
type ToolSpan struct {
	x  *exec
	id uint64
}

// StartTool begins the span of a tool, for traces of the run. input is its arguments in JSON. The tool should run with the returned context.
func StartTool(ctx context.Context, name string, input json.RawMessage) (context.Context, *ToolSpan) {
	tc := taskOf(ctx)
	if tc == nil || tc.l.x.tracing == nil {
		return ctx, nil
	}
	s := graph.SpanBegin{Kind: graph.ToolSpan, Name: name, NS: tc.t.ns, Node: tc.t.name, Step: tc.l.step}
	if room := tc.l.x.tracing.Content; room > 0 && len(input) > 0 {
		s.Input = graph.ContentOf(input, room)
	}
	ctx, id := tc.l.x.beginSpan(ctx, s)
	return ctx, &ToolSpan{tc.l.x, id}
}

// End ends the span. output returns what the tool returned, in JSON, and is called only if traces have content; nil: nothing. failed reports that the output
// describes a failure.
func (s *ToolSpan) End(output func() json.RawMessage, failed bool, err error) {
	if s == nil {
		return
	}
	end := graph.SpanEnd{ID: s.id}
	if failed {
		end.Status = graph.SpanError
	}
	if room := s.x.tracing.Content; room > 0 && err == nil && output != nil {
		if raw := output(); raw != nil {
			end.Output = graph.ContentOf(raw, room)
		}
	}
	s.x.endSpan(end, err)
}
