// Package mcp is the wire of the Model Context Protocol at /mcp: a server that has a tool for each assistant. A call of a tool is a run, of which nothing is kept.
// The id of a session says what its client can do, so that sessions need no memory and are not tied to a server.
package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/internal/pytext"
	"understudy/run"
)

// versions are those of the protocol that are spoken, the newest last.
var versions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// Codes of JSON-RPC.
const (
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Message is a JSON-RPC message of a client.
type Message struct {
	ID     json.RawMessage // as sent; nil: it wants no answer
	Method string
	Params gjson.Result
	// AnswerTo is the id of the server's request that the message answers, and Answer the result: nothing, when the client refused it. "": it answers none.
	AnswerTo string
	Answer   gjson.Result
}

// Error is why a body is no message.
type Error string

func (e Error) Error() string { return string(e) }

// Read reads a body. Its errors are of type Error.
func Read(body []byte) (Message, error) {
	if !jsonscan.Valid(body) {
		return Message{}, Error("Invalid JSON")
	}
	m := gjson.ParseBytes(body)
	if !m.IsObject() {
		return Message{}, Error("Invalid message format.")
	}
	if v := m.Get("jsonrpc"); v.Type != gjson.String || v.Str != "2.0" {
		return Message{}, Error("Invalid JSON-RPC message. Missing or invalid jsonrpc version.")
	}
	out := Message{Method: m.Get("method").String(), Params: m.Get("params")}
	// Notifications have no id, and answers of the client no method.
	switch at := m.Get("id"); {
	case !at.Exists() || at.Type == gjson.Null:
	case m.Get("method").Exists():
		out.ID = json.RawMessage(at.Raw)
	case at.Type == gjson.String && (m.Get("result").Exists() || m.Get("error").Exists()):
		out.AnswerTo, out.Answer = at.Str, m.Get("result")
	}
	return out, nil
}

// Accepts reports whether a client takes the answers, as LangGraph Server decides it.
func Accepts(accept string) bool {
	return strings.Contains(accept, "application/json") || strings.Contains(accept, "text/event-stream")
}

func (m Message) answer(member string, raw []byte) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), m.ID...)
	b = append(append(b, `,"`+member+`":`...), raw...)
	return append(b, '}')
}

// Result makes the answer to a request.
func (m Message) Result(raw []byte) []byte { return m.answer("result", raw) }

// Fail makes the answer to a request that is not possible.
func (m Message) Fail(code int, text string) []byte {
	return m.answer("error", append(jsonobj.AppendText([]byte(`{"code":`+strconv.Itoa(code)+`,"message":`), text), '}'))
}

// Initialize is the result of the method initialize.
func (m Message) Initialize(version string) []byte {
	spoken := versions[len(versions)-1]
	if asked := m.Params.Get("protocolVersion").String(); slices.Contains(versions, asked) {
		spoken = asked
	}
	b := jsonobj.AppendText([]byte(`{"protocolVersion":`), spoken)
	b = append(b, `,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"LangGraph","version":`...)
	return append(jsonobj.AppendText(b, version), `}}`...)
}

// maxName is the length of a tool's name, in bytes.
const maxName = 128

// Name is the name of the tool of an assistant: what clients take of the assistant's name, or else its id. Assistants may have equal ones.
func Name(a *assistant.Assistant) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '_'
		case r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z':
			return r
		}
		return -1
	}, a.Name)
	if name == "" {
		return string(a.ID)
	}
	return name[:min(len(name), maxName)]
}

// AppendTool appends the tool of an assistant, given the schemas of its graph: {input_schema, output_schema, …}. ok is false when it has no schema of its input, and
// so is no tool.
func AppendTool(dst []byte, a *assistant.Assistant, schemas json.RawMessage) (_ []byte, ok bool) {
	input := gjson.GetBytes(schemas, "input_schema")
	if !input.IsObject() {
		return dst, false
	}
	dst = jsonobj.AppendText(append(dst, `{"name":`...), Name(a))
	dst = jsonobj.AppendText(append(dst, `,"title":`...), a.Name)
	description := "Tool based on the " + a.Name + " assistant"
	if a.Description != nil && *a.Description != "" {
		description = *a.Description
	}
	dst = jsonobj.AppendText(append(dst, `,"description":`...), description)
	dst = append(append(dst, `,"inputSchema":`...), inputSchema(input)...)
	if output := outputSchema(gjson.GetBytes(schemas, "output_schema")); output != nil {
		dst = append(append(dst, `,"outputSchema":`...), output...)
	}
	return append(dst, `,"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}}`...), true
}

