package graph

import (
	"encoding/json"
	"strings"
	"time"
)

// SpanKind says what a span of a run is.
type SpanKind string

// Kinds of spans. Graphs report nodes, models and tools; the server makes the others.
const (
	QueueSpan   SpanKind = "queue"
	AttemptSpan SpanKind = "attempt"
	NodeSpan    SpanKind = "node"
	ModelSpan   SpanKind = "model"
	ToolSpan    SpanKind = "tool"
	SaveSpan    SpanKind = "save"
)

// SpanStatus says how a span ended.
type SpanStatus string

// Statuses of spans.
const (
	SpanRunning     SpanStatus = "running"
	SpanSuccess     SpanStatus = "success"
	SpanError       SpanStatus = "error"
	SpanInterrupted SpanStatus = "interrupted" // it waits for an answer, and its node runs again with it
	SpanCancelled   SpanStatus = "cancelled"
	SpanLost        SpanStatus = "lost" // the process that executed it ended
)

// Tracing says what a graph reports of the spans of a run.
type Tracing struct {
	// Begin is called before a node, model or tool runs, and End after it. They are called by any goroutine, and do not block. A parent begins before
	// its children, but may be reported after them; one that has ended without a report ends with the run.
	Begin func(SpanBegin)
	End   func(SpanEnd)
	// Content is how many bytes of an input or output are reported at most; 0: none.
	Content int
}

// SpanBegin is the begin of a span.
type SpanBegin struct {
	ID, Parent uint64 // unique in an invocation, from 1; Parent 0: none
	Kind       SpanKind
	Name       string // of the node, tool, or model class
	NS         string // checkpoint namespace of the node that it belongs to
	Node       string // name of that node
	Step       int
	Provider   string // of a model; "" when unknown
	At         time.Time
	Input      *SpanContent
}

// SpanEnd is the end of a span.
type SpanEnd struct {
	ID     uint64
	At     time.Time
	First  time.Time // first token of a model; zero: it did not stream
	Status SpanStatus
	// Error has Type, Message and Detail, with the stack; nil: it did not fail.
	Error   *Failure
	Model   string // name of the model; "" when unknown
	Message string // id of the message that answered
	Usage   *SpanUsage
	Output  *SpanContent
}

// SpanUsage is what a model call used. Cached are the tokens of Input that the provider had in a cache.
type SpanUsage struct {
	Input, Output, Total, Cached int64
}

// SpanContent is an input or output.
type SpanContent struct {
	JSON json.RawMessage // valid JSON
	// Cut reports that JSON is not all of it: the beginning of texts, or the last messages of a list.
	Cut bool
}

// ContentOf returns a JSON value as content of at most room bytes. The beginning of a longer one is a text.
func ContentOf(value json.RawMessage, room int) *SpanContent {
	if len(value) <= room {
		return &SpanContent{JSON: value}
	}
	text, _ := json.Marshal(strings.ToValidUTF8(string(value[:room]), "")) // a string
	return &SpanContent{JSON: text, Cut: true}
}

// ContentOfMessages returns the last of some messages, as many as fit into room bytes; of one that is longer its beginning.
func ContentOfMessages(messages []json.RawMessage, room int) *SpanContent {
	out, from := &SpanContent{}, len(messages)
	for left := room; from > 0 && len(messages[from-1]) <= left; from-- {
		left -= len(messages[from-1])
	}
	if from == len(messages) && from > 0 {
		from--
		messages = []json.RawMessage{ContentOf(messages[from], room).JSON}
		out.Cut, out.JSON = true, append(append(json.RawMessage{'['}, messages[0]...), ']')
		return out
	}
	out.Cut = from > 0
	out.JSON = json.RawMessage{'['}
	for i, m := range messages[from:] {
		if i > 0 {
			out.JSON = append(out.JSON, ',')
		}
		out.JSON = append(out.JSON, m...)
	}
	out.JSON = append(out.JSON, ']')
	return out
}
