package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
	"understudy/storage/internal/rows"
)

// states is shared by all stores of the process: what it holds is found by stamps, which no two databases have in common.
var states eventstore.Cache

var _ eventstore.Reader = (*Store)(nil)

// Cache is eventstore.Tx.Cache.
func (tx *Tx) Cache() *eventstore.Cache { return &states }

const lastSeq = "SELECT seq FROM events WHERE thread_id = ? ORDER BY seq DESC LIMIT 1"

// AppendEvents is eventstore.Tx.AppendEvents.
func (tx *Tx) AppendEvents(t id.Thread, events []*eventstore.Event) error {
	var last int64
	if _, err := tx.one(lastSeq, func(s *sqlite.Stmt) error {
		last = s.ColumnInt64(0)
		return nil
	}, t); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	tx.LogChanged(t)
	for _, e := range events {
		last++
		e.Thread, e.Seq = t, eventstore.Seq(last)
		if err := tx.exec("INSERT INTO event_bodies (refs, content) VALUES (1, ?)", e.Content); err != nil {
			return fmt.Errorf("append event %d: %w", last, err)
		}
		if err := tx.exec(`INSERT INTO events (thread_id, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t, last, e.Run, e.Type, e.Category, e.MessageID, e.Digest, e.Anonymous, tx.conn.LastInsertRowID(), e.Metadata, e.CreatedAt,
			e.First); err != nil {
			return fmt.Errorf("append event %d: %w", last, err)
		}
	}
	return nil
}

// RollBackEvents is eventstore.Tx.RollBackEvents.
func (tx *Tx) RollBackEvents(t id.Thread, r id.Run) error {
	return tx.exec(`UPDATE events SET metadata = CAST(json_set(CAST(coalesce(metadata, '{}') AS TEXT), '$.rolled_back', json('true')) AS BLOB)
		WHERE thread_id = ? AND run_id = ?`, t, r)
}

// deleteEvents deletes all that this file keeps of a thread. DeleteThread calls it.
func (tx *Tx) deleteEvents(t id.Thread) error {
	tx.LogChanged(t)
	for _, text := range []string{
		"UPDATE event_bodies SET refs = refs - 1 WHERE body IN (SELECT body FROM events WHERE thread_id = ?)",
		"DELETE FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = ?) AND refs = 0",
		"DELETE FROM events WHERE thread_id = ?",
		"DELETE FROM transcripts WHERE thread_id = ?",
		"DELETE FROM transcript_nodes WHERE thread_id = ?",
		"DELETE FROM event_lineage WHERE thread_id = ?",
	} {
		if err := tx.exec(text, t); err != nil {
			return err
		}
	}
	return nil
}

const (
	rowColumns = "checkpoint_id, node, stamp, version, summary, source, run_id, opaque"
	rowOf      = "SELECT " + rowColumns + " FROM transcripts WHERE thread_id = ? AND checkpoint_id = ?"
	// Without being told, SQLite walks the thread for the order: most versions are new, so all of it.
	rowOfVersion = "SELECT " + rowColumns + " FROM transcripts INDEXED BY transcripts_version WHERE thread_id = ? AND version = ? " +
		"ORDER BY checkpoint_id DESC LIMIT 1"
)

func scanRow(s *sqlite.Stmt, t id.Thread) *eventstore.Row {
	return &eventstore.Row{
		Thread:     t,
		Checkpoint: id.Checkpoint(s.ColumnText(0)),
		Node:       s.ColumnInt64(1),
		Stamp:      s.ColumnInt64(2),
		Version:    s.ColumnText(3),
		Summary:    s.ColumnText(4),
		Source:     s.ColumnText(5),
		Run:        id.Run(s.ColumnText(6)),
		Opaque:     s.ColumnBool(7),
	}
}

func transcriptRow(c *sqlite.Conn, text string, t id.Thread, key any) (row *eventstore.Row, err error) {
	_, err = one(c, text, func(s *sqlite.Stmt) error {
		row = scanRow(s, t)
		return nil
	}, t, key)
	return row, err
}

// TranscriptRow is eventstore.Tx.TranscriptRow.
func (tx *Tx) TranscriptRow(t id.Thread, c id.Checkpoint) (*eventstore.Row, error) {
	return transcriptRow(tx.conn, rowOf, t, c)
}

// TranscriptOfVersion is eventstore.Tx.TranscriptOfVersion.
func (tx *Tx) TranscriptOfVersion(t id.Thread, version string) (*eventstore.Row, error) {
	return transcriptRow(tx.conn, rowOfVersion, t, version)
}

// PutTranscriptRow is eventstore.Tx.PutTranscriptRow.
func (tx *Tx) PutTranscriptRow(r *eventstore.Row) error {
	return tx.exec("INSERT OR REPLACE INTO transcripts (thread_id, "+rowColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		r.Thread, r.Checkpoint, r.Node, r.Stamp, r.Version, r.Summary, r.Source, r.Run, r.Opaque)
}

// PutNode is eventstore.Tx.PutNode.
func (tx *Tx) PutNode(t id.Thread, n *eventstore.Node) error {
	n.ID = 1
	if _, err := tx.one("SELECT node FROM transcript_nodes WHERE thread_id = ? ORDER BY node DESC LIMIT 1", func(s *sqlite.Stmt) error {
		n.ID = s.ColumnInt64(0) + 1
		return nil
	}, t); err != nil {
		return err
	}
	return tx.exec("INSERT INTO transcript_nodes (thread_id, node, base, stamp, whole, since, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
		t, n.ID, n.Base, n.Stamp, n.Whole, n.Since, n.Data)
}

func nodes(c *sqlite.Conn, t id.Thread, node int64) (chain []eventstore.Node, err error) {
	for node != 0 {
		found, err := one(c, "SELECT base, stamp, whole, since, data FROM transcript_nodes WHERE thread_id = ? AND node = ?", func(s *sqlite.Stmt) error {
			chain = append(chain, eventstore.Node{
				ID: node, Base: s.ColumnInt64(0), Stamp: s.ColumnInt64(1), Whole: s.ColumnInt(2), Since: s.ColumnInt(3), Data: columnBytes(s, 4),
			})
			return nil
		}, t, node)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("transcript node %d of thread %s is missing", node, t)
		}
		node = chain[len(chain)-1].Base
	}
	slices.Reverse(chain)
	return chain, nil
}

// Nodes is eventstore.Tx.Nodes.
func (tx *Tx) Nodes(t id.Thread, node int64) ([]eventstore.Node, error) {
	return nodes(tx.conn, t, node)
}

// Heads is eventstore.Tx.Heads.
func (tx *Tx) Heads(t id.Thread, ranges []eventstore.Range) (heads []eventstore.Head, err error) {
	for _, r := range ranges {
		if err := tx.query("SELECT seq, type, message_id, digest, anonymous, first_seq FROM events WHERE thread_id = ? AND seq BETWEEN ? AND ? ORDER BY seq",
			func(s *sqlite.Stmt) error {
				heads = append(heads, eventstore.Head{
					Seq: eventstore.Seq(s.ColumnInt64(0)), Type: s.ColumnText(1), MessageID: s.ColumnText(2), Digest: columnBytes(s, 3), Anonymous: s.ColumnBool(4),
					First: eventstore.Seq(s.ColumnInt64(5)),
				})
				return nil
			}, t, r.From, r.To); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// Content is eventstore.Tx.Content.
func (tx *Tx) Content(t id.Thread, seq eventstore.Seq) (content []byte, err error) {
	_, err = tx.one("SELECT content FROM events JOIN event_bodies USING (body) WHERE thread_id = ? AND seq = ?", func(s *sqlite.Stmt) error {
		content = columnBytes(s, 0)
		return nil
	}, t, seq)
	return content, err
}

// ChannelValue is eventstore.Tx.ChannelValue.
func (tx *Tx) ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error) {
	b, err := newLoader(tx.conn, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
	if b == nil || err != nil {
		return "", nil, err
	}
	return b.Type, b.Bytes(), nil
}

// clientWrites knows the task `__start__` by its path, which ends with the name of its node.
const clientWrites = `SELECT type, blob, task_id, task_path FROM checkpoint_writes
	WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? AND channel = ?
	AND (task_id = '` + nullTask + `' OR task_path = '' OR task_path LIKE '%, \_\_start\_\_' ESCAPE '\') ORDER BY task_id, idx`

// nullTask is the task under which LangGraph keeps what a command writes.
const nullTask = "00000000-0000-0000-0000-000000000000"

// ClientWrites is eventstore.Tx.ClientWrites. Stores that kept no paths of tasks do not tell which was `__start__`, but on a checkpoint that
// takes input no other task writes.
func (tx *Tx) ClientWrites(t id.Thread, c id.Checkpoint, channel string) (values []eventstore.Value, err error) {
	var pathless []eventstore.Value
	if err := tx.query(clientWrites, func(s *sqlite.Stmt) error {
		v := eventstore.Value{Type: s.ColumnText(0), Data: columnBytes(s, 1)}
		if s.ColumnText(2) != nullTask && s.ColumnText(3) == "" {
			pathless = append(pathless, v)
		} else {
			values = append(values, v)
		}
		return nil
	}, t, c, channel); err != nil || pathless == nil {
		return values, err
	}
	input := false
	_, err = tx.one("SELECT metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?", func(s *sqlite.Stmt) error {
		input = gjson.GetBytes(columnBytes(s, 0), "source").String() == "input"
		return nil
	}, t, c)
	if input {
		values = append(values, pathless...)
	}
	return values, err
}

// RunInput is eventstore.Tx.RunInput.
func (tx *Tx) RunInput(r id.Run) (input, command json.RawMessage, err error) {
	_, err = tx.one("SELECT input, command FROM run_kwargs WHERE run_id = ?", func(s *sqlite.Stmt) error {
		input, command = columnBytes(s, 0), columnBytes(s, 1)
		return nil
	}, r)
	return input, command, err
}

const (
	selectEvents = "SELECT seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content " +
		"FROM events JOIN event_bodies USING (body) WHERE thread_id = ? AND "
	colContent = 10
)

func scanEvent(s *sqlite.Stmt, t id.Thread) eventstore.Event {
	return eventstore.Event{
		Thread:    t,
		Seq:       eventstore.Seq(s.ColumnInt64(0)),
		Run:       id.Run(s.ColumnText(1)),
		Type:      s.ColumnText(2),
		Category:  s.ColumnText(3),
		MessageID: s.ColumnText(4),
		Digest:    columnBytes(s, 5),
		Anonymous: s.ColumnBool(6),
		Metadata:  columnBytes(s, 7),
		CreatedAt: columnTime(s, 8),
		First:     eventstore.Seq(s.ColumnInt64(9)),
	}
}

// Events is eventstore.Reader.Events.
func (s *Store) Events(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) (events []*eventstore.Event, err error) {
	if limit <= 0 {
		limit = -1
	}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, selectEvents+"seq > ? ORDER BY seq LIMIT ?", func(s *sqlite.Stmt) error {
			e := scanEvent(s, t)
			e.Content = columnBytes(s, colContent)
			events = append(events, &e)
			return nil
		}, t, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", t, err)
	}
	return events, nil
}

// Transcript is eventstore.Reader.Transcript.
func (s *Store) Transcript(ctx context.Context, t id.Thread, checkpoint id.Checkpoint) (tr *eventstore.Transcript, err error) {
	err = s.snapshot(ctx, func(c *sqlite.Conn) error {
		row, err := transcriptRow(c, rowOf, t, checkpoint)
		if err != nil || row == nil || row.Opaque {
			return err
		}
		var chain []eventstore.Node
		if row.Node != 0 {
			if chain, err = nodes(c, t, row.Node); err != nil {
				return err
			}
		}
		tr, err = eventstore.Fold(row, chain)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("transcript of checkpoint %s of thread %s: %w", checkpoint, t, err)
	}
	return tr, nil
}

// same reads a column that mostly says what it said in the row before.
type same struct {
	buf  []byte
	last string
}

func (c *same) text(s *sqlite.Stmt, col int) string {
	size := s.ColumnLen(col)
	c.buf = slices.Grow(c.buf[:0], size)[:size]
	s.ColumnBytes(col, c.buf)
	if string(c.buf) != c.last {
		c.last = string(c.buf)
	}
	return c.last
}

// EachContent is eventstore.Reader.EachContent.
func (s *Store) EachContent(ctx context.Context, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	err := s.snapshot(ctx, func(c *sqlite.Conn) error { return eachContent(c, t, ranges, fn) })
	if err != nil {
		return fmt.Errorf("events of thread %s: %w", t, err)
	}
	return nil
}

// passOver is how many rows between two ranges are passed over rather than begin another query: between the messages of two runs
// stand the events of how the runs ended and began.
const passOver = 16

func eachContent(c *sqlite.Conn, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	var content, digest, metadata []byte // one buffer for all rows
	var run, kind, category same
	var e eventstore.Event
	into := func(s *sqlite.Stmt, col int, buf *[]byte) []byte {
		if s.ColumnIsNull(col) {
			return nil
		}
		size := s.ColumnLen(col)
		*buf = slices.Grow((*buf)[:0], size)[:size]
		s.ColumnBytes(col, *buf)
		return *buf
	}
	for len(ranges) > 0 {
		n := 1
		for n < len(ranges) && ranges[n].From > ranges[n-1].To && ranges[n].From-ranges[n-1].To <= passOver {
			n++
		}
		group := ranges[:n]
		ranges = ranges[n:]
		if err := query(c, selectEvents+"seq BETWEEN ? AND ? ORDER BY seq", func(s *sqlite.Stmt) error {
			seq := eventstore.Seq(s.ColumnInt64(0))
			for seq > group[0].To {
				group = group[1:]
			}
			if seq < group[0].From {
				return nil
			}
			e = eventstore.Event{
				Thread: t, Seq: seq, Run: id.Run(run.text(s, 1)), Type: kind.text(s, 2), Category: category.text(s, 3), MessageID: s.ColumnText(4),
				Digest: into(s, 5, &digest), Anonymous: s.ColumnBool(6), Metadata: into(s, 7, &metadata), CreatedAt: columnTime(s, 8),
				First: eventstore.Seq(s.ColumnInt64(9)), Content: into(s, colContent, &content),
			}
			return fn(&e)
		}, t, group[0].From, group[n-1].To); err != nil {
			return err
		}
	}
	return nil
}
