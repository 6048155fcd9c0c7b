package relational

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

var (
	ExpiredThreads = same("SELECT thread_id FROM threads WHERE expires_at <= $1 ORDER BY expires_at, thread_id LIMIT $2")
	RemainsOfOne   = same("SELECT 1 FROM thread_remains WHERE thread_id = $1")
	RemainsOfMany  = same("SELECT thread_id FROM thread_remains ORDER BY thread_id LIMIT $1")
	AddRemains     = same("INSERT INTO thread_remains (thread_id) VALUES ($1) ON CONFLICT DO NOTHING")
	LastTurn       = same("SELECT at FROM sweeps WHERE name = $1")
	// takeTurn records a sweep if it is time for one; of several servers that try at once, one
	// succeeds. A last time far in the future comes from a wrong clock and is ignored.
	takeTurn = same("INSERT INTO sweeps (name, at) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET at = $2 " +
		"WHERE sweeps.at <= $2 - CAST($3 AS bigint) OR sweeps.at >= $2 + CAST($3 AS bigint) RETURNING at")
	PruneRows = differing("SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, "+
		"jsonb_build_object('channel_versions', checkpoint -> 'channel_versions') FROM checkpoints WHERE thread_id = $1 ORDER BY checkpoint_ns, checkpoint_id DESC",
		"SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, checkpoint FROM checkpoints WHERE thread_id = $1 ORDER BY checkpoint_ns, checkpoint_id DESC")
	ListsOf = same("SELECT checkpoint_ns, channel, version, blob FROM checkpoint_blobs WHERE thread_id = $1 AND type = 'list'")
)

// Expired implements thread.Store.
func (s threadStore) Expired(ctx context.Context, now time.Time, limit int) ([]id.Thread, error) {
	return s.threadIDs(ctx, ExpiredThreads, micros(now), limit)
}

// Remains implements thread.Store.
func (s threadStore) Remains(ctx context.Context, limit int) ([]id.Thread, error) {
	return s.threadIDs(ctx, RemainsOfMany, limit)
}

// threadIDs returns the IDs that a statement selects.
func (s *base) threadIDs(ctx context.Context, list Statement, args ...any) ([]id.Thread, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]id.Thread, error) { return all(q, list, text[id.Thread], args...) })
}

// TakeTurn implements thread.Store and store.Backend.
func (s threadStore) TakeTurn(ctx context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error) {
	err = s.db.Write(ctx, func(tx *Tx) error {
		next = now.Add(every)
		if mine, err = has(tx, takeTurn, name, micros(now), every.Microseconds()); err != nil || mine {
			return err
		}
		last, _, err := first(tx, LastTurn, moment, name)
		next = last.Add(every)
		return err
	})
	return next, mine, err
}

// SetExpiry implements thread.Tx.
func (tx *Tx) SetExpiry(t id.Thread, at time.Time) error {
	tx.Lock(t)
	if err := tx.Exec(SetExpiry, at, t); err != nil {
		return fmt.Errorf("expiry of thread %s: %w", t, err)
	}
	return nil
}

// PlanPrune implements thread.Store.
func (s threadStore) PlanPrune(ctx context.Context, t id.Thread, size int) (*thread.PrunePlan, error) {
	plan, err := fromThread(ctx, s.base, t, s.db.Snapshot, func(q Querier, t id.Thread) (*thread.PrunePlan, error) { return s.planPrune(q, t, size) })
	if err != nil {
		return nil, fmt.Errorf("plan to prune thread %s: %w", t, err)
	}
	return plan, nil
}

// planPrune reads checkpoints, values and parts of a thread and chooses what goes in which step.
func (s threadStore) planPrune(q Querier, t id.Thread, size int) (*thread.PrunePlan, error) {
	at, err := LoadThread(q, t)
	if err != nil {
		return nil, err
	}
	p := rows.Pruning{Thread: t, Size: size}
	if err := q.Query(PruneRows, func(r Row) error {
		versions, err := rows.ChannelVersions(r.Bytes(4))
		p.Add(rows.PruneRow{NS: r.Text(0), ID: id.Checkpoint(r.Text(1)), Parent: id.Checkpoint(r.Text(2)), Metadata: r.Bytes(3), Versions: versions})
		return err
	}, t); err != nil {
		return nil, err
	}
	if err := p.Choose(s.db.Whole(q, t)); err != nil {
		return nil, err
	}
	if p.Any() {
		lists, err := all(q, ListsOf, scanList, t)
		if err != nil {
			return nil, err
		}
		sets := make([]*compact.Set, len(lists))
		for i, l := range lists {
			sets[i] = p.List(l.ns, rows.ChannelVersion{Channel: l.channel, Version: l.version})
		}
		if err := s.db.Parts(q, t, valuesOf(lists), sets); err != nil {
			return nil, err
		}
	}
	plan := p.Plan()
	plan.Thread = at
	return plan, nil
}

