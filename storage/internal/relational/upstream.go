package relational

import (
	"context"
	"encoding/json"
	"fmt"

	"understudy/eventstore"
	"understudy/id"
	"understudy/proxy/record"
)

const (
	linkColumns = "u.checkpoint_id, u.parent, u.incomplete, r.run_id, r.version"
	links       = "SELECT " + linkColumns + " FROM upstream_checkpoints u JOIN transcripts r USING (thread_id, checkpoint_id) WHERE u.thread_id = $1 "
)

var (
	LinkOf        = same(links + "AND u.checkpoint_id = $2")
	linksOf       = differing(links+"AND u.checkpoint_id = ANY($2)", links+"AND u.checkpoint_id IN (SELECT value FROM json_each($2))")
	LinkOfVersion = indexed("transcripts_version", "SELECT "+linkColumns+" FROM transcripts r%s JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) "+
		"WHERE r.thread_id = $1 AND r.version = $2 ORDER BY r.checkpoint_id DESC LIMIT 1")
	SiblingOf = indexed("transcripts_version", "SELECT r.checkpoint_id, node, stamp, version, summary, source, run_id, opaque FROM transcripts r%s "+
		"JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) WHERE r.thread_id = $1 AND r.version = $2 AND u.parent = $3 "+
		"ORDER BY r.checkpoint_id DESC LIMIT 1")
	// BeforeRun walks up while checkpoints belong to the run. A parent exists before its child, so
	// the walk ends.
	BeforeRun = same(`WITH RECURSIVE up AS (
			SELECT u.checkpoint_id, u.parent, r.run_id FROM upstream_checkpoints u JOIN transcripts r USING (thread_id, checkpoint_id)
			WHERE u.thread_id = $1 AND u.checkpoint_id = $2
			UNION ALL
			SELECT u.checkpoint_id, u.parent, r.run_id FROM up
			JOIN upstream_checkpoints u ON u.thread_id = $1 AND u.checkpoint_id = up.parent
			JOIN transcripts r ON r.thread_id = $1 AND r.checkpoint_id = up.parent
			WHERE up.run_id = $3
		) SELECT checkpoint_id FROM up WHERE run_id <> $3`)
	putLink       = same("INSERT INTO upstream_checkpoints (thread_id, checkpoint_id, parent, incomplete) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING")
	deletedAfter  = same("SELECT ids FROM upstream_deleted WHERE thread_id = $1 AND after = $2")
	deletedBefore = same("SELECT ids FROM upstream_deleted WHERE thread_id = $1 AND after < $2 ORDER BY after")
	putDeleted    = same(upsert("upstream_deleted", "thread_id, after", "ids"))
	takeDeleted   = same("DELETE FROM upstream_deleted WHERE thread_id = $1 AND after < $2")
)

// scanLink reads a link: a recorded checkpoint and its parent.
func scanLink(r Row) record.Link {
	return record.Link{ID: id.Checkpoint(r.Text(0)), Parent: id.Checkpoint(r.Text(1)), Incomplete: r.Bool(2), Run: id.Run(r.Text(3)), Version: r.Text(4)}
}

// Upstream has the reads of record.Store: threads of another server, with transcripts and without
// checkpoints.
type Upstream struct{ db DB }

// NewUpstream returns the reads of what is recorded of an upstream.
func NewUpstream(db DB) Upstream { return Upstream{db} }

// Links implements record.Store.
func (u Upstream) Links(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (map[id.Checkpoint]record.Link, error) {
	text, of := linksOf, any(checkpoints)
	if len(checkpoints) == 1 {
		text, of = LinkOf, checkpoints[0]
	}
	list, err := from(ctx, u.db.Read, func(q Querier) ([]record.Link, error) { return all(q, text, scanLink, t, of) })
	if err != nil {
		return nil, fmt.Errorf("recorded checkpoints of thread %s: %w", t, err)
	}
	found := make(map[id.Checkpoint]record.Link, len(list))
	for _, l := range list {
		found[l.ID] = l
	}
	return found, nil
}

// OfVersion implements record.Store.
func (u Upstream) OfVersion(ctx context.Context, t id.Thread, version string) (l record.Link, found bool, err error) {
	err = u.db.Read(ctx, func(q Querier) error {
		l, found, err = first(q, LinkOfVersion, scanLink, t, version)
		return err
	})
	if err != nil {
		err = fmt.Errorf("recorded checkpoints of thread %s: %w", t, err)
	}
	return l, found, err
}

// Before implements record.Store.
func (u Upstream) Before(ctx context.Context, t id.Thread, c id.Checkpoint, r id.Run) (id.Checkpoint, error) {
	found, err := from(ctx, u.db.Read, func(q Querier) (id.Checkpoint, error) {
		found, _, err := first(q, BeforeRun, text[id.Checkpoint], t, c, r)
		return found, err
	})
	if err != nil {
		return "", fmt.Errorf("ancestors of checkpoint %s of thread %s: %w", c, t, err)
	}
	return found, nil
}

// Link implements record.Tx.
func (tx *Tx) Link(t id.Thread, c id.Checkpoint) (*record.Link, error) {
	tx.Lock(t)
	l, found, err := first(tx, LinkOf, scanLink, t, c)
	if err != nil || !found {
		return nil, err
	}
	return &l, nil
}

// PutLink implements record.Tx.
func (tx *Tx) PutLink(t id.Thread, l record.Link) error {
	tx.Lock(t)
	return tx.Exec(putLink, t, l.ID, l.Parent, l.Incomplete)
}

// Sibling implements record.Tx.
func (tx *Tx) Sibling(t id.Thread, parent id.Checkpoint, version string) (*eventstore.Row, error) {
	tx.Lock(t)
	row, _, err := first(tx, SiblingOf, ScanRow(t), t, version, parent)
	return row, err
}

// NoteDeleted implements record.Tx.
func (tx *Tx) NoteDeleted(t id.Thread, after id.Checkpoint, ids []string) error {
	tx.Lock(t)
	var noted []string
	if _, err := one(tx, deletedAfter, func(r Row) error { return json.Unmarshal(r.Bytes(0), &noted) }, t, after); err != nil {
		return err
	}
	list, err := json.Marshal(append(noted, ids...))
	if err != nil {
		return err
	}
	return tx.Exec(putDeleted, t, after, list)
}

// TakeDeleted implements record.Tx.
func (tx *Tx) TakeDeleted(t id.Thread, before id.Checkpoint) (ids []string, err error) {
	tx.Lock(t)
	if err := tx.Query(deletedBefore, func(r Row) error {
		var more []string
		if err := json.Unmarshal(r.Bytes(0), &more); err != nil {
			return err
		}
		ids = append(ids, more...)
		return nil
	}, t, before); err != nil || ids == nil {
		return nil, err
	}
	return ids, tx.Exec(takeDeleted, t, before)
}
