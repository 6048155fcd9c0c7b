package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

const (
	expiredThreads = "SELECT thread_id FROM threads WHERE expires_at <= ? ORDER BY expires_at, thread_id LIMIT ?"
	remainsOfOne   = "SELECT 1 FROM thread_remains WHERE thread_id = ?"
	remainsOfMany  = "SELECT thread_id FROM thread_remains ORDER BY thread_id LIMIT ?"
	lastTurn       = "SELECT at FROM sweeps WHERE name = ?"
	pruneRows      = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, checkpoint FROM checkpoints WHERE thread_id = ? " +
		"ORDER BY checkpoint_ns, checkpoint_id DESC"
	pruneParent = "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
	deleteBlob  = "DELETE FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?"
	hasValue    = "SELECT 1 FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ? AND type <> 'empty'"
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
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, text, func(st *sqlite.Stmt) error {
			list = append(list, id.Thread(st.ColumnText(0)))
			return nil
		}, args...)
	})
	return list, err
}

// TakeTurn is thread.Store.TakeTurn and store.Backend.TakeTurn.
func (s *Store) TakeTurn(ctx context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error) {
	err = s.write(ctx, func(tx *Tx) error {
		var last time.Time
		if _, err := tx.one(lastTurn, func(st *sqlite.Stmt) error {
			last = columnTime(st, 0)
			return nil
		}, name); err != nil {
			return err
		}
		if next, mine = rows.Turn(last, now, every); !mine {
			return nil
		}
		return tx.exec("INSERT INTO sweeps (name, at) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET at = ?2", name, micros(now))
	})
	return next, mine, err
}

// SetExpiry is thread.Tx.SetExpiry.
func (tx *Tx) SetExpiry(t id.Thread, at time.Time) error {
	if err := tx.exec("UPDATE threads SET expires_at = ? WHERE thread_id = ?", at, t); err != nil {
		return fmt.Errorf("expiry of thread %s: %w", t, err)
	}
	return nil
}

// PlanPrune is thread.Store.PlanPrune.
func (s *Store) PlanPrune(ctx context.Context, t id.Thread, size int) (plan *thread.PrunePlan, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		row, err := loadThread(c, t)
		if err != nil {
			return err
		}
		p := rows.Pruning{Thread: t, Size: size}
		if err := query(c, pruneRows, func(s *sqlite.Stmt) error {
			versions, err := rows.ChannelVersions(columnBytes(s, 4))
			p.Add(rows.PruneRow{
				NS: s.ColumnText(0), ID: id.Checkpoint(s.ColumnText(1)), Parent: id.Checkpoint(s.ColumnText(2)), Metadata: columnBytes(s, 3), Versions: versions,
			})
			return err
		}, t); err != nil {
			return err
		}
		if err := p.Choose(func(ns string, cp id.Checkpoint, channels []string) (bool, error) {
			return whole(c, checkpointer.Key{Thread: t, NS: ns, ID: cp}, channels)
		}); err != nil {
			return err
		}
		if p.Any() {
			l := newLoader(c, t)
			if err := query(c, listsOf, func(s *sqlite.Stmt) error {
				return l.named(columnBytes(s, 3), p.List(s.ColumnText(0), rows.ChannelVersion{Channel: s.ColumnText(1), Version: s.ColumnText(2)}))
			}, t); err != nil {
				return err
			}
		}
		plan = p.Plan()
		plan.Thread = row
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("plan to prune thread %s: %w", t, err)
	}
	return plan, nil
}

// PruneStep is thread.Tx.PruneStep.
func (tx *Tx) PruneStep(t id.Thread, step *thread.PruneStep) error {
	tx.mark(t)
	fail := func(err error) error { return fmt.Errorf("prune checkpoints of thread %s: %w", t, err) }
	for _, k := range step.Checkpoints {
		if err := tx.dropCheckpoint(k); err != nil {
			return fail(err)
		}
	}
	for _, k := range step.Orphans {
		if err := tx.exec(pruneParent, k.Thread, k.NS, k.ID); err != nil {
			return fail(err)
		}
	}
	for _, v := range step.Values {
		if err := tx.exec(deleteBlob, t, v.NS, v.Channel, v.Version); err != nil {
			return fail(err)
		}
	}
	if len(step.Parts) == 0 {
		return nil
	}
	owner, _, err := findOwner(tx.conn, t)
	if err != nil {
		return fail(err)
	}
	for _, r := range step.Parts {
		if err := tx.exec(deleteParts, partKey(owner, r.First), partKey(owner, r.First+r.Count-1)); err != nil {
			return fail(err)
		}
	}
	tx.lists.forget(t)
	return nil
}

