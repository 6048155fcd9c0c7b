package relational

import (
	"context"
	"encoding/json"
	"fmt"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/transfer"
)

// On Postgres checkpoints has LangGraph's own columns, and snapshots has ours. The tables of
// LangGraph have the collation of the database, ours have "C": where they meet, ours is said.
const (
	checkpointsPostgres = "SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata, s.run_id, s.tasks, s.shape FROM checkpoints c " +
		`LEFT JOIN snapshots s ON s.thread_id = c.thread_id COLLATE "C" AND s.checkpoint_ns = c.checkpoint_ns COLLATE "C" AND s.checkpoint_id = c.checkpoint_id COLLATE "C" `
	checkpointsSQLite = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, run_id, tasks, shape FROM checkpoints c "
)

// SelectCheckpoints returns a statement with the columns of ScanCheckpoint, for the table c.
func SelectCheckpoints(where string) Statement {
	return differing(checkpointsPostgres+where, checkpointsSQLite+where)
}

// ScanCheckpoint reads a checkpoint of a thread, without its values and writes.
func ScanCheckpoint(t id.Thread) func(Row) *checkpointer.Tuple {
	return func(r Row) *checkpointer.Tuple {
		return &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{
			Key:      checkpointer.Key{Thread: t, NS: r.Text(0), ID: id.Checkpoint(r.Text(1))},
			Parent:   id.Checkpoint(r.Text(2)),
			Data:     r.Bytes(3),
			Metadata: r.Bytes(4),
			Run:      id.Run(r.Text(5)),
			Tasks:    r.Bytes(6),
			Shape:    r.Text(7),
		}}
	}
}

var (
	OneCheckpoint    = SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 AND c.checkpoint_id = $3")
	LatestCheckpoint = SelectCheckpoints("WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 ORDER BY c.checkpoint_id DESC LIMIT 1")

	findCheckpoint = same("SELECT checkpoint_id FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3")
	FindLatest     = same("SELECT checkpoint_id FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = $2 ORDER BY checkpoint_id DESC LIMIT 1")
	linksOfThread  = same("SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints WHERE thread_id = $1 ORDER BY checkpoint_ns, checkpoint_id")

	selectShape  = same("SELECT shape FROM shapes WHERE digest = $1")
	PutShape     = same("INSERT INTO shapes (digest, shape) VALUES ($1, $2) ON CONFLICT DO NOTHING")
	selectAnswer = same("SELECT answer FROM answers WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3 AND key = $4")
	putAnswer    = same(`INSERT INTO answers (thread_id, checkpoint_ns, checkpoint_id, key, answer)
		SELECT $1, $2, $3, $4, $5 WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3)
		ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, key) DO UPDATE SET answer = excluded.answer`)
)

// LoadRow loads a checkpoint without its values and writes; nil if there is none.
func LoadRow(q Querier, k checkpointer.Key) (*checkpointer.Tuple, error) {
	text, args := OneCheckpoint, []any{k.Thread, k.NS, k.ID}
	if k.ID == "" {
		text, args = LatestCheckpoint, args[:2]
	}
	row, _, err := first(q, text, ScanCheckpoint(k.Thread), args...)
	return row, err
}

