package graph

import (
	"encoding/json"
	"time"
)

// Note is a row that a graph adds to the log of its thread: what happened in a run besides its messages.
type Note struct {
	Type     string          // at most 32 characters, such as subagent.start
	Category string          // at most 16 characters, such as subagent
	Content  json.RawMessage // any JSON
	Metadata json.RawMessage // object; nil: none
	At       time.Time
}