// whole reports whether a checkpoint has a value of each of the channels that it has a version of.
func whole(c *sqlite.Conn, k checkpointer.Key, channels []string) (bool, error) {
	var data []byte
	if _, err := one(c, "SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
		func(s *sqlite.Stmt) error {
			data = columnBytes(s, 0)
			return nil
		}, k.Thread, k.NS, k.ID); err != nil {
		return false, err
	}
	versions, err := rows.ChannelVersions(data)
	if err != nil {
		return false, err
	}
	var inline struct {
		Values map[string]json.RawMessage `json:"channel_values"`
	}
	if err := json.Unmarshal(data, &inline); err != nil {
		return false, fmt.Errorf("channel_values: %w", err)
	}
	for _, v := range versions {
		if _, there := inline.Values[v.Channel]; there || !slices.Contains(channels, v.Channel) {
			continue
		}
		if found, err := one(c, hasValue, nil, k.Thread, k.NS, v.Channel, v.Version); err != nil || !found {
			return false, err
		}
	}
	return true, nil
}

// RemoveThread is thread.Tx.RemoveThread.
func (tx *Tx) RemoveThread(t id.Thread) error {
	tx.mark(t)
	if err := tx.deleteRow(t); err != nil {
		return err
	}
	for _, text := range []string{
		"DELETE FROM run_heads WHERE thread_id = ?",
		"DELETE FROM crons WHERE thread_id = ?",
		"INSERT INTO thread_remains (thread_id) VALUES (?) ON CONFLICT DO NOTHING",
	} {
		if err := tx.exec(text, t); err != nil {
			return fmt.Errorf("remove thread %s: %w", t, err)
		}
	}
	tx.lists.forget(t)
	tx.LogChanged(t)
	return nil
}

// remains are the statements that delete what RemoveThread leaves, each at most ?2 rows. Runs go first, with their arguments: they are hidden only as long
// as the thread stands among the remains. Parts of lists go before their owner, and bodies with their events. The triggers thread_remains_go and
// thread_remains_runs have them too.
var remains = func() (texts []string) {
	const (
		parts = "SELECT p.part FROM list_owners o CROSS JOIN list_parts p ON p.part BETWEEN o.owner << 28 AND ((o.owner + 1) << 28) - 1 " +
			"WHERE o.thread_id = ?1 LIMIT ?2"
		bodies = "SELECT body FROM events WHERE thread_id = ?1 ORDER BY seq LIMIT ?2"
		runs   = "SELECT run_id FROM runs WHERE thread_id = ?1 ORDER BY created_at, run_id LIMIT ?2"
	)
	of := func(table, key string) string {
		return "DELETE FROM " + table + " WHERE thread_id = ?1 AND " + key + " IN (SELECT " + key + " FROM " + table + " WHERE thread_id = ?1 ORDER BY " + key + " LIMIT ?2)"
	}
	return []string{
		"DELETE FROM run_kwargs WHERE run_id IN (" + runs + ")",
		"DELETE FROM runs WHERE run_id IN (" + runs + ")",
		of("stream_runs", "run_id"),
		"DELETE FROM list_parts WHERE part IN (" + parts + ")",
		"DELETE FROM list_owners WHERE thread_id = ?1 AND ?2 <> 0",
		of("checkpoint_writes", "rowid"),
		of("checkpoint_blobs", "rowid"),
		of("checkpoints", "rowid"),
		of("answers", "rowid"),
		of("stream_records", "rowid"),
		"UPDATE event_bodies SET refs = refs - 1 WHERE body IN (" + bodies + ")",
		"DELETE FROM event_bodies WHERE body IN (" + bodies + ") AND refs = 0",
		of("events", "seq"),
		of("transcripts", "checkpoint_id"),
		of("transcript_nodes", "node"),
		"DELETE FROM event_lineage WHERE thread_id = ?1 AND ?2 <> 0",
		"DELETE FROM thread_remains WHERE thread_id = ?1 AND ?2 <> 0",
	}
}()

// DeleteRemains is thread.Tx.DeleteRemains.
func (tx *Tx) DeleteRemains(t id.Thread, limit int) (more bool, err error) {
	// Who made the thread again has cleared these away. What it has by now is its own.
	found, err := tx.one(remainsOfOne, nil, t)
	if err != nil {
		return false, fmt.Errorf("remains of thread %s: %w", t, err)
	}
	if !found {
		return false, nil
	}
	left := limit
	if limit <= 0 {
		left = math.MaxInt
	}
	for i, text := range remains {
		if err := tx.exec(text, t, left); err != nil {
			return false, fmt.Errorf("remains of thread %s: %w", t, err)
		}
		if strings.Contains(text, "event_bodies") || strings.Contains(text, "run_kwargs") { // they count as their events, and as their runs
			continue
		}
		if left -= tx.conn.Changes(); left <= 0 && i < len(remains)-1 {
			return true, nil
		}
	}
	return false, nil
}
