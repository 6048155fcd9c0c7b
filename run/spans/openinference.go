package spans

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// spanKind says what a span is to readers of OpenInference, such as Phoenix and Langfuse.
const spanKind = "openinference.span.kind"

// mostShown is how many messages of an input, and mostCalls how many tool calls of a message, have attributes of their own: a span has 128 attributes at most, and later ones would be lost.
const mostShown, mostCalls = 16, 4

// whose returns the conversation and the user of a span.
func (o *Options) whose() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if o.Thread != "" {
		attrs = append(attrs, attribute.String("session.id", string(o.Thread)))
	}
	if o.User != "" {
		attrs = append(attrs, attribute.String("user.id", o.User))
	}
	return attrs
}

// turn describes a run as a turn of a conversation.
func (o *Options) turn() []attribute.KeyValue {
	attrs := append(o.whose(), attribute.String(spanKind, "AGENT"), attribute.String("gen_ai.operation.name", "invoke_agent"), attribute.String("gen_ai.agent.name", o.Graph))
	if o.Thread != "" {
		attrs = append(attrs, attribute.String("gen_ai.conversation.id", string(o.Thread)))
	}
	return attrs
}

// exportRun describes the span of the attempt as a turn of a conversation.
func (r *Recorder) exportRun() {
	attrs := r.opts.turn()
	if r.opts.Langfuse != nil {
		attrs = append(attrs, r.opts.Langfuse.labels(&r.opts)...)
	}
	if r.opts.Level == Content && len(r.opts.Input) > 0 {
		attrs = append(attrs, content("input", r.opts.Input, r.opts.Bytes)...)
	}
	trace.SpanFromContext(r.opts.Context).SetAttributes(attrs...)
}

// exportAnswer adds to the span of the attempt what its last node returned. The caller holds r.mu.
func (r *Recorder) exportAnswer() {
	if r.answer != nil {
		trace.SpanFromContext(r.opts.Context).SetAttributes(content("output", r.answer.JSON, r.opts.Bytes)...)
	}
}

// content returns JSON of at most so many bytes; longer JSON as the beginning of its text.
func content(name string, json []byte, most int) []attribute.KeyValue {
	text, mime := string(json), "application/json"
	if len(text) > most {
		text, mime = strings.ToValidUTF8(text[:most], ""), "text/plain"
	}
	return []attribute.KeyValue{attribute.String(name+".value", text), attribute.String(name+".mime_type", mime)}
}

// messages returns the newest messages of a model call, each with attributes of its own.
func messages(prefix string, raw []byte) []attribute.KeyValue {
	list := listOf(raw)
	list = list[max(0, len(list)-mostShown):]
	var attrs []attribute.KeyValue
	for i, m := range list {
		of := fmt.Sprintf("%s.%d.message.", prefix, i)
		attrs = append(attrs, attribute.String(of+"role", m.Role))
		var text []string
		calls := 0
		for _, p := range m.Parts {
			switch {
			case p.Type == "tool_call" && i == len(list)-1 && calls < mostCalls: // those of earlier messages have answers
				call := fmt.Sprintf("%stool_calls.%d.tool_call.", of, calls)
				calls++
				attrs = append(attrs, attribute.String(call+"id", p.ID), attribute.String(call+"function.name", p.Name), attribute.String(call+"function.arguments", string(p.Arguments)))
			case p.Type == "tool_call_response":
				text = append(text, p.Response)
				attrs = append(attrs, attribute.String(of+"tool_call_id", p.ID))
			case p.Content != "":
				text = append(text, p.Content)
			}
		}
		attrs = append(attrs, attribute.String(of+"content", strings.Join(text, "\n")))
	}
	return attrs
}
