package transfer

import (
	"context"
	"encoding/json"
	"iter"

	"understudy/assistant"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/store"
	"understudy/thread"
)

// Link is a checkpoint in the tree of its thread.
type Link struct {
	NS     string
	ID     id.Checkpoint
	Parent id.Checkpoint // "": the first
}

// Step is a checkpoint with the writes on it. Blobs may be all that its versions name, or those alone that no step before it had.
type Step struct {
	checkpointer.Put
	Writes []checkpointer.Write
}

// Thread is a thread of a source.
type Thread struct {
	// Key is its name there, which may be any text.
	Key string
	// Row is its row there; nil when the source has none: one is made of the checkpoints. Its id is not looked at.
	Row *thread.Thread
	// Checkpoints is how many it has, as far as is known before it is read.
	Checkpoints int
}

// History is the checkpoints of one thread.
type History interface {
	// Links returns all checkpoints, by namespace and id.
	Links() []Link
	// Read calls fn with the checkpoints that are named, in that order. Steps are valid during the call.
	Read(ctx context.Context, links []Link, fn func(*Step) error) error
	Close() error
}

// Source is where conversations come from. It is not safe for concurrent use. Reads see one state of the source, if it supports that.
type Source interface {
	// Name says what it is, for messages; it holds no secrets.
	Name() string
	// CountThreads is how many there are.
	CountThreads(ctx context.Context) (int, error)
	Threads(ctx context.Context) iter.Seq2[*Thread, error]
	History(ctx context.Context, t *Thread) (History, error)
	// Items returns store items that have not expired.
	Items(ctx context.Context) iter.Seq2[*store.Item, error]
	// Notes say what the source has that is not taken, or not as it was. They are complete when everything was read.
	Notes() []string
	Close() error
}

// AssistantSource is a Source that has assistants: each with all its versions, lowest first; the first of the pair is the current one.
type AssistantSource interface {
	Assistants(ctx context.Context) iter.Seq2[Assistant, error]
}

// Assistant is an assistant with its versions, lowest first.
type Assistant struct {
	Current  *assistant.Assistant
	Versions []*assistant.Assistant
}

// LogSource is a Source that recorded what happened on its threads. Such logs are copied as they are.
type LogSource interface {
	Log(ctx context.Context, t *Thread) (*Log, error)
}

// Log is all that was recorded of a thread.
type Log struct {
	Events []*eventstore.Event
	Rows   []*eventstore.Row
	Nodes  []*eventstore.Node
}

// CountedSource is a Source that detects only while it is read whether a thread changed since it was moved.
type CountedSource interface {
	// Unchanged reports whether a thread that is here, with this newest root checkpoint, has nothing more there.
	Unchanged(ctx context.Context, t *Thread, head id.Checkpoint) (bool, error)
}

// Target is this server's own storage.
type Target interface {
	thread.Store
	eventstore.Archive
	// Links returns all checkpoints of a thread, by namespace and id.
	Links(ctx context.Context, t id.Thread) ([]Link, error)
	// Checkpoints returns those of the named checkpoints of a thread that are there, in that order, with what belongs to them.
	Checkpoints(ctx context.Context, t id.Thread, named []Link) ([]*checkpointer.Tuple, error)
	// Log returns all that was recorded of a thread.
	Log(ctx context.Context, t id.Thread) (*Log, error)
	// PutLog keeps a log, unless the thread has one.
	PutLog(ctx context.Context, t id.Thread, l *Log) error
	// ThreadsAfter returns threads whose ids are above one, in the order of ids, so many at most. Others may come and go meanwhile.
	ThreadsAfter(ctx context.Context, after id.Thread, limit int) ([]*thread.Thread, error)
	// ItemsAfter returns store items that have not expired, behind one in the order of namespaces and keys, so many at most.
	ItemsAfter(ctx context.Context, namespace []string, key string, limit int) ([]*store.Item, error)
}

// Sink is a database of LangGraph's tables.
type Sink interface {
	Source
	// Prepare makes the tables that are missing.
	Prepare(ctx context.Context) error
	// Put keeps checkpoints of a thread in one transaction. Their Blobs are all that their versions name. What is there already stays.
	Put(ctx context.Context, thread string, steps []*Step) error
	// PutItems keeps store items in one transaction; those that are there are replaced.
	PutItems(ctx context.Context, items []*store.Item) error
	// Item returns a store item; nil when there is none.
	Item(ctx context.Context, namespace []string, key string) (*store.Item, error)
}

// Result is what was moved.
type Result struct {
	Threads     Count
	Checkpoints Count
	Writes      Count
	Assistants  Count
	Items       Count
	// Unread threads of a server had nothing new there since they were moved, and were not compared again.
	Unread int
	// Problems are what is not in the target as it is in the source, by thread. Empty: everything was read back and is equal.
	Problems []Problem
	// Notes say what was left out or changed on purpose.
	Notes []string
	// Digest is over everything that was compared, in the order of the source.
	Digest string
}

// Count counts new and already known items separately.
type Count struct{ New, Known int }

// Problem is a thread, assistant or item that is not as it should be.
type Problem struct {
	What string // such as "thread 1234"
	Err  error
}

func (p Problem) String() string { return p.What + ": " + p.Err.Error() }

// Progress receives the progress of a transfer. Its methods are called from one goroutine.
type Progress interface {
	// Begin starts a part of the work: "threads", "items"…; total is its number of steps, -1 when unknown.
	Begin(what string, total int)
	// Step says that one more is done. detail may be "".
	Step(detail string)
	End()
}

type silent struct{}

func (silent) Begin(string, int) {}
func (silent) Step(string)       {}
func (silent) End()              {}

var emptyObject = json.RawMessage("{}")
