package spans

import (
	"context"
	"encoding/json"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"understudy/graph"
)

// export begins the OpenTelemetry span of a span, below that of its parent. The caller holds r.mu.
func (r *Recorder) export(s *Span, parent uint64) trace.Span {
	ctx := r.opts.Context
	if o := r.open[parent]; o != nil && o.export != nil {
		ctx = trace.ContextWithSpan(ctx, o.export)
	}
	return r.opts.start(ctx, s)
}

// start begins the OpenTelemetry span of a span below that of a context.
func (o *Options) start(ctx context.Context, s *Span) trace.Span {
	thread := string(o.Thread)
	attrs := append(o.whose(), attribute.String("langgraph.node", s.Node), attribute.Int("langgraph.step", s.Step), attribute.String("langgraph.checkpoint_ns", s.NS))
	name, kind := "node "+s.Name, trace.SpanKindInternal
	switch s.Kind {
	case graph.ModelSpan:
		name, kind = "chat "+s.Name, trace.SpanKindClient
		attrs = append(attrs, attribute.String(spanKind, "LLM"), attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.conversation.id", thread))
		if s.Provider != "" {
			attrs = append(attrs, attribute.String("gen_ai.provider.name", s.Provider), attribute.String("gen_ai.system", s.Provider), attribute.String("llm.provider", s.Provider))
		}
	case graph.ToolSpan:
		name = "execute_tool " + s.Name
		attrs = append(attrs, attribute.String(spanKind, "TOOL"), attribute.String("tool.name", s.Name), attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", s.Name), attribute.String("gen_ai.conversation.id", thread))
	default:
		if s.Kind != graph.NodeSpan {
			name = string(s.Kind)
		}
		attrs = append(attrs, attribute.String(spanKind, "CHAIN"))
	}
	if c := s.Input; c != nil {
		attrs = append(attrs, attribute.String("input.value", string(c.JSON)), attribute.String("input.mime_type", "application/json"))
		switch s.Kind {
		case graph.ModelSpan:
			attrs = append(attrs, attribute.String("gen_ai.input.messages", conversation(c.JSON)))
			attrs = append(attrs, messages("llm.input_messages", c.JSON)...)
		case graph.ToolSpan:
			attrs = append(attrs, attribute.String("gen_ai.tool.call.arguments", string(c.JSON)))
		}
	}
	_, span := o.Tracer.Start(ctx, name, trace.WithTimestamp(s.Start), trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return span
}

// exportEnd ends an OpenTelemetry span.
func exportEnd(span trace.Span, s *Span) {
	if s.Model != "" {
		span.SetAttributes(attribute.String("gen_ai.request.model", s.Model), attribute.String("gen_ai.response.model", s.Model), attribute.String("llm.model_name", s.Model))
	}
	if s.Message != "" {
		span.SetAttributes(attribute.String("gen_ai.response.id", s.Message))
	}
	if u := s.Usage; u != nil {
		span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", u.Input), attribute.Int64("gen_ai.usage.output_tokens", u.Output),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", u.Cached),
			attribute.Int64("llm.token_count.prompt", u.Input), attribute.Int64("llm.token_count.completion", u.Output), attribute.Int64("llm.token_count.total", u.Input+u.Output))
	}
	if !s.First.IsZero() {
		span.AddEvent("first token", trace.WithTimestamp(s.First))
	}
	if c := s.Output; c != nil {
		span.SetAttributes(attribute.String("output.value", string(c.JSON)), attribute.String("output.mime_type", "application/json"))
		switch s.Kind {
		case graph.ModelSpan:
			span.SetAttributes(attribute.String("gen_ai.output.messages", conversation(c.JSON)))
			span.SetAttributes(messages("llm.output_messages", c.JSON)...)
		case graph.ToolSpan:
			span.SetAttributes(attribute.String("gen_ai.tool.call.result", string(c.JSON)))
		}
	}
	span.SetAttributes(attribute.String("outcome", string(s.Status)))
	switch s.Status {
	case graph.SpanError, graph.SpanLost:
		text := string(s.Status)
		if e := s.Error; e != nil {
			span.SetAttributes(attribute.String("error.type", e.Type))
			text = e.Type
			if e.Message != "" { // with content only
				span.AddEvent("exception", trace.WithTimestamp(s.End), trace.WithAttributes(attribute.String("exception.type", e.Type),
					attribute.String("exception.message", e.Message), attribute.String("exception.stacktrace", e.Detail)))
			}
		}
		span.SetStatus(codes.Error, text)
	}
	span.End(trace.WithTimestamp(s.End))
}

// roles are the roles of OpenTelemetry by LangChain's types of messages, and those that langchaingo has.
var roles = map[string]string{
	"human": "user", "HumanMessageChunk": "user", "ai": "assistant", "AIMessageChunk": "assistant", "tool": "tool", "system": "system", "generic": "user", "function": "tool",
}

// part is a part of a message in OpenTelemetry's form.
type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// message is a message in OpenTelemetry's form.
type message struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// conversation returns a message, or a list of messages, in OpenTelemetry's form: [{"role", "parts"}].
func conversation(raw []byte) string {
	out, err := json.Marshal(listOf(raw))
	if err != nil {
		return "[]"
	}
	return string(out)
}

// listOf reads a message, or a list of messages.
func listOf(raw []byte) []message {
	list := []message{}
	add := func(m gjson.Result) {
		if m.Type == gjson.String {
			list = append(list, message{"user", []part{{Type: "text", Content: m.Str}}})
			return
		}
		role := roles[m.Get("type").String()]
		if given := m.Get("role").String(); role == "" {
			if role = roles[given]; role == "" {
				role = given
			}
		}
		list = append(list, message{role, partsOf(m, role)})
	}
	if all := gjson.ParseBytes(raw); all.IsArray() {
		for _, m := range all.Array() {
			add(m)
		}
	} else {
		add(all)
	}
	return list
}

func partsOf(m gjson.Result, role string) (parts []part) {
	text := func(s string) {
		switch {
		case s == "":
		case role == "tool":
			parts = append(parts, part{Type: "tool_call_response", ID: m.Get("tool_call_id").String(), Response: s})
		default:
			parts = append(parts, part{Type: "text", Content: s})
		}
	}
	content := m.Get("content")
	if !content.Exists() {
		content = m.Get("text")
	}
	if content.Type == gjson.String {
		text(content.Str)
	}
	for _, of := range []gjson.Result{content, m.Get("parts")} {
		if of.IsArray() {
			for _, block := range of.Array() {
				if block.Type == gjson.String {
					text(block.Str)
				} else if t := block.Get("type").String(); t == "text" || t == "" {
					text(block.Get("text").String())
				}
			}
		}
	}
	for _, call := range m.Get("tool_calls").Array() {
		p := part{Type: "tool_call", ID: call.Get("id").String(), Name: call.Get("name").String()}
		if args := call.Get("args"); args.IsObject() {
			p.Arguments = json.RawMessage(args.Raw)
		}
		parts = append(parts, p)
	}
	if parts == nil {
		parts = []part{}
	}
	return parts
}
