package postgres

import (
	"fmt"
	"time"

	"understudy/id"
	"understudy/storage/internal/relational"
)

const (
	// insertPacks skips packs whose run is gone or has a newer attempt than theirs. After a
	// connection lost during a commit the transaction is repeated, and the packs may exist.
	insertPacks = "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, attempt, last_ms, last_n, records) " +
		"SELECT $1, u.ms, u.n, u.run, 0, $2, $3, u.data, u.attempt, u.last_ms, u.last_n, u.records " +
		"FROM unnest($4::bigint[], $5::bigint[], $6::text[], $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]) " +
		"AS u (ms, n, run, data, attempt, last_ms, last_n, records) " +
		"WHERE EXISTS (SELECT 1 FROM runs " + relational.OfThreads + "runs.run_id = u.run AND u.attempt IN (0, runs.attempt)) " +
		"ON CONFLICT (thread_id, ms, n) DO UPDATE SET data = excluded.data, last_ms = excluded.last_ms, last_n = excluded.last_n, records = excluded.records " +
		"WHERE stream_records.run_id = excluded.run_id AND stream_records.attempt = excluded.attempt AND stream_records.records > 0 " +
		"AND (stream_records.last_ms, stream_records.last_n) < (excluded.last_ms, excluded.last_n)"
	deleteRecords = "DELETE FROM stream_records r USING stream_runs s " +
		"WHERE s.run_id = $1 AND r.thread_id = s.thread_id AND r.ms BETWEEN s.first_ms AND s.last_ms AND r.run_id = s.run_id"
	// sweepRecords deletes the records of some runs at a time; SKIP LOCKED lets each server take
	// others. It includes runs whose row is gone.
	sweepRecords = `WITH over AS (
			SELECT s.run_id, s.thread_id, s.first_ms, s.last_ms FROM stream_runs s LEFT JOIN runs r ON r.run_id = s.run_id
			WHERE r.run_id IS NULL OR r.ended_at < $1 ORDER BY s.run_id LIMIT 500 FOR UPDATE OF s SKIP LOCKED
		), gone AS (
			DELETE FROM stream_records r USING over s
			WHERE r.thread_id = s.thread_id AND r.ms BETWEEN s.first_ms AND s.last_ms AND r.run_id = s.run_id RETURNING greatest(r.records, 1) AS records
		), spans AS (
			DELETE FROM stream_runs s USING over WHERE s.run_id = over.run_id
		) SELECT (SELECT coalesce(sum(records), 0)::bigint FROM gone), (SELECT count(*) FROM over)`
)

// PutPacks implements relational.Writer with one statement.
func (tx *Tx) PutPacks(t id.Thread, packs []relational.Pack) error {
	n := len(packs)
	var (
		ms, ns, lastMS, lastN = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		attempts, records     = make([]int64, n), make([]int64, n)
		runs, data            = make([]string, n), make([][]byte, n)
	)
	for i, p := range packs {
		ms[i], ns[i], lastMS[i], lastN[i] = p.First.MS, p.First.N, p.Last.MS, p.Last.N
		runs[i], data[i], attempts[i], records[i] = string(p.Run), p.Data, int64(p.Attempt), int64(p.Records)
	}
	return tx.exec(insertPacks, t, relational.PackFlags, relational.PackEvent, ms, ns, runs, data, attempts, lastMS, lastN, records)
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
