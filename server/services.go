package server

import (
	"context"
	"encoding/json"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/finding"
	"understudy/internal/fleet"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/spans"
	"understudy/run/usage"
	"understudy/run/webhook"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
)

// Assistants is the service of the routes under /assistants.
type Assistants interface {
	Create(ctx context.Context, n assistant.New) (*assistant.Assistant, error)
	Get(ctx context.Context, a id.Assistant) (*assistant.Assistant, error)
	Update(ctx context.Context, a id.Assistant, p assistant.Patch) (*assistant.Assistant, error)
	Delete(ctx context.Context, a id.Assistant, withThreads bool) error
	// Search returns a page, and whether there are more results.
	Search(ctx context.Context, q assistant.Query) (page []*assistant.Assistant, more bool, err error)
	Count(ctx context.Context, q assistant.Query) (int, error)
	Versions(ctx context.Context, a id.Assistant, metadata json.RawMessage, limit, offset int) ([]*assistant.Assistant, error)
	SetLatest(ctx context.Context, a id.Assistant, version int) (*assistant.Assistant, error)
	// Drawing also takes the name of a graph. xray: levels of subgraphs to expand, -1 all.
	Drawing(ctx context.Context, idOrGraph string, xray int) (json.RawMessage, error)
	// Graphs returns the IDs of the graphs that this server has, sorted.
	Graphs() []string
	// Nodes returns where the code of the nodes is: {nodes}, each with id, function, file and line.
	Nodes(ctx context.Context, a id.Assistant) (json.RawMessage, error)
	// Schemas returns {graph_id, input_schema, …}; Subgraphs {namespace: schemas}.
	Schemas(ctx context.Context, a id.Assistant) (json.RawMessage, error)
	Subgraphs(ctx context.Context, a id.Assistant, namespace string, recurse bool) (json.RawMessage, error)
}

// Threads is the service of the routes under /threads, except runs.
type Threads interface {
	Create(ctx context.Context, n thread.New) (*thread.View, error)
	Get(ctx context.Context, t id.Thread) (*thread.View, error)
	Patch(ctx context.Context, t id.Thread, p thread.Patch) (*thread.View, error)
	Delete(ctx context.Context, t id.Thread) error
	// Search returns threads without their values. Show adds the parts that q requests.
	Search(ctx context.Context, q thread.Search) (page []*thread.View, more bool, err error)
	Show(ctx context.Context, q thread.Search, v *thread.View) error
	Count(ctx context.Context, q thread.Search) (int, error)
	Copy(ctx context.Context, t id.Thread) (*thread.View, error)
	// ForkAt makes a thread that begins with the conversation of another one up to an event.
	ForkAt(ctx context.Context, from id.Thread, at thread.Fork) (*thread.View, error)
	// Usage returns the size of a thread's checkpoints in the database.
	Usage(ctx context.Context, t id.Thread) (thread.Usage, error)
	// Tree returns the newest root checkpoints of a thread before one ("": of all), newest first and without values.
	Tree(ctx context.Context, t id.Thread, before id.Checkpoint, limit int) ([]thread.Step, error)
	// Prune deletes threads, or all but their newest checkpoints, if they meet where; nil: all do.
	Prune(ctx context.Context, ids []id.Thread, strategy thread.Strategy, where *thread.Condition) (thread.Pruned, error)
	// State returns the live head of at.NS if at.ID is empty, else the snapshot of that checkpoint.
	State(ctx context.Context, at checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error)
	// ReadHistory returns the entries of a history. The caller closes them.
	ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error)
	// UpdateState returns the new checkpoint.
	UpdateState(ctx context.Context, at thread.Place, steps [][]graph.StateUpdate) (thread.Place, error)
}

// Events is the service of the routes for messages and events.
type Events interface {
	// Messages returns a page of the transcript of the thread's head, Events one of its log. With q.Run set, only rows of
	// that run. The error for an unknown thread or run is fault.NotFound.
	Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
	Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
}

