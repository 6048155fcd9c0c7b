package postgres

import (
	"encoding/json"
	"fmt"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

const (
	// insertEvents assigns each body a number, which both tables need, in one statement. NULL in
	// created_at travels as the smallest bigint, because unnest takes lists without NULL here.
	insertEvents = `WITH given AS (
			SELECT nextval('event_bodies_number') AS body, e.* FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::boolean[],
				$9::bytea[], $10::bigint[], $11::bigint[], $12::bytea[])
				AS e (seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, content)
		), bodies AS (
			INSERT INTO event_bodies (body, refs, content) SELECT body, 1, content FROM given
		)
		%sINSERT INTO events (` + relational.EventColumns + `)
		SELECT $1, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, nullif(created_at, -9223372036854775808), first_seq FROM given`
	// insertShared is for bodies that are stored.
	insertShared = `INSERT INTO events (` + relational.EventColumns + `)
		SELECT $1, seq, run_id, type, category, message_id, digest, anonymous, body, metadata, nullif(created_at, -9223372036854775808), first_seq
		FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::boolean[], $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[])
			AS e (seq, run_id, type, category, message_id, digest, anonymous, metadata, created_at, first_seq, body)`
	// noteMessages notes messages as ones to index.
	noteMessages = `, pending AS (INSERT INTO search_pending (body) SELECT body FROM given WHERE category = '` + eventstore.CategoryMessage + "')\n\t\t"
)

var (
	insertUnindexed = fmt.Sprintf(insertEvents, "")
	insertToIndex   = fmt.Sprintf(insertEvents, noteMessages)
)

// LastSeq implements relational.Writer. The transaction's own events count.
func (tx *Tx) LastSeq(t id.Thread) (last eventstore.Seq, err error) {
	if last, known := tx.seqs[t]; known {
		return last, nil
	}
	tx.lock(t)
	if last, asked, err := take(tx, tx.ahead.seqs, t); asked {
		return last, err
	}
	_, err = one(tx, relational.LastSeq.Postgres, func(r *row) error {
		last = eventstore.Seq(r.Int(0))
		return nil
	}, t)
	return last, err
}

// PutEvents implements relational.Writer with one statement for all events.
func (tx *Tx) PutEvents(t id.Thread, events []*eventstore.Event) error {
	contents := make([][]byte, len(events))
	for i, e := range events {
		contents[i] = e.Content
	}
	text := insertUnindexed
	if tx.store.indexing.Load() {
		text = insertToIndex
	}
	return tx.exec(text, append(tx.eventArgs(t, events), contents)...)
}

// PutShared implements relational.Writer. It fails when one of the bodies was deleted meanwhile.
func (tx *Tx) PutShared(t id.Thread, events []*eventstore.Event, bodies []int64) error {
	if n, err := tx.affected(shareBodies, bodies); err != nil {
		return err
	} else if n != int64(len(bodies)) {
		return fault.Newf(fault.Conflict, "%d of %d contents of thread %s are missing; it was deleted meanwhile", int64(len(bodies))-n, len(bodies), t)
	}
	return tx.exec(insertShared, append(tx.eventArgs(t, events), bodies)...)
}

// eventArgs returns the columns of events but their bodies, and notes that they are inserted.
func (tx *Tx) eventArgs(t id.Thread, events []*eventstore.Event) []any {
	tx.changes(t)
	n := len(events)
	tx.seqs[t] = events[n-1].Seq
	delete(tx.ahead.seqs, t)
	for _, e := range events {
		delete(tx.ahead.messages, e.Run)
	}
	var (
		seqs, created, first              = make([]int64, n), make([]int64, n), make([]int64, n)
		runs, types, categories, messages = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		digests, metadata, isAnon         = make([][]byte, n), make([][]byte, n), make([]bool, n)
	)
	for i, e := range events {
		seqs[i], first[i], created[i] = int64(e.Seq), int64(e.First), -1<<63
		if !e.CreatedAt.IsZero() {
			created[i] = micros(e.CreatedAt)
		}
		runs[i], types[i], categories[i], messages[i] = string(e.Run), e.Type, e.Category, e.MessageID
		digests[i], metadata[i], isAnon[i] = e.Digest, e.Metadata, e.Anonymous
	}
	return []any{t, seqs, runs, types, categories, messages, digests, isAnon, metadata, created, first}
}

// TranscriptRow implements eventstore.Tx. Rows written by this transaction are returned without a
// query.
func (tx *Tx) TranscriptRow(t id.Thread, c id.Checkpoint) (*eventstore.Row, error) {
	if r := tx.rows[rowKey{t, c}]; r != nil {
		own := *r
		return &own, nil
	}
	if found, asked, err := take(tx, tx.ahead.rows, rowKey{t, c}); asked {
		return found, err
	}
	return tx.Tx.TranscriptRow(t, c)
}

// PutTranscriptRow implements eventstore.Tx.
func (tx *Tx) PutTranscriptRow(r *eventstore.Row) error {
	own := *r
	tx.rows[rowKey{r.Thread, r.Checkpoint}] = &own
	delete(tx.ahead.rows, rowKey{r.Thread, r.Checkpoint})
	return tx.Tx.PutTranscriptRow(r)
}

// DropTranscripts implements eventstore.BackfillTx.
func (tx *Tx) DropTranscripts(t id.Thread, checkpoints []id.Checkpoint) error {
	clear(tx.rows)
	clear(tx.ahead.rows)
	return tx.Tx.DropTranscripts(t, checkpoints)
}

// RunInput implements eventstore.Tx. The arguments of an executing run do not change, so a loaded
// run answers.
func (tx *Tx) RunInput(r id.Run) (input, command json.RawMessage, err error) {
	if known := tx.runs[r]; known != nil {
		return known.run.Kwargs.Input, known.run.Kwargs.Command, nil
	}
	return tx.Tx.RunInput(r)
}

// ChannelValue implements eventstore.Tx. It returns an empty type if there is no such value.
func (tx *Tx) ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error) {
	tx.lock(t)
	b, err := newLoader(tx, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
	if b == nil || err != nil {
		return "", nil, err
	}
	return b.Type, b.Bytes(), nil
}

// ChannelText implements run.Tx. Ending a run has already read the newest checkpoint.
func (tx *Tx) ChannelText(t id.Thread, channel string) (string, error) {
	head, known := tx.tips[t]
	switch {
	case !known:
		return tx.Tx.ChannelText(t, channel)
	case head == nil:
		return "", nil
	}
	return tx.TextIn(head.Data, t, channel)
}
