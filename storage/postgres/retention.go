package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/rows"
	"understudy/thread"
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
	pruneRows = "SELECT checkpoint_ns, checkpoint_id, coalesce(parent_checkpoint_id, ''), metadata, " +
		"jsonb_build_object('channel_versions', checkpoint -> 'channel_versions') FROM checkpoints WHERE thread_id = $1 " +
		"ORDER BY checkpoint_ns, checkpoint_id DESC"
	pruneParents = "UPDATE checkpoints k SET parent_checkpoint_id = NULL WHERE" + ofKeys
	deleteBlobs  = "DELETE FROM checkpoint_blobs b USING unnest($2::text[], $3::text[], $4::text[]) AS w (ns, channel, version) " +
		"WHERE b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version"
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
	if err := s.write(ctx, func(tx *Tx) error { return tx.exec(lapsedCopies) }); err != nil {
		return nil, fmt.Errorf("copies of threads that lapsed: %w", err)
	}
	return s.threadIDs(ctx, remainsOfMany, limit)
}

func (s *Store) threadIDs(ctx context.Context, text string, args ...any) (list []id.Thread, err error) {
	err = s.read(ctx, func(q *reader) error {
		return q.query(text, func(r *row) error {
			list = append(list, id.Thread(r.Text(0)))
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
			last = r.Time(0)
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

// PlanPrune is thread.Store.PlanPrune.
func (s *Store) PlanPrune(ctx context.Context, t id.Thread, size int) (plan *thread.PrunePlan, err error) {
	err = s.snapshot(ctx, func(q *reader) error {
		var at *thread.Thread
		if found, err := one(q, selectThread, func(r *row) error {
			at = scanThread(r)
			return nil
		}, t); err != nil {
			return err
		} else if !found {
			return errNoThread
		}
		p := rows.Pruning{Thread: t, Size: size}
		if err := q.query(pruneRows, func(r *row) error {
			versions, err := rows.ChannelVersions(r.Bytes(4))
			p.Add(rows.PruneRow{NS: r.Text(0), ID: id.Checkpoint(r.Text(1)), Parent: id.Checkpoint(r.Text(2)), Metadata: r.Bytes(3), Versions: versions})
			return err
		}, t); err != nil {
			return err
		}
		known := map[string]map[id.Checkpoint]bool{} // what lacks a value, by namespace
		if err := p.Choose(func(ns string, c id.Checkpoint, channels []string) (bool, error) {
			if known[ns] == nil {
				known[ns] = map[id.Checkpoint]bool{}
				if err := q.query(lacking, func(r *row) error {
					known[ns][id.Checkpoint(r.Text(0))] = true
					return nil
				}, t, ns, channels); err != nil {
					return false, err
				}
			}
			return !known[ns][c], nil
		}); err != nil {
			return err
		}
		if p.Any() {
			type list struct {
				set   *compact.Set
				value []byte
			}
			var lists []list
			var values [][]byte
			if err := q.query(listsOf, func(r *row) error {
				value := r.Bytes(3)
				lists = append(lists, list{p.List(r.Text(0), rows.ChannelVersion{Channel: r.Text(1), Version: r.Text(2)}), value})
				values = append(values, value)
				return nil
			}, t); err != nil {
				return err
			}
			l := newLoader(q, t)
			if err := l.named(values, new(compact.Set)); err != nil { // all chunks at once
				return err
			}
			for _, v := range lists {
				if err := l.named([][]byte{v.value}, v.set); err != nil {
					return err
				}
			}
		}
		plan = p.Plan()
		plan.Thread = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("plan to prune thread %s: %w", t, err)
	}
	return plan, nil
}

// PruneStep is thread.Tx.PruneStep.
func (tx *Tx) PruneStep(t id.Thread, step *thread.PruneStep) error {
	tx.lock(t)
	if err := tx.pruneStep(t, step); err != nil {
		return fmt.Errorf("prune checkpoints of thread %s: %w", t, err)
	}
	return nil
}

func (tx *Tx) pruneStep(t id.Thread, step *thread.PruneStep) error {
	if err := tx.deleteKeys(t, step.Checkpoints); err != nil {
		return err
	}
	if len(step.Orphans) > 0 {
		spaces, ids := texts(step.Orphans)
		if err := tx.exec(pruneParents, t, spaces, ids); err != nil {
			return err
		}
	}
	if n := len(step.Values); n > 0 {
		spaces, channels, versions := make([]string, n), make([]string, n), make([]string, n)
		for i, v := range step.Values {
			spaces[i], channels[i], versions[i] = v.NS, v.Channel, v.Version
		}
		if err := tx.exec(deleteBlobs, t, spaces, channels, versions); err != nil {
			return err
		}
	}
	if len(step.Parts) == 0 {
		return nil
	}
	owner, found, err := findOwner(tx, t)
	if err != nil || !found {
		return err
	}
	for _, r := range step.Parts {
		if err := tx.exec(deleteParts, partKey(owner, r.First), partKey(owner, r.First+r.Count-1)); err != nil {
			return err
		}
	}
	tx.store.lists.take(t)
	delete(tx.lists, t)
	return tx.exec(newEpoch, owner)
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

// remains are the statements that delete what RemoveThread leaves, each at most $2 rows. Runs go first: they are hidden only as long as the thread stands
// among the remains. Parts of lists go before their owner, and bodies with their events. The functions delete_remains and remaining_runs have them too.
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
	const runs = "SELECT run_id FROM runs WHERE thread_id = $1 ORDER BY created_at, run_id LIMIT $2"
	for _, table := range []string{"run_completions", "model_calls", "run_kwargs", "runs"} {
		add(table != "runs", "DELETE FROM "+table+" WHERE run_id = ANY (ARRAY("+runs+"))")
	}
	add(false, of("stream_runs", "run_id"))
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
