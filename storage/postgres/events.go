package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/storage/internal/rows"
)

// states is shared by all stores of the process: what it holds is found by stamps, which no two databases have in common.
var states eventstore.Cache

var _ eventstore.Reader = (*Store)(nil)

// Cache is eventstore.Tx.Cache.
func (tx *Tx) Cache() *eventstore.Cache { return &states }

const (
	lastSeq      = "SELECT seq FROM events WHERE thread_id = $1 ORDER BY seq DESC LIMIT 1"
	eventColumns = "thread_id, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, created_at, first_seq"
	// insertEvents gives each content a number, which both tables need. What is NULL in created_at is 0 in the list.
	insertEvents = `WITH given AS (
			SELECT nextval('event_bodies_number') AS body, e.* FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::boolean[],
				$9::bytea[], $10::bigint[], $11::bigint[], $12::bytea[])
				AS e (seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content)
		), bodies AS (
			INSERT INTO event_bodies (body, refs, content) SELECT body, 1, content FROM given
		)
		INSERT INTO events (` + eventColumns + `)
		SELECT $1, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, nullif(created_at, -9223372036854775808), first_seq FROM given`
)

// AppendEvents is eventstore.Tx.AppendEvents.
func (tx *Tx) AppendEvents(t id.Thread, events []*eventstore.Event) error {
	if len(events) == 0 {
		return nil
	}
	last, known := tx.seqs[t]
	if !known {
		tx.lock(t)
		if _, err := one(tx, lastSeq, func(r *row) error {
			last = r.Int(0)
			return nil
		}, t); err != nil {
			return fmt.Errorf("append events: %w", err)
		}
	}
	for _, e := range events {
		last++
		e.Thread, e.Seq = t, eventstore.Seq(last)
	}
	tx.seqs[t] = last
	if err := tx.putEvents(t, events); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	return nil
}

// putEvents inserts events that have their seqs.
func (tx *Tx) putEvents(t id.Thread, events []*eventstore.Event) error {
	tx.changes(t)
	n := len(events)
	var (
		seqs, created, first                = make([]int64, n), make([]int64, n), make([]int64, n)
		runs, types, categories, messages   = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		digests, metadata, contents, isAnon = make([][]byte, n), make([][]byte, n), make([][]byte, n), make([]bool, n)
	)
	for i, e := range events {
		seqs[i], first[i], created[i] = int64(e.Seq), int64(e.First), -1<<63
		if !e.CreatedAt.IsZero() {
			created[i] = micros(e.CreatedAt)
		}
		runs[i], types[i], categories[i], messages[i] = string(e.Run), e.Type, e.Category, e.MessageID
		digests[i], metadata[i], contents[i], isAnon[i] = e.Digest, e.Metadata, e.Content, e.Anonymous
	}
	return tx.exec(insertEvents, t, seqs, runs, types, categories, messages, digests, isAnon, metadata, created, first, contents)
}

var jsonTrue = json.RawMessage("true")

// RollBackEvents is eventstore.Tx.RollBackEvents.
func (tx *Tx) RollBackEvents(t id.Thread, r id.Run) error {
	return tx.markEvents("SELECT seq, metadata FROM events WHERE thread_id = $1 AND run_id = $2", func([]byte) bool { return true }, t, r)
}

// markEvents notes in the metadata of events that they are rolled back.
func (tx *Tx) markEvents(text string, which func(metadata []byte) bool, t id.Thread, args ...any) error {
	tx.lock(t)
	var seqs []int64
	var list [][]byte
	if err := tx.query(text, func(r *row) error {
		metadata := r.Bytes(1)
		if !which(metadata) {
			return nil
		}
		o := jsonobj.Of(metadata)
		o.Set("rolled_back", jsonTrue)
		seqs, list = append(seqs, r.Int(0)), append(list, o.JSON())
		return nil
	}, append([]any{t}, args...)...); err != nil || seqs == nil {
		return err
	}
	return tx.exec("UPDATE events e SET metadata = m.metadata FROM unnest($2::bigint[], $3::bytea[]) AS m (seq, metadata) WHERE e.thread_id = $1 AND e.seq = m.seq",
		t, seqs, list)
}

