package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/storage/internal/rows"
)

const (
	expiredThreads = "SELECT thread_id FROM threads WHERE expires_at <= $1 ORDER BY expires_at, thread_id LIMIT $2"
	remainsOfOne   = "SELECT 1 FROM thread_remains WHERE thread_id = $1"
	remainsOfMany  = "SELECT thread_id FROM thread_remains ORDER BY thread_id LIMIT $1"
	setExpiry      = "UPDATE threads SET expires_at = $1 WHERE thread_id = $2"
	lastTurn       = "SELECT at FROM sweeps WHERE name = $1"
	// takeTurn is rows.Turn, in one piece: of those who ask at once, one gets it.
	takeTurn = "INSERT INTO sweeps (name, at) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET at = $2 " +
		"WHERE sweeps.at <= $2 - $3::bigint OR sweeps.at >= $2 + $3::bigint RETURNING at"
	pruneRows = "SELECT checkpoint_ns, checkpoint_id, coalesce(parent_checkpoint_id, ''), metadata FROM checkpoints WHERE thread_id = $1 " +
		"ORDER BY checkpoint_ns, checkpoint_id DESC"
	pruneParents = `UPDATE checkpoints c SET parent_checkpoint_id = NULL WHERE thread_id = $1 AND parent_checkpoint_id IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM checkpoints p WHERE p.thread_id = $1 AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_checkpoint_id)`
	// lacking gives the checkpoints of a namespace that have a version of one of some channels, and no value of it.
	lacking = `SELECT c.checkpoint_id FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 AND EXISTS (
		SELECT 1 FROM unnest($3::text[]) AS w (channel)
		WHERE c.checkpoint -> 'channel_versions' ? w.channel AND NOT coalesce(c.checkpoint -> 'channel_values', '{}') ? w.channel
		AND NOT EXISTS (SELECT 1 FROM checkpoint_blobs b WHERE b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = w.channel
			AND b.version = c.checkpoint -> 'channel_versions' ->> w.channel AND b.type <> 'empty'))`
)

// Expired is thread.Store.Expired.
func (s *Store) Expired(ctx context.Context, now time.Time, limit int) ([]id.Thread, error) {
	return s.threadIDs(ctx, expiredThreads, micros(now), limit)
}

// Remains is thread.Store.Remains.
func (s *Store) Remains(ctx context.Context, limit int) ([]id.Thread, error) {
	return s.threadIDs(ctx, remainsOfMany, limit)
}

func (s *Store) threadIDs(ctx context.Context, text string, args ...any) (list []id.Thread, err error) {
	err = s.read(ctx, func(q *reader) error {
		return q.query(text, func(r *row) error {
			list = append(list, id.Thread(r.text(0)))
			return nil
		}, args...)
	})
	return list, err
}

// TakeTurn is thread.Store.TakeTurn and store.Backend.TakeTurn.
func (s *Store) TakeTurn(ctx context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		var last time.Time
		read := func(r *row) error {
			last = r.time(0)
			return nil
		}
		if mine, err = one(tx, takeTurn, read, name, micros(now), every.Microseconds()); err != nil || mine {
			return err
		}
		_, err := one(tx, lastTurn, read, name)
		next = last.Add(every)
		return err
	})
	if mine {
		next = now.Add(every)
	}
	return next, mine, err
}

// SetExpiry is thread.Tx.SetExpiry.
func (tx *Tx) SetExpiry(t id.Thread, at time.Time) error {
	tx.lock(t)
	if err := tx.exec(setExpiry, at, t); err != nil {
		return fmt.Errorf("expiry of thread %s: %w", t, err)
	}
	return nil
}

// PruneCheckpoints is thread.Tx.PruneCheckpoints. As langgraph-checkpoint-postgres: the parents of what stays are forgotten where they go.
func (tx *Tx) PruneCheckpoints(t id.Thread, limit int) (n int, more bool, err error) {
	tx.lock(t)
	drop, err := tx.prunable(t)
	if limit > 0 && len(drop) > limit {
		drop, more = drop[:limit], true
	}
	if err == nil && len(drop) > 0 {
		err = tx.dropCheckpoints(t, drop, false)
	}
	if err == nil && len(drop) > 0 {
		err = tx.exec(pruneParents, t)
	}
	if err != nil {
		return 0, false, fmt.Errorf("prune checkpoints of thread %s: %w", t, err)
	}
	return len(drop), more, nil
}

