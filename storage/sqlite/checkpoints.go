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
	"understudy/storage/internal/rows"
)

const (
	selectCheckpoint = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, run_id, tasks, shape FROM checkpoints "
	oneCheckpoint    = selectCheckpoint + "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
	latestCheckpoint = selectCheckpoint + "WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"

	findCheckpoint = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
	findLatest     = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"

	keysOfNS = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ? " +
		"ORDER BY checkpoint_id DESC"
	keysOfAll = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_id < ? " +
		"ORDER BY checkpoint_id DESC, checkpoint_ns"
	keysOfID = "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_id = ? ORDER BY checkpoint_ns"

	selectBlob   = "SELECT type, blob FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?"
	selectWrites = "SELECT task_id, idx, channel, type, blob, task_path FROM checkpoint_writes " +
		"WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
)

func scanCheckpoint(s *sqlite.Stmt, t id.Thread) *checkpointer.Tuple {
	return &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{
		Key:      checkpointer.Key{Thread: t, NS: s.ColumnText(0), ID: id.Checkpoint(s.ColumnText(1))},
		Parent:   id.Checkpoint(s.ColumnText(2)),
		Data:     columnBytes(s, 3),
		Metadata: columnBytes(s, 4),
		Run:      id.Run(s.ColumnText(5)),
		Tasks:    columnBytes(s, 6),
		Shape:    s.ColumnText(7),
	}}
}

// loadRow loads a checkpoint alone; nil when there is none.
func loadRow(conn *sqlite.Conn, k checkpointer.Key) (out *checkpointer.Tuple, err error) {
	text, args := oneCheckpoint, []any{k.Thread, k.NS, k.ID}
	if k.ID == "" {
		text, args = latestCheckpoint, args[:2]
	}
	_, err = one(conn, text, func(st *sqlite.Stmt) error {
		out = scanCheckpoint(st, k.Thread)
		return nil
	}, args...)
	return out, err
}

// loadBare loads a checkpoint with its writes, not its blobs.
func loadBare(conn *sqlite.Conn, k checkpointer.Key) (*checkpointer.Tuple, error) {
	out, err := loadRow(conn, k)
	if err != nil || out == nil {
		return nil, err
	}
	return out, fillWrites(conn, out)
}

var _ checkpointer.HeadReader = (*Store)(nil)

// LoadHead is checkpointer.HeadReader.LoadHead.
func (s *Store) LoadHead(ctx context.Context, k checkpointer.Key) (out *checkpointer.Tuple, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) (err error) {
		out, err = loadBare(c, k)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load head of thread %s: %w", k.Thread, err)
	}
	return out, nil
}

// LoadCheckpoint is checkpointer.Reader.LoadCheckpoint.
func (s *Store) LoadCheckpoint(ctx context.Context, k checkpointer.Key) (out *checkpointer.Tuple, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) (err error) {
		if out, err = loadRow(c, k); err != nil || out == nil {
			return err
		}
		return newLoader(c, k.Thread).fill(out)
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint of thread %s: %w", k.Thread, err)
	}
	return out, nil
}

// ListCheckpoints is checkpointer.Reader.ListCheckpoints; checkpoints with the same id come in order of their namespaces.
func (s *Store) ListCheckpoints(ctx context.Context, q checkpointer.List) (out []*checkpointer.Tuple, err error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	before := string(q.Before)
	if before == "" {
		before = rows.LastText
	}
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		l := newLoader(c, q.Thread)
		// Keys come from an index alone. Rows are read until there are enough.
		visit := func(st *sqlite.Stmt) error {
			ns, checkpoint := st.ColumnText(0), st.ColumnText(1)
			if q.ID != "" && checkpoint >= before || q.ID != "" && q.NS != nil && ns != *q.NS {
				return nil
			}
			var t *checkpointer.Tuple
			if _, err := one(c, oneCheckpoint, func(st *sqlite.Stmt) error {
				t = scanCheckpoint(st, q.Thread)
				return nil
			}, q.Thread, ns, checkpoint); err != nil {
				return err
			}
			if !match.Everything() && !match.Match(t.Metadata) {
				return nil
			}
			if err := l.fill(t); err != nil {
				return err
			}
			out = append(out, t)
			if q.Limit > 0 && len(out) >= q.Limit {
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

// LoadShape is checkpointer.Reader.LoadShape.
func (s *Store) LoadShape(ctx context.Context, digest string) (shape checkpointer.Shape, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT shape FROM shapes WHERE digest = ?", func(st *sqlite.Stmt) error {
			shape = columnBytes(st, 0)
			return nil
		}, digest)
		return err
	})
	return shape, err
}

// LoadAnswer is checkpointer.Reader.LoadAnswer; nil, nil when there is none.
func (s *Store) LoadAnswer(ctx context.Context, k checkpointer.Key, key string) (answer json.RawMessage, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT answer FROM answers WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? AND key = ?",
			func(st *sqlite.Stmt) error {
				answer = columnBytes(st, 0)
				return nil
			}, k.Thread, k.NS, k.ID, key)
		return err
	})
	return answer, err
}