// deleteEvents deletes all that this file keeps of a thread. DeleteThread calls it.
func (tx *Tx) deleteEvents(t id.Thread) error {
	tx.changes(t)
	for _, text := range []string{
		`UPDATE event_bodies b SET refs = refs - 1 FROM (
			SELECT body FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = $1) ORDER BY body FOR UPDATE) AS ours WHERE b.body = ours.body`,
		"DELETE FROM event_bodies WHERE body IN (SELECT body FROM events WHERE thread_id = $1) AND refs = 0",
		"DELETE FROM events WHERE thread_id = $1",
		"DELETE FROM transcripts WHERE thread_id = $1",
		"DELETE FROM transcript_nodes WHERE thread_id = $1",
		"DELETE FROM event_lineage WHERE thread_id = $1",
	} {
		if err := tx.exec(text, t); err != nil {
			return err
		}
	}
	return nil
}

const (
	rowColumns   = "checkpoint_id, node, stamp, version, summary, source, run_id, opaque"
	rowOf        = "SELECT " + rowColumns + " FROM transcripts WHERE thread_id = $1 AND checkpoint_id = $2"
	rowOfVersion = "SELECT " + rowColumns + " FROM transcripts WHERE thread_id = $1 AND version = $2 ORDER BY checkpoint_id DESC LIMIT 1"
	logOf        = "SELECT body FROM events WHERE thread_id = $1 ORDER BY seq LIMIT 1" // a number that is given once
	putRow       = "INSERT INTO transcripts (thread_id, " + rowColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (thread_id, checkpoint_id) DO UPDATE SET " +
		"(node, stamp, version, summary, source, run_id, opaque) = (excluded.node, excluded.stamp, excluded.version, excluded.summary, excluded.source, excluded.run_id, excluded.opaque)"
)

