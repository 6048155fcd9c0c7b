package compat

import (
	"slices"
	"strconv"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/spans"
)

const (
	defaultSpans = 2000
	maxSpans     = 20_000
)

// SpanQuery is the query of the route that lists the spans of a run.
type SpanQuery struct {
	after, id string
	node      string // as drawings name it
	limit     int
	content   bool
}

// NewSpanQuery reads the query. get returns all values of a parameter; the last one counts.
func NewSpanQuery(get func(name string) []string) (q SpanQuery, err error) {
	p := params(get)
	if q.limit, err = p.limit(defaultSpans, maxSpans); err != nil {
		return q, err
	}
	q.after, _ = p.last("after")
	q.id, _ = p.last("id")
	q.node, _ = p.last("node")
	if v, ok := p.last("content"); ok {
		if q.content, err = strconv.ParseBool(v); err != nil {
			return q, fault.New(fault.Unprocessable, "Invalid content: write true or false")
		}
	}
	return q, nil
}

// Content reports whether inputs and outputs are wanted.
func (q SpanQuery) Content() bool { return q.content }

// Append appends a page of the spans of a run: {"run": {…}, "spans": […], "next": span ID or null}.
func (q SpanQuery) Append(dst []byte, of *run.Run, list []spans.Span) []byte {
	if q.id != "" {
		list = slices.DeleteFunc(list, func(s spans.Span) bool { return s.ID != q.id })
	}
	if q.node != "" {
		list = slices.DeleteFunc(list, func(s spans.Span) bool { return s.Kind != graph.NodeSpan || s.Drawn() != q.node })
	}
	if q.after != "" {
		list = list[slices.IndexFunc(list, func(s spans.Span) bool { return s.ID == q.after })+1:]
	}
	next := ""
	if len(list) > q.limit {
		next, list = list[q.limit-1].ID, list[:q.limit]
	}
	r := newRow(dst, nil)
	r.key("run")
	about := recentRow(r.dst, of)
	r.dst = about.end()
	r.key("spans")
	r.dst = AppendList(r.dst, list, q.appendSpan)
	r.textOrNull("next", next)
	return r.end()
}

func (q SpanQuery) appendSpan(dst []byte, s spans.Span) []byte {
	r := newRow(dst, nil)
	r.text("id", s.ID)
	r.textOrNull("parent_id", s.Parent)
	r.int("attempt", s.Attempt)
	r.text("kind", string(s.Kind))
	r.text("name", s.Name)
	r.text("status", string(s.Status))
	r.time("start_time", s.Start)
	r.timeOrNull("end_time", orNil(s.End))
	some := func(name, v string) {
		if v != "" {
			r.text(name, v)
		}
	}
	if !s.First.IsZero() {
		r.time("first_token_time", s.First)
	}
	some("namespace", s.NS)
	some("node", s.Node)
	if s.Step != 0 {
		r.int("step", s.Step)
	}
	some("model", s.Model)
	some("provider", s.Provider)
	some("message_id", s.Message)
	if u := s.Usage; u != nil {
		r.key("usage")
		u2 := newRow(r.dst, nil)
		u2.int("input_tokens", int(u.Input))
		u2.int("output_tokens", int(u.Output))
		u2.int("total_tokens", int(u.Total))
		u2.int("cached_tokens", int(u.Cached))
		r.dst = u2.end()
	}
	if s.Checkpoints > 0 {
		r.int("checkpoints", s.Checkpoints)
	}
	if s.Dropped > 0 {
		r.int("dropped_spans", s.Dropped)
	}
	if e := s.Error; e != nil {
		r.key("error")
		e2 := newRow(r.dst, nil)
		e2.text("error", e.Type)
		e2.text("message", e.Message)
		e2.text("stack", e.Detail)
		r.dst = e2.end()
	}
	if !q.content {
		if s.Input != nil || s.Output != nil {
			r.bool("has_content", true)
		}
		return r.end()
	}
	if c := s.Input; c != nil {
		r.raw("input", c.JSON)
		r.bool("input_cut", c.Cut)
	}
	if c := s.Output; c != nil {
		r.raw("output", c.JSON)
		r.bool("output_cut", c.Cut)
	}
	return r.end()
}