// KeepAnswer is checkpointer.Reader.KeepAnswer. An answer about a checkpoint that is gone meanwhile is not kept.
func (s *Store) KeepAnswer(ctx context.Context, k checkpointer.Key, key string, answer json.RawMessage) error {
	return s.write(ctx, func(tx *Tx) error {
		return tx.exec(`INSERT INTO answers (thread_id, checkpoint_ns, checkpoint_id, key, answer)
			SELECT thread_id, checkpoint_ns, checkpoint_id, ?4, ?5 FROM checkpoints
			WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3
			ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, key) DO UPDATE SET answer = excluded.answer`,
			k.Thread, k.NS, k.ID, key, answer)
	})
}

// PutCheckpoint is checkpointer.Tx.PutCheckpoint.
func (tx *Tx) PutCheckpoint(p *checkpointer.Put) error {
	if err := tx.putCheckpoint(p); err != nil {
		return fmt.Errorf("put checkpoint %s of thread %s: %w", p.ID, p.Thread, err)
	}
	return nil
}

func (tx *Tx) putCheckpoint(p *checkpointer.Put) error {
	tx.mark(p.Thread)
	metadata := p.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	row := []any{p.Thread, p.NS, p.ID, orNull(p.Parent), p.Data, metadata, p.Run, p.Shape, p.Tasks}
	if err := tx.exec(`INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, run_id, shape, tasks)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, row...); err != nil {
		return err
	}
	if tx.conn.Changes() == 0 {
		if err := tx.exec(`UPDATE checkpoints SET parent_checkpoint_id = ?4, checkpoint = ?5, metadata = ?6, run_id = ?7, shape = ?8, tasks = ?9
			WHERE thread_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3`, row...); err != nil {
			return err
		}
		// They were given about what was there before.
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
	return tx.exec("INSERT INTO shapes (digest, shape) VALUES (?, ?) ON CONFLICT DO NOTHING", p.Shape, p.ShapeJSON)
}

// PutWrites is checkpointer.Tx.PutWrites.
func (tx *Tx) PutWrites(k checkpointer.Key, writes []checkpointer.Write) error {
	const insert = "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO "
	for _, w := range writes {
		text := insert + "NOTHING"
		if w.Index < 0 {
			text = insert + "UPDATE SET channel = excluded.channel, type = excluded.type, blob = excluded.blob, task_path = excluded.task_path"
		}
		data := w.Data
		if data == nil {
			data = []byte{} // the column is never NULL
		}
		if err := tx.exec(text, k.Thread, k.NS, k.ID, w.TaskID, w.Index, w.Channel, w.Type, data, w.Path); err != nil {
			return fmt.Errorf("put writes of task %s on checkpoint %s: %w", w.TaskID, k.ID, err)
		}
	}
	return nil
}

// Head is checkpointer.Tx.Head.
func (tx *Tx) Head(t id.Thread) (*checkpointer.Tuple, error) {
	head, err := loadBare(tx.conn, checkpointer.Key{Thread: t})
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", t, err)
	}
	return head, nil
}

// Find is thread.Tx.Find.
func (tx *Tx) Find(k checkpointer.Key) (found id.Checkpoint, err error) {
	text, args := findCheckpoint, []any{k.Thread, k.NS, k.ID}
	if k.ID == "" {
		text, args = findLatest, args[:2]
	}
	_, err = tx.one(text, func(s *sqlite.Stmt) error {
		found = id.Checkpoint(s.ColumnText(0))
		return nil
	}, args...)
	return found, err
}

// checkpointTables hold rows of a checkpoint under its key.
var checkpointTables = []string{"checkpoints", "checkpoint_writes", "answers"}

// deleteCheckpoints deletes all that is kept of a thread's checkpoints.
func (tx *Tx) deleteCheckpoints(t id.Thread) error {
	tx.mark(t)
	for _, table := range append([]string{"checkpoint_blobs"}, checkpointTables...) {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = ?", t); err != nil {
			return err
		}
	}
	return tx.deleteLists(t)
}

// DeleteRunCheckpoints is checkpointer.Tx.DeleteRunCheckpoints. Blobs that no other checkpoint has go too, unless
// they are to be kept.
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

// dropCheckpoints deletes checkpoints of a thread with all that only they have, channel values excepted if they are to be kept.
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

// dropCheckpoint deletes a checkpoint with what is kept under its key.
func (tx *Tx) dropCheckpoint(k checkpointer.Key) error {
	tx.mark(k.Thread)
	for _, table := range checkpointTables {
		if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?", k.Thread, k.NS, k.ID); err != nil {
			return err
		}
	}
	return nil
}

// versions calls fn with the channel versions of the checkpoints that a statement gives.
func (tx *Tx) versions(text string, fn func(rows.ChannelVersion), args ...any) error {
	return tx.query(text, func(s *sqlite.Stmt) error {
		list, err := rows.ChannelVersions(columnBytes(s, 0))
		for _, v := range list {
			fn(v)
		}
		return err
	}, args...)
}
