package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
)

var _ mirror.Store = (*Store)(nil)

const (
	followed = "(SELECT thread_id FROM threads WHERE thread_id > $1 ORDER BY thread_id LIMIT $3) UNION " +
		"(SELECT thread_id FROM log_offsets WHERE follower = $2 AND thread_id > $1 ORDER BY thread_id LIMIT $3) ORDER BY thread_id LIMIT $3"
	selectOffset = "SELECT created_at, seq, position FROM log_offsets WHERE follower = $1 AND thread_id = $2"
)

// Followed is mirror.Store.Followed.
func (s *Store) Followed(ctx context.Context, follower string, after id.Thread, limit int) (threads []id.Thread, err error) {
	err = s.read(ctx, func(c *reader) error {
		return c.query(followed, func(r *row) error {
			threads = append(threads, id.Thread(r.text(0)))
			return nil
		}, after, follower, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("threads that %s follows: %w", follower, err)
	}
	return threads, nil
}

// Offset is mirror.Store.Offset.
func (s *Store) Offset(ctx context.Context, follower string, t id.Thread) (o *eventstore.Offset, created time.Time, err error) {
	err = s.snapshot(ctx, func(c *reader) error {
		if _, err := one(c, "SELECT created_at FROM threads WHERE thread_id = $1", func(r *row) error {
			created = r.time(0)
			return nil
		}, t); err != nil {
			return err
		}
		_, err := one(c, selectOffset, func(r *row) error {
			o = &eventstore.Offset{
				Thread: t, Created: r.time(0), Seq: eventstore.Seq(r.int(1)), Position: r.int(2),
			}
			return nil
		}, follower, t)
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("offset of %s in thread %s: %w", follower, t, err)
	}
	return o, created, nil
}

// PutOffsets is mirror.Store.PutOffsets.
func (s *Store) PutOffsets(ctx context.Context, follower string, offsets []eventstore.Offset) error {
	return s.write(ctx, func(tx *Tx) error {
		for _, o := range offsets {
			var err error
			if o.Created.IsZero() {
				err = tx.exec("DELETE FROM log_offsets WHERE follower = $1 AND thread_id = $2", follower, o.Thread)
			} else {
				err = tx.exec("INSERT INTO log_offsets (follower, thread_id, created_at, seq, position) VALUES ($1, $2, $3, $4, $5) "+
					"ON CONFLICT (follower, thread_id) DO UPDATE SET (created_at, seq, position) = (excluded.created_at, excluded.seq, excluded.position)",
					follower, o.Thread, o.Created, o.Seq, o.Position)
			}
			if err != nil {
				return fmt.Errorf("offset of %s in thread %s: %w", follower, o.Thread, err)
			}
		}
		return nil
	})
}
