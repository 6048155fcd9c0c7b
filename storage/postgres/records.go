package postgres

import (
	"fmt"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/storage/internal/relational"
)

const (
	// insertRecords skips records whose run is gone or has a newer attempt than theirs, and records
	// that exist: after a connection lost during a commit the transaction is repeated.
	insertRecords = "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id, attempt, idx) " +
		"SELECT $1, u.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[]) " +
		"AS u (ms, n, run, kind, flags, event, data, checkpoint, attempt, idx) " +
		"WHERE EXISTS (SELECT 1 FROM runs " + relational.OfThreads + "runs.run_id = u.run AND u.attempt IN (0, runs.attempt)) ON CONFLICT DO NOTHING"
	deleteRecords = "DELETE FROM stream_records r USING stream_runs s " +
		"WHERE s.run_id = $1 AND r.thread_id = s.thread_id AND r.ms BETWEEN s.first_ms AND s.last_ms AND r.run_id = s.run_id"
	// sweepRecords deletes the records of some runs at a time; SKIP LOCKED lets each server take
	// others. It includes runs whose row is gone.
	sweepRecords = `WITH over AS (
			SELECT s.run_id, s.thread_id, s.first_ms, s.last_ms FROM stream_runs s LEFT JOIN runs r ON r.run_id = s.run_id
			WHERE r.run_id IS NULL OR r.ended_at < $1 ORDER BY s.run_id LIMIT 500 FOR UPDATE OF s SKIP LOCKED
		), gone AS (
			DELETE FROM stream_records r USING over s
			WHERE r.thread_id = s.thread_id AND r.ms BETWEEN s.first_ms AND s.last_ms AND r.run_id = s.run_id RETURNING 1
		), spans AS (
			DELETE FROM stream_runs s USING over WHERE s.run_id = over.run_id
		) SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM over)`
)

// PutRecords implements relational.Writer with one statement.
func (tx *Tx) PutRecords(t id.Thread, records []*bridge.Record) error {
	n := len(records)
	var (
		ms, ns, kinds, flags      = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		attempts, indexes         = make([]int64, n), make([]int64, n)
		runs, events, checkpoints = make([]string, n), make([]string, n), make([]string, n)
		data                      = make([][]byte, n)
	)
	for i, r := range records {
		ms[i], ns[i], kinds[i], flags[i] = r.Offset.MS, r.Offset.N, int64(r.Kind), relational.RecordFlags(r)
		runs[i], events[i], checkpoints[i], data[i] = string(r.Run), r.Event, string(r.Checkpoint), r.Data
		attempts[i], indexes[i] = int64(r.Attempt), r.Index
	}
	return tx.exec(insertRecords, t, ms, ns, runs, kinds, flags, events, data, checkpoints, attempts, indexes)
}

// DeleteRecords implements run.Tx. It also deletes records of runs that no longer exist.
func (tx *Tx) DeleteRecords(endedBefore time.Time) (total int, err error) {
	for more := true; more; {
		if _, err := one(tx, sweepRecords, func(r *row) error {
			total += int(r.Int(0))
			more = r.Int(1) > 0
			return nil
		}, endedBefore.UnixMicro()); err != nil {
			return 0, fmt.Errorf("delete records: %w", err)
		}
	}
	return total, nil
}
