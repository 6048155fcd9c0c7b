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

const (
	behind = "SELECT t.thread_id FROM threads t LEFT JOIN log_offsets o ON o.follower = $1 AND o.thread_id = t.thread_id WHERE t.thread_id > $2 " +
		"AND EXISTS (SELECT 1 FROM events e WHERE e.thread_id = t.thread_id AND e.seq > CASE WHEN o.created_at = t.created_at THEN o.seq ELSE 0 END AND e.created_at < $4) " +
		"ORDER BY t.thread_id LIMIT $3"
	gone = "SELECT o.thread_id FROM log_offsets o WHERE o.follower = $1 AND o.thread_id > $2 " +
		"AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = o.thread_id AND t.created_at = o.created_at) ORDER BY o.thread_id LIMIT $3"
)

var (
	// Followed returns existing threads and those that were followed and may be gone.
	Followed = differing("(SELECT thread_id FROM threads WHERE thread_id > $1 ORDER BY thread_id LIMIT $3) UNION "+
		"(SELECT thread_id FROM log_offsets WHERE follower = $2 AND thread_id > $1 ORDER BY thread_id LIMIT $3) ORDER BY thread_id LIMIT $3",
		"SELECT thread_id FROM threads WHERE thread_id > $1 UNION "+
			"SELECT thread_id FROM log_offsets WHERE follower = $2 AND thread_id > $1 ORDER BY thread_id LIMIT $3")
	// Behind has $3 as the limit and $4 as the time before which the events are.
	Behind       = differing("("+behind+") UNION ("+gone+") ORDER BY thread_id LIMIT $3", "SELECT * FROM ("+behind+") UNION SELECT * FROM ("+gone+") ORDER BY thread_id LIMIT $3")
	lastOfType   = same("SELECT seq FROM events WHERE thread_id = $1 AND type = $2 ORDER BY seq DESC LIMIT 1")
	SelectOffset = same("SELECT " + offsetColumns + " FROM log_offsets WHERE follower = $1 AND thread_id = $2")
	putOffset    = same(upsert("log_offsets", "follower, thread_id", offsetColumns))
	deleteOffset = same("DELETE FROM log_offsets WHERE follower = $1 AND thread_id = $2")
	createdAt    = same("SELECT created_at FROM threads WHERE thread_id = $1")
)

// Followed implements mirror.Store.
func (s eventStore) Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error) {
	threads, err := from(ctx, s.db.Read, func(q Querier) ([]id.Thread, error) { return all(q, Followed, text[id.Thread], after, follower, limit) })
	if err != nil {
		return nil, fmt.Errorf("threads that %s follows: %w", follower, err)
	}
	return threads, nil
}

// Behind implements follow.ObserverStore.
func (s eventStore) Behind(ctx context.Context, follower string, after id.Thread, before time.Time, limit int) ([]id.Thread, error) {
	threads, err := from(ctx, s.db.Read, func(q Querier) ([]id.Thread, error) {
		return all(q, Behind, text[id.Thread], follower, after, limit, before)
	})
	if err != nil {
		return nil, fmt.Errorf("threads that %s has to follow: %w", follower, err)
	}
	return threads, nil
}

// LastOf implements follow.ObserverStore.
func (s eventStore) LastOf(ctx context.Context, t id.Thread, kind string) (eventstore.Seq, error) {
	seq, err := from(ctx, s.db.Read, func(q Querier) (eventstore.Seq, error) {
		seq, _, err := first(q, lastOfType, number[eventstore.Seq], t, kind)
		return seq, err
	})
	if err != nil {
		return 0, fmt.Errorf("last %s of thread %s: %w", kind, t, err)
	}
	return seq, nil
}

// Offset implements follow.Store.
func (s eventStore) Offset(ctx context.Context, follower string, t id.Thread) (o *eventstore.Offset, created time.Time, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		if created, _, err = first(q, createdAt, moment, t); err != nil {
			return err
		}
		o, err = offsetOf(q, follower, t)
		return err
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("offset of %s in thread %s: %w", follower, t, err)
	}
	return o, created, nil
}

// PutOffsets implements follow.Store.
func (s eventStore) PutOffsets(ctx context.Context, follower string, offsets []eventstore.Offset) error {
	return s.db.Write(ctx, func(tx *Tx) error { return tx.putOffsets(follower, offsets) })
}

func (tx *Tx) putOffsets(follower string, offsets []eventstore.Offset) error {
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
}
