package postgres

import (
	"context"
	"fmt"

	"github.com/tidwall/gjson"

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
	hasTranscript = `EXISTS (SELECT 1 FROM transcripts r WHERE r.thread_id = c.thread_id COLLATE "C" AND r.checkpoint_id = c.checkpoint_id COLLATE "C")`
	unrecorded    = "SELECT 1 FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = '' AND NOT " + hasTranscript + " LIMIT 1"
	lineage       = "SELECT c.checkpoint_id, coalesce(c.parent_checkpoint_id, ''), " + hasTranscript +
		" FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = '' ORDER BY c.checkpoint_id"
)

// Unrecorded is eventstore.Archive.Unrecorded. It reads two indexes side by side, up to the first checkpoint that lacks a row.
func (s *Store) Unrecorded(ctx context.Context, t id.Thread) (found bool, err error) {
	err = s.read(ctx, func(c *reader) error {
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
	err = s.read(ctx, func(c *reader) error {
		return c.query(lineage, func(r *row) error {
			links = append(links, eventstore.Link{
				ID: id.Checkpoint(r.Text(0)), Parent: id.Checkpoint(r.Text(1)), Recorded: r.Bool(2),
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
func (s *Store) RootCheckpoint(ctx context.Context, t id.Thread, checkpoint id.Checkpoint) (out *checkpointer.Checkpoint, err error) {
	err = s.read(ctx, func(c *reader) error {
		_, err := one(c, oneCheckpoint, func(r *row) error {
			out = &scanCheckpoint(r, t).Checkpoint
			return nil
		}, t, "", checkpoint)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s of thread %s: %w", checkpoint, t, err)
	}
	return out, nil
}

// RootValue is eventstore.Archive.RootValue.
func (s *Store) RootValue(ctx context.Context, t id.Thread, channel, version string) (v eventstore.Value, err error) {
	err = s.snapshot(ctx, func(c *reader) error {
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
	tx.lock(t)
	return one(tx, "SELECT 1 FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2", nil, t, c)
}

// DropTranscripts is eventstore.BackfillTx.DropTranscripts.
func (tx *Tx) DropTranscripts(t id.Thread, checkpoints []id.Checkpoint) error {
	tx.lock(t)
	clear(tx.rows)
	err := tx.exec("DELETE FROM transcripts WHERE thread_id = $1 AND checkpoint_id = ANY($2)", t, checkpoints)
	if err == nil {
		gone := make(map[string]bool, len(checkpoints))
		for _, c := range checkpoints {
			gone[string(c)] = true
		}
		err = tx.markEvents("SELECT seq, metadata FROM events WHERE thread_id = $1 AND metadata IS NOT NULL",
			func(metadata []byte) bool { return gone[gjson.GetBytes(metadata, "checkpoint_id").String()] }, t)
	}
	if err != nil {
		return fmt.Errorf("drop transcripts of thread %s: %w", t, err)
	}
	return nil
}
