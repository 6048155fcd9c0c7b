package protocol

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

const interruptKey = "__interrupt__"

// eachInterrupt calls fn with each interrupt of a state or an update, and its id.
func eachInterrupt(data []byte, fn func(name string, item json.RawMessage)) {
	if !bytes.Contains(data, []byte(`"`+interruptKey+`"`)) {
		return
	}
	items, _ := jsonscan.Elements(jsonscan.Raw(data, interruptKey))
	for _, item := range items {
		name := jsonscan.Text(item, "id")
		if name == "" {
			name = jsonscan.Text(item, "interrupt_id")
		}
		fn(name, item)
	}
}

// Asks returns the ids of the interrupts that a record shows.
func Asks(rec *bridge.Record) (names []string) {
	switch base, _, _ := strings.Cut(rec.Event, "|"); base {
	case "values", "updates":
		eachInterrupt(rec.Data, func(name string, _ json.RawMessage) { names = append(names, name) })
	}
	return names
}

// text returns the text of a JSON string; "" of anything else.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') >= 0 {
		return gjson.ParseBytes(raw).String()
	}
	return string(raw[1 : len(raw)-1])
}

func jsonInt(raw []byte) int64 {
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	return n
}

// emptyState reports whether a state has nothing but interrupts.
func emptyState(data []byte) bool {
	if i := jsonscan.Blank(data, 0); i >= len(data) || data[i] != '{' {
		return len(data) == 0
	}
	empty := true
	jsonscan.Each(data, func(key []byte, _, _ int) bool {
		empty = jsonscan.IsKey(key, interruptKey)
		return empty
	})
	return empty
}

// appendState appends a state or an update without its interrupts, and with messages as the protocol has them.
func appendState(b, data []byte) []byte {
	switch i := jsonscan.Blank(data, 0); {
	case i < len(data) && data[i] == '[':
		return appendSlim(b, data)
	case i >= len(data) || data[i] != '{':
		return append(b, data...)
	}
	if slim, ok := appendMessage(b, data); ok {
		return slim
	}
	b = append(b, '{')
	first := true
	jsonscan.Each(data, func(key []byte, start, end int) bool {
		if jsonscan.IsKey(key, interruptKey) {
			return true
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(b, key...), ':')
		b = appendSlim(b, data[start:end])
		return true
	})
	return append(b, '}')
}

// appendSlim appends the value of a channel: a message, a list of which some are messages, or anything else as it is.
func appendSlim(b, value []byte) []byte {
	switch {
	case len(value) == 0:
		return append(b, "null"...)
	case value[0] == '{':
		if slim, ok := appendMessage(b, value); ok {
			return slim
		}
		return append(b, value...)
	case value[0] != '[':
		return append(b, value...)
	}
	items, ok := jsonscan.Elements(value)
	if !ok {
		return append(b, value...)
	}
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if len(item) > 0 && item[0] == '{' {
			if slim, ok := appendMessage(b, item); ok {
				b = slim
				continue
			}
		}
		b = append(b, item...)
	}
	return append(b, ']')
}

// roleOf returns the type of a message on the wire of the protocol; "" when a type is no message's.
func roleOf(kind string) string {
	switch kind {
	case "human", "ai", "system", "tool", "function", "remove", "chat", "developer":
		return kind
	case "user", "HumanMessageChunk":
		return "human"
	case "assistant", "AIMessageChunk":
		return "ai"
	case "SystemMessageChunk":
		return "system"
	case "ToolMessageChunk":
		return "tool"
	}
	return ""
}

// appendMessage appends a message with the fields that clients of the protocol read, and the marker of a summary, by which they know that earlier messages were
// summarized. ok is false, and b unchanged, when the object is no message.
func appendMessage(b, object []byte) (_ []byte, ok bool) {
	var kind, content, ident, name, metadata, calls, invalid, call, status, artifact, marker json.RawMessage
	serialised := false // has a field that only messages have
	jsonscan.Each(object, func(key []byte, start, end int) bool {
		v := object[start:end]
		switch string(key) {
		case `"type"`:
			kind = v
		case `"content"`:
			content = v
		case `"id"`:
			ident = v
		case `"name"`:
			name = v
		case `"response_metadata"`:
			metadata, serialised = v, true
		case `"additional_kwargs"`:
			marker, serialised = jsonscan.Raw(v, overlay.MarkerKey), true
		case `"tool_calls"`:
			calls = v
		case `"invalid_tool_calls"`:
			invalid = v
		case `"tool_call_id"`:
			call = v
		case `"status"`:
			status = v
		case `"artifact"`:
			artifact = v
		}
		return true
	})
	role := roleOf(text(kind))
	if role == "" || content == nil || !serialised {
		return b, false
	}
	field := func(key string, v json.RawMessage) {
		b = append(append(append(append(b, ',', '"'), key...), '"', ':'), v...)
	}
	b = append(append(append(b, `{"type":"`...), role...), '"')
	b = appendContent(append(b, `,"content":`...), content)
	if given(ident) {
		field("id", ident)
	}
	if given(name) {
		field("name", name)
	}
	if len(metadata) > 2 {
		field("response_metadata", metadata)
	}
	if marker != nil {
		b = jsonobj.AppendText(append(b, `,"additional_kwargs":{`...), overlay.MarkerKey)
		b = append(append(append(b, ':'), marker...), '}')
	}
	if role == "tool" {
		for _, f := range []struct {
			key string
			v   json.RawMessage
		}{{"tool_call_id", call}, {"status", status}, {"artifact", artifact}} {
			if f.v != nil {
				field(f.key, f.v)
			}
		}
	}
	if items, _ := jsonscan.Elements(calls); len(items) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, item := range items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"type":"tool_call"`...)
			for _, key := range []string{"name", "args", "id"} {
				if v := jsonscan.Raw(item, key); v != nil {
					field(key, v)
				}
			}
			b = append(b, '}')
		}
		b = append(b, ']')
	}
	if len(invalid) > 2 {
		field("invalid_tool_calls", invalid)
	}
	return append(b, '}'), true
}

// given reports whether a value is there and not null.
func given(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