// Changes is the service of the route that reports which threads and runs change.
type Changes interface {
	// Follow follows what changes from now on. The caller closes the follower.
	Follow(ctx context.Context) (*changes.Follower, error)
}

// Search is the service of the route that searches messages.
type Search interface {
	// Search returns results, newest first, and the place behind which the next page begins; the zero Place: there is none. A page may be short.
	Search(ctx context.Context, q search.Query, limit int) (page []search.Result, next search.Place, err error)
}

// ReadModels is the service of the routes that read the read models of the log.
type ReadModels interface {
	// Branches returns the lineage of a thread, and its forks above one in order of ID.
	Branches(ctx context.Context, t, after id.Thread, limit int) (*readmodel.Lineage, error)
	Message(ctx context.Context, t id.Thread, message string) (*readmodel.Message, error)
	// Recent returns rows of a model of all threads before a place, newest first, and where the next page begins; the zero Place: there is none. A page may be short.
	Recent(ctx context.Context, model string, before readmodel.Place, limit int) (page []readmodel.Row, next readmodel.Place, err error)
}

// Fleet is the service of the routes that show the servers of the database and their logs.
type Fleet interface {
	// Servers returns the servers that report themselves, the one that answers first.
	Servers(ctx context.Context) ([]fleet.Server, error)
	// Logs returns the last lines of the logs of all servers, oldest first.
	Logs(ctx context.Context, q fleet.LogQuery) ([]fleet.Logged, error)
	// Follow follows lines that are written from now on, and returns the last ones before.
	Follow(ctx context.Context, q fleet.LogQuery) (*fleet.Follower, []fleet.Logged, error)
}

// Doctor is the service of the route that checks this server.
type Doctor interface {
	// Examine checks the configuration, the surroundings and the graphs, while the server serves. It may take seconds.
	Examine(ctx context.Context) ([]finding.Finding, error)
}

// Usage is the service of the route that reports what runs used.
type Usage interface {
	Report(ctx context.Context, q usage.Query) (*usage.Report, error)
}