// LoadCheckpoint implements checkpointer.Reader.
func (s checkpointStore) LoadCheckpoint(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	out, err := fromThread(ctx, s.base, k.Thread, s.db.Snapshot, func(q Querier, t id.Thread) (*checkpointer.Tuple, error) {
		k.Thread = t
		row, err := LoadRow(q, k)
		if err != nil || row == nil {
			return nil, err
		}
		return row, s.db.Fill(q, k.Thread, 0, row)
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint of thread %s: %w", k.Thread, err)
	}
	return out, nil
}

// LoadHead implements checkpointer.HeadReader.
func (s checkpointStore) LoadHead(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	out, err := fromThread(ctx, s.base, k.Thread, s.db.Snapshot, func(q Querier, t id.Thread) (*checkpointer.Tuple, error) {
		k.Thread = t
		row, err := LoadRow(q, k)
		if err != nil || row == nil {
			return nil, err
		}
		return row, s.db.FillWrites(q, row)
	})
	if err != nil {
		return nil, fmt.Errorf("load head of thread %s: %w", k.Thread, err)
	}
	return out, nil
}

// LoadParts implements checkpointer.PartReader.
func (s checkpointStore) LoadParts(ctx context.Context, k checkpointer.Key, picks []checkpointer.Pick) (*checkpointer.Tuple, error) {
	out, err := fromThread(ctx, s.base, k.Thread, s.db.Snapshot, func(q Querier, t id.Thread) (*checkpointer.Tuple, error) {
		k.Thread = t
		row, err := LoadRow(q, k)
		if err != nil || row == nil {
			return nil, err
		}
		return row, s.db.FillParts(q, row, picks)
	})
	if err != nil {
		return nil, fmt.Errorf("load parts of thread %s: %w", k.Thread, err)
	}
	return out, nil
}

// Positions returns the positions of picked items in a list of so many items.
func Positions(picks []checkpointer.Pick, length int) []int {
	out := make([]int, len(picks))
	for i, p := range picks {
		out[i] = p.Position(length)
	}
	return out
}

// Checkpoints implements transfer.Target.
func (s checkpointStore) Checkpoints(ctx context.Context, t id.Thread, named []transfer.Link, bytes int) ([]*checkpointer.Tuple, error) {
	list, err := from(ctx, s.db.Snapshot, func(q Querier) (list []*checkpointer.Tuple, err error) {
		size := 0
		scan := ScanCheckpoint(t)
		for _, l := range named {
			if err := q.Ask(OneCheckpoint, func(r Row) error {
				row := scan(r)
				if size += len(row.Data) + len(row.Metadata) + len(row.Tasks); bytes > 0 && len(list) > 0 && size > bytes {
					checkpointer.Leave(row)
				}
				list = append(list, row)
				return nil
			}, t, l.NS, l.ID); err != nil {
				return nil, err
			}
		}
		if err := q.Send(); err != nil {
			return nil, err
		}
		return list, s.db.Fill(q, t, bytes, list...)
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints of thread %s: %w", t, err)
	}
	return list, nil
}

// RootValue implements eventstore.Archive.
func (s checkpointStore) RootValue(ctx context.Context, t id.Thread, channel, version string) (v eventstore.Value, err error) {
	b, err := fromThread(ctx, s.base, t, s.db.Snapshot, func(q Querier, t id.Thread) (*checkpointer.Blob, error) { return s.db.Value(q, t, channel, version) })
	if err != nil {
		return v, fmt.Errorf("channel %s of thread %s: %w", channel, t, err)
	}
	if b != nil {
		v = eventstore.Value{Type: b.Type, Data: b.Bytes()}
	}
	return v, nil
}

// RootCheckpoint implements eventstore.Archive.
func (s checkpointStore) RootCheckpoint(ctx context.Context, t id.Thread, c id.Checkpoint) (*checkpointer.Checkpoint, error) {
	row, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) (*checkpointer.Tuple, error) {
		return LoadRow(q, checkpointer.Key{Thread: t, ID: c})
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s of thread %s: %w", c, t, err)
	}
	if row == nil {
		return nil, nil
	}
	return &row.Checkpoint, nil
}

// Links implements transfer.Target.
func (s checkpointStore) Links(ctx context.Context, t id.Thread) ([]transfer.Link, error) {
	list, err := from(ctx, s.db.Read, func(q Querier) ([]transfer.Link, error) {
		return all(q, linksOfThread, func(r Row) transfer.Link {
			return transfer.Link{NS: r.Text(0), ID: id.Checkpoint(r.Text(1)), Parent: id.Checkpoint(r.Text(2))}
		}, t)
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoints of thread %s: %w", t, err)
	}
	return list, nil
}

// LoadShape implements checkpointer.Reader.
func (s checkpointStore) LoadShape(ctx context.Context, digest string) (checkpointer.Shape, error) {
	return from(ctx, s.db.Read, func(q Querier) (checkpointer.Shape, error) {
		shape, _, err := first(q, selectShape, bytesOf, digest)
		return shape, err
	})
}

// LoadAnswer implements checkpointer.Reader; nil, nil if there is none.
func (s checkpointStore) LoadAnswer(ctx context.Context, k checkpointer.Key, key string) (json.RawMessage, error) {
	return fromThread(ctx, s.base, k.Thread, s.db.Read, func(q Querier, t id.Thread) (json.RawMessage, error) {
		answer, _, err := first(q, selectAnswer, bytesOf, t, k.NS, k.ID, key)
		return answer, err
	})
}

// KeepAnswer implements checkpointer.Reader. It stores nothing if the checkpoint is gone by now.
func (s checkpointStore) KeepAnswer(ctx context.Context, k checkpointer.Key, key string, answer json.RawMessage) error {
	return s.db.Write(ctx, func(tx *Tx) error {
		tx.Lock(k.Thread)
		return tx.Exec(putAnswer, k.Thread, k.NS, k.ID, key, answer)
	})
}

// Find implements thread.Tx.
func (tx *Tx) Find(k checkpointer.Key) (id.Checkpoint, error) {
	tx.Lock(k.Thread)
	s, args := findCheckpoint, []any{k.Thread, k.NS, k.ID}
	if k.ID == "" {
		s, args = FindLatest, args[:2]
	}
	found, _, err := first(tx, s, text[id.Checkpoint], args...)
	return found, err
}

// HasRootCheckpoint implements eventstore.BackfillTx.
func (tx *Tx) HasRootCheckpoint(t id.Thread, c id.Checkpoint) (bool, error) {
	tx.Lock(t)
	return has(tx, findCheckpoint, t, "", c)
}

const writeColumns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path"

var (
	insertWrite = same(insertInto("checkpoint_writes", writeColumns) + " ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO NOTHING")
	putWrite    = same(upsert("checkpoint_writes", "thread_id, checkpoint_ns, checkpoint_id, task_id, idx", "channel, type, blob, task_path"))
)

// PutWrites implements checkpointer.Tx.
func (tx *Tx) PutWrites(k checkpointer.Key, writes []checkpointer.Write) error {
	tx.Lock(k.Thread)
	for _, w := range writes {
		text := insertWrite
		if w.Index < 0 {
			text = putWrite
		}
		data := w.Data
		if data == nil {
			data = []byte{} // the column is NOT NULL
		}
		if err := tx.Exec(text, k.Thread, k.NS, k.ID, w.TaskID, w.Index, w.Channel, w.Type, data, w.Path); err != nil {
			return fmt.Errorf("put writes of task %s on checkpoint %s: %w", w.TaskID, k.ID, err)
		}
	}
	return nil
}
