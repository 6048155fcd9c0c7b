// Package a2a is the wire of the Agent2Agent protocol at /a2a, as JSON-RPC: an assistant is an agent, a thread is a context, and a task is a run together with the
// runs that resume it with answers to its questions. The package reads requests and writes answers; it starts nothing. Types of github.com/a2aproject/a2a-go are not
// used, because each of its versions writes one version of the protocol, and answers here have the members of both 0.3 and 1.0, and of LangGraph Server.
package a2a

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Codes of JSON-RPC and of A2A.
const (
	ParseError       = -32700
	InvalidRequest   = -32600
	MethodNotFound   = -32601
	InvalidParams    = -32602
	InternalError    = -32603
	TaskNotFound     = -32001
	NotCancelable    = -32002
	PushNotSupported = -32003
	Unsupported      = -32004
	ContentType      = -32005
)

// Error is why a request is refused.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

func refuse(code int, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// NoAssistant is the error for an ID under which there is no assistant.
func NoAssistant(assistant string) error {
	return refuse(InvalidParams, "Assistant '%s' not found", assistant)
}

// ErrAssistantID refuses an ID of an assistant that is none, such as the name of a graph.
var ErrAssistantID error = refuse(InvalidParams, "Invalid assistant ID: must be a UUID")

// NoTask is the error for a task that there is not, or that is one of another assistant.
func NoTask(task string) error { return refuse(TaskNotFound, "Task not found: %s", task) }

// NoTaskIn is the error for a task that is one of another context.
func NoTaskIn(task, context string) error {
	return refuse(TaskNotFound, "Task not found: %s in context '%s'", task, context)
}

// Method is what a request asks for, whatever its version calls it.
type Method string

// The methods, by their names in version 0.3.
const (
	Send        Method = "message/send"
	Stream      Method = "message/stream"
	Get         Method = "tasks/get"
	List        Method = "tasks/list"
	Cancel      Method = "tasks/cancel"
	Resubscribe Method = "tasks/resubscribe"
)

// newer are the names of methods in version 1.0.
var newer = map[string]Method{
	"SendMessage": Send, "SendStreamingMessage": Stream, "GetTask": Get, "ListTasks": List, "CancelTask": Cancel, "SubscribeToTask": Resubscribe,
	"CreateTaskPushNotificationConfig": SetPush, "GetTaskPushNotificationConfig": GetPush, "ListTaskPushNotificationConfigs": ListPush, "DeleteTaskPushNotificationConfig": DeletePush,
}

// Dialect is the version that a client speaks. The name of the method says which it is: clients send the header A2A-Version with names of either version.
type Dialect struct{ V1 bool }

// Call is a request of a client.
type Call struct {
	Dialect
	ID     json.RawMessage // as sent
	Method Method
	Params gjson.Result // an object
}

// maxID bounds the IDs that clients choose, in bytes: each event of a stream repeats them.
const maxID = 1024

// Read reads a body. With an error, the Call is good for Fail.
func Read(body []byte) (Call, error) {
	c := Call{ID: json.RawMessage("null")}
	if !jsonscan.Valid(body) {
		return c, refuse(ParseError, "Invalid JSON payload")
	}
	m := gjson.ParseBytes(body)
	if !m.IsObject() {
		return c, refuse(InvalidRequest, "Invalid message format: expected object")
	}
	at := m.Get("id")
	if at.Type == gjson.String || at.Type == gjson.Number {
		c.ID = json.RawMessage(at.Raw)
	} else if at.Exists() && at.Type != gjson.Null {
		return c, refuse(InvalidRequest, "Invalid JSON-RPC request: 'id' must be a string, number, or null")
	}
	if len(c.ID) > maxID {
		c.ID = json.RawMessage("null")
		return c, refuse(InvalidRequest, "The id of a request has at most %d bytes", maxID)
	}
	if v := m.Get("jsonrpc"); v.Type != gjson.String || v.Str != "2.0" {
		return c, refuse(InvalidRequest, "Invalid JSON-RPC message: missing or invalid jsonrpc version")
	}
	name := m.Get("method")
	switch {
	case !name.Exists():
		return c, refuse(InvalidRequest, "Invalid JSON-RPC request: missing 'method' field")
	case name.Type != gjson.String:
		return c, refuse(MethodNotFound, "Method not found: method must be a string")
	}
	c.Method, c.V1 = newer[name.Str], true
	if c.Method == "" {
		c.Method, c.V1 = Method(name.Str), false
	}
	switch c.Params = m.Get("params"); {
	case !c.Params.Exists(), c.Params.Type == gjson.Null:
		c.Params = gjson.Parse("{}")
	case !c.Params.IsObject():
		return c, refuse(InvalidParams, "Invalid params: must be an object")
	}
	return c, nil
}

// Unknown returns the error for a method that there is not.
func (c Call) Unknown() error { return refuse(MethodNotFound, "Method not found: %s", c.Method) }

// Streams reports whether the answer to the call is a stream of events, also when it is an error.
func (c Call) Streams() bool {
	return c.Method == Resubscribe || c.Method == Stream && hasMembers(c.Params.Get("message"))
}

// hasMembers reports whether a value is an object with members.
func hasMembers(v gjson.Result) bool {
	any := false
	if v.IsObject() {
		v.ForEach(func(_, _ gjson.Result) bool {
			any = true
			return false
		})
	}
	return any
}

// Accepts reports whether a client takes the answers. accept is its header; "" when there is none.
func Accepts(accept string) bool {
	for _, of := range []string{"application/json", "application/*", "*/*", "text/event-stream"} {
		if accept == "" || strings.Contains(accept, of) {
			return true
		}
	}
	return false
}

func (c Call) answer(dst []byte, member string) []byte {
	return append(append(append(dst, `{"jsonrpc":"2.0","id":`...), c.ID...), `,"`+member+`":`...)
}

// AppendResult appends the answer to a call.
func (c Call) AppendResult(dst []byte, result []byte) []byte {
	return append(append(c.answer(dst, "result"), result...), '}')
}

// AppendFailure appends the answer to a call that is not possible.
func (c Call) AppendFailure(dst []byte, code int, text string) []byte {
	dst = strconv.AppendInt(append(c.answer(dst, "error"), `{"code":`...), int64(code), 10)
	return append(jsonobj.AppendText(append(dst, `,"message":`...), text), "}}"...)
}

// AppendFailedStream appends the only event of a stream that is not possible.
func (c Call) AppendFailedStream(dst []byte, code int, text string) []byte {
	return event(dst, func(dst []byte) []byte { return c.AppendFailure(dst, code, text) })
}

// event appends an event of a stream that fill writes.
func event(dst []byte, fill func(dst []byte) []byte) []byte {
	return append(fill(append(dst, "event: message\ndata: "...)), "\n\n"...)
}