// Runs is the service of the routes for runs. An empty thread means stateless.
type Runs interface {
	// Create creates a background run.
	Create(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error)
	// CreateBatch creates stateless runs, all or none.
	CreateBatch(ctx context.Context, reqs []run.Request) ([]*run.Run, error)
	// Begin creates a run and follows it from its first record. Call Follower.EnsureDurable before the client learns of the run other than by its
	// result. The caller closes the follower.
	Begin(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error)
	// BeginWait is Begin for a client that only wants the result, which is available even while streams are interrupted.
	BeginWait(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error)
	Get(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error)
	List(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error)
	// Completions returns what is known of runs that are over, by run, in one read. Of one that is not, or of which nothing was kept, there is none.
	Completions(ctx context.Context, runs ...*run.Run) (map[id.Run]*run.Completion, error)
	// Progress returns what a run that is not over has used so far.
	Progress(ctx context.Context, r *run.Run) (*run.Completion, error)
	// Recent returns runs of all threads, newest first and without arguments, and where the next page begins; "": there is none. A page may be short.
	Recent(ctx context.Context, q run.Recent) (page []*run.Run, next id.Run, err error)
	// Spans returns a run of any thread with its spans in the order of their begins. fault.NotFound when there is none.
	Spans(ctx context.Context, r id.Run) (*run.Run, []spans.Span, error)
	// Newest calls fn with the newest runs of threads that a search has found, newest first and without arguments.
	Newest(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error
	Delete(ctx context.Context, t id.Thread, r id.Run) error
	// Join follows a run to its end for its result. For a finished run the result is available at once: the thread's
	// current state. The error for an unknown run is fault.NotFound.
	Join(ctx context.Context, t id.Thread, r id.Run) (run.Follower, error)
	// JoinStream follows the records of a run. With after nil, only new ones. Empty modes: all. With cancelOnLeave, the run is
	// cancelled if the reader leaves before its end.
	JoinStream(ctx context.Context, t id.Thread, r id.Run, after *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error)
	// StreamThread follows all runs of a thread and does not end by itself. Modes: run_modes, lifecycle, state_update.
	StreamThread(ctx context.Context, t id.Thread, after *bridge.Offset, modes []string) (run.Follower, error)
	// StreamEvents follows all runs of a thread as events of event streaming and does not end by itself.
	StreamEvents(ctx context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error)
	// FollowEvents is StreamEvents for several filters, for a connection that frames events itself.
	FollowEvents(ctx context.Context, t id.Thread, filters ...protocol.Filter) (protocol.Follower, error)
	// StartOrResume creates a background run. On a thread that waits at interrupts its input answers them.
	StartOrResume(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error)
	// Respond creates the run that resumes a thread with answers to its interrupts. Errors: run.ErrNotInterrupted, *run.UnknownInterrupt.
	Respond(ctx context.Context, t id.Thread, req run.Request, responses []run.Response) (*run.Run, error)
	// Fork creates a run from req.CheckpointID for the assistant of the thread. Errors: run.ErrNoRun, *run.UnknownCheckpoint.
	Fork(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error)
	// Inject creates a run whose input is a message, behind the current one, by default for the assistant of the thread. check refuses assistants. Errors:
	// run.ErrNoRun, run.ErrAsks.
	Inject(ctx context.Context, t id.Thread, req run.Request, check func(id.Assistant) error) (*run.Run, error)
	// Seen returns the seq up to which the events of a thread are of runs that have ended; 0: none has.
	Seen(ctx context.Context, t id.Thread) (int64, error)
	// SetPush changes the push notifications of a run: change returns the new ones, knows whether the run is over, and may be called again.
	SetPush(ctx context.Context, t id.Thread, r id.Run, change func(list []webhook.Push, over bool) ([]webhook.Push, error)) error
	// Cancel cancels the named runs of a thread; with wait it returns after they have stopped.
	Cancel(ctx context.Context, t id.Thread, runs []id.Run, action run.Action, wait bool) error
	// CancelAll cancels the runs of all threads that have the status: pending, running or all.
	CancelAll(ctx context.Context, status string, action run.Action) error
	// CountActive counts the runs of all threads that CancelSome would cancel. It looks at run.MaxActive of each status at most.
	CountActive(ctx context.Context, of run.Active) (run.ActiveCount, error)
	// CancelSome cancels the selected runs of the next threads above one. It returns how many, and the last of these threads; "": there were none.
	CancelSome(ctx context.Context, of run.Active, above id.Thread, action run.Action) (cancelled int, last id.Thread, err error)
	// Queue returns the state of the queue of all servers. Load returns how many runs this server may execute and executes
	// now.
	Queue(ctx context.Context) (run.Queue, error)
	Load() (most, used int)
}

// Crons is the service of the routes under /runs/crons.
type Crons interface {
	Create(ctx context.Context, n run.NewCron) (*run.Cron, error)
	Get(ctx context.Context, c id.Cron) (*run.Cron, error)
	Update(ctx context.Context, c id.Cron, p run.CronPatch) (*run.Cron, error)
	Delete(ctx context.Context, c id.Cron) error
	Search(ctx context.Context, q run.CronQuery) (page []*run.Cron, more bool, err error)
	Count(ctx context.Context, q run.CronQuery) (int, error)
}

// Items is the service of the routes under /store. It validates namespaces and keys.
type Items interface {
	Put(ctx context.Context, i store.Item) error
	Get(ctx context.Context, namespace []string, key string, refresh *bool) (*store.Item, error)
	Delete(ctx context.Context, namespace []string, key string) error
	Search(ctx context.Context, q store.Search, refresh *bool) ([]*store.Item, error)
	// Load loads the value of an item that a bounded search (store.Search.Bytes) returned without it; nil when it was
	// deleted.
	Load(ctx context.Context, i *store.Item) (*store.Item, error)
	Namespaces(ctx context.Context, q store.Namespaces) ([][]string, error)
}
