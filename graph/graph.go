// Package graph defines what executes: the Graph interface, its events, and the registry of a langgraph.json.
package graph

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"time"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
)

// Graph is an executable graph. Implementations are safe for concurrent use.
type Graph interface {
	// Stream runs or resumes, and yields events in the order in which the graph emitted them. It ends without an error when the
	// graph finished or stopped at an interrupt or breakpoint. Errors: *Failure when the graph raised; ErrWorkerDied when its
	// worker died, often as a *Death (the run can be retried); the cause of ctx when it was cancelled, after the graph's tasks have ended or been
	// abandoned. Nothing of the run continues after the iterator returned.
	Stream(ctx context.Context, inv Invocation) iter.Seq2[Event, error]
	// Explain returns what stored rows do not contain about a checkpoint. It runs no node. live: the head of its namespace
	// as LangGraph shows it when read without an id.
	Explain(ctx context.Context, cfg Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error)
	// Update writes new checkpoints as if nodes had run, one after the other, and returns the key of the last. It saves through
	// cfg.Saver. The error for an unknown node or invalid values is a *fault.Error of kind Invalid; for an unknown node it is an *UnknownNode.
	Update(ctx context.Context, cfg Config, at checkpointer.Key, steps [][]StateUpdate) (checkpointer.Key, error)
	// Describe returns schemas, drawing and subgraphs.
	Describe(ctx context.Context, cfg Config, what DescribeWhat) (json.RawMessage, error)
}

// UnknownNode is the error of an update as a node that the graph does not have, in LangGraph's words. It unwraps to a *fault.Error of kind Invalid.
type UnknownNode struct{ Node string }

func (e *UnknownNode) Error() string { return "Node " + e.Node + " does not exist" }

func (e *UnknownNode) Unwrap() error { return fault.New(fault.Invalid, e.Error()) }

// ErrWorkerDied: the process that ran the graph ended. The run did not fail, its worker did.
var ErrWorkerDied = errors.New("the worker running the graph died")

// Death is what is known of the end of a worker under a run. It wraps ErrWorkerDied.
type Death struct {
	Cause string // a clause: "it left with exit code 3"
	At    string // where the run was: "in or after node a"; "": not known
	Fix   string // what most likely helps; "": nothing is known
}

func (d *Death) Error() string { return ErrWorkerDied.Error() + ": " + d.Text() }
func (d *Death) Unwrap() error { return ErrWorkerDied }

// Text returns cause and nodes in one clause.
func (d *Death) Text() string {
	if d.At == "" {
		return d.Cause
	}
	return d.Cause + ", " + d.At
}

// ErrReloading: the worker is being replaced on purpose; the run should be handed back, not counted as a failure.
var ErrReloading = errors.New("the worker running the graph is being replaced")

// ErrElsewhere: the graph does not load on this server and another one serves it; the run should be handed back, not counted as a failure.
var ErrElsewhere = errors.New("another server serves the graph, which does not load on this one")

// ErrHandedOver is in the cause of a context that was cancelled although the run is not over: another attempt will resume it, here or on
// another server. Work outside of this process may continue.
var ErrHandedOver = errors.New("the run is handed over")

// Failure is an exception that the graph raised.
type Failure struct {
	Type    string // name of the exception class
	Message string // its text, fit for clients: already masked where LangGraph Server masks it
	Detail  string // the traceback, for the log only
	Fix     string // what most likely helps, for the log only; "": nothing is known
	Server  bool   // the server failed, not the graph: it could not save or read
}

// WorkerStartError is the Type of a Failure for which no process starts that could execute the graph.
const WorkerStartError = "WorkerStartError"

func (f *Failure) Error() string { return f.Type + ": " + f.Message }

// Masked replaces the text of errors that may contain secrets, as LangGraph Server does.
const Masked = "An internal error occurred"

// ServerFailure is the failure of a run for which the server could not save or read something. Clients see why only when the error says it to them.
func ServerFailure(err error) *Failure {
	f := &Failure{Type: "ServerError", Message: Masked, Detail: err.Error(), Server: true}
	var why *fault.Error
	if !errors.As(err, &why) {
		return f
	}
	switch why.Kind {
	case fault.Unavailable:
		f.Type, f.Message = "ServiceUnavailable", why.Message
	case fault.TooLarge:
		f.Message = why.Message
	}
	return f
}

