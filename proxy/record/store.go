package record

import (
	"context"

	"understudy/eventstore"
	"understudy/id"
	"understudy/thread"
)

// Store is the part of the storage that recording uses. Threads are rows with the upstream's `created_at` and the newest root checkpoint
// seen as their head. Reads see committed rows.
type Store interface {
	eventstore.Reader
	eventstore.Pager

	// Record runs fn in a transaction of its own. An error from fn rolls it back. It returns after the commit is durable. fn must not
	// block, and may be run again after a serialization failure.
	Record(ctx context.Context, fn func(Tx) error) error
	// Thread returns a thread; fault.NotFound when there is none.
	Thread(ctx context.Context, t id.Thread) (*thread.Thread, error)
	// Links returns the recorded ones of the checkpoints.
	Links(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (map[id.Checkpoint]Link, error)
	// OfVersion returns the newest recorded checkpoint with this version of the messages.
	OfVersion(ctx context.Context, t id.Thread, version string) (l Link, found bool, err error)
	// Before returns the nearest of a checkpoint and its ancestors that is not part of a run; "" when there is none.
	Before(ctx context.Context, t id.Thread, c id.Checkpoint, r id.Run) (id.Checkpoint, error)
}

// Tx is a transaction. Missing rows are nil, without an error, unless stated otherwise.
type Tx interface {
	eventstore.Tx

	Thread(t id.Thread) (*thread.Thread, error) // fault.NotFound when there is none
	InsertThread(t *thread.Thread) error
	UpdateThread(t *thread.Thread) error
	// DeleteThread deletes a thread with all its recordings.
	DeleteThread(t id.Thread) error

	// Link returns a recorded checkpoint.
	Link(t id.Thread, c id.Checkpoint) (*Link, error)
	// PutLink stores that a checkpoint is recorded. It is idempotent. Run and Version are those of the transcript.
	PutLink(t id.Thread, l Link) error
	// Sibling returns what was recorded for the newest child of a checkpoint with this version of the messages.
	Sibling(t id.Thread, parent id.Checkpoint, version string) (*eventstore.Row, error)
	// NoteDeleted stores condensed messages that a client deleted; after is the checkpoint that the client knew.
	NoteDeleted(t id.Thread, after id.Checkpoint, ids []string) error
	// TakeDeleted returns and removes what was stored for checkpoints older than before.
	TakeDeleted(t id.Thread, before id.Checkpoint) (ids []string, err error)
}

// Link is a recorded checkpoint in the tree of its thread.
type Link struct {
	ID, Parent id.Checkpoint
	Run        id.Run // "" for state updates
	Version    string // of its messages
	// Incomplete reports that the upstream no longer had an ancestor when the checkpoint was recorded.
	Incomplete bool
}
