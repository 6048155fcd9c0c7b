package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

const (
	pruneParent = "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
	deleteBlob  = "DELETE FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?"
	hasValue    = "SELECT 1 FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ? AND type <> 'empty'"
)

// PruneStep implements thread.Tx. The step names everything that goes; it was computed on a
// reading connection.
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

// RemoveThread implements thread.Tx. It deletes the row and what makes the thread visible, and
// leaves the rest to sweeps: the number of other rows is unbounded.
func (tx *Tx) RemoveThread(t id.Thread) error {
	tx.mark(t)
	if err := tx.deleteRow(t); err != nil {
		return err
	}
	for _, text := range append([]string{relational.AddRemains.SQLite}, deletesOfRare...) {
		if err := tx.exec(text, t); err != nil {
			return fmt.Errorf("remove thread %s: %w", t, err)
		}
	}
	tx.lists.forget(t)
	tx.LogChanged(t)
	return nil
}

// whole reports whether a checkpoint has a value for each of channels that it has a version of, in
// checkpoint_blobs or inline.
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
