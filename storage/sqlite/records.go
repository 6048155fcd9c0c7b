package sqlite

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/bridge"
	"understudy/id"
	"understudy/storage/internal/relational"
)

// insertRecord skips records whose run is gone: they were on their way when it was deleted.
const insertRecord = "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id) " +
	"SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 WHERE EXISTS (SELECT 1 FROM runs " + relational.OfThreads + "run_id = ?4)"

// PutRecords implements relational.Writer.
func (tx *Tx) PutRecords(t id.Thread, records []*bridge.Record) error {
	for _, r := range records {
		if err := tx.exec(insertRecord, t, r.Offset.MS, r.Offset.N, r.Run, int(r.Kind), relational.RecordFlags(r), r.Event, r.Data, r.Checkpoint); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRecords implements run.Tx. It also deletes records of runs that no longer exist.
func (tx *Tx) DeleteRecords(endedBefore time.Time) (int, error) {
	var over []id.Run
	if err := tx.query(`SELECT s.run_id FROM stream_runs s LEFT JOIN runs r ON r.run_id = s.run_id
		WHERE r.run_id IS NULL OR r.ended_at < ?`, func(s *sqlite.Stmt) error {
		over = append(over, id.Run(s.ColumnText(0)))
		return nil
	}, endedBefore.UnixMicro()); err != nil {
		return 0, fmt.Errorf("delete records: %w", err)
	}
	total := 0
	for _, r := range over {
		n, err := tx.deleteRecords(r)
		if err != nil {
			return 0, fmt.Errorf("delete records of run %s: %w", r, err)
		}
		total += n
	}
	return total, nil
}

// deleteRecords deletes the records of a run. stream_runs has the range of its offsets, so only
// this part of the thread's stream is read.
func (tx *Tx) deleteRecords(r id.Run) (int, error) {
	var thread string
	var first, last int64
	found, err := tx.one("SELECT thread_id, first_ms, last_ms FROM stream_runs WHERE run_id = ?", func(s *sqlite.Stmt) error {
		thread, first, last = s.ColumnText(0), s.ColumnInt64(1), s.ColumnInt64(2)
		return nil
	}, r)
	if !found || err != nil {
		return 0, err
	}
	if err := tx.exec("DELETE FROM stream_records WHERE thread_id = ? AND ms BETWEEN ? AND ? AND run_id = ?", thread, first, last, r); err != nil {
		return 0, err
	}
	n := tx.conn.Changes()
	return n, tx.exec("DELETE FROM stream_runs WHERE run_id = ?", r)
}
