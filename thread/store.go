package thread

import (
	"context"
	"time"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/sweep"
)

// Store is what threads need of the storage. Reads see committed rows.
type Store interface {
	// Write runs fn in a transaction, alone. An error from fn undoes all it did. It returns after the commit is durable.
	// fn must not block, and may be run again after a serialization failure.
	Write(ctx context.Context, fn func(Tx) error) error
	checkpointer.Reader

	// Thread returns a thread; fault.NotFound when there is none.
	Thread(ctx context.Context, t id.Thread) (*Thread, error)
	// Threads returns a page; ties are broken by id, so that pages are stable.
	Threads(ctx context.Context, q Query) ([]*Thread, error)
	CountThreads(ctx context.Context, q Query) (int, error)

	// Scan runs fn, whose reads may be of any number of rows, as one search among few: see package scan.
	Scan(ctx context.Context, hint string, fn func(context.Context) error) error

	// Expired returns expired threads (by Thread.ExpiresAt, or a later SetExpiry), longest expired first. It may return some too early: the
	// caller checks the row before acting.
	Expired(ctx context.Context, now time.Time, limit int) ([]id.Thread, error)
	// Remains returns threads that RemoveThread has removed and that have rows left, and what copies that did not come to their end have left.
	Remains(ctx context.Context, limit int) ([]id.Thread, error)

	// Usage returns how much the checkpoints of a thread take; nothing of one that does not exist.
	Usage(ctx context.Context, t id.Thread) (Usage, error)
	// PlanPrune returns what pruning a thread deletes: its checkpoints but the newest of each namespace and those that its reading needs (delta
	// channels), newest first, size of them in a step. It changes nothing. fault.NotFound when there is no thread.
	PlanPrune(ctx context.Context, t id.Thread, size int) (*PrunePlan, error)
	// CopyThread copies the checkpoints and events of a thread, as they are when it begins, in small transactions. Nothing shows the copy before the last
	// of them, in which finish runs: it inserts the row of the copy. row is that of the original. A copy that fails leaves remains. fault.NotFound when there
	// is no such thread, or it is deleted meanwhile.
	CopyThread(ctx context.Context, from, to id.Thread, finish func(tx Tx, row *Thread) error) error
	sweep.Turns
}

// Expecting is an optional ability of a Tx. It changes nothing in what is answered.
type Expecting interface {
	// ExpectUpdate reads ahead what committing a state update asks. Call it before anything else about the thread.
	ExpectUpdate(t id.Thread)
}

// Tx is a transaction. Rows that are not there: fault.NotFound.
type Tx interface {
	checkpointer.Tx
	eventstore.Tx

	Thread(t id.Thread) (*Thread, error)
	InsertThread(t *Thread) error // fault.Conflict when the id exists
	UpdateThread(t *Thread) error // the whole row, by id
	// DeleteThread deletes a thread with its runs, checkpoints, events, records and crons. Of one that has many it leaves remains, as RemoveThread.
	DeleteThread(t id.Thread) error
	// Find returns the id of the checkpoint that a key names, the newest of the namespace when the key has no id; "" when there is none.
	Find(k checkpointer.Key) (id.Checkpoint, error)
	// HasActiveRuns reports whether a run of the thread is pending or running.
	HasActiveRuns(t id.Thread) (bool, error)
	// PruneStep takes a step of a plan. The steps before it have been taken, and but for them the thread's checkpoints are as they were when the plan was
	// made. Whatever is left can be read as before.
	PruneStep(t id.Thread, s *PruneStep) error
	// SetExpiry sets when Expired returns the thread; the zero time: not before its row is written with another UpdatedAt or TTL.
	SetExpiry(t id.Thread, at time.Time) error
	// RemoveThread is DeleteThread for all who look, and for who inserts a thread of the same id; what may be many rows is left to DeleteRemains.
	RemoveThread(t id.Thread) error
	// DeleteRemains deletes at most limit rows of what RemoveThread has left (<= 0: all). more says that there are others.
	DeleteRemains(t id.Thread, limit int) (more bool, err error)
}

// PrunePlan is what pruning a thread deletes.
type PrunePlan struct {
	// Thread is the row of the thread when the plan was made.
	Thread *Thread
	Steps  []PruneStep
}

// PruneStep is what one transaction deletes. The thread can be read before and after it.
type PruneStep struct {
	Checkpoints []checkpointer.Key
	Orphans     []checkpointer.Key // checkpoints whose parent goes
	Values      []PruneValue       // that no other checkpoint names
	Parts       []PruneParts       // that no other list is made of
}

// PruneValue names the value of a channel at a version.
type PruneValue struct{ NS, Channel, Version string }

// PruneParts are parts of lists that are numbered one after the other.
type PruneParts struct{ First, Count uint32 }
