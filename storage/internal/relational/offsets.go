package relational

import (
	"context"
	"fmt"
	"time"

	"understudy/eventstore"
	"understudy/id"
)

// offsetColumns are the columns of offsets without the follower and the thread.
const offsetColumns = "created_at, seq, position"

var (
	// Followed returns existing threads and those that were followed and may be gone.
	Followed = differing("(SELECT thread_id FROM threads WHERE thread_id > $1 ORDER BY thread_id LIMIT $3) UNION "+
		"(SELECT thread_id FROM log_offsets WHERE follower = $2 AND thread_id > $1 ORDER BY thread_id LIMIT $3) ORDER BY thread_id LIMIT $3",
		"SELECT thread_id FROM threads WHERE thread_id > $1 UNION "+
			"SELECT thread_id FROM log_offsets WHERE follower = $2 AND thread_id > $1 ORDER BY thread_id LIMIT $3")
	SelectOffset = same("SELECT " + offsetColumns + " FROM log_offsets WHERE follower = $1 AND thread_id = $2")
	putOffset    = same(upsert("log_offsets", "follower, thread_id", offsetColumns))
	deleteOffset = same("DELETE FROM log_offsets WHERE follower = $1 AND thread_id = $2")
	createdAt    = same("SELECT created_at FROM threads WHERE thread_id = $1")
)

// Followed implements mirror.Store.
func (s *Store) Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error) {
	threads, err := from(ctx, s.db.Read, func(q Querier) ([]id.Thread, error) { return all(q, Followed, text[id.Thread], after, follower, limit) })
	if err != nil {
		return nil, fmt.Errorf("threads that %s follows: %w", follower, err)
	}
	return threads, nil
}

// Offset implements mirror.Store.
func (s *Store) Offset(ctx context.Context, follower string, t id.Thread) (o *eventstore.Offset, created time.Time, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		if created, _, err = first(q, createdAt, moment, t); err != nil {
			return err
		}
		o, _, err = first(q, SelectOffset, func(r Row) *eventstore.Offset {
			return &eventstore.Offset{Thread: t, Created: r.Time(0), Seq: eventstore.Seq(r.Int(1)), Position: r.Int(2)}
		}, follower, t)
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("offset of %s in thread %s: %w", follower, t, err)
	}
	return o, created, nil
}

// PutOffsets implements mirror.Store.
func (s *Store) PutOffsets(ctx context.Context, follower string, offsets []eventstore.Offset) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, o := range offsets {
			var err error
			if o.Created.IsZero() {
				err = tx.Exec(deleteOffset, follower, o.Thread)
			} else {
				err = tx.Exec(putOffset, follower, o.Thread, o.Created, o.Seq, o.Position)
			}
			if err != nil {
				return fmt.Errorf("offset of %s in thread %s: %w", follower, o.Thread, err)
			}
		}
		return nil
	})
}
