// Package run owns the life of a run: create, queue, claim, execute, record, cancel, join; and crons and webhooks.
// The table of runs is the queue, and the database the control plane.
package run

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"understudy/graph"
	"understudy/id"
)

// Status of a run, as the API spells it.
type Status string

const (
	Pending     Status = "pending"
	Running     Status = "running"
	Success     Status = "success" // also when it stopped at an interrupt or breakpoint
	Error       Status = "error"
	Interrupted Status = "interrupted" // cancelled
	Timeout     Status = "timeout"
)

// Over reports whether the status is final.
func (s Status) Over() bool { return s != Pending && s != Running }

// Strategy says what happens to a thread's other runs when a new one comes.
type Strategy string

const (
	Enqueue   Strategy = "enqueue"
	Reject    Strategy = "reject"
	Interrupt Strategy = "interrupt"
	Rollback  Strategy = "rollback"
)

// Action is how a run is cancelled.
type Action string

const (
	CancelInterrupt Action = "interrupt" // keep what it did
	CancelRollback  Action = "rollback"  // as if it had never been
)

// Run is one row of the queue.
type Run struct {
	ID           id.Run
	Thread       id.Thread
	Assistant    id.Assistant
	Graph        string
	Metadata     json.RawMessage // object
	Status       Status
	Kwargs       Arguments
	Strategy     Strategy
	CreatedAt    time.Time // when it is due; lies in the future for delayed runs. The queue is in this order
	UpdatedAt    time.Time
	StartedAt    time.Time // zero: never claimed
	EndedAt      time.Time // zero: not over
	Attempt      int       // number of claims so far; fences writes
	Failures     int       // how often a worker died under it since it saved a checkpoint
	Crashes      int       // servers that died while they executed it, since it saved a checkpoint; see crash.go
	Turn         Turn      // whether its server executes it as the only suspect
	Passed       bool      // a checkpoint was saved by it: a later attempt continues from there
	Owner        string    // instance that holds the lease; "" when none
	LeaseUntil   time.Time
	Cancel       Action          // set while a cancel is asked of a running run, and kept on one that was cancelled
	Error        json.RawMessage // {error, message}; nil when none
	OnCompletion string          // stateless runs: delete or keep
	OnDisconnect string          // cancel or continue
	Cron         id.Cron         // the cron that made it; "" none

	// Left: only ID and Thread are set, because the list had as many bytes as Query.Bytes allows.
	Left bool

	// published counts the records of this attempt; nil: it is not executed.
	published *atomic.Int64
	// waits reports whether the run ended at an interrupt, which waits for an answer. Set by finish.
	waits bool
	// calls are the model calls of this attempt that are not stored yet; nil: none.
	calls *calls
}

// Fit returns the run as a list has it that holds so many bytes before, and the bytes with it.
func (q *Query) Fit(r *Run, before int) (*Run, int) {
	k := &r.Kwargs
	size := before + len(r.Metadata) + len(k.Input) + len(k.Command) + len(k.Config) + len(k.Context)
	if q.Bytes > 0 && size > q.Bytes {
		r = &Run{ID: r.ID, Thread: r.Thread, Left: true}
	}
	return r, size
}

// Arguments are what a run is called with: as a client sent them in a Request, and, completed and merged with what its assistant and thread say, as they are
// kept in the row of the run, which clients see as `kwargs`.
type Arguments struct {
	graph.Arguments
	Config       json.RawMessage `json:"-"` // object; nil in a request: none
	Context      json.RawMessage `json:"-"` // object; nil in a request: none
	Webhook      string          `json:"webhook,omitempty"`
	FeedbackKeys json.RawMessage `json:"feedback_keys,omitempty"`
	Resumable    bool            `json:"resumable,omitempty"`
	// CheckpointNS, CheckpointID and CheckpointMap say where to start; empty: the head of the root. Not shown to clients.
	CheckpointNS  string          `json:"checkpoint_ns,omitempty"`
	CheckpointID  id.Checkpoint   `json:"checkpoint_id,omitempty"`
	CheckpointMap json.RawMessage `json:"checkpoint_map,omitempty"`
	// ContextKeys are the keys of configurable that came from a context: the graph's context schema decides which of them stay. Not of a request.
	ContextKeys []string `json:"context_keys,omitempty"`
}

// Request is a client's wish for a run, decoded and checked by package compat: every field is valid by itself, defaults are filled in. Of Arguments it has what
// the client sent.
type Request struct {
	Arguments
	AssistantID  string          // UUID or graph name
	Metadata     json.RawMessage // nil: none
	Strategy     Strategy        // default enqueue
	IfNotExists  string          // reject (default) or create
	OnDisconnect string          // continue (default) or cancel
	OnCompletion string          // delete (default) or keep; stateless only
	After        time.Duration   // delay
	Tracer       *Tracer         // nil: none

	// From the edge.
	RequestID string            // x-request-id, or made up
	Headers   map[string]string // configurable headers (http.configurable_headers), lower case

	traceParent, traceState string // of the request, when there is a span of it
}

// Tracer names the LangSmith project and example that a run is traced to. It is handed to the graph's configuration as it came; nil is null.
type Tracer struct {
	Project, Example json.RawMessage
}

// Result is what a wait or join answers: exactly one field is set.
type Result struct {
	Values json.RawMessage // may be `null`
	Error  json.RawMessage // {error, message}: shown as {"__error__": …}
}

// Query selects runs of a thread.
type Query struct {
	Status Status // "" all
	Limit  int
	Offset int
	// Bytes bounds what is loaded: from the run on with which arguments and metadata have more, runs are Left. 0: no bound.
	Bytes int
}

// Cron is a schedule that makes runs.
type Cron struct {
	ID             id.Cron
	Assistant      id.Assistant
	Thread         id.Thread // "" for stateless ones
	Schedule       string    // five fields, or six with seconds at the end
	Timezone       string    // IANA name; "" UTC
	EndTime        *time.Time
	Payload        json.RawMessage // the request, with assistant_id resolved and config.configurable.cron_id set
	Next           *time.Time      // nil: never again
	Metadata       json.RawMessage
	OnRunCompleted string // delete, keep, or "" (null) on threads
	Enabled        bool
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// CronQuery selects crons. Zero fields do not restrict.
type CronQuery struct {
	Assistant id.Assistant
	Thread    id.Thread
	Enabled   *bool
	Metadata  json.RawMessage
	SortBy    string // cron_id, assistant_id, thread_id, created_at, updated_at, next_run_date, end_time; default created_at
	Ascending bool
	Limit     int
	Offset    int
}

// NewCron is a wish for a cron.
type NewCron struct {
	Thread         id.Thread // "" for stateless ones
	AssistantID    string    // UUID or graph name
	Schedule       string
	Timezone       string
	EndTime        *time.Time
	Payload        map[string]json.RawMessage // the fields of the request that belong to runs: input, command, config, context, metadata, webhook, interrupt_before, …
	Metadata       json.RawMessage
	OnRunCompleted string
	Enabled        bool
}

// CronPatch changes a cron. Nil fields stay.
type CronPatch struct {
	Schedule       *string
	Timezone       *string
	EndTime        *time.Time
	ClearEndTime   bool // end_time: null
	Enabled        *bool
	Payload        map[string]json.RawMessage // merged into the payload
	Metadata       json.RawMessage
	OnRunCompleted *string
}
