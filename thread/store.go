package thread

import (
	"context"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
)

// Store is what threads need of the storage. Reads see committed rows.
type Store interface {
	// Write runs fn in a transaction, alone. An error from fn undoes all it did. It returns after the commit is durable.
	// fn must not block, and may be run again after a serialization failure.
	Write(ctx context.Context, fn func(Tx) error) error
	checkpointer.Reader

	// Thread gives a thread; fault.NotFound when there is none.
	Thread(ctx context.Context, t id.Thread) (*Thread, error)
	// Threads gives a page; ties are broken by id, so that pages are stable.
	Threads(ctx context.Context, q Query) ([]*Thread, error)
	CountThreads(ctx context.Context, q Query) (int, error)
}

// Tx is a transaction. Rows that are not there: fault.NotFound.
type Tx interface {
	checkpointer.Tx
	eventstore.Tx

	Thread(t id.Thread) (*Thread, error)
	InsertThread(t *Thread) error // fault.Conflict when the id exists
	UpdateThread(t *Thread) error // the whole row, by id
	// DeleteThread deletes a thread with its runs, checkpoints, events, records and crons.
	DeleteThread(t id.Thread) error
	// HasActiveRuns reports whether a run of the thread is pending or running.
	HasActiveRuns(t id.Thread) (bool, error)
	// PruneCheckpoints deletes all checkpoints of the thread but the newest of each namespace; the number deleted.
	PruneCheckpoints(t id.Thread) (int, error)
}