// Invocation is one execution of a graph.
type Invocation struct {
	Config
	Run     id.Run
	Attempt int
	Arguments
	At       checkpointer.Key // start checkpoint; ID "" is the head, NS "" the root
	Isolated bool             // an earlier attempt lost its worker: use a separate worker
	// Called is called for every finished model call of the run, by any goroutine, before the Save with its result. It does not block. nil:
	// model calls are not counted.
	Called func(ModelCall)
	// Noted is called for rows that the graph adds to the log of the thread, by any goroutine. They are written when the attempt ends, also when it is cancelled; those
	// of an attempt whose server dies are lost. It does not block. nil: there is no log.
	Noted func(Note)
	// Tracing receives the spans of the run; nil: none are reported.
	Tracing *Tracing
	Log     *slog.Logger // what happens in the run, with its IDs; nil: slog.Default
}

// ModeIDs is a stream mode for event streaming: {"id", "parent_id"?, "step", "source"} of each checkpoint that is saved while the run continues, before the values
// that it has. Clients of the v1 wire do not know it.
const ModeIDs = "checkpoint-ids"

// ModeChannels is a stream mode for event streaming: {"name", "payload"} of what a graph sends on channels of its own, in addition to `custom`. Clients of the v1 wire do not
// know it.
const ModeChannels = "custom-channels"

// Arguments are the arguments of a client's call, the same in the request, in the row of the run and in its invocation. The JSON is that of the row,
// where Input and Command have columns of their own.
type Arguments struct {
	// Input is the input as JSON. nil: none, resume from the checkpoint. (A client's JSON null is nil as well.)
	Input           json.RawMessage `json:"-"`
	Command         json.RawMessage `json:"-"`                          // {"resume"?, "update"?, "goto"?}; nil when there is none
	Modes           []string        `json:"stream_mode,omitempty"`      // as the API names them: values, updates, messages, messages-tuple, tasks, checkpoints, debug, custom, events; and tools, ModeIDs and ModeChannels
	Subgraphs       bool            `json:"subgraphs,omitempty"`        // emit events of nested namespaces too
	InterruptBefore json.RawMessage `json:"interrupt_before,omitempty"` // list of nodes, "*", or nil
	InterruptAfter  json.RawMessage `json:"interrupt_after,omitempty"`
	Durability      string          `json:"durability,omitempty"` // sync, async, exit
	Temporary       bool            `json:"temporary,omitempty"`  // no checkpoints: the thread is deleted after the run
}

// Config is the configuration for building and calling a graph.
type Config struct {
	Thread  id.Thread
	Config  json.RawMessage // RunnableConfig: tags, metadata, recursion_limit, configurable
	Context json.RawMessage // nil when none
	// Factory replaces Config for a graph that is created by a function of the configuration; nil: Config.
	Factory       json.RawMessage
	Saver         Saver // nil: nothing is saved
	Store         Store
	CheckpointMap json.RawMessage // of the start checkpoint, as the client sent it; or nil
	// URL is the address of the API of this server; "": there is none.
	URL string
	// Inside returns the credential by which code of the graph acts there as the user of the run; nil: no credentials are requested.
	Inside func() string
	// After is the head of the thread: new checkpoints get greater ids, independent of this machine's clock, and so become the head. "": no bound.
	After id.Checkpoint
}

// Elsewhere is implemented by graphs whose state is on another server. Their Update has already happened there: it is not checked against
// the head here, and not repeated.
type Elsewhere interface {
	Elsewhere()
}

// Event is an event of a running graph.
type Event struct {
	// Name is the event name of the v1 wire without namespace: values, updates, messages, messages/partial, messages/complete,
	// messages/metadata, tasks, checkpoints, debug, custom, events; or tools, which has no place there.
	Name string
	NS   string          // "" at the root; levels joined by "|"
	Data json.RawMessage // compact JSON, encoded once
	// Hold, when not nil, is closed when the event, and all later ones, may be shown: the checkpoint of a root `values`, or the
	// one before root `updates` which may condense, is committed, or the run ended without one.
	Hold <-chan struct{}
	// Lost reports, once Hold is closed, that the checkpoint could not be saved and the event must not be shown. nil: it cannot be
	// lost.
	Lost func() bool
	// Checkpoint is that of a root `values`. For root `updates` that may condense it is the last one saved when the graph emitted them,
	// before their step or right after it. "" when there is none, or it is unknown.
	Checkpoint id.Checkpoint
}

// Decode decodes the data of the event.
func (e Event) Decode(into any) error { return json.Unmarshal(e.Data, into) }

