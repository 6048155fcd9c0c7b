package sqlite

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/storage/internal/rows"
)

var (
	_ eventstore.Archive    = (*Store)(nil)
	_ eventstore.BackfillTx = (*Tx)(nil)
)

const (
	hasTranscript = "EXISTS (SELECT 1 FROM transcripts r WHERE r.thread_id = c.thread_id AND r.checkpoint_id = c.checkpoint_id)"
	unrecorded    = "SELECT 1 FROM checkpoints c WHERE c.thread_id = ? AND c.checkpoint_ns = '' AND NOT " + hasTranscript + " LIMIT 1"
	lineage       = "SELECT c.checkpoint_id, c.parent_checkpoint_id, " + hasTranscript +
		" FROM checkpoints c WHERE c.thread_id = ? AND c.checkpoint_ns = '' ORDER BY c.checkpoint_id"
)

// Unrecorded is eventstore.Archive.Unrecorded. It reads two indexes side by side, up to the first checkpoint that lacks a row.
func (s *Store) Unrecorded(ctx context.Context, t id.Thread) (found bool, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		found, err = one(c, unrecorded, nil, t)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("unrecorded checkpoints of thread %s: %w", t, err)
	}
	return found, nil
}

// Lineage is eventstore.Archive.Lineage.
func (s *Store) Lineage(ctx context.Context, t id.Thread) (links []eventstore.Link, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, lineage, func(st *sqlite.Stmt) error {
			links = append(links, eventstore.Link{
				ID: id.Checkpoint(st.ColumnText(0)), Parent: id.Checkpoint(st.ColumnText(1)), Recorded: st.ColumnBool(2),
			})
			return nil
		}, t)
	})
	if err != nil {
		return nil, fmt.Errorf("lineage of thread %s: %w", t, err)
	}
	return links, nil
}

// RootCheckpoint is eventstore.Archive.RootCheckpoint.
func (s *Store) RootCheckpoint(ctx context.Context, t id.Thread, checkpoint id.Checkpoint) (row *checkpointer.Checkpoint, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, oneCheckpoint, func(st *sqlite.Stmt) error {
			row = &scanCheckpoint(st, t).Checkpoint
			return nil
		}, t, "", checkpoint)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s of thread %s: %w", checkpoint, t, err)
	}
	return row, nil
}

// RootValue is eventstore.Archive.RootValue.
func (s *Store) RootValue(ctx context.Context, t id.Thread, channel, version string) (v eventstore.Value, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		b, err := newLoader(c, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
		if b != nil {
			v = eventstore.Value{Type: b.Type, Data: b.Bytes()}
		}
		return err
	})
	if err != nil {
		return v, fmt.Errorf("channel %s of thread %s: %w", channel, t, err)
	}
	return v, nil
}

// Backfill is eventstore.Archive.Backfill.
func (s *Store) Backfill(ctx context.Context, fn func(eventstore.BackfillTx) error) error {
	return s.write(ctx, func(tx *Tx) error { return fn(tx) })
}

// HasRootCheckpoint is eventstore.BackfillTx.HasRootCheckpoint.
func (tx *Tx) HasRootCheckpoint(t id.Thread, c id.Checkpoint) (bool, error) {
	return tx.one("SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?", nil, t, c)
}

// DropTranscripts is eventstore.BackfillTx.DropTranscripts.
func (tx *Tx) DropTranscripts(t id.Thread, checkpoints []id.Checkpoint) error {
	list, err := jsonTexts(checkpoints)
	if err != nil {
		return err
	}
	for _, text := range []string{
		"DELETE FROM transcripts WHERE thread_id = ? AND checkpoint_id IN (SELECT value FROM json_each(?))",
		// Their metadata is what recording wrote: valid, with the checkpoint's id.
		`UPDATE events SET metadata = CAST(json_set(CAST(metadata AS TEXT), '$.rolled_back', json('true')) AS BLOB)
			WHERE thread_id = ? AND metadata IS NOT NULL AND json_extract(CAST(metadata AS TEXT), '$.checkpoint_id') IN (SELECT value FROM json_each(?))`,
	} {
		if err := tx.exec(text, t, list); err != nil {
			return fmt.Errorf("drop transcripts of thread %s: %w", t, err)
		}
	}
	return nil
}
