package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

var _ thread.SharedQueue = threads{}

// Places expire by the database's clock, so the clocks of servers need not agree. Losing a place
// in a crash of the database does no harm, so its commits need not be durable.
const (
	lazily     = "SET LOCAL synchronous_commit TO off"
	dropLapsed = "DELETE FROM update_queue WHERE (thread_id, place) IN (SELECT thread_id, place FROM update_queue WHERE lapses_at < now() FOR UPDATE SKIP LOCKED)"
	enqueue    = "INSERT INTO update_queue (thread_id, lapses_at) VALUES ($1, now() + $2::bigint * interval '1 microsecond') RETURNING place"
	// front renews the place only after half of its time, which saves writes while an update waits.
	front = `WITH kept AS (
			UPDATE update_queue SET lapses_at = now() + $3::bigint * interval '1 microsecond'
			WHERE thread_id = $1 AND place = $2 AND lapses_at < now() + $3::bigint / 2 * interval '1 microsecond'
		) SELECT NOT EXISTS (SELECT 1 FROM update_queue o WHERE o.thread_id = $1 AND o.place < $2 AND o.lapses_at >= now())
		FROM update_queue WHERE thread_id = $1 AND place = $2`
	dequeue = "DELETE FROM update_queue WHERE thread_id = $1 AND place = $2"
)

// Enqueue implements thread.SharedQueue. Places of a thread are assigned under its lock, so a
// smaller one never appears later.
func (s threads) Enqueue(ctx context.Context, t id.Thread, lapse time.Duration) (place int64, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		tx.lock(t)
		if err := tx.exec(lazily); err != nil {
			return err
		}
		if err := tx.exec(dropLapsed); err != nil {
			return err
		}
		return tx.query(enqueue, func(r *row) error {
			place = r.Int(0)
			return nil
		}, t, lapse.Microseconds())
	})
	if err != nil {
		return 0, fmt.Errorf("queue an update of thread %s: %w", t, err)
	}
	return place, nil
}

// Front implements thread.SharedQueue.
func (s threads) Front(ctx context.Context, t id.Thread, place int64, lapse time.Duration) (first bool, err error) {
	found := false
	err = s.read(ctx, func(q *reader) (err error) {
		found, err = one(q, front, func(r *row) error {
			first = r.Bool(0)
			return nil
		}, t, place, lapse.Microseconds())
		return err
	})
	if err == nil && !found {
		err = fault.New(fault.NotFound, "the place in the queue has expired")
	}
	return first, err
}

// Dequeue implements thread.SharedQueue.
func (s threads) Dequeue(ctx context.Context, t id.Thread, place int64) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := tx.exec(lazily); err != nil {
			return err
		}
		return tx.exec(dequeue, t, place)
	})
}
