// Package eventstore is the append-only log of what happened on threads, and the transcripts folded from it: the messages as a person
// saw them, which summarization never shortens. It knows no HTTP and runs no graph.
package eventstore

import (
	"encoding/json"
	"time"

	"understudy/id"
)

// Seq is the position of an event in its thread: 1, 2, 3…, never reused.
type Seq int64

// Event is one durable row of the log.
type Event struct {
	Thread    id.Thread
	Seq       Seq             // given by AppendEvents
	Run       id.Run          // "" when none
	Type      string          // llm.human.input, llm.ai.response, …: DEERFLOW.md section 7
	Category  string          // message, middleware, …
	MessageID string          // of message events; "" else
	Content   []byte          // JSON
	Metadata  json.RawMessage // object
	CreatedAt time.Time
}

// Tx is what recording needs within a transaction of the storage.
type Tx interface {
	// AppendEvents adds events after the last of the thread, and sets their Seq.
	AppendEvents(t id.Thread, events []*Event) error
	// CopyEvents gives a copied thread event rows of its own up to where its source stands, and its transcripts.
	CopyEvents(from, to id.Thread) error
	// RollBackEvents marks the events of a run as rolled back: they stay in the log, outside every transcript.
	RollBackEvents(t id.Thread, r id.Run) error
}
