package relational

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonobj"
)

// EventColumns are the columns of events, with the thread and the number of the body in
// event_bodies.
const EventColumns = "thread_id, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq"

const (
	selectEvents = "SELECT seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content " +
		"FROM events JOIN event_bodies USING (body) WHERE thread_id = $1"

	transcriptColumns = "checkpoint_id, node, stamp, version, summary, source, run_id, opaque"
	nodeColumns       = "node, base, stamp, whole, since, data"
)

// chainsOf has %s in the place of the first nodes. Their data is joined last, so that removing
// duplicates compares little.
const chainsOf = `WITH RECURSIVE chain (node, base) AS (
		SELECT node, base FROM transcript_nodes WHERE thread_id = $1 AND node %s
		UNION
		SELECT n.node, n.base FROM chain c JOIN transcript_nodes n ON n.thread_id = $1 AND n.node = c.base WHERE c.base <> 0
	) SELECT n.node, n.base, n.stamp, n.whole, n.since, n.data FROM chain c JOIN transcript_nodes n ON n.thread_id = $1 AND n.node = c.node`

var (
	EventsAfter  = same(selectEvents + " AND seq > $2 ORDER BY seq LIMIT $3")
	EventsWithin = same(selectEvents + " AND seq BETWEEN $2 AND $3 ORDER BY seq")
	LastSeq      = same("SELECT seq FROM events WHERE thread_id = $1 ORDER BY seq DESC LIMIT 1")
	HeadsIn      = same("SELECT seq, type, message_id, digest, anonymous, first_seq FROM events WHERE thread_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq")
	contentOf    = same("SELECT content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq = $2")
	countEvents  = same("SELECT count(*) FROM events WHERE thread_id = $1")
	hasLog       = same("SELECT 1 WHERE EXISTS (SELECT 1 FROM events WHERE thread_id = $1) OR EXISTS (SELECT 1 FROM transcripts WHERE thread_id = $1)")
	metadataOf   = same("SELECT seq, metadata FROM events WHERE thread_id = $1 AND run_id = $2")
	allMetadata  = same("SELECT seq, metadata FROM events WHERE thread_id = $1 AND metadata IS NOT NULL")
	setMetadata  = same("UPDATE events SET metadata = $3 WHERE thread_id = $1 AND seq = $2")
	selectInput  = same("SELECT input, command FROM run_kwargs WHERE run_id = $1")

	RowOf         = same("SELECT " + transcriptColumns + " FROM transcripts WHERE thread_id = $1 AND checkpoint_id = $2")
	NewestRow     = same("SELECT " + transcriptColumns + " FROM transcripts WHERE thread_id = $1 ORDER BY checkpoint_id DESC LIMIT 1")
	rowsOfThread  = same("SELECT " + transcriptColumns + " FROM transcripts WHERE thread_id = $1")
	putRow        = same(upsert("transcripts", "thread_id, checkpoint_id", "node, stamp, version, summary, source, run_id, opaque"))
	putNode       = same(insertInto("transcript_nodes", "thread_id, "+nodeColumns))
	lastNode      = same("SELECT node FROM transcript_nodes WHERE thread_id = $1 ORDER BY node DESC LIMIT 1")
	nodesOfThread = same("SELECT " + nodeColumns + " FROM transcript_nodes WHERE thread_id = $1 ORDER BY node")

	// RowsAndLog also returns the number of the first body, which is assigned once: it
	// distinguishes the logs of threads that have the same ID. On SQLite caches of a log are
	// cleared when its thread is deleted.
	RowsAndLog = differing("SELECT "+transcriptColumns+", (SELECT body FROM events WHERE thread_id = $1 ORDER BY seq LIMIT 1) FROM transcripts WHERE thread_id = $1 AND checkpoint_id = ANY($2)",
		"SELECT "+transcriptColumns+", 0 FROM transcripts WHERE thread_id = $1 AND checkpoint_id IN (SELECT value FROM json_each($2))")
	// RowOfVersion names its index: otherwise SQLite scans the thread in the order of the result,
	// and most versions are new, so it would scan all of it.
	RowOfVersion = indexed("transcripts_version", "SELECT "+transcriptColumns+" FROM transcripts%s WHERE thread_id = $1 AND version = $2 ORDER BY checkpoint_id DESC LIMIT 1")
	// ChainOf walks from a node to the complete node that it is based on.
	ChainOf = same(`WITH RECURSIVE chain AS (
			SELECT node, base, stamp, whole, since, data, 1 AS at FROM transcript_nodes WHERE thread_id = $1 AND node = $2
			UNION ALL
			SELECT n.node, n.base, n.stamp, n.whole, n.since, n.data, at + 1 FROM chain c JOIN transcript_nodes n ON n.thread_id = $1 AND n.node = c.base WHERE c.base <> 0
		) SELECT node, base, stamp, whole, since, data FROM chain ORDER BY at DESC`)
	// ChainsOf walks from several nodes. What they share is returned once.
	ChainsOf = differing(fmt.Sprintf(chainsOf, "= ANY($2)"), fmt.Sprintf(chainsOf, "IN (SELECT value FROM json_each($2))"))

	// ClientWrites recognizes the task `__start__` by its path, which ends with the name of its
	// node.
	ClientWrites = same(`SELECT type, blob, task_id, task_path FROM checkpoint_writes
		WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2 AND channel = $3
		AND (task_id = '` + nullTask + `' OR task_path = '' OR task_path LIKE '%, \_\_start\_\_' ESCAPE '\') ORDER BY task_id, idx`)
	metadataOfRoot = same("SELECT metadata FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2")

	// deletesOfLog delete the log of a thread. Bodies are shared by threads that this transaction
	// has not locked, so they are updated in the same order everywhere to avoid deadlocks.
	deletesOfLog = []Statement{
		differing(`UPDATE event_bodies b SET refs = refs - 1 FROM (
			SELECT body FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = $1) ORDER BY body FOR UPDATE) AS ours WHERE b.body = ours.body`,
			"UPDATE event_bodies SET refs = refs - 1 WHERE body IN (SELECT body FROM events WHERE thread_id = $1)"),
		same("DELETE FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = $1) AND refs = 0"),
		same("DELETE FROM events WHERE thread_id = $1"),
		same("DELETE FROM transcripts WHERE thread_id = $1"),
		same("DELETE FROM transcript_nodes WHERE thread_id = $1"),
		same("DELETE FROM event_lineage WHERE thread_id = $1"),
	}
)

