package relational

import (
	"context"
	"slices"

	"understudy/access"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

// Where the context of a call narrows the threads that exist (access.Narrow), each read decides in its own snapshot, and each write in its own transaction,
// whether its thread does. Without access control nothing is read or compared.

// hidden is read in place of a thread that the context does not reach. No thread has this id.
const hidden = id.Thread("hidden")

var threadMetadata = same("SELECT metadata FROM threads WHERE thread_id = $1")

// fromThread is from for rows of one thread: fn reads t, or a thread that does not exist if the context does not reach it. read is a method of DB.
func fromThread[T any](ctx context.Context, s *base, t id.Thread, read func(context.Context, func(Querier) error) error, fn func(Querier, id.Thread) (T, error)) (T, error) {
	reach := access.Reach(ctx, access.Threads)
	if reach == nil {
		return from(ctx, read, func(q Querier) (T, error) { return fn(q, t) })
	}
	return from(ctx, s.db.Snapshot, func(q Querier) (v T, err error) {
		if t, err = reached(q, reach, t); err != nil {
			return v, err
		}
		return fn(q, t)
	})
}

// reached returns t if the filter selects it, else hidden.
func reached(q Querier, reach *access.Filter, t id.Thread) (id.Thread, error) {
	metadata, found, err := first(q, threadMetadata, bytesOf, t)
	if err != nil || found && reach.Match(metadata) {
		return t, err
	}
	return hidden, nil
}

// ThreadInReach is LoadThread of a thread that the context reaches.
func ThreadInReach(ctx context.Context, q Querier, t id.Thread) (*thread.Thread, error) {
	row, err := LoadThread(q, t)
	if err == nil && !access.Reach(ctx, access.Threads).Match(row.Metadata) {
		return nil, ErrNoThread
	}
	return row, err
}

// InReach returns t if the context reaches it, else the id of a thread that does not exist. q is a snapshot.
func InReach(ctx context.Context, q Querier, t id.Thread) (id.Thread, error) {
	if reach := access.Reach(ctx, access.Threads); reach != nil {
		return reached(q, reach, t)
	}
	return t, nil
}

// Reaches reports whether a thread exists for the transaction.
func (tx *Tx) Reaches(t id.Thread) (bool, error) {
	if tx.Reach.Threads == nil {
		return true, nil
	}
	_, err := tx.Writer.Thread(t)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// InReach reports whether a thread that is there exists for the transaction. One that it has inserted does.
func (tx *Tx) InReach(t *thread.Thread) bool {
	return tx.Reach.Threads == nil || slices.Contains(tx.inserted, t.ID) || tx.Reach.Threads.Match(t.Metadata)
}

// MustReach returns ErrNoRun for runs of a thread that does not exist for the transaction.
func (tx *Tx) MustReach(t id.Thread) error {
	ok, err := tx.Reaches(t)
	if err == nil && !ok {
		err = ErrNoRun
	}
	return err
}

// Reach is what exists for a transaction; nil filters: everything.
type Reach struct {
	Threads, Assistants, Crons *access.Filter
}

// ReachOf returns what exists in a context.
func ReachOf(ctx context.Context) Reach {
	return Reach{access.Reach(ctx, access.Threads), access.Reach(ctx, access.Assistants), access.Reach(ctx, access.Crons)}
}

// Anywhere calls fn while everything exists for the transaction: an id is taken, whatever actor has it.
func (tx *Tx) Anywhere(fn func() error) error {
	was := tx.Reach
	tx.Reach = Reach{}
	defer func() { tx.Reach = was }()
	return fn()
}