const messagesProperty = `{"type":"string","title":"Messages","description":"The user message to send to the agent."}`

// inputSchema simplifies a schema for models: the messages of a conversation become the text of one.
func inputSchema(schema gjson.Result) json.RawMessage {
	o := jsonobj.Of(json.RawMessage(schema.Raw))
	if schema.Get("properties.messages").Exists() {
		properties := jsonobj.Of(o.Get("properties"))
		properties.Set("messages", json.RawMessage(messagesProperty))
		o.Set("properties", properties.JSON())
		definitions := o.Get("$defs")
		if o.Delete("$defs"); bytes.Contains(o.JSON(), []byte(`"$ref"`)) {
			o.Set("$defs", definitions)
		}
	}
	o.Set("type", json.RawMessage(`"object"`))
	return o.JSON()
}

// outputSchema names the keys of a graph's output, without their types: clients refuse results that do not match a schema, and what a graph puts into its state
// may not. It is nil for graphs whose output is no object.
func outputSchema(schema gjson.Result) json.RawMessage {
	if schema.Get("type").Str != "object" {
		return nil
	}
	properties := jsonobj.Object{}
	schema.Get("properties").ForEach(func(name, property gjson.Result) bool {
		about := jsonobj.Object{}
		for _, key := range []string{"title", "description"} {
			if text := property.Get(key); text.Type == gjson.String {
				about.SetText(key, text.Str)
			}
		}
		properties.Set(name.String(), about.JSON())
		return true
	})
	out := jsonobj.Object{}
	out.Set("type", json.RawMessage(`"object"`))
	out.Set("properties", properties.JSON())
	return out.JSON()
}

// Called is the result of a call of a tool: the values of its run as Python's text, as from LangGraph Server, and as JSON. A failure of the run is one of the
// tool, which the model of the client sees.
func (m Message) Called(res run.Result) []byte {
	if len(res.Error) > 0 {
		b := m.failed(gjson.GetBytes(res.Error, "error").String()) // the type alone, as LangGraph Server says to models
		if why := gjson.GetBytes(res.Error, "message").String(); why != "" {
			b = append(jsonobj.AppendText(append(b, `,"_meta":{"message":`...), why), '}')
		}
		return m.Result(append(b, '}'))
	}
	return m.called(pytext.Repr(orNull(res.Values)), res)
}

// maxEvent is how long an event may be, with room for its name: Python's client ends its session at one of more than 1 MiB.
const maxEvent = 1<<20 - 1<<10

// CalledInEvent is Called for a stream. When that is too long for an event the values are there once, as JSON. If these are too long, too, the call has failed.
func (m Message) CalledInEvent(res run.Result) []byte {
	b := m.Called(res)
	if len(b) <= maxEvent {
		return b
	}
	if len(res.Error) > 0 {
		failed := gjson.GetBytes(res.Error, "error").String()
		return m.Failed(failed[:min(len(failed), maxEvent/8)]) // each of its bytes may take six
	}
	size := len(res.Values)
	if gjson.ParseBytes(res.Values).IsObject() {
		if b = m.called("The result is in structuredContent: it is too long to be here as text, too.", res); len(b) <= maxEvent {
			return b
		}
	}
	return m.Failed(fmt.Sprintf("The result of %d bytes is too long for an event of a stream, which may have 1 MiB. Call the tool without a callback for progress or questions, or let the graph return less.", size))
}

// called is the result of a call that succeeded, with a text for clients that do not read JSON.
func (m Message) called(text string, res run.Result) []byte {
	b := jsonobj.AppendText([]byte(`{"content":[{"type":"text","text":`), text)
	b = append(b, `}]`...)
	switch values := gjson.ParseBytes(res.Values); {
	case values.IsObject():
		b = append(append(b, `,"structuredContent":`...), values.Raw...)
	case len(res.Values) == 0, values.Type == gjson.Null: // nothing was written
		b = append(b, `,"structuredContent":{}`...)
	}
	return m.Result(append(b, '}'))
}

// Failed is the result of a call that failed.
func (m Message) Failed(text string) []byte {
	return m.Result(append(m.failed(text), '}'))
}

// failed is Failed without its end.
func (Message) failed(text string) []byte {
	return append(jsonobj.AppendText([]byte(`{"isError":true,"content":[{"type":"text","text":`), text), `}]`...)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