func scanRow(r *row, t id.Thread) *eventstore.Row {
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

func transcriptRow(q querier, text string, t id.Thread, key any) (out *eventstore.Row, err error) {
	_, err = one(q, text, func(r *row) error {
		out = scanRow(r, t)
		return nil
	}, t, key)
	return out, err
}

// TranscriptRow is eventstore.Tx.TranscriptRow.
func (tx *Tx) TranscriptRow(t id.Thread, c id.Checkpoint) (*eventstore.Row, error) {
	tx.lock(t)
	if r := tx.rows[rowKey{t, c}]; r != nil {
		own := *r
		return &own, nil
	}
	return transcriptRow(tx, rowOf, t, c)
}

// TranscriptOfVersion is eventstore.Tx.TranscriptOfVersion.
func (tx *Tx) TranscriptOfVersion(t id.Thread, version string) (*eventstore.Row, error) {
	tx.lock(t)
	return transcriptRow(tx, rowOfVersion, t, version)
}

// PutTranscriptRow is eventstore.Tx.PutTranscriptRow.
func (tx *Tx) PutTranscriptRow(r *eventstore.Row) error {
	tx.lock(r.Thread)
	own := *r
	tx.rows[rowKey{r.Thread, r.Checkpoint}] = &own
	tx.taken(rowOf, bind([]any{r.Thread, r.Checkpoint}))
	return tx.exec(putRow, r.Thread, r.Checkpoint, r.Node, r.Stamp, r.Version, r.Summary, r.Source, r.Run, r.Opaque)
}

const putNode = "INSERT INTO transcript_nodes (thread_id, node, base, stamp, whole, since, data) VALUES ($1, $2, $3, $4, $5, $6, $7)"

// PutNode is eventstore.Tx.PutNode.
func (tx *Tx) PutNode(t id.Thread, n *eventstore.Node) error {
	tx.lock(t)
	n.ID = 1
	if _, err := one(tx, "SELECT node FROM transcript_nodes WHERE thread_id = $1 ORDER BY node DESC LIMIT 1", func(r *row) error {
		n.ID = r.Int(0) + 1
		return nil
	}, t); err != nil {
		return err
	}
	return tx.exec(putNode, t, n.ID, n.Base, n.Stamp, n.Whole, n.Since, n.Data)
}

// chainOf walks from a node to the whole one that it is made of.
const chainOf = `WITH RECURSIVE chain AS (
		SELECT node, base, stamp, whole, since, data, 1 AS at FROM transcript_nodes WHERE thread_id = $1 AND node = $2
		UNION ALL
		SELECT n.node, n.base, n.stamp, n.whole, n.since, n.data, at + 1 FROM chain c JOIN transcript_nodes n ON n.thread_id = $1 AND n.node = c.base WHERE c.base <> 0
	) SELECT node, base, stamp, whole, since, data FROM chain ORDER BY at DESC`

func scanNode(r *row) eventstore.Node {
	return eventstore.Node{ID: r.Int(0), Base: r.Int(1), Stamp: r.Int(2), Whole: int(r.Int(3)), Since: int(r.Int(4)), Data: r.Bytes(5)}
}

func nodes(q querier, t id.Thread, node int64) (chain []eventstore.Node, err error) {
	if node == 0 {
		return nil, nil
	}
	if err := q.query(chainOf, func(r *row) error {
		chain = append(chain, scanNode(r))
		return nil
	}, t, node); err != nil {
		return nil, err
	}
	switch {
	case len(chain) == 0:
		return nil, fmt.Errorf("transcript node %d of thread %s is missing", node, t)
	case chain[0].Base != 0:
		return nil, fmt.Errorf("transcript node %d of thread %s is missing", chain[0].Base, t)
	}
	return chain, nil
}

// Nodes is eventstore.Tx.Nodes.
func (tx *Tx) Nodes(t id.Thread, node int64) ([]eventstore.Node, error) {
	tx.lock(t)
	return nodes(tx, t, node)
}

const headsIn = "SELECT seq, type, message_id, digest, anonymous, first_seq FROM events WHERE thread_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq"

// Heads is eventstore.Tx.Heads.
func (tx *Tx) Heads(t id.Thread, ranges []eventstore.Range) (heads []eventstore.Head, err error) {
	if tx.err != nil {
		return nil, tx.err
	}
	tx.lock(t)
	for _, g := range ranges {
		tx.ask(headsIn, func(r *row) error {
			heads = append(heads, eventstore.Head{
				Seq: eventstore.Seq(r.Int(0)), Type: r.Text(1), MessageID: r.Text(2), Digest: r.Bytes(3), Anonymous: r.Bool(4), First: eventstore.Seq(r.Int(5)),
			})
			return nil
		}, t, g.From, g.To)
	}
	return heads, tx.send()
}

// Content is eventstore.Tx.Content.
func (tx *Tx) Content(t id.Thread, seq eventstore.Seq) (content []byte, err error) {
	tx.lock(t)
	_, err = one(tx, "SELECT content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq = $2", func(r *row) error {
		content = r.Bytes(0)
		return nil
	}, t, seq)
	return content, err
}

// ChannelValue is eventstore.Tx.ChannelValue.
func (tx *Tx) ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error) {
	tx.lock(t)
	b, err := newLoader(tx, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
	if b == nil || err != nil {
		return "", nil, err
	}
	return b.Type, b.Bytes(), nil
}

// clientWrites knows the task `__start__` by its path, which ends with the name of its node.
const clientWrites = `SELECT coalesce(type, ''), blob, task_id, task_path FROM checkpoint_writes
	WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2 AND channel = $3
	AND (task_id = '` + nullTask + `' OR task_path = '' OR task_path LIKE '%, \_\_start\_\_') ORDER BY task_id, idx`

// nullTask is the task under which LangGraph keeps what a command writes.
const nullTask = "00000000-0000-0000-0000-000000000000"

// ClientWrites is eventstore.Tx.ClientWrites. Stores that kept no paths of tasks do not tell which was `__start__`, but on a checkpoint that
// takes input no other task writes.
func (tx *Tx) ClientWrites(t id.Thread, c id.Checkpoint, channel string) (values []eventstore.Value, err error) {
	tx.lock(t)
	var pathless []eventstore.Value
	if err := tx.query(clientWrites, func(r *row) error {
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
	input := false
	_, err = one(tx, "SELECT metadata FROM checkpoints WHERE thread_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2", func(r *row) error {
		input = gjson.GetBytes(r.Bytes(0), "source").String() == "input"
		return nil
	}, t, c)
	if input {
		values = append(values, pathless...)
	}
	return values, err
}

// RunInput is eventstore.Tx.RunInput. The arguments of a run that is executed do not change.
func (tx *Tx) RunInput(r id.Run) (input, command json.RawMessage, err error) {
	if known := tx.runs[r]; known != nil {
		return known.run.Kwargs.Input, known.run.Kwargs.Command, nil
	}
	_, err = one(tx, "SELECT input, command FROM run_kwargs WHERE run_id = $1", func(row *row) error {
		input, command = row.Bytes(0), row.Bytes(1)
		return nil
	}, r)
	return input, command, err
}

const (
	selectEvents = "SELECT seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content " +
		"FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND "
	eventsAfter  = selectEvents + "seq > $2 ORDER BY seq LIMIT $3"
	eventsWithin = selectEvents + "seq BETWEEN $2 AND $3 ORDER BY seq"
	colContent   = 10
)

func scanEvent(r *row, t id.Thread) eventstore.Event {
	return eventstore.Event{
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
		Content:   r.Bytes(colContent),
	}
}

// Events is eventstore.Reader.Events.
func (s *Store) Events(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) (events []*eventstore.Event, err error) {
	err = s.read(ctx, func(q *reader) error {
		return q.query(eventsAfter, func(r *row) error {
			e := scanEvent(r, t)
			events = append(events, &e)
			return nil
		}, t, after, limitOf(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("events of thread %s: %w", t, err)
	}
	return events, nil
}

// Transcript is eventstore.Reader.Transcript.
func (s *Store) Transcript(ctx context.Context, t id.Thread, checkpoint id.Checkpoint) (tr *eventstore.Transcript, err error) {
	err = s.snapshot(ctx, func(q *reader) error {
		at, err := transcriptRow(q, rowOf, t, checkpoint)
		switch {
		case err != nil || at == nil || at.Opaque:
			return err
		case at.Node == 0:
			tr, err = eventstore.Fold(at, nil)
			return err
		}
		var log int64
		q.ask(logOf, func(r *row) error { // goes with the first question of nodes
			log = r.Int(0)
			return nil
		}, t)
		chain, err := nodes(q, t, at.Node)
		if err == nil {
			tr, err = eventstore.Fold(at, chain)
		}
		if err == nil {
			tr.Log = log
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("transcript of checkpoint %s of thread %s: %w", checkpoint, t, err)
	}
	return tr, nil
}

// EachContent is eventstore.Reader.EachContent.
func (s *Store) EachContent(ctx context.Context, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	err := s.snapshot(ctx, func(q *reader) error { return eachContent(q, t, ranges, fn) })
	if err != nil {
		return fmt.Errorf("events of thread %s: %w", t, err)
	}
	return nil
}

// passOver is how many rows between two ranges are passed over rather than begin another query: between the messages of two runs
// stand the events of how the runs ended and began.
const passOver = 16

// eachContent asks for all ranges at once: the answers stream, one after the other.
func eachContent(q querier, t id.Thread, ranges []eventstore.Range, fn func(*eventstore.Event) error) error {
	var stopped error // fn's own
	for len(ranges) > 0 {
		n := 1
		for n < len(ranges) && ranges[n].From > ranges[n-1].To && ranges[n].From-ranges[n-1].To <= passOver {
			n++
		}
		group := ranges[:n]
		ranges = ranges[n:]
		q.ask(eventsWithin, func(r *row) error {
			seq := eventstore.Seq(r.Int(0))
			for seq > group[0].To {
				group = group[1:]
			}
			if seq < group[0].From || stopped != nil {
				return nil
			}
			e := scanEvent(r, t)
			stopped = fn(&e)
			return nil
		}, t, group[0].From, group[n-1].To)
	}
	if err := q.send(); err != nil {
		return err
	}
	return stopped
}