func (tx *Tx) prunable(t id.Thread) ([]checkpointer.Key, error) {
	var list []rows.PruneRow
	if err := tx.query(pruneRows, func(r *row) error {
		list = append(list, rows.PruneRow{NS: r.text(0), ID: id.Checkpoint(r.text(1)), Parent: id.Checkpoint(r.text(2)), Metadata: r.bytes(3)})
		return nil
	}, t); err != nil {
		return nil, err
	}
	known := map[string]map[id.Checkpoint]bool{} // what lacks a value, by namespace
	return rows.Prunable(t, list, func(ns string, c id.Checkpoint, channels []string) (bool, error) {
		if known[ns] == nil {
			known[ns] = map[id.Checkpoint]bool{}
			if err := tx.query(lacking, func(r *row) error {
				known[ns][id.Checkpoint(r.text(0))] = true
				return nil
			}, t, ns, channels); err != nil {
				return false, err
			}
		}
		return !known[ns][c], nil
	})
}

// RemoveThread is thread.Tx.RemoveThread.
func (tx *Tx) RemoveThread(t id.Thread) error {
	if err := tx.deleteRows(t, deletesOfRow); err != nil {
		return fmt.Errorf("remove thread %s: %w", t, err)
	}
	if err := tx.exec("INSERT INTO thread_remains (thread_id) VALUES ($1) ON CONFLICT DO NOTHING", t); err != nil {
		return fmt.Errorf("remove thread %s: %w", t, err)
	}
	tx.changes(t)
	tx.store.lists.take(t)
	delete(tx.lists, t)
	tx.forget(t)
	tx.threads[t] = nil
	return nil
}

// remains are the statements that delete what RemoveThread leaves, each at most $2 rows. Parts of lists go before their owner, and bodies with
// their events. The function delete_remains has them too.
var remains = func() (texts []struct {
	text  string
	apart bool // its rows count as those of the next
}) {
	add := func(apart bool, text string) {
		texts = append(texts, struct {
			text  string
			apart bool
		}{text, apart})
	}
	of := func(table, order string) string {
		return "DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + table + " WHERE thread_id = $1 ORDER BY " + order + " LIMIT $2))"
	}
	const bodies = "SELECT body FROM events WHERE thread_id = $1 ORDER BY seq LIMIT $2"
	add(false, "DELETE FROM list_parts WHERE part = ANY (ARRAY(SELECT p.part FROM list_owners o JOIN list_parts p ON p.part > o.owner << 28 AND p.part < (o.owner + 1) << 28 "+
		"WHERE o.thread_id = $1 LIMIT $2))")
	add(false, of("list_owners", "thread_id"))
	add(false, of("checkpoint_writes", "checkpoint_ns, checkpoint_id, task_id, idx"))
	add(false, of("checkpoint_blobs", "checkpoint_ns, channel, version"))
	add(false, of("snapshots", "checkpoint_ns, checkpoint_id"))
	add(false, of("checkpoints", "checkpoint_ns, checkpoint_id"))
	add(false, of("answers", "checkpoint_ns, checkpoint_id, key"))
	add(false, of("stream_records", "ms, n"))
	add(true, "UPDATE event_bodies b SET refs = refs - 1 FROM (SELECT body FROM event_bodies WHERE body = ANY (ARRAY("+bodies+")) ORDER BY body FOR UPDATE) AS ours "+
		"WHERE b.body = ours.body")
	add(true, "DELETE FROM event_bodies WHERE body = ANY (ARRAY("+bodies+")) AND refs = 0")
	add(false, of("events", "seq"))
	add(false, of("transcripts", "checkpoint_id"))
	add(false, of("transcript_nodes", "node"))
	add(false, of("event_lineage", "thread_id"))
	add(false, of("thread_remains", "thread_id"))
	return texts
}()

// DeleteRemains is thread.Tx.DeleteRemains.
func (tx *Tx) DeleteRemains(t id.Thread, limit int) (more bool, err error) {
	tx.lock(t)
	// Who made the thread again has cleared these away. What it has by now is its own.
	found, err := one(tx, remainsOfOne, nil, t)
	if err != nil {
		return false, fmt.Errorf("remains of thread %s: %w", t, err)
	}
	if !found {
		return false, nil
	}
	left := int64(limit)
	if limit <= 0 {
		left = math.MaxInt64
	}
	for i, step := range remains {
		n, err := tx.affected(step.text, t, left)
		if err != nil {
			return false, fmt.Errorf("remains of thread %s: %w", t, err)
		}
		if step.apart {
			continue
		}
		if left -= n; left <= 0 && i < len(remains)-1 {
			return true, nil
		}
	}
	return false, nil
}
