package thread

import (
	"context"
	"time"

	"understudy/access/audit"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/idempotency"
	"understudy/internal/sweep"
)

// Store is the part of the storage that threads use. Reads see committed rows.
type Store interface {
	// Write runs fn in a transaction of its own. An error from fn rolls it back. It returns after the commit is durable.
	// fn must not block, and may be run again after a serialization failure.
	Write(ctx context.Context, fn func(Tx) error) error
	checkpointer.Reader

	// Thread returns a thread; fault.NotFound when there is none.
	Thread(ctx context.Context, t id.Thread) (*Thread, error)
	// Threads returns a page; ties are broken by id, so that pages are stable.
	Threads(ctx context.Context, q Query) ([]*Thread, error)
	CountThreads(ctx context.Context, q Query) (int, error)

	// Scan runs fn, which may read any number of rows, within the limit of concurrent searches: see package scan.
	Scan(ctx context.Context, hint string, fn func(context.Context) error) error

	// Expired returns expired threads (by Thread.ExpiresAt, or a later SetExpiry), longest expired first. It may return some too early: the
	// caller checks the row before acting.
	Expired(ctx context.Context, now time.Time, limit int) ([]id.Thread, error)
	// Remains returns threads removed by RemoveThread that have rows left, and remains of incomplete copies.
	Remains(ctx context.Context, limit int) ([]id.Thread, error)
	// ListThreads adds the lists in metadata of threads to the index of metadata that were written before lists were in it, or by a server from then, in small
	// transactions and while more returns true. It returns how many, and the errors of those that could not be.
	ListThreads(ctx context.Context, more func() bool) (int, error)

	// DueRuns returns the running runs of a thread, and the pending ones that wait for their turn: all but the delayed ones that are not due by now. Those that were
	// created without a delay are due whatever the clock of their server said.
	DueRuns(ctx context.Context, t id.Thread, now time.Time) ([]id.Run, error)
	// Usage returns the size of the checkpoints of a thread; zero for an unknown one.
	Usage(ctx context.Context, t id.Thread) (Usage, error)
	// Tree returns the newest root checkpoints of a thread before one, newest first.
	Tree(ctx context.Context, t id.Thread, before id.Checkpoint, limit int) ([]Step, error)
	// PlanPrune returns the plan to prune a thread: it deletes all checkpoints but the newest of each namespace and those needed to read it
	// (delta channels), newest first, size of them per step. It changes nothing. fault.NotFound when there is no thread.
	PlanPrune(ctx context.Context, t id.Thread, size int) (*PrunePlan, error)
	// CopyThread copies the checkpoints and events of a thread, as they are at its start, in small transactions. The copy is invisible until the last of
	// them, in which finish inserts its row. row is that of the original. A failed copy leaves remains. fault.NotFound when the thread does not exist,
	// or is deleted meanwhile. With at it has the events up to that of the fork, the checkpoint of its ForkPoint, whose errors it returns, and the
	// ancestors of that one. Bodies of events are shared.
	CopyThread(ctx context.Context, from, to id.Thread, at *Fork, finish func(tx Tx, row *Thread) error) error
	sweep.Turns
}

// Expecting is an optional ability of a Tx. It does not change results.
type Expecting interface {
	// ExpectUpdate reads ahead what committing a state update needs. Call it before any other read of the thread.
	ExpectUpdate(t id.Thread)
}

// Tx is a transaction. Missing rows are fault.NotFound.
type Tx interface {
	checkpointer.Tx
	eventstore.Tx
	idempotency.Tx

	Thread(t id.Thread) (*Thread, error)
	InsertThread(t *Thread) error // fault.Conflict when the id exists
	UpdateThread(t *Thread) error // the whole row, by id
	// LastSeq returns the seq of the last event of a thread; 0 when it has none.
	LastSeq(t id.Thread) (eventstore.Seq, error)
	// DeleteThread deletes a thread with its runs, checkpoints, events, records and crons. Of a large thread it leaves remains, as RemoveThread
	// does.
	DeleteThread(t id.Thread) error
	// Find returns the id of a key's checkpoint, the newest of the namespace when the key has no id; "" when there is none.
	Find(k checkpointer.Key) (id.Checkpoint, error)
	// AppendAudit adds entries to the audit log.
	AppendAudit(entries ...audit.Entry) error
	// HasActiveRuns reports whether a run of the thread is pending or running.
	HasActiveRuns(t id.Thread) (bool, error)
	// PruneStep executes a step of a plan. The previous steps have been executed, and the thread's checkpoints are otherwise unchanged since the plan
	// was made. The remaining checkpoints can be read as before.
	PruneStep(t id.Thread, s *PruneStep) error
	// SetExpiry sets when Expired returns the thread; the zero time: not before its row is written with another UpdatedAt or TTL.
	SetExpiry(t id.Thread, at time.Time) error
	// RemoveThread hides a thread from all readers, and allows inserting one with the same id. Rows that may be many are left to DeleteRemains.
	RemoveThread(t id.Thread) error
	// DeleteRemains deletes at most limit rows left by RemoveThread (<= 0: all). more reports that there are others.
	DeleteRemains(t id.Thread, limit int) (more bool, err error)
}

// PrunePlan is the list of deletions that prune a thread.
type PrunePlan struct {
	// Thread is the row of the thread when the plan was made.
	Thread *Thread
	Steps  []PruneStep
}

// PruneStep is the deletions of one transaction. The thread can be read before and after it.
type PruneStep struct {
	Checkpoints []checkpointer.Key
	Orphans     []checkpointer.Key // checkpoints whose parent is deleted
	Values      []PruneValue       // used by no other checkpoint
	Parts       []PruneParts       // used by no other list
}

// PruneValue identifies the value of a channel at a version.
type PruneValue struct{ NS, Channel, Version string }

// PruneParts is a range of parts of lists.
type PruneParts struct{ First, Count uint32 }