// scanEvent reads a row with the columns of an event.
func scanEvent(t id.Thread) func(Row) *eventstore.Event {
	return func(r Row) *eventstore.Event {
		return &eventstore.Event{
			Thread:    t,
			Seq:       eventstore.Seq(r.Int(0)),
			Run:       id.Run(r.Text(1)),
			Type:      r.Text(2),
			Category:  r.Text(3),
			MessageID: r.Text(4),
			Digest:    r.Bytes(5),
			Anonymous: r.Bool(6),
			Metadata:  r.Bytes(7),
			CreatedAt: r.Time(8),
			First:     eventstore.Seq(r.Int(9)),
			Content:   r.Bytes(10),
		}
	}
}

// ScanRow reads a row of transcripts.
func ScanRow(t id.Thread) func(Row) *eventstore.Row {
	return func(r Row) *eventstore.Row {
		return &eventstore.Row{
			Thread:     t,
			Checkpoint: id.Checkpoint(r.Text(0)),
			Node:       r.Int(1),
			Stamp:      r.Int(2),
			Version:    r.Text(3),
			Summary:    r.Text(4),
			Source:     r.Text(5),
			Run:        id.Run(r.Text(6)),
			Opaque:     r.Bool(7),
		}
	}
}

// scanNode reads a row of transcript_nodes.
func scanNode(r Row) eventstore.Node {
	return eventstore.Node{ID: r.Int(0), Base: r.Int(1), Stamp: r.Int(2), Whole: int(r.Int(3)), Since: int(r.Int(4)), Data: r.Bytes(5)}
}

// nodeArgs returns the values of a row of transcript_nodes.
func nodeArgs(t id.Thread, n *eventstore.Node) []any {
	return []any{t, n.ID, n.Base, n.Stamp, n.Whole, n.Since, n.Data}
}

// states is shared by all stores of the process: its keys are stamps, which are unique across
// databases.
var states = eventstore.NewCache()

// Cache implements eventstore.Tx.
func (tx *Tx) Cache() *eventstore.Cache { return states }

// AppendEvents implements eventstore.Tx.
func (tx *Tx) AppendEvents(t id.Thread, events []*eventstore.Event) error {
	if len(events) == 0 {
		return nil
	}
	last, err := tx.LastSeq(t)
	if err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	for _, e := range events {
		last++
		e.Thread, e.Seq = t, last
	}
	if err := tx.PutEvents(t, events); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	return nil
}

// RollBackEvents implements eventstore.Tx.
func (tx *Tx) RollBackEvents(t id.Thread, r id.Run) error {
	return tx.markEvents(metadataOf, func([]byte) bool { return true }, t, r)
}

var jsonTrue = json.RawMessage("true")

