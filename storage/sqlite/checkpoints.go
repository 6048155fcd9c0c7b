package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

const (
	// Lists of keys read only the primary key. Rows follow one by one, so that a small page of a
	// long thread stays cheap.
	keysOfNS = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ? " +
		"ORDER BY checkpoint_id DESC"
	keysOfAll = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_id < ? " +
		"ORDER BY checkpoint_id DESC, checkpoint_ns"
	keysOfID = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_id = ? ORDER BY checkpoint_ns"

	selectBlob   = "SELECT type, blob FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?"
	selectWrites = "SELECT task_id, idx, channel, type, blob, task_path FROM checkpoint_writes " +
		"WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
)

// ListCheckpoints implements checkpointer.Reader. Checkpoints with the same ID, of different
// namespaces, come in order of their namespaces.
func (s *Store) ListCheckpoints(ctx context.Context, q checkpointer.List) (out []*checkpointer.Tuple, err error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	before := string(q.Before)
	if before == "" {
		before = rows.LastText
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) (err error) {
		if q.Thread, err = relational.InReach(ctx, querier{c}, q.Thread); err != nil {
			return err
		}
		l := newLoader(c, q.Thread)
		l.bound(q.Bytes)
		// Rows are read until the page is full. Metadata is matched before values are loaded, which
		// is the expensive part.
		visit := func(st *sqlite.Stmt) error {
			ns, checkpoint := st.ColumnText(0), st.ColumnText(1)
			if q.ID != "" && checkpoint >= before || q.ID != "" && q.NS != nil && ns != *q.NS {
				return nil
			}
			t, err := relational.LoadRow(querier{c}, checkpointer.Key{Thread: q.Thread, NS: ns, ID: id.Checkpoint(checkpoint)})
			if err != nil {
				return err
			}
			if !match.Everything() && !match.Match(t.Metadata) {
				return nil
			}
			if q.Keys {
				t = &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{Key: t.Key}}
			} else if err := l.fill(t); err != nil {
				return err
			}
			if out = append(out, t); t.Left || q.Limit > 0 && len(out) >= q.Limit {
				return errStop
			}
			return nil
		}
		switch {
		case q.ID != "":
			return query(c, keysOfID, visit, q.Thread, q.ID)
		case q.NS != nil:
			return query(c, keysOfNS, visit, q.Thread, *q.NS, before)
		default:
			return query(c, keysOfAll, visit, q.Thread, before)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of thread %s: %w", q.Thread, err)
	}
	return out, nil
}

// PutCheckpoint implements checkpointer.Tx.
func (tx *Tx) PutCheckpoint(p *checkpointer.Put) error {
	if err := tx.putCheckpoint(p); err != nil {
		return fmt.Errorf("put checkpoint %s of thread %s: %w", p.ID, p.Thread, err)
	}
	return nil
}

