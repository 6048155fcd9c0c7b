// Package run has the words in which one speaks of runs: the rows of runs and crons, the requests that make them, and what the packages below it need of the
// storage and of each other. Package run/service is the way into a run.
package run

import (
	"encoding/json"
	"strings"
	"time"

	"understudy/access"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/internal/jsonobj"
	"understudy/run/webhook"
	"understudy/thread"
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
	Crashes      int       // servers that died while they executed it, since it saved a checkpoint; see package run/crash
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
	// Behind: it is pending, and another run of its thread comes first. Only lists of recent runs have it.
	Behind bool
}

// Durable reports whether the database has the records of the run.
func (r *Run) Durable() bool { return r.Kwargs.Resumable && !r.Kwargs.Temporary }

// Fit returns r, or only its IDs when a list that already has so many bytes would exceed q.Bytes with it, and the bytes of the list with r.
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
	Config  json.RawMessage `json:"-"` // object; nil in a request: none
	Context json.RawMessage `json:"-"` // object; nil in a request: none
	Webhook string          `json:"webhook,omitempty"`
	// Push are the push notifications that clients of A2A want. Not shown to clients as arguments.
	Push         []webhook.Push  `json:"push,omitempty"`
	FeedbackKeys json.RawMessage `json:"feedback_keys,omitempty"`
	Resumable    bool            `json:"resumable,omitempty"`
	// KeepUndone: a rollback leaves the row of the run, as failed. Without it the run is deleted, as LangGraph Server does. Not shown to clients.
	KeepUndone bool `json:"keep_undone,omitempty"`
	// Tentative: unless the run succeeds, the thread is again as it was before. The row of the run stays. Not shown to clients.
	Tentative bool `json:"tentative,omitempty"`
	// CheckpointNS, CheckpointID and CheckpointMap say where to start; empty: the head of the root. Not shown to clients.
	CheckpointNS  string          `json:"checkpoint_ns,omitempty"`
	CheckpointID  id.Checkpoint   `json:"checkpoint_id,omitempty"`
	CheckpointMap json.RawMessage `json:"checkpoint_map,omitempty"`
	// ContextKeys are the keys of configurable that the context has too, without the server's own: the graph's context schema decides which of them
	// stay. Empty when the request had no context. Not of a request.
	ContextKeys []string `json:"context_keys,omitempty"`
}

// Turn says how the server of a suspect executes it.
type Turn int

const (
	NoTurn  Turn = iota // it waits, or is no suspect
	Alone               // as the only suspect
	Company             // it was the only suspect for as long as it may be
)

// Request is a client's wish for a run, decoded and checked by package compat: every field is valid by itself, defaults are filled in. Of Arguments it has what
// the client sent.
type Request struct {
	Arguments
	ID           id.Run          // that the run gets; "": a new one
	AssistantID  string          // UUID or graph name
	Metadata     json.RawMessage // nil: none
	OwnMetadata  json.RawMessage // of the run alone, not of a thread that is made for it; nil: none
	Strategy     Strategy        // default enqueue
	IfNotExists  string          // reject (default) or create
	OnDisconnect string          // continue (default) or cancel
	OnCompletion string          // delete (default) or keep; stateless only
	After        time.Duration   // delay
	Tracer       *Tracer         // nil: none
	// Answers are the interrupts that it answers: the thread must still ask them. nil: whatever the command resumes.
	Answers []Response
	// EventStreaming: made for a client of event streaming (protocol v2), which its configuration says.
	EventStreaming bool
	// NewThread demands that the thread does not exist, and is how long it stays; nil: it may exist.
	NewThread *thread.TTL
	// Key makes a repeated request return the run of the first one; nil: it creates another run. Of a batch the first request has it.
	Key *idempotency.Key

	// Actor is who the run acts as; nil without authentication.
	Actor *access.Actor

	// Encryption is the context that the run's content is encrypted in.
	Encryption encryption.Context

	// Cron is the cron that makes it, which its configuration says; "": none.
	Cron id.Cron

	// From the edge.
	RequestID string            // x-request-id, or made up
	Headers   map[string]string // configurable headers (http.configurable_headers), lower case

	TraceParent string // W3C headers of the span of the request; "": there is none
	TraceState  string
}