// markEvents sets rolled_back in the metadata of events.
func (tx *Tx) markEvents(s Statement, which func(metadata []byte) bool, t id.Thread, args ...any) error {
	tx.Lock(t)
	type marked struct {
		seq      int64
		metadata []byte
	}
	var list []marked
	if err := tx.Query(s, func(r Row) error {
		metadata := r.Bytes(1)
		if which(metadata) {
			o := jsonobj.Of(metadata)
			o.Set("rolled_back", jsonTrue)
			list = append(list, marked{r.Int(0), o.JSON()})
		}
		return nil
	}, append([]any{t}, args...)...); err != nil {
		return err
	}
	for _, m := range list {
		if err := tx.Exec(setMetadata, t, m.seq, m.metadata); err != nil {
			return err
		}
	}
	return nil
}

// DeleteEvents deletes the log of a thread. A body goes with its last event.
func (tx *Tx) DeleteEvents(t id.Thread) error {
	tx.LogChanged(t)
	return tx.execAll(deletesOfLog, t)
}

// TranscriptRow implements eventstore.Tx.
func (tx *Tx) TranscriptRow(t id.Thread, c id.Checkpoint) (*eventstore.Row, error) {
	tx.Lock(t)
	row, _, err := first(tx, RowOf, ScanRow(t), t, c)
	return row, err
}

// TranscriptOfVersion implements eventstore.Tx.
func (tx *Tx) TranscriptOfVersion(t id.Thread, version string) (*eventstore.Row, error) {
	tx.Lock(t)
	row, _, err := first(tx, RowOfVersion, ScanRow(t), t, version)
	return row, err
}

// PutTranscriptRow implements eventstore.Tx.
func (tx *Tx) PutTranscriptRow(r *eventstore.Row) error {
	tx.Lock(r.Thread)
	return tx.Exec(putRow, r.Thread, r.Checkpoint, r.Node, r.Stamp, r.Version, r.Summary, r.Source, r.Run, r.Opaque)
}

// PutNode implements eventstore.Tx.
func (tx *Tx) PutNode(t id.Thread, n *eventstore.Node) error {
	tx.Lock(t)
	last, _, err := first(tx, lastNode, number[int64], t)
	if err != nil {
		return err
	}
	n.ID = last + 1
	return tx.Exec(putNode, nodeArgs(t, n)...)
}

// Nodes implements eventstore.Tx.
func (tx *Tx) Nodes(t id.Thread, node int64) ([]eventstore.Node, error) {
	tx.Lock(t)
	return nodes(tx, t, node)
}

// nodes returns the chain of nodes that a transcript consists of.
func nodes(q Querier, t id.Thread, node int64) ([]eventstore.Node, error) {
	if node == 0 {
		return nil, nil
	}
	chain, err := all(q, ChainOf, scanNode, t, node)
	switch {
	case err != nil:
		return nil, err
	case len(chain) == 0:
		return nil, fmt.Errorf("transcript node %d of thread %s is missing", node, t)
	case chain[0].Base != 0:
		return nil, fmt.Errorf("transcript node %d of thread %s is missing", chain[0].Base, t)
	}
	return chain, nil
}

// Heads implements eventstore.Tx.
func (tx *Tx) Heads(t id.Thread, ranges []eventstore.Range) (heads []eventstore.Head, err error) {
	tx.Lock(t)
	for _, g := range ranges {
		if err := tx.Ask(HeadsIn, func(r Row) error {
			heads = append(heads, eventstore.Head{
				Seq: eventstore.Seq(r.Int(0)), Type: r.Text(1), MessageID: r.Text(2), Digest: r.Bytes(3), Anonymous: r.Bool(4), First: eventstore.Seq(r.Int(5)),
			})
			return nil
		}, t, g.From, g.To); err != nil {
			return nil, err
		}
	}
	return heads, tx.Send()
}

// Content implements eventstore.Tx.
func (tx *Tx) Content(t id.Thread, seq eventstore.Seq) ([]byte, error) {
	tx.Lock(t)
	content, _, err := first(tx, contentOf, bytesOf, t, seq)
	return content, err
}

// nullTask is the task under which LangGraph stores what a command writes.
const nullTask = "00000000-0000-0000-0000-000000000000"

