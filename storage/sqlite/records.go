package sqlite

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/storage/internal/relational"
)

// insertPack skips packs whose run is gone: they were on their way when it was deleted.
const insertPack = "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, last_ms, last_n, records) " +
	"SELECT ?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9, ?10 WHERE EXISTS (SELECT 1 FROM runs " + relational.OfThreads + "run_id = ?4) " +
	"ON CONFLICT (thread_id, ms, n) DO UPDATE SET data = excluded.data, last_ms = excluded.last_ms, last_n = excluded.last_n, records = excluded.records " +
	"WHERE run_id = excluded.run_id AND records > 0 AND (last_ms, last_n) < (excluded.last_ms, excluded.last_n)"

// PutPacks implements relational.Writer.
func (tx *Tx) PutPacks(t id.Thread, packs []relational.Pack) error {
	for i := range packs {
		p := &packs[i]
		if err := tx.exec(insertPack, t, p.First.MS, p.First.N, p.Run, relational.PackFlags, relational.PackEvent, p.Data, p.Last.MS, p.Last.N, p.Records); err != nil {
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

// deleteRecordsOfRun returns the numbers of the records that it deletes.
const deleteRecordsOfRun = "DELETE FROM stream_records WHERE thread_id = ? AND ms BETWEEN ? AND ? AND run_id = ? RETURNING max(records, 1)"

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
	n := 0
	if err := tx.query(deleteRecordsOfRun, func(s *sqlite.Stmt) error {
		n += s.ColumnInt(0)
		return nil
	}, thread, first, last, r); err != nil {
		return 0, err
	}
	return n, tx.exec("DELETE FROM stream_runs WHERE run_id = ?", r)
}
