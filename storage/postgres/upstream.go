package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"understudy/eventstore"
	"understudy/id"
	"understudy/proxy/record"
)

// Upstream is the store as package record wants it: threads of another server, with their transcripts and without their checkpoints. The
// store is to be opened with a schema of its own (Options.Schema) for each upstream.
func (s *Store) Upstream() record.Store { return upstream{s} }

type upstream struct{ *Store }

// upstreamTx is a transaction on what is recorded of an upstream.
type upstreamTx struct{ *Tx }

var _ record.Tx = upstreamTx{}

// Record is record.Store.Record. A transaction is alone with its threads.
func (u upstream) Record(ctx context.Context, fn func(record.Tx) error) error {
	return u.write(ctx, func(tx *Tx) error { return fn(upstreamTx{tx}) })
}

const (
	linkColumns = "u.checkpoint_id, u.parent, u.incomplete, r.run_id, r.version"
	links       = "SELECT " + linkColumns + " FROM upstream_checkpoints u JOIN transcripts r USING (thread_id, checkpoint_id) WHERE u.thread_id = $1 "
	linkOf      = links + "AND u.checkpoint_id = $2"
	linksOf     = links + "AND u.checkpoint_id = ANY($2)"
	linkOfWords = "SELECT " + linkColumns + " FROM transcripts r JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) " +
		"WHERE r.thread_id = $1 AND r.version = $2 ORDER BY r.checkpoint_id DESC LIMIT 1"
	siblingOf = "SELECT r.checkpoint_id, node, stamp, version, summary, source, run_id, opaque FROM transcripts r " +
		"JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) WHERE r.thread_id = $1 AND r.version = $2 AND u.parent = $3 " +
		"ORDER BY r.checkpoint_id DESC LIMIT 1"
	// beforeRun goes up while checkpoints are of the run. A parent was there before its child: the way up has an end.
	beforeRun = `WITH RECURSIVE up AS (
			SELECT u.checkpoint_id, u.parent, r.run_id FROM upstream_checkpoints u JOIN transcripts r USING (thread_id, checkpoint_id)
			WHERE u.thread_id = $1 AND u.checkpoint_id = $2
			UNION ALL
			SELECT u.checkpoint_id, u.parent, r.run_id FROM up
			JOIN upstream_checkpoints u ON u.thread_id = $1 AND u.checkpoint_id = up.parent
			JOIN transcripts r ON r.thread_id = $1 AND r.checkpoint_id = up.parent
			WHERE up.run_id = $3
		) SELECT checkpoint_id FROM up WHERE run_id <> $3`
)

func scanLink(r *row) record.Link {
	return record.Link{ID: id.Checkpoint(r.Text(0)), Parent: id.Checkpoint(r.Text(1)), Incomplete: r.Bool(2), Run: id.Run(r.Text(3)), Version: r.Text(4)}
}

// Links is record.Store.Links.
func (u upstream) Links(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (map[id.Checkpoint]record.Link, error) {
	found := make(map[id.Checkpoint]record.Link, len(checkpoints))
	err := u.read(ctx, func(q *reader) error {
		return q.query(linksOf, func(r *row) error {
			l := scanLink(r)
			found[l.ID] = l
			return nil
		}, t, checkpoints)
	})
	if err != nil {
		return nil, fmt.Errorf("recorded checkpoints of thread %s: %w", t, err)
	}
	return found, nil
}

// OfVersion is record.Store.OfVersion.
func (u upstream) OfVersion(ctx context.Context, t id.Thread, version string) (l record.Link, found bool, err error) {
	err = u.read(ctx, func(q *reader) error {
		found, err = one(q, linkOfWords, func(r *row) error {
			l = scanLink(r)
			return nil
		}, t, version)
		return err
	})
	if err != nil {
		err = fmt.Errorf("recorded checkpoints of thread %s: %w", t, err)
	}
	return l, found, err
}

// Before is record.Store.Before.
func (u upstream) Before(ctx context.Context, t id.Thread, c id.Checkpoint, r id.Run) (found id.Checkpoint, err error) {
	err = u.read(ctx, func(q *reader) error {
		_, err := one(q, beforeRun, func(row *row) error {
			found = id.Checkpoint(row.Text(0))
			return nil
		}, t, c, r)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("ancestors of checkpoint %s of thread %s: %w", c, t, err)
	}
	return found, nil
}

// Link is record.Tx.Link.
func (tx upstreamTx) Link(t id.Thread, c id.Checkpoint) (l *record.Link, err error) {
	tx.lock(t)
	_, err = one(tx, linkOf, func(r *row) error {
		found := scanLink(r)
		l = &found
		return nil
	}, t, c)
	return l, err
}

// PutLink is record.Tx.PutLink.
func (tx upstreamTx) PutLink(t id.Thread, l record.Link) error {
	tx.lock(t)
	return tx.exec("INSERT INTO upstream_checkpoints (thread_id, checkpoint_id, parent, incomplete) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
		t, l.ID, l.Parent, l.Incomplete)
}

// Sibling is record.Tx.Sibling.
func (tx upstreamTx) Sibling(t id.Thread, parent id.Checkpoint, version string) (out *eventstore.Row, err error) {
	tx.lock(t)
	_, err = one(tx, siblingOf, func(r *row) error {
		out = scanRow(r, t)
		return nil
	}, t, version, parent)
	return out, err
}

// NoteDeleted is record.Tx.NoteDeleted.
func (tx upstreamTx) NoteDeleted(t id.Thread, after id.Checkpoint, ids []string) error {
	tx.lock(t)
	var all []string
	if _, err := one(tx, "SELECT ids FROM upstream_deleted WHERE thread_id = $1 AND after = $2", func(r *row) error {
		return json.Unmarshal(r.Bytes(0), &all)
	}, t, after); err != nil {
		return err
	}
	list, err := json.Marshal(append(all, ids...))
	if err != nil {
		return err
	}
	return tx.exec("INSERT INTO upstream_deleted (thread_id, after, ids) VALUES ($1, $2, $3) ON CONFLICT (thread_id, after) DO UPDATE SET ids = excluded.ids", t, after, list)
}

// TakeDeleted is record.Tx.TakeDeleted.
func (tx upstreamTx) TakeDeleted(t id.Thread, before id.Checkpoint) (ids []string, err error) {
	tx.lock(t)
	if err := tx.query("SELECT ids FROM upstream_deleted WHERE thread_id = $1 AND after < $2 ORDER BY after", func(r *row) error {
		var more []string
		if err := json.Unmarshal(r.Bytes(0), &more); err != nil {
			return err
		}
		ids = append(ids, more...)
		return nil
	}, t, before); err != nil || ids == nil {
		return nil, err
	}
	return ids, tx.exec("DELETE FROM upstream_deleted WHERE thread_id = $1 AND after < $2", t, before)
}

// DeleteThread is record.Tx.DeleteThread. Servers, whose threads have none of this, do without.
func (tx upstreamTx) DeleteThread(t id.Thread) error {
	if err := tx.Tx.DeleteThread(t); err != nil {
		return err
	}
	for _, table := range []string{"upstream_checkpoints", "upstream_deleted"} {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = $1", t); err != nil {
			return fmt.Errorf("delete thread %s: %w", t, err)
		}
	}
	return nil
}
