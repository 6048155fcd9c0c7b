package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

const (
	// Bodies are rows of their own, so that forks share them.
	insertBody  = "INSERT INTO event_bodies (refs, content) VALUES (1, ?)"
	insertEvent = "INSERT INTO events (" + relational.EventColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// LastSeq implements relational.Writer.
func (tx *Tx) LastSeq(t id.Thread) (last eventstore.Seq, err error) {
	_, err = tx.one(relational.LastSeq.SQLite, func(s *sqlite.Stmt) error {
		last = eventstore.Seq(s.ColumnInt64(0))
		return nil
	}, t)
	return last, err
}

// PutEvents implements relational.Writer. Each body has one reference; copies of threads share it
// later.
func (tx *Tx) PutEvents(t id.Thread, events []*eventstore.Event) error {
	tx.LogChanged(t)
	for _, e := range events {
		if err := tx.exec(insertBody, e.Content); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		body := tx.conn.LastInsertRowID()
		if err := tx.exec(insertEvent, t, int64(e.Seq), e.Run, e.Type, e.Category, e.MessageID, e.Digest, e.Anonymous, body, e.Metadata,
			e.CreatedAt, int64(e.First)); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		if tx.indexing && e.Category == eventstore.CategoryMessage {
			if err := tx.exec(notePending, body); err != nil {
				return fmt.Errorf("event %d: %w", e.Seq, err)
			}
		}
	}
	return nil
}

// PutShared implements relational.Writer.
func (tx *Tx) PutShared(t id.Thread, events []*eventstore.Event, bodies []int64) error {
	tx.LogChanged(t)
	for i, e := range events {
		if err := tx.exec(sharesBody, bodies[i]); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		if err := tx.exec(insertEvent, t, int64(e.Seq), e.Run, e.Type, e.Category, e.MessageID, e.Digest, e.Anonymous, bodies[i], e.Metadata, e.CreatedAt, int64(e.First)); err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
	}
	return nil
}

// ChannelValue implements eventstore.Tx. It returns an empty type if there is no such value.
func (tx *Tx) ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error) {
	b, err := newLoader(tx.conn, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
	if b == nil || err != nil {
		return "", nil, err
	}
	return b.Type, b.Bytes(), nil
}
