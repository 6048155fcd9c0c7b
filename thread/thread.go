// Package thread owns threads: their rows, and the reading and writing of their state and history.
package thread

import (
	"context"
	"encoding/json"
	"time"

	"understudy/access/audit"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/idempotency"
)

// Status of a thread, as the API spells it.
type Status string

const (
	Idle        Status = "idle"
	Busy        Status = "busy"        // a run is pending or running
	Interrupted Status = "interrupted" // tasks remain: an interrupt, a breakpoint, a cancelled run
	Errored     Status = "error"
)

// Thread is the row of a thread. It does not contain values: they are composed from the checkpoint Head when read.
type Thread struct {
	ID             id.Thread
	CreatedAt      time.Time
	UpdatedAt      time.Time
	StateUpdatedAt time.Time
	Metadata       json.RawMessage // object
	Config         json.RawMessage // object
	Status         Status
	Touched        bool            // a run has ended or state was updated: from then on `interrupts` and `error` are shown
	Head           id.Checkpoint   // root checkpoint whose values the thread shows; "" while there is none
	Interrupts     json.RawMessage // {task id: [{id, value}]}; nil means {}
	Error          json.RawMessage // {error, message}; nil means null
	TTL            *TTL            // nil: kept until deleted
	// StreamHigh is an upper bound, in Unix milliseconds, of all stream offsets of this thread so far. Offsets assigned
	// after a restart, or when the clock went back, start above it.
	StreamHigh int64
	// Left reports that only ID is set, because the page has reached Query.Bytes.
	Left bool
}

// Waits reports whether the thread waits at interrupts.
func (t *Thread) Waits() bool {
	return t.Status == Interrupted && len(t.Interrupts) > len("{}")
}

// Size is about how many bytes the row of a thread has.
func (t *Thread) Size() int {
	return len(t.Metadata) + len(t.Config) + len(t.Interrupts) + len(t.Error)
}

// Query selects threads. Zero fields do not restrict. Values cannot be selected here: they are not a column (see
// Service.Search).
type Query struct {
	IDs       []id.Thread
	Status    Status
	Metadata  json.RawMessage // containment
	SortBy    string          // thread_id, status, created_at, updated_at, state_updated_at; default updated_at
	Ascending bool
	Limit     int // <= 0: all
	Offset    int
	// Bytes limits what is loaded: once rows exceed it, further threads are Left. 0: no limit.
	Bytes int
}

// Fit returns the thread, or if a page with this many bytes has no room the thread as Left, and the new number of bytes.
func (q *Query) Fit(t *Thread, before int) (*Thread, int) {
	size := before + t.Size()
	if q.Bytes > 0 && size > q.Bytes {
		t = &Thread{ID: t.ID, Left: true}
	}
	return t, size
}

// View is a thread with its values, as clients see it.
type View struct {
	Thread
	Values    json.RawMessage // nil: null
	Extracted json.RawMessage // result of a search's `extract`; nil when not requested
}

// New is a request to create a thread. Absent JSON is nil.
type New struct {
	ID         id.Thread // "": a new one
	Metadata   json.RawMessage
	IfExists   string // raise (default) or do_nothing
	TTL        *TTLRequest
	Supersteps [][]graph.StateUpdate
	Key        *idempotency.Key // nil: none
	NoValues   bool             // the answer need not show them
}

// Patch changes a thread. Nil fields are unchanged.
type Patch struct {
	Metadata json.RawMessage // merged, one level deep
	TTL      *TTLRequest
	Quiet    bool       // UpdatedAt stays, and with it the place of the thread among others
	Where    *Condition // which else refuses the change; nil: none
	// Check, if not nil, is called in the transaction of the change with the row before it, and whether a run of the thread is pending or running. Its error
	// refuses the change. It must not block, and may be called again.
	Check func(row *Thread, active bool) error
	// Audit is appended to the audit log in the transaction, with its time; nil: nothing.
	Audit *audit.Entry
}

// Search selects threads, with conditions on values, and the parts to show.
type Search struct {
	Query
	Values   json.RawMessage   // containment in the thread's values
	NoValues bool              // values are not requested: View.Values stays nil
	Extract  map[string]string // alias -> path such as values.items[-1]
}

// HistoryQuery selects snapshots, newest first.
type HistoryQuery struct {
	Thread   id.Thread
	NS       string
	Before   id.Checkpoint   // only older ones; "" from the newest
	ID       id.Checkpoint   // of a checkpoint in the request: only from it on; "" no bound
	Metadata json.RawMessage // containment
	Limit    int
	Memory   Memory // of ReadHistory; nil: no bound
}

// Memory bounds the memory that all readers of long histories hold together.
type Memory interface {
	// Take reserves so many bytes if they are available, or if nothing is reserved.
	Take(n int64) bool
	// Wait reserves so many bytes as soon as they are available. It fails when that takes too long.
	Wait(ctx context.Context, n int64) error
	// Hold reserves so many bytes in any case.
	Hold(n int64)
	Give(n int64)
}