// A run carries the trace of the request that made it in its configuration, as headers of the same names: every server that executes it, in each
// attempt, continues that trace, and graphs may.
const (
	TraceParentKey = "__otel_traceparent__"
	TraceStateKey  = "__otel_tracestate__"
)

// EventStreamingKey marks in its configuration a run that was made by a command of event streaming.
const EventStreamingKey = "__event_streaming_v2"

// Response answers an interrupt.
type Response struct {
	Interrupt string
	Value     json.RawMessage
	Namespace []string // in which it was requested, as the client says; nil: it does not say
}

// ErrNotInterrupted: nothing on the thread can be answered, because it has had no run.
var ErrNotInterrupted = fault.New(fault.NotFound, "No interrupted run is bound to this thread.")

// ErrNoThread: the thread or the assistant of a run does not exist, or not for who acts.
var ErrNoThread = fault.New(fault.NotFound, "Thread or assistant not found.")

// ErrStatelessResume: a run that is to resume has no thread, of which an interrupt is a part.
var ErrStatelessResume = fault.New(fault.Invalid, "You must provide a thread_id when resuming.")

// ErrNoRun: the thread has had no run, whose assistant could be taken.
var ErrNoRun = fault.New(fault.NotFound, "No run has been made on this thread yet; send run.start.")

// ErrAsks: the thread waits for an answer to an interrupt, which another input would discard.
var ErrAsks = fault.New(fault.Conflict, "The thread waits at an interrupt; answer it with input.respond, whose update can add messages.")

// UnknownCheckpoint is the error for a fork from a checkpoint that the thread does not have.
type UnknownCheckpoint struct{ ID id.Checkpoint }

func (e *UnknownCheckpoint) Error() string { return "Unknown checkpoint: " + string(e.ID) }

// UnknownInterrupt is the error for an answer to an interrupt that the thread does not have, or not any more.
type UnknownInterrupt struct{ ID string }

func (e *UnknownInterrupt) Error() string { return "Unknown or already-consumed interrupt: " + e.ID }

// Tracer names the LangSmith project and example that a run is traced to. It is handed to the graph's configuration as it came; nil is null.
type Tracer struct {
	Project, Example json.RawMessage
}

// Result is what a wait or join answers: exactly one field is set.
type Result struct {
	Values json.RawMessage // may be `null`
	Error  json.RawMessage // {error, message}: shown as {"__error__": …}
}

// Types of errors of runs that are not started again, because the processes that executed them died.
const (
	ServerDied = "ServerDied"
	WorkerDied = "WorkerDied"
)

// ErrorJSON is an error as clients see it. Exceptions may have NUL in their text, which is shown as LangGraph Server shows it everywhere.
func ErrorJSON(kind, message string) json.RawMessage {
	o := &jsonobj.Object{}
	o.SetText("error", strings.ReplaceAll(kind, "\x00", "\uFFFD"))
	o.SetText("message", strings.ReplaceAll(message, "\x00", "\uFFFD"))
	return o.JSON()
}

// Recent selects runs of all threads. Their order is that of their IDs, which ascend with time.
type Recent struct {
	Before id.Run  // only older ones; "": from the newest
	Status Status  // "" all
	Graph  string  // "" all
	Cron   id.Cron // "" all
	Limit  int
}

// Active selects runs of all threads that have not ended and are not being cancelled.
type Active struct {
	Status Status // Pending or Running; "" both
	Graph  string // "" all
	Until  id.Run // no run made after this one; "": all
}

// Chooses reports whether a run is selected.
func (a Active) Chooses(r *Run) bool {
	return !r.Status.Over() && r.Cancel == "" && (a.Status == "" || a.Status == r.Status) && (a.Graph == "" || a.Graph == r.Graph) && (a.Until == "" || r.ID <= a.Until)
}

// MaxActive bounds the runs of each status that are looked at to count active ones.
const MaxActive = 100_000

// ActiveCount is how many runs an Active selects.
type ActiveCount struct {
	Runs int
	// More: there are more runs than are looked at, so Runs may be too small.
	More bool
	// Last is the one made last of those that were counted; "" if More, or if there are none.
	Last id.Run
}

// Query selects runs of a thread.
type Query struct {
	Status Status // "" all
	Limit  int
	Offset int
	// Bytes bounds what is loaded: from the run on with which arguments and metadata have more, runs are Left. 0: no bound.
	Bytes int
}
