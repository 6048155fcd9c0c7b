package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
	"understudy/proxy/record"
)

// Upstream is the store as package record wants it: threads of another server, with their transcripts and without their checkpoints.
func (s *Store) Upstream() record.Store { return upstream{s} }

type upstream struct{ *Store }

var _ record.Tx = (*Tx)(nil)

// Record is record.Store.Record.
func (u upstream) Record(ctx context.Context, fn func(record.Tx) error) error {
	return u.write(ctx, func(tx *Tx) error { return fn(tx) })
}

const (
	linkColumns = "u.checkpoint_id, u.parent, u.incomplete, r.run_id, r.version"
	links       = "SELECT " + linkColumns + " FROM upstream_checkpoints u JOIN transcripts r USING (thread_id, checkpoint_id) WHERE u.thread_id = ? "
	linkOf      = links + "AND u.checkpoint_id = ?"
	linksOf     = links + "AND u.checkpoint_id IN (SELECT value FROM json_each(?))"
	linkOfWords = "SELECT " + linkColumns + " FROM transcripts r INDEXED BY transcripts_version JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) " +
		"WHERE r.thread_id = ? AND r.version = ? ORDER BY r.checkpoint_id DESC LIMIT 1"
	siblingOf = "SELECT r.checkpoint_id, node, stamp, version, summary, source, run_id, opaque FROM transcripts r INDEXED BY transcripts_version " +
		"JOIN upstream_checkpoints u USING (thread_id, checkpoint_id) WHERE r.thread_id = ? AND r.version = ? AND u.parent = ? " +
		"ORDER BY r.checkpoint_id DESC LIMIT 1"
)

func scanLink(s *sqlite.Stmt) record.Link {
	return record.Link{
		ID: id.Checkpoint(s.ColumnText(0)), Parent: id.Checkpoint(s.ColumnText(1)), Incomplete: s.ColumnBool(2),
		Run: id.Run(s.ColumnText(3)), Version: s.ColumnText(4),
	}
}

// Links is record.Store.Links.
func (u upstream) Links(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (map[id.Checkpoint]record.Link, error) {
	text, of := linkOf, any(nil)
	if len(checkpoints) == 1 {
		of = checkpoints[0]
	} else {
		list, err := jsonTexts(checkpoints)
		if err != nil {
			return nil, err
		}
		text, of = linksOf, list
	}
	found := make(map[id.Checkpoint]record.Link, len(checkpoints))
	err := u.read(ctx, func(c *sqlite.Conn) error {
		return query(c, text, func(s *sqlite.Stmt) error {
			l := scanLink(s)
			found[l.ID] = l
			return nil
		}, t, of)
	})
	if err != nil {
		return nil, fmt.Errorf("recorded checkpoints of thread %s: %w", t, err)
	}
	return found, nil
}

// OfVersion is record.Store.OfVersion.
func (u upstream) OfVersion(ctx context.Context, t id.Thread, version string) (l record.Link, found bool, err error) {
	err = u.read(ctx, func(c *sqlite.Conn) error {
		found, err = one(c, linkOfWords, func(s *sqlite.Stmt) error {
			l = scanLink(s)
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
func (u upstream) Before(ctx context.Context, t id.Thread, checkpoint id.Checkpoint, r id.Run) (found id.Checkpoint, err error) {
	err = u.snapshot(ctx, func(c *sqlite.Conn) error {
		// A parent was there before its child: the way up has an end.
		for found = checkpoint; found != ""; {
			var l record.Link
			known, err := one(c, linkOf, func(s *sqlite.Stmt) error {
				l = scanLink(s)
				return nil
			}, t, found)
			if err != nil {
				return err
			}
			if !known {
				found = ""
				return nil
			}
			if l.Run != r {
				return nil
			}
			found = l.Parent
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("ancestors of checkpoint %s of thread %s: %w", checkpoint, t, err)
	}
	return found, nil
}

// Link is record.Tx.Link.
func (tx *Tx) Link(t id.Thread, c id.Checkpoint) (l *record.Link, err error) {
	_, err = tx.one(linkOf, func(s *sqlite.Stmt) error {
		found := scanLink(s)
		l = &found
		return nil
	}, t, c)
	return l, err
}

// PutLink is record.Tx.PutLink.
func (tx *Tx) PutLink(t id.Thread, l record.Link) error {
	return tx.exec("INSERT OR IGNORE INTO upstream_checkpoints (thread_id, checkpoint_id, parent, incomplete) VALUES (?, ?, ?, ?)", t, l.ID, l.Parent, l.Incomplete)
}

// Sibling is record.Tx.Sibling.
func (tx *Tx) Sibling(t id.Thread, parent id.Checkpoint, version string) (row *eventstore.Row, err error) {
	_, err = tx.one(siblingOf, func(s *sqlite.Stmt) error {
		row = scanRow(s, t)
		return nil
	}, t, version, parent)
	return row, err
}

// NoteDeleted is record.Tx.NoteDeleted.
func (tx *Tx) NoteDeleted(t id.Thread, after id.Checkpoint, ids []string) error {
	var all []string
	if _, err := tx.one("SELECT ids FROM upstream_deleted WHERE thread_id = ? AND after = ?", func(s *sqlite.Stmt) error {
		return json.Unmarshal(columnBytes(s, 0), &all)
	}, t, after); err != nil {
		return err
	}
	list, err := json.Marshal(append(all, ids...))
	if err != nil {
		return err
	}
	return tx.exec("INSERT OR REPLACE INTO upstream_deleted (thread_id, after, ids) VALUES (?, ?, ?)", t, after, list)
}

// TakeDeleted is record.Tx.TakeDeleted.
func (tx *Tx) TakeDeleted(t id.Thread, before id.Checkpoint) (ids []string, err error) {
	if err := tx.query("SELECT ids FROM upstream_deleted WHERE thread_id = ? AND after < ? ORDER BY after", func(s *sqlite.Stmt) error {
		var more []string
		if err := json.Unmarshal(columnBytes(s, 0), &more); err != nil {
			return err
		}
		ids = append(ids, more...)
		return nil
	}, t, before); err != nil || ids == nil {
		return nil, err
	}
	return ids, tx.exec("DELETE FROM upstream_deleted WHERE thread_id = ? AND after < ?", t, before)
}
