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

// Step is a checkpoint with its writes. Blobs are all of its versions, or only those that no
// earlier step had.
type Step struct {
	checkpointer.Put
	Writes []checkpointer.Write
}

// Size is about how many bytes a step has.
func (s *Step) Size() int {
	n := len(s.Data) + len(s.Metadata)
	for i := range s.Blobs {
		n += s.Blobs[i].Size()
	}
	for i := range s.Writes {
		n += len(s.Writes[i].Data)
	}
	return n
}

// Thread is a thread of a source.
type Thread struct {
	// Key is its name in the source, which may be any text.
	Key string
	// Row is its row in the source; nil when there is none: it is then derived from the
	// checkpoints. Its id is ignored.
	Row *thread.Thread
	// Checkpoints is their number, as far as known before reading.
	Checkpoints int
	// SameID: the thread keeps its key as its id, although it may be no UUID.
	SameID bool
}

// History is the checkpoints of one thread.
type History interface {
	// Links returns all checkpoints, by namespace and id.
	Links() []Link
	// Read calls fn with the named checkpoints, in that order. Steps are valid during the call.
	Read(ctx context.Context, links []Link, fn func(*Step) error) error
	Close() error
}

// RunDeriver is a Source whose checkpoints do not name their run. It puts the run_id into their metadata where it knows it, which may be more the next
// time, so that digests leave it out.
type RunDeriver interface {
	Source
	DerivesRuns()
}

// Source is where conversations come from. It is not safe for concurrent use. Reads see one state
// of the source, if it supports that.
type Source interface {
	// Name describes the source for messages, without secrets.
	Name() string
	// CountThreads returns the number of threads.
	CountThreads(ctx context.Context) (int, error)
	Threads(ctx context.Context) iter.Seq2[*Thread, error]
	History(ctx context.Context, t *Thread) (History, error)
	// Items returns store items that have not expired.
	Items(ctx context.Context) iter.Seq2[*store.Item, error]
	// Notes list data of the source that is left out or changed. They are complete when everything
	// was read.
	Notes() []string
	Close() error
}

// AssistantSource is a Source that has assistants: each with all its versions, lowest first; the
// first of the pair is the current one.
type AssistantSource interface {
	Assistants(ctx context.Context) iter.Seq2[Assistant, error]
}

// Assistant is an assistant with its versions, lowest first.
type Assistant struct {
	Current  *assistant.Assistant
	Versions []*assistant.Assistant
}

// LogSource is a Source that recorded events of its threads. Such logs are copied unchanged.
type LogSource interface {
	Log(ctx context.Context, t *Thread) (*Log, error)
}

// Log is everything recorded for a thread.
type Log struct {
	// Events are in order of their seqs, and loaded as they are consumed. They may be iterated again.
	Events iter.Seq2[*eventstore.Event, error]
	Rows   []*eventstore.Row
	Nodes  []*eventstore.Node
	// Lineages are those of the thread and of its ancestors, the oldest first: where they were forked.
	Lineages []eventstore.Lineage
}

// CountedSource is a Source that detects only while it is read whether a thread changed since it
// was moved.
type CountedSource interface {
	// Newest returns the newest root checkpoint of a thread; "" when there is none.
	Newest(ctx context.Context, t *Thread) (id.Checkpoint, error)
}

// Target is this server's own storage.
type Target interface {
	thread.Store
	eventstore.Archive
	// Links returns all checkpoints of a thread, by namespace and id.
	Links(ctx context.Context, t id.Thread) ([]Link, error)
	// Checkpoints returns the existing ones of the named checkpoints of a thread, in that order,
	// with their values and writes. What those after the first add is within bytes: from the first
	// on that does not fit, they are Left.
	Checkpoints(ctx context.Context, t id.Thread, named []Link, bytes int) ([]*checkpointer.Tuple, error)
	// Log returns everything recorded for a thread up to now.
	Log(ctx context.Context, t id.Thread) (*Log, error)
	// PutLog stores a log, unless the thread has one. Contents that a thread which it is a fork of, or a fork of it, has here are shared with that.
	PutLog(ctx context.Context, t id.Thread, l *Log) error
	// ThreadsAfter returns up to limit threads whose ids are above after, in the order of ids, and
	// ends with the one with which they have more than bytes. Threads may be added or deleted
	// meanwhile.
	ThreadsAfter(ctx context.Context, after id.Thread, limit, bytes int) ([]*thread.Thread, error)
	// ItemsAfter returns up to limit store items that have not expired, after the given one in the
	// order of namespaces and keys, and ends with the one with which they have more than bytes.
	ItemsAfter(ctx context.Context, namespace []string, key string, limit, bytes int) ([]*store.Item, error)
}

// Sink is a database of LangGraph's tables.
type Sink interface {
	Source
	// Prepare creates missing tables.
	Prepare(ctx context.Context) error
	// Put stores checkpoints of a thread in one transaction. Their Blobs are all of their versions.
	// Existing rows stay.
	Put(ctx context.Context, thread string, steps []*Step) error
	// PutItems stores items in one transaction; existing ones are replaced.
	PutItems(ctx context.Context, items []*store.Item) error
	// Item returns a store item; nil when there is none.
	Item(ctx context.Context, namespace []string, key string) (*store.Item, error)
}

// Result is the result of a transfer.
type Result struct {
	Threads     Count
	Checkpoints Count
	Writes      Count
	Assistants  Count
	Items       Count
	// Users, Runs, Feedback and Memories are those of a DeerFlow installation.
	Users    Count
	Runs     Count
	Feedback Count
	Memories Count
	// Unread is the number of a server's threads that had nothing new since they were moved, and
	// were not compared again.
	Unread int
	// Problems lists differences between target and source, by thread. Empty: everything was read
	// back and is equal.
	Problems []Problem
	// Notes list what was left out or changed on purpose.
	Notes []string
	// Digest covers everything that was compared, in the order of the source. "": nothing was.
	Digest string
}

// Count counts new and already known items separately.
type Count struct{ New, Known int }

// Problem is a thread, assistant or item that differs from its source.
type Problem struct {
	What string // such as "thread 1234"
	Err  error
}

func (p Problem) String() string { return p.What + ": " + p.Err.Error() }

// Progress receives the progress of a transfer. Its methods are called from one goroutine.
type Progress interface {
	// Begin starts a part of the work: "threads", "items"…; total is its number of steps, -1 when
	// unknown.
	Begin(what string, total int)
	// Step reports one more completed step. detail may be "".
	Step(detail string)
	End()
}

type silent struct{}

func (silent) Begin(string, int) {}
func (silent) Step(string)       {}
func (silent) End()              {}

var emptyObject = json.RawMessage("{}")
