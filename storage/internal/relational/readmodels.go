package relational

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/storage/internal/rows"
)

const (
	readKey     = "model, thread_id, name, seq"
	readRest    = "at, run_id, checkpoint_id, ref"
	readColumns = readKey + ", " + readRest
	// inModels makes the key usable for the rows of one thread.
	inModels = "model IN ('branches', 'heads', 'messages', 'timeline')"
)

var (
	// Marks has events without contents.
	Marks       = same("SELECT seq, run_id, type, category, message_id, metadata, created_at, first_seq FROM events WHERE thread_id = $1 AND seq > $2 ORDER BY seq LIMIT $3")
	ModelsOf    = same("SELECT " + readColumns + " FROM read_models WHERE " + inModels + " AND thread_id = $1 ORDER BY model, name, seq")
	ModelOf     = same("SELECT " + readColumns + " FROM read_models WHERE model = $2 AND thread_id = $1 ORDER BY name, seq")
	dropModels  = same("DELETE FROM read_models WHERE " + inModels + " AND thread_id = $1")
	dropModel   = same("DELETE FROM read_models WHERE model = $2 AND thread_id = $1")
	dropReadRow = same("DELETE FROM read_models WHERE model = $1 AND thread_id = $2 AND name = $3 AND seq = $4")
	putReadRow  = same(upsert("read_models", readKey, readRest))
	// These three change an offset only from the one that a change is based on.
	beginOffset = same("INSERT INTO log_offsets (follower, thread_id, created_at, seq, position) " +
		"SELECT CAST($1 AS text), thread_id, created_at, CAST($4 AS bigint), CAST($5 AS bigint) FROM threads WHERE thread_id = $2 AND created_at = $3 ON CONFLICT (follower, thread_id) DO NOTHING")
	moveOffset = same("UPDATE log_offsets SET seq = $5, position = $6 WHERE follower = $1 AND thread_id = $2 AND created_at = $3 AND seq = $4")
	endOffset  = same("DELETE FROM log_offsets WHERE follower = $1 AND thread_id = $2 AND created_at = $3 AND seq = $4")

	// AncestorsOf is in the order of the forks: the source of the thread is last.
	AncestorsOf = same("SELECT " + readColumns + " FROM read_models WHERE model = 'branches' AND thread_id = $1 ORDER BY seq, name")
	// BranchesOf leaves out the forks of forks, whose last fork is another one.
	BranchesOf = indexed("read_models_branches", "SELECT "+ofModel("r")+", t.metadata FROM read_models r%s JOIN threads t ON t.thread_id = r.thread_id WHERE r.model = 'branches' AND r.name = $1 AND r.thread_id > $2 "+
		"AND NOT EXISTS (SELECT 1 FROM read_models n WHERE n.model = 'branches' AND n.thread_id = r.thread_id AND n.seq > r.seq) ORDER BY r.name, r.thread_id LIMIT $3")
	RecentHeads    = recentOf("heads")
	RecentTimeline = recentOf("timeline")
	// EventsOfMessage are those of a message, the last one first.
	EventsOfMessage = same("SELECT r.seq, r.ref, r.run_id, r.at, r.checkpoint_id, e.metadata, c.parent_checkpoint_id, c.checkpoint_id IS NOT NULL FROM read_models r " +
		"JOIN events e ON e.thread_id = r.thread_id AND e.seq = r.seq " +
		"LEFT JOIN checkpoints c ON c.thread_id = r.thread_id AND c.checkpoint_ns = '' AND c.checkpoint_id = r.checkpoint_id " +
		"WHERE r.model = 'messages' AND r.thread_id = $1 AND r.name = $2 ORDER BY r.seq DESC")
)

func ofModel(table string) string {
	return table + "." + strings.ReplaceAll(readColumns, ", ", ", "+table+".")
}

// recentOf returns the rows of a model before a place, the newest first.
func recentOf(model string) Statement {
	return indexed("read_models_"+model, "SELECT "+ofModel("r")+", t.metadata FROM read_models r%s JOIN threads t ON t.thread_id = r.thread_id WHERE r.model = '"+model+"' "+
		"AND (r.at, r.thread_id, r.seq) < ($1, $2, $3) ORDER BY r.at DESC, r.thread_id DESC, r.seq DESC LIMIT $4")
}