// Saver stores the checkpoints of one invocation, such as a checkpointer.Memory or a data folder (storage/sqlite). A program may bring its own. Calls may
// run concurrently.
type Saver interface {
	// Load returns a checkpoint with its values and writes, the newest of its namespace if k.ID is "", or nil if there is none.
	Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error)
	// List returns checkpoints, newest first, each with its values and writes.
	List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error)
	// Save stores all or none of the saves, in order, and returns after the commit. The error is ErrFenced when the run was
	// cancelled, deleted, or claimed by another server.
	Save(ctx context.Context, saves ...Save) error
}

// Save is one save of a graph: a checkpoint, or writes of tasks on one.
type Save = checkpointer.Save

// ErrFenced: the writer no longer owns the run.
var ErrFenced = errors.New("the run no longer belongs to this worker")

// Store is the long-term memory for graphs in workers: it takes a batch of LangGraph store operations and returns their
// results.
type Store interface {
	Batch(ctx context.Context, ops []StoreOp) ([]StoreResult, error)
}

// StoreOp is one operation: exactly one field is set.
type StoreOp struct {
	Get    *StoreGet
	Put    *StorePut
	Search *StoreSearch
	List   *StoreList
}

type (
	// StoreGet reads one item.
	StoreGet struct {
		Namespace []string
		Key       string
		Refresh   *bool // postpone its expiry; nil: as configured
	}
	// StorePut writes an item, or deletes it when Value is nil.
	StorePut struct {
		Namespace []string
		Key       string
		Value     json.RawMessage
		TTL       float64         // minutes; 0: as configured; negative: does not expire
		Index     json.RawMessage // what is embedded: nil the configured fields, false nothing, or a list of paths
	}
	// StoreSearch finds the items below a namespace.
	StoreSearch struct {
		Prefix  []string
		Filter  json.RawMessage // {"field": value | {"$gt": …}}; nil all
		Query   string          // semantic search; "": none, and ignored without an index
		Limit   int
		Offset  int
		Refresh *bool
	}
	// StoreList lists namespaces.
	StoreList struct {
		Prefix, Suffix []string // "*" matches any label
		MaxDepth       int      // 0: no limit
		Limit, Offset  int
	}
	// StoreItem is one item.
	StoreItem struct {
		Namespace []string
		Key       string
		Value     json.RawMessage // object
		CreatedAt time.Time
		UpdatedAt time.Time
		TTL       time.Duration // 0: does not expire; but see Put of package store
		ExpiresAt time.Time     // zero: never
		// Index is what of the item is embedded: nil the configured fields, false nothing, or a list of paths.
		Index json.RawMessage
		// Score is the cosine of the query and the item's best text, for results of a semantic search.
		Score *float64
		// Embedding is written with an item, and not read with it.
		Embedding *StoreEmbedding
	}
	// StoreEmbedding is what semantic search compares of an item.
	StoreEmbedding struct {
		Configuration string      // that they follow; package store makes it
		Model         string      // of the vectors: others are not comparable
		Vectors       [][]float32 // of length one, one for each text
	}
	// StoreResult is the result of one operation. Item is nil when there is none.
	StoreResult struct {
		Item       *StoreItem
		Items      []*StoreItem
		Namespaces [][]string
	}
)

// StateUpdate is one update of a superstep.
type StateUpdate struct {
	Values json.RawMessage // object, list of objects, or nil
	AsNode string          // "": inferred by LangGraph
	TaskID string
	// Command, when not nil, replaces Values: {"update"?, "resume"?, "goto"?}.
	Command json.RawMessage
}

// Nodes is the description "nodes" of a graph.
type Nodes struct {
	Nodes []NodePlace `json:"nodes"`
}

// NodePlace is where the code of a node is. What is not known is empty.
type NodePlace struct {
	ID       string `json:"id"`       // as in the drawing, those of subgraphs too
	Function string `json:"function"` // with its module or package
	File     string `json:"file"`     // below the folder of the project in Python, below the module in Go; "" elsewhere
	Line     int    `json:"line"`     // 1, 2, 3…
}

// DescribeWhat selects a part of a graph's description.
type DescribeWhat struct {
	// Kind: "graph" (drawing: {nodes, edges}), "schemas" ({input_schema, output_schema, state_schema, config_schema, context_schema}),
	// "subgraphs" ({namespace: schemas}), "nodes" ({nodes}: where the code of each node is, as graph.Nodes).
	Kind      string
	XRay      int    // for "graph": levels of subgraphs to open; -1 all
	Namespace string // for "subgraphs": only this one; "" all
	Recurse   bool   // for "subgraphs"
}