// putCheckpoint inserts first and updates on conflict: almost every checkpoint is new.
func (tx *Tx) putCheckpoint(p *checkpointer.Put) error {
	tx.mark(p.Thread)
	metadata := p.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	row := []any{p.Thread, p.NS, p.ID, orNull(p.Parent), rows.JSON(p.Data), rows.JSON(metadata), p.Run, p.Shape, p.Tasks}
	if err := tx.exec(`INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, run_id, shape, tasks)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, row...); err != nil {
		return err
	}
	if tx.conn.Changes() == 0 {
		if err := tx.exec(`UPDATE checkpoints SET parent_checkpoint_id = ?4, checkpoint = ?5, metadata = ?6, run_id = ?7, shape = ?8, tasks = ?9
			WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3`, row...); err != nil {
			return err
		}
		// Stored explanations describe the previous version of the row.
		if err := tx.exec("DELETE FROM answers WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?", p.Thread, p.NS, p.ID); err != nil {
			return err
		}
	}
	for _, b := range p.Blobs {
		if err := tx.putBlob(p.Thread, p.NS, &b); err != nil {
			return fmt.Errorf("channel %s: %w", b.Channel, err)
		}
	}
	if p.ShapeJSON == nil {
		return nil
	}
	return tx.Exec(relational.PutShape, p.Shape, p.ShapeJSON)
}

// Head implements checkpointer.Tx. It loads the row and its writes, and no values.
func (tx *Tx) Head(t id.Thread) (*checkpointer.Tuple, error) {
	head, err := relational.LoadRow(tx, checkpointer.Key{Thread: t})
	if err == nil && head != nil {
		err = newLoader(tx.conn, t).fillWrites(head)
	}
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", t, err)
	}
	return head, nil
}

// checkpointTables are the tables with rows under a checkpoint's key.
var checkpointTables = []string{"checkpoints", "checkpoint_writes", "answers"}

// deleteCheckpoints deletes everything stored for the checkpoints of a thread.
func (tx *Tx) deleteCheckpoints(t id.Thread) error {
	tx.mark(t)
	for _, table := range append([]string{"checkpoint_blobs"}, checkpointTables...) {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = ?", t); err != nil {
			return err
		}
	}
	return tx.deleteLists(t)
}

// DeleteRunCheckpoints implements checkpointer.Tx. Values that no other checkpoint names are
// deleted too, unless keepValues.
func (tx *Tx) DeleteRunCheckpoints(t id.Thread, r id.Run, keepValues bool) error {
	if !keepValues {
		if plan, err := tx.planned(t, r); plan != nil {
			return tx.PruneStep(t, &plan.step)
		} else if err != nil {
			return err
		}
	}
	var keys []checkpointer.Key
	if err := tx.query("SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND run_id = ?", func(s *sqlite.Stmt) error {
		keys = append(keys, checkpointer.Key{Thread: t, NS: s.ColumnText(0), ID: id.Checkpoint(s.ColumnText(1))})
		return nil
	}, t, r); err != nil {
		return fmt.Errorf("delete checkpoints of run %s: %w", r, err)
	}
	if err := tx.dropCheckpoints(t, keys, keepValues); err != nil {
		return fmt.Errorf("delete checkpoints of run %s: %w", r, err)
	}
	return nil
}

// dropCheckpoints deletes checkpoints with everything that only they use. With keepValues it
// leaves channel values alone.
//
// A version of a channel is free if a deleted checkpoint names it and no remaining one does. So
// the deleted rows are read first, and then all remaining ones of their namespaces.
func (tx *Tx) dropCheckpoints(t id.Thread, keys []checkpointer.Key, keepValues bool) error {
	freed := map[string]map[rows.ChannelVersion]bool{} // by namespace
	for _, k := range keys {
		if err := tx.versions("SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
			func(v rows.ChannelVersion) {
				if freed[k.NS] == nil {
					freed[k.NS] = map[rows.ChannelVersion]bool{}
				}
				freed[k.NS][v] = true
			}, k.Thread, k.NS, k.ID); err != nil {
			return err
		}
		if err := tx.dropCheckpoint(k); err != nil {
			return err
		}
	}
	if keepValues {
		return nil
	}
	var gone compact.Set
	l := newLoader(tx.conn, t)
	for ns, versions := range freed {
		if err := tx.versions("SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?",
			func(v rows.ChannelVersion) { delete(versions, v) }, t, ns); err != nil {
			return err
		}
		for v := range versions {
			if err := tx.query(listOfOne, func(s *sqlite.Stmt) error {
				return l.named(columnBytes(s, 1), &gone)
			}, t, ns, v.Channel, v.Version); err != nil {
				return fmt.Errorf("channel %s, version %s: %w", v.Channel, v.Version, err)
			}
			if err := tx.exec(deleteBlob, t, ns, v.Channel, v.Version); err != nil {
				return err
			}
		}
	}
	return tx.sweep(t, gone)
}

// dropCheckpoint deletes the rows under a checkpoint's key.
func (tx *Tx) dropCheckpoint(k checkpointer.Key) error {
	tx.mark(k.Thread)
	for _, table := range checkpointTables {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?", k.Thread, k.NS, k.ID); err != nil {
			return err
		}
	}
	return nil
}

// versions calls fn for each channel version of the checkpoints that a statement returns.
func (tx *Tx) versions(text string, fn func(rows.ChannelVersion), args ...any) error {
	return tx.query(text, func(s *sqlite.Stmt) error {
		list, err := rows.ChannelVersions(columnBytes(s, 0))
		for _, v := range list {
			fn(v)
		}
		return err
	}, args...)
}
