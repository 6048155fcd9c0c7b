package postgres

import (
	"context"
	"fmt"

	"understudy/id"
	"understudy/storage/internal/relational"
	"understudy/thread"
)

const (
	pruneParents = "UPDATE checkpoints k SET parent_checkpoint_id = NULL WHERE" + ofKeys
	deleteBlobs  = "DELETE FROM checkpoint_blobs b USING unnest($2::text[], $3::text[], $4::text[]) AS w (ns, channel, version) " +
		"WHERE b.thread_id = $1 AND b.checkpoint_ns = w.ns AND b.channel = w.channel AND b.version = w.version"
	// lacking returns the checkpoints of a namespace that have a version of one of some channels
	// and no value of it.
	lacking = `SELECT c.checkpoint_id FROM checkpoints c WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 AND EXISTS (
		SELECT 1 FROM unnest($3::text[]) AS w (channel)
		WHERE c.checkpoint -> 'channel_versions' ? w.channel AND NOT coalesce(c.checkpoint -> 'channel_values', '{}') ? w.channel
		AND NOT EXISTS (SELECT 1 FROM checkpoint_blobs b WHERE b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = w.channel
			AND b.version = c.checkpoint -> 'channel_versions' ->> w.channel AND b.type <> 'empty'))`
)

// Remains implements thread.Store. Expired copies count as remains.
func (s *Store) Remains(ctx context.Context, limit int) ([]id.Thread, error) {
	if err := s.write(ctx, func(tx *Tx) error { return tx.exec(lapsedCopies) }); err != nil {
		return nil, fmt.Errorf("expired copies of threads: %w", err)
	}
	return s.Store.Remains(ctx, limit)
}

// PruneStep implements thread.Tx. The step names everything that goes.
func (tx *Tx) PruneStep(t id.Thread, step *thread.PruneStep) error {
	tx.lock(t)
	if err := tx.pruneStep(t, step); err != nil {
		return fmt.Errorf("prune checkpoints of thread %s: %w", t, err)
	}
	return nil
}

// pruneStep deletes checkpoints, values and parts with one statement each.
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

// RemoveThread implements thread.Tx. It deletes the row and what makes the thread visible, and
// leaves the rest to sweeps: the number of other rows is unbounded.
func (tx *Tx) RemoveThread(t id.Thread) error {
	if err := tx.deleteRows(t, deletesOfRow); err != nil {
		return fmt.Errorf("remove thread %s: %w", t, err)
	}
	if err := tx.Exec(relational.AddRemains, t); err != nil {
		return fmt.Errorf("remove thread %s: %w", t, err)
	}
	tx.changes(t)
	tx.store.lists.take(t)
	delete(tx.lists, t)
	tx.forget(t)
	tx.threads[t] = nil
	return nil
}
