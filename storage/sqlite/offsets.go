package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
)

var _ mirror.Store = (*Store)(nil)

const (
	followed = "SELECT thread_id FROM threads WHERE thread_id > ?1 UNION " +
		"SELECT thread_id FROM log_offsets WHERE follower = ?2 AND thread_id > ?1 ORDER BY thread_id LIMIT ?3"
	selectOffset = "SELECT created_at, seq, position FROM log_offsets WHERE follower = ? AND thread_id = ?"
)

// changed notes that the log of a thread is another after this transaction.
func (tx *Tx) changed(t id.Thread) {
	if n := len(tx.threads); n == 0 || tx.threads[n-1] != t {
		tx.threads = append(tx.threads, t)
	}
}

// Followed is mirror.Store.Followed.
func (s *Store) Followed(ctx context.Context, follower string, after id.Thread, limit int) (threads []id.Thread, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, followed, func(st *sqlite.Stmt) error {
			threads = append(threads, id.Thread(st.ColumnText(0)))
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
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		if _, err := one(c, "SELECT created_at FROM threads WHERE thread_id = ?", func(st *sqlite.Stmt) error {
			created = columnTime(st, 0)
			return nil
		}, t); err != nil {
			return err
		}
		_, err := one(c, selectOffset, func(st *sqlite.Stmt) error {
			o = &eventstore.Offset{
				Thread: t, Created: columnTime(st, 0), Seq: eventstore.Seq(st.ColumnInt64(1)), Position: st.ColumnInt64(2),
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
				err = tx.exec("DELETE FROM log_offsets WHERE follower = ? AND thread_id = ?", follower, o.Thread)
			} else {
				err = tx.exec("INSERT OR REPLACE INTO log_offsets (follower, thread_id, created_at, seq, position) VALUES (?, ?, ?, ?, ?)",
					follower, o.Thread, o.Created, o.Seq, o.Position)
			}
			if err != nil {
				return fmt.Errorf("offset of %s in thread %s: %w", follower, o.Thread, err)
			}
		}
		return nil
	})
}
