// Package assistant owns assistants: graphs with a configuration, kept in versions.
package assistant

import (
	"encoding/json"
	"time"

	"understudy/id"
)

// Assistant is a graph with a configuration, in its current version.
type Assistant struct {
	ID          id.Assistant
	GraphID     string
	Name        string
	Description *string
	Config      json.RawMessage // object; `{}` when there is none
	Context     json.RawMessage // object or any JSON; `{}` when there is none
	Metadata    json.RawMessage // object
	Version     int             // 1, 2, 3…; not always the highest that exists
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Query selects assistants. Zero fields do not restrict.
type Query struct {
	GraphID   string
	OfGraph   bool            // match GraphID even if it is empty
	Name      string          // substring, any case
	Metadata  json.RawMessage // containment
	SortBy    string          // assistant_id, created_at, updated_at, name, graph_id; default created_at
	Ascending bool
	Limit     int
	Offset    int
}

// New is a request to create an assistant. Absent JSON is nil.
type New struct {
	ID          id.Assistant // "": a new one
	GraphID     string
	Name        string // "": Untitled
	Description *string
	Config      json.RawMessage
	Context     json.RawMessage
	Metadata    json.RawMessage
	IfExists    string // raise (default) or do_nothing
}

// Untitled is the name of an assistant that is created without one.
const Untitled = "Untitled"

// Patch changes an assistant. Nil fields are unchanged.
type Patch struct {
	GraphID     *string
	Name        *string
	Description *string
	Config      json.RawMessage // replaces
	Context     json.RawMessage // replaces
	Metadata    json.RawMessage // merged, one level deep
}
