package gateway

import (
	"context"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/cron"
	"understudy/thread"
)

// Threads is the service of threads.
type Threads interface {
	Create(ctx context.Context, n thread.New) (*thread.View, error)
	Get(ctx context.Context, t id.Thread) (*thread.View, error)
	Patch(ctx context.Context, t id.Thread, p thread.Patch) (*thread.View, error)
	Delete(ctx context.Context, t id.Thread) error
	// Search returns threads without their values. Show adds the parts that q requests.
	Search(ctx context.Context, q thread.Search) (page []*thread.View, more bool, err error)
	Show(ctx context.Context, q thread.Search, v *thread.View) error
	// ForkAt makes a thread that begins with the conversation of another one up to an event.
	ForkAt(ctx context.Context, from id.Thread, at thread.Fork) (*thread.View, error)
	// State returns the live head of at.NS if at.ID is empty, else the snapshot of that checkpoint.
	State(ctx context.Context, at checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error)
	// ReadHistory returns the entries of a history. The caller closes them.
	ReadHistory(ctx context.Context, q thread.HistoryQuery) (thread.Entries, error)
	// UpdateState returns the new checkpoint.
	UpdateState(ctx context.Context, at thread.Place, steps [][]graph.StateUpdate) (thread.Place, error)
}

// Runs is the service of runs.
type Runs interface {
	// Create creates a background run.
	Create(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error)
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
	// Newest calls fn with the newest runs of threads that a search has found, newest first and without arguments.
	Newest(ctx context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error
	// JoinStream follows the records of a run. With after nil, only new ones. Empty modes: all. With cancelOnLeave, the run is
	// cancelled if the reader leaves before its end.
	JoinStream(ctx context.Context, t id.Thread, r id.Run, after *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error)
	// Cancel cancels the named runs of a thread; with wait it returns after they have stopped.
	Cancel(ctx context.Context, t id.Thread, runs []id.Run, action run.Action, wait bool) error
}

// Tasks is the service of scheduled tasks. Those of other accounts are fault.NotFound, and fault.Conflict is a task that is running.
type Tasks interface {
	CreateTask(ctx context.Context, n cron.NewTask) (*run.Cron, error)
	TaskOf(ctx context.Context, account, task string) (*run.Cron, error)
	// TasksOf returns the tasks of an account, newest first; with a thread, those alone that name it.
	TasksOf(ctx context.Context, account string, t id.Thread) ([]*run.Cron, error)
	UpdateTask(ctx context.Context, account, task string, p cron.TaskPatch) (*run.Cron, error)
	PauseTask(ctx context.Context, account, task string) (*run.Cron, error)
	ResumeTask(ctx context.Context, account, task string) (*run.Cron, error)
	DeleteTask(ctx context.Context, account, task string) error
	// TriggerTask makes a run of the task now. fault.Conflict: another one is in its way.
	TriggerTask(ctx context.Context, account, task string) error
	Occurrences(ctx context.Context, c *run.Cron, limit, offset int) ([]*run.Occurrence, error)
}

// Events is the service that reads conversations and event logs.
type Events interface {
	// Messages returns a page of the transcript of the thread's head, Events one of its log. With q.Run set, only rows of
	// that run. The error for an unknown thread or run is fault.NotFound.
	Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
	Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error)
}