// list is a channel value that is stored by its items.
type list struct {
	ns, channel, version string
	value                []byte
}

// scanList reads a row of ListsOf.
func scanList(r Row) list { return list{r.Text(0), r.Text(1), r.Text(2), r.Bytes(3)} }

// valuesOf returns the stored values of lists.
func valuesOf(lists []list) [][]byte {
	values := make([][]byte, len(lists))
	for i, l := range lists {
		values[i] = l.value
	}
	return values
}

// remaining is a statement that deletes a part of what is left of a thread.
type remaining struct {
	Statement
	apart bool // its rows count with those of the next statement
}

// RemainsOf are the statements that delete what RemoveThread leaves of a thread, at most $2 rows
// each. Runs go first: they are hidden only while the thread is among the remains. Parts of lists
// go before their owner, and bodies with their events. The triggers and functions that run when
// the thread is created again repeat these statements.
var RemainsOf = func() (list []remaining) {
	const (
		runs   = "SELECT run_id FROM runs WHERE thread_id = $1 ORDER BY created_at, run_id LIMIT $2"
		bodies = "SELECT body FROM events WHERE thread_id = $1 ORDER BY seq LIMIT $2"
		parts  = "SELECT p.part FROM list_owners o%s JOIN list_parts p ON p.part BETWEEN o.owner << 28 AND ((o.owner + 1) << 28) - 1 WHERE o.thread_id = $1 LIMIT $2"
	)
	add := func(apart bool, s Statement) { list = append(list, remaining{s, apart}) }
	in := func(text, postgres, sqlite string) Statement {
		return differing(text+" = ANY (ARRAY("+postgres+"))", text+" IN ("+sqlite+")")
	}
	// rest deletes rows of a table in the order of its key; key names a row on SQLite, "" if the
	// table does not exist there.
	rest := func(table, key, order string) {
		where := " FROM " + table + " WHERE thread_id = $1 ORDER BY "
		sqlite := "DELETE FROM " + table + " WHERE thread_id = $1 AND " + key + " IN (SELECT " + key + where + key + " LIMIT $2)"
		if key == "" {
			sqlite = ""
		}
		add(false, differing("DELETE FROM "+table+" WHERE ctid = ANY (ARRAY(SELECT ctid"+where+order+" LIMIT $2))", sqlite))
	}
	for _, table := range []string{"run_completions", "model_calls", "run_kwargs"} {
		add(true, in("DELETE FROM "+table+" WHERE run_id", runs, runs))
	}
	add(false, in("DELETE FROM runs WHERE run_id", runs, runs))
	rest("stream_runs", "run_id", "run_id")
	add(false, in("DELETE FROM list_parts WHERE part", fmt.Sprintf(parts, ""), fmt.Sprintf(parts, " CROSS")))
	rest("list_owners", "thread_id", "thread_id")
	rest("checkpoint_writes", "rowid", "checkpoint_ns, checkpoint_id, task_id, idx")
	rest("checkpoint_blobs", "rowid", "checkpoint_ns, channel, version")
	rest("snapshots", "", "checkpoint_ns, checkpoint_id")
	rest("checkpoints", "rowid", "checkpoint_ns, checkpoint_id")
	rest("answers", "rowid", "checkpoint_ns, checkpoint_id, key")
	rest("stream_records", "rowid", "ms, n")
	add(true, differing("UPDATE event_bodies b SET refs = refs - 1 FROM (SELECT body FROM event_bodies WHERE body = ANY (ARRAY("+bodies+")) ORDER BY body FOR UPDATE) AS ours "+
		"WHERE b.body = ours.body", "UPDATE event_bodies SET refs = refs - 1 WHERE body IN ("+bodies+")"))
	add(true, differing("DELETE FROM event_bodies WHERE body = ANY (ARRAY("+bodies+")) AND refs = 0", "DELETE FROM event_bodies WHERE body IN ("+bodies+") AND refs = 0"))
	rest("events", "seq", "seq")
	rest("transcripts", "checkpoint_id", "checkpoint_id")
	rest("transcript_nodes", "node", "node")
	rest("event_lineage", "thread_id", "thread_id")
	rest("thread_remains", "thread_id", "thread_id")
	return list
}()

// DeleteRemains implements thread.Tx.
func (tx *Tx) DeleteRemains(t id.Thread, limit int) (more bool, err error) {
	tx.Lock(t)
	// Creating the thread again has cleared its remains; what it has now is its own.
	found, err := has(tx, RemainsOfOne, t)
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
	for i, s := range RemainsOf {
		n, err := tx.Affected(s.Statement, t, left)
		if err != nil {
			return false, fmt.Errorf("remains of thread %s: %w", t, err)
		}
		if s.apart {
			continue
		}
		if left -= n; left <= 0 && i < len(RemainsOf)-1 {
			return true, nil
		}
	}
	return false, nil
}
