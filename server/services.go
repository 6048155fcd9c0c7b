package server

import (
	"context"
	"encoding/json"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
	"understudy/store"
	"understudy/thread"
)

// Assistants is what the routes under /assistants ask for.
type Assistants interface {
	Create(ctx context.Context, n assistant.New) (*assistant.Assistant, error)
	Get(ctx context.Context, a id.Assistant) (*assistant.Assistant, error)
	Update(ctx context.Context, a id.Assistant, p assistant.Patch) (*assistant.Assistant, error)
	Delete(ctx context.Context, a id.Assistant, withThreads bool) error
	// Search returns a page, and whether there is more behind it.
	Search(ctx context.Context, q assistant.Query) (page []*assistant.Assistant, more bool, err error)
	Count(ctx context.Context, q assistant.Query) (int, error)
	Versions(ctx context.Context, a id.Assistant, metadata json.RawMessage, limit, offset int) ([]*assistant.Assistant, error)
	SetLatest(ctx context.Context, a id.Assistant, version int) (*assistant.Assistant, error)
	// Drawing also takes the name of a graph. xray: levels to open, -1 all.
	Drawing(ctx context.Context, idOrGraph string, xray int) (json.RawMessage, error)
	// Schemas returns {graph_id, input_schema, …}; Subgraphs {namespace: schemas}.
	Schemas(ctx context.Context, a id.Assistant) (json.RawMessage, error)
	Subgraphs(ctx context.Context, a id.Assistant, namespace string, recurse bool) (json.RawMessage, error)
}

// Threads is what the routes under /threads ask for, runs apart.
type Threads interface {
	Create(ctx context.Context, n thread.New) (*thread.View, error)
	Get(ctx context.Context, t id.Thread) (*thread.View, error)
	Patch(ctx context.Context, t id.Thread, p thread.Patch) (*thread.View, error)
	Delete(ctx context.Context, t id.Thread) error
	// Search returns threads without their values. Show completes each as q asks.
	Search(ctx context.Context, q thread.Search) (page []*thread.View, more bool, err error)
	Show(ctx context.Context, q thread.Search, v *thread.View) error
	Count(ctx context.Context, q thread.Search) (int, error)
	Copy(ctx context.Context, t id.Thread) (*thread.View, error)
	// Usage returns how much the checkpoints of a thread take in the database.
	Usage(ctx context.Context, t id.Thread) (thread.Usage, error)
	// Prune deletes threads, or all but their newest checkpoints; how many it could.
	Prune(ctx context.Context, ids []id.Thread, strategy thread.Strategy) (int, error)
	// State: with an empty at.ID the live head of at.NS, else the record of that checkpoint.
	State(ctx context.Context, at checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error)
	// ReadHistory: close what it returns.
	ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error)
	// UpdateState returns the new checkpoint.
	UpdateState(ctx context.Context, at thread.Place, steps [][]thread.StateUpdate) (thread.Place, error)
}

// Events is what the routes for messages and events ask for.
type Events interface {
	// Messages returns a page of the transcript of the thread's head, Events one of its log. Of q.Run alone, if it is set.
	// An unknown thread or run: fault.NotFound.
	Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
	Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
}

// Runs is what the routes for runs ask for. An empty thread means stateless.
type Runs interface {
	// Create makes a run that goes on by itself.
	Create(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error)
	// CreateBatch makes stateless runs, all or none.
	CreateBatch(ctx context.Context, reqs []run.Request) ([]*run.Run, error)
	// Begin makes a run and follows it from its first record. Before a client is told of the run, other than by its result, Follower.Settle must
	// have succeeded. Close the follower.
	Begin(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error)
	// BeginWait is Begin for a client who wants the result alone, which it can have while streams are interrupted too.
	BeginWait(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error)
	Get(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error)
	List(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error)
	Delete(ctx context.Context, t id.Thread, r id.Run) error
	// Join follows a run to its end for its result. A run that is over answers at once with its thread as it is now.
	// An unknown run: fault.NotFound.
	Join(ctx context.Context, t id.Thread, r id.Run) (run.Follower, error)
	// JoinStream follows the records of a run: after nil, only what comes from now on. modes empty: all. cancelOnLeave: the run is
	// cancelled when the reader leaves before its end.
	JoinStream(ctx context.Context, t id.Thread, r id.Run, after *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error)
	// StreamThread follows all runs of a thread and never ends by itself. Modes: run_modes, lifecycle, state_update.
	StreamThread(ctx context.Context, t id.Thread, after *bridge.Offset, modes []string) (run.Follower, error)
	// Cancel cancels the named runs of a thread; with wait it returns after they have stopped.
	Cancel(ctx context.Context, t id.Thread, runs []id.Run, action run.Action, wait bool) error
	// CancelAll cancels the runs of all threads that have the status: pending, running or all.
	CancelAll(ctx context.Context, status string, action run.Action) error
	// Queue tells how the queue of all instances stands, Load how many runs this one executes, at most and now.
	Queue(ctx context.Context) (run.Queue, error)
	Load() (most, used int)
}

// Crons is what the routes under /runs/crons ask for.
type Crons interface {
	CreateCron(ctx context.Context, n run.NewCron) (*run.Cron, error)
	GetCron(ctx context.Context, c id.Cron) (*run.Cron, error)
	UpdateCron(ctx context.Context, c id.Cron, p run.CronPatch) (*run.Cron, error)
	DeleteCron(ctx context.Context, c id.Cron) error
	SearchCrons(ctx context.Context, q run.CronQuery) (page []*run.Cron, more bool, err error)
	CountCrons(ctx context.Context, q run.CronQuery) (int, error)
}

// Items is what the routes under /store ask for. Namespaces and keys are checked there.
type Items interface {
	Put(ctx context.Context, i store.Item) error
	Get(ctx context.Context, namespace []string, key string, refresh *bool) (*store.Item, error)
	Delete(ctx context.Context, namespace []string, key string) error
	Search(ctx context.Context, q store.Search, refresh *bool) ([]*store.Item, error)
	// Load loads an item that a search with a bound (store.Search.Bytes) found without its value; nil when it is gone.
	Load(ctx context.Context, i *store.Item) (*store.Item, error)
	Namespaces(ctx context.Context, q store.Namespaces) ([][]string, error)
}