// ClientWrites implements eventstore.Tx. Savers that stored no task paths do not say which task
// was `__start__`, but on a checkpoint that takes input no other task writes.
func (tx *Tx) ClientWrites(t id.Thread, c id.Checkpoint, channel string) (values []eventstore.Value, err error) {
	tx.Lock(t)
	var pathless []eventstore.Value
	if err := tx.Query(ClientWrites, func(r Row) error {
		v := eventstore.Value{Type: r.Text(0), Data: r.Bytes(1)}
		if r.Text(2) != nullTask && r.Text(3) == "" {
			pathless = append(pathless, v)
		} else {
			values = append(values, v)
		}
		return nil
	}, t, c, channel); err != nil || pathless == nil {
		return values, err
	}
	metadata, _, err := first(tx, metadataOfRoot, bytesOf, t, c)
	if gjson.GetBytes(metadata, "source").String() == "input" {
		values = append(values, pathless...)
	}
	return values, err
}

// RunInput implements eventstore.Tx.
func (tx *Tx) RunInput(r id.Run) (input, command json.RawMessage, err error) {
	_, err = one(tx, selectInput, func(r Row) error {
		input, command = r.Bytes(0), r.Bytes(1)
		return nil
	}, r)
	return input, command, err
}

// Events implements eventstore.Reader.
func (s eventStore) Events(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error) {
	events, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([]*eventstore.Event, error) {
		return all(q, EventsAfter, scanEvent(t), t, after, limitOf(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", t, err)
	}
	return events, nil
}

// Transcripts implements eventstore.Reader.
func (s eventStore) Transcripts(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (out *eventstore.Transcripts, err error) {
	err = s.db.Snapshot(ctx, func(q Querier) error {
		t, err := InReach(ctx, q, t)
		if err != nil {
			return err
		}
		var log int64
		found, err := all(q, RowsAndLog, func(r Row) *eventstore.Row {
			log = r.Int(8)
			return ScanRow(t)(r)
		}, t, checkpoints)
		if err != nil {
			return err
		}
		var last []int64
		for _, row := range found {
			if row.Node != 0 && !row.Opaque {
				last = append(last, row.Node)
			}
		}
		var chains []eventstore.Node
		if len(last) > 0 {
			if chains, err = all(q, ChainsOf, scanNode, t, last); err != nil {
				return err
			}
		}
		out = eventstore.NewTranscripts(found, chains, log)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("transcripts of thread %s: %w", t, err)
	}
	return out, nil
}

// EachContent implements eventstore.Reader.
func (s eventStore) EachContent(ctx context.Context, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	err := s.db.Snapshot(ctx, func(q Querier) error {
		t, err := InReach(ctx, q, t)
		if err != nil {
			return err
		}
		return eachContent(q, t, ranges, fn)
	})
	if err != nil {
		return fmt.Errorf("events of thread %s: %w", t, err)
	}
	return nil
}

// repeated reads a text column that mostly has the value of the previous row, without a new string
// for each.
type repeated struct {
	buf  []byte
	last string
}

func (c *repeated) text(r Row, col int) string {
	c.buf = r.Append(c.buf[:0], col)
	if string(c.buf) != c.last {
		c.last = string(c.buf)
	}
	return c.last
}

// into reads a column into a reused buffer; nil for NULL.
func into(buf *[]byte, r Row, col int) []byte {
	if r.Null(col) {
		return nil
	}
	*buf = r.Append((*buf)[:0], col)
	return *buf
}

// passOver is the number of rows between two ranges up to which they are read with one query:
// between the messages of two runs stand the events of their end and start.
const passOver = 16

// eachContent calls fn for the events of ranges. What an event holds is valid during the call
// only.
func eachContent(q Querier, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	var content, digest, metadata []byte
	var run, kind, category repeated
	var e eventstore.Event
	var stopped error // the error of fn itself
	for len(ranges) > 0 && stopped == nil {
		n := 1
		for n < len(ranges) && ranges[n].From > ranges[n-1].To && ranges[n].From-ranges[n-1].To <= passOver {
			n++
		}
		group := ranges[:n]
		ranges = ranges[n:]
		if err := q.Ask(EventsWithin, func(r Row) error {
			seq := eventstore.Seq(r.Int(0))
			for seq > group[0].To {
				group = group[1:]
			}
			if seq < group[0].From {
				return nil
			}
			if stopped == nil {
				e = eventstore.Event{
					Thread: t, Seq: seq, Run: id.Run(run.text(r, 1)), Type: kind.text(r, 2), Category: category.text(r, 3), MessageID: r.Text(4),
					Digest: into(&digest, r, 5), Anonymous: r.Bool(6), Metadata: into(&metadata, r, 7), CreatedAt: r.Time(8),
					First: eventstore.Seq(r.Int(9)), Content: into(&content, r, 10),
				}
				stopped = fn(&e)
			}
			if stopped != nil {
				return ErrStop
			}
			return nil
		}, t, group[0].From, group[n-1].To); err != nil {
			return err
		}
	}
	if err := q.Send(); err != nil {
		return err
	}
	return stopped
}