func scanReadRow(r Row) readmodel.Row {
	return readmodel.Row{
		Model: r.Text(0), Thread: id.Thread(r.Text(1)), Name: r.Text(2), Seq: eventstore.Seq(r.Int(3)),
		At: r.Int(4), Run: id.Run(r.Text(5)), Checkpoint: id.Checkpoint(r.Text(6)), Ref: eventstore.Seq(r.Int(7)),
	}
}

// colReadMetadata is the column of the metadata of a thread behind those of a row.
const colReadMetadata = 8

// Marks implements readmodel.Store.
func (s readModelStore) Marks(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error) {
	events, err := from(ctx, s.db.Read, func(q Querier) ([]*eventstore.Event, error) {
		return all(q, Marks, func(r Row) *eventstore.Event {
			return &eventstore.Event{
				Thread: t, Seq: eventstore.Seq(r.Int(0)), Run: id.Run(r.Text(1)), Type: r.Text(2), Category: r.Text(3), MessageID: r.Text(4), Metadata: r.Bytes(5),
				CreatedAt: r.Time(6), First: eventstore.Seq(r.Int(7)),
			}
		}, t, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", t, err)
	}
	return events, nil
}

// Projection implements readmodel.Store.
func (s readModelStore) Projection(ctx context.Context, follower string, t id.Thread, model string) (p *readmodel.Projection, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		p = &readmodel.Projection{}
		if p.Created, _, err = first(q, createdAt, moment, t); err != nil {
			return err
		}
		if p.Offset, err = offsetOf(q, follower, t); err != nil {
			return err
		}
		if model == "" {
			p.Rows, err = all(q, ModelsOf, scanReadRow, t)
		} else {
			p.Rows, err = all(q, ModelOf, scanReadRow, t, model)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read models of thread %s: %w", t, err)
	}
	return p, nil
}

func offsetOf(q Querier, follower string, t id.Thread) (*eventstore.Offset, error) {
	o, _, err := first(q, SelectOffset, func(r Row) *eventstore.Offset {
		return &eventstore.Offset{Thread: t, Created: r.Time(0), Seq: eventstore.Seq(r.Int(1)), Position: r.Int(2)}
	}, follower, t)
	return o, err
}

// Project implements readmodel.Store.
func (s readModelStore) Project(ctx context.Context, follower string, list []readmodel.Change) (refused []id.Thread, err error) {
	err = s.db.Write(ctx, func(tx *Tx) error {
		refused = nil
		for i := range list {
			c := &list[i]
			ok, err := tx.advance(follower, c)
			if err != nil {
				return fmt.Errorf("read models of thread %s: %w", c.Thread, err)
			}
			if !ok {
				refused = append(refused, c.Thread)
				continue
			}
			if err := tx.project(c); err != nil {
				return fmt.Errorf("read models of thread %s: %w", c.Thread, err)
			}
		}
		return nil
	})
	return refused, err
}

// advance moves the offset of a change; false: it is another one already.
func (tx *Tx) advance(follower string, c *readmodel.Change) (bool, error) {
	if c.Was != nil && c.Was.Created.Equal(c.Now.Created) {
		n, err := tx.Affected(moveOffset, follower, c.Thread, c.Was.Created, c.Was.Seq, c.Now.Seq, c.Now.Position)
		return n == 1, err
	}
	if c.Was != nil {
		if n, err := tx.Affected(endOffset, follower, c.Thread, c.Was.Created, c.Was.Seq); err != nil || n == 0 || c.Now.Created.IsZero() {
			return n == 1, err
		}
	}
	n, err := tx.Affected(beginOffset, follower, c.Thread, c.Now.Created, c.Now.Seq, c.Now.Position)
	if err == nil && n == 0 && c.Was != nil { // the thread has gone once more: its rows go with the old offset
		err = tx.Exec(dropModels, c.Thread)
	}
	return n == 1, err
}

func (tx *Tx) project(c *readmodel.Change) error {
	if c.Drop {
		if err := tx.Exec(dropModels, c.Thread); err != nil {
			return err
		}
	}
	for _, r := range c.Delete {
		if err := tx.Exec(dropReadRow, r.Model, c.Thread, r.Name, r.Seq); err != nil {
			return err
		}
	}
	put := c.Put
	if c.Head != nil {
		if err := tx.Exec(dropModel, c.Thread, readmodel.Heads); err != nil {
			return err
		}
		put = append(put[:len(put):len(put)], *c.Head)
	}
	for _, r := range put {
		if err := tx.Exec(putReadRow, r.Model, c.Thread, r.Name, r.Seq, r.At, r.Run, r.Checkpoint, r.Ref); err != nil {
			return err
		}
	}
	return nil
}

// reachable returns ErrNoThread for a thread that does not exist in a context.
func reachable(ctx context.Context, q Querier, t id.Thread) error {
	t, err := InReach(ctx, q, t)
	if err != nil {
		return err
	}
	found, err := has(q, createdAt, t)
	if err == nil && !found {
		err = ErrNoThread
	}
	return err
}

// Reachable implements readmodel.Reader.
func (s readModelStore) Reachable(ctx context.Context, t id.Thread) error {
	return s.db.Snapshot(ctx, func(q Querier) error { return reachable(ctx, q, t) })
}

// Branches implements readmodel.Reader.
func (s readModelStore) Branches(ctx context.Context, t, after id.Thread, limit int) (b *readmodel.Lineage, err error) {
	reach := access.Reach(ctx, access.Threads)
	window := limit + 1
	if reach != nil {
		window = recentAtMost
	}
	err = s.db.Snapshot(ctx, func(q Querier) (err error) {
		b = &readmodel.Lineage{}
		if err := reachable(ctx, q, t); err != nil {
			return err
		}
		if b.Ancestors, err = all(q, AncestorsOf, scanReadRow, t); err != nil {
			return err
		}
		seen, last := 0, id.Thread("")
		if err := q.Query(BranchesOf, func(r Row) error {
			row := scanReadRow(r)
			if len(b.Forks) == limit {
				b.Next = last
				return ErrStop
			}
			seen++
			if last = row.Thread; reach.Match(r.Bytes(colReadMetadata)) {
				b.Forks = append(b.Forks, row)
			}
			return nil
		}, t, after, window); err != nil {
			return err
		}
		if b.Next == "" && seen == window {
			b.Next = last
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("branches of thread %s: %w", t, err)
	}
	return b, nil
}

// Recent implements readmodel.Reader.
func (s readModelStore) Recent(ctx context.Context, model string, before readmodel.Place, limit int) (page []readmodel.Row, next readmodel.Place, err error) {
	text := RecentTimeline
	if model == readmodel.Heads {
		text = RecentHeads
	}
	if before == (readmodel.Place{}) {
		before = readmodel.Place{At: math.MaxInt64, Thread: rows.LastText}
	}
	reach := access.Reach(ctx, access.Threads)
	window := limit + 1
	if reach != nil {
		window = recentAtMost
	}
	err = s.db.Snapshot(ctx, func(q Querier) error {
		page, next = nil, readmodel.Place{}
		seen, last := 0, readmodel.Place{}
		if err := q.Query(text, func(r Row) error {
			if len(page) == limit {
				next = last
				return ErrStop
			}
			row := scanReadRow(r)
			seen++
			if last = row.Place(); reach.Match(r.Bytes(colReadMetadata)) {
				page = append(page, row)
			}
			return nil
		}, before.At, before.Thread, before.Seq, window); err != nil {
			return err
		}
		if next == (readmodel.Place{}) && seen == window {
			next = last
		}
		return nil
	})
	if err != nil {
		return nil, next, fmt.Errorf("%s: %w", model, err)
	}
	return page, next, nil
}

// Message implements readmodel.Reader.
func (s readModelStore) Message(ctx context.Context, t id.Thread, name string) (m *readmodel.Message, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) error {
		m = nil
		if err := reachable(ctx, q, t); err != nil {
			return err
		}
		return q.Query(EventsOfMessage, func(r Row) error {
			if gjson.GetBytes(r.Bytes(5), "rolled_back").Bool() {
				return nil
			}
			m = &readmodel.Message{Seq: eventstore.Seq(r.Int(0)), Run: id.Run(r.Text(2)), At: r.Int(3)}
			if m.First = eventstore.Seq(r.Int(1)); m.First == 0 {
				m.First = m.Seq
			}
			if r.Bool(7) {
				m.Checkpoint, m.Parent = id.Checkpoint(r.Text(4)), id.Checkpoint(r.Text(6))
			}
			return ErrStop
		}, t, name)
	})
	if err != nil {
		return nil, fmt.Errorf("message of thread %s: %w", t, err)
	}
	return m, nil
}
