package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
)

// AppendEvents is eventstore.Tx.AppendEvents.
func (tx *Tx) AppendEvents(t id.Thread, events []*eventstore.Event) error {
	var last int64
	if _, err := tx.one("SELECT seq FROM events WHERE thread_id = ? ORDER BY seq DESC LIMIT 1", func(s *sqlite.Stmt) error {
		last = s.ColumnInt64(0)
		return nil
	}, t); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	for _, e := range events {
		last++
		e.Thread, e.Seq = t, eventstore.Seq(last)
		if err := tx.exec(`INSERT INTO events (thread_id, seq, run_id, type, category, message_id, content, metadata, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t, last, e.Run, e.Type, e.Category, e.MessageID, e.Content, e.Metadata, e.CreatedAt); err != nil {
			return fmt.Errorf("append event %d: %w", last, err)
		}
	}
	return nil
}

// CopyEvents is eventstore.Tx.CopyEvents.
func (tx *Tx) CopyEvents(from, to id.Thread) error {
	return tx.exec(`INSERT INTO events (thread_id, seq, run_id, type, category, message_id, content, metadata, created_at)
		SELECT ?2, seq, run_id, type, category, message_id, content, metadata, created_at FROM events WHERE thread_id = ?1`, from, to)
}

// RollBackEvents is eventstore.Tx.RollBackEvents.
func (tx *Tx) RollBackEvents(t id.Thread, r id.Run) error {
	return tx.exec(`UPDATE events SET metadata = CAST(json_set(CAST(coalesce(metadata, '{}') AS TEXT), '$.rolled_back', json('true')) AS BLOB)
		WHERE thread_id = ? AND run_id = ?`, t, r)
}

// deleteEvents deletes all that this file keeps of a thread. DeleteThread calls it.
func (tx *Tx) deleteEvents(t id.Thread) error {
	return tx.exec("DELETE FROM events WHERE thread_id = ?", t)
}
