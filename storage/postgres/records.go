package postgres

import (
	"context"
	"fmt"
	"time"

	"understudy/bridge"
	"understudy/id"
)

// Flags of stream_records.
const (
	flagKept = 1 << iota
	flagEphemeral
	flagAhead
	flagSummarizer
)

const selectRecords = "SELECT run_id, ms, n, kind, flags, event, data, checkpoint_id, attempt, idx FROM stream_records " +
	"WHERE thread_id = $1 AND (ms, n) > ($2, $3) ORDER BY ms, n LIMIT $4"

// Records is run.Store.Records.
func (s *Store) Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) (out []*bridge.Record, err error) {
	err = s.read(ctx, func(c *reader) error {
		return c.query(selectRecords, func(r *row) error {
			flags := int(r.Int(4))
			out = append(out, &bridge.Record{
				Run:       id.Run(r.Text(0)),
				Offset:    bridge.Offset{MS: r.Int(1), N: r.Int(2)},
				Kind:      bridge.Kind(int(r.Int(3))),
				Kept:      flags&flagKept != 0,
				Ephemeral: flags&flagEphemeral != 0,
				Event:     r.Text(5),
				Data:      r.Bytes(6),

				Checkpoint: id.Checkpoint(r.Text(7)),
				Ahead:      flags&flagAhead != 0,
				Summarizer: flags&flagSummarizer != 0,

				Attempt: int(r.Int(8)),
				Index:   r.Int(9),
			})
			return nil
		}, t, after.MS, after.N, limitOf(limit))
	})
	return out, err
}

const (
	// insertRecords leaves out what an attempt says when its run is another attempt's by now, or gone, and what is there already: whether a commit
	// happened whose connection died is not known, and it is repeated. Records without attempt are taken as they are.
	insertRecords = "INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id, attempt, idx) " +
		"SELECT $1, u.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[], $9::text[], $10::bigint[], $11::bigint[]) " +
		"AS u (ms, n, run, kind, flags, event, data, checkpoint, attempt, idx) " +
		"WHERE u.attempt = 0 OR EXISTS (SELECT 1 FROM runs " + ofThreads + "runs.run_id = u.run AND runs.attempt = u.attempt) ON CONFLICT DO NOTHING"
	insertSpan = "INSERT INTO stream_runs (run_id, thread_id, first_ms, last_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (run_id) " +
		"DO UPDATE SET first_ms = least(stream_runs.first_ms, excluded.first_ms), last_ms = greatest(stream_runs.last_ms, excluded.last_ms)"
	recordsOfRun = "SELECT r.event, r.data, r.flags, r.ms, r.n FROM stream_runs s JOIN stream_records r " +
		"ON r.thread_id = s.thread_id AND r.ms BETWEEN greatest(s.first_ms, $3) AND s.last_ms AND r.run_id = s.run_id " +
		"WHERE s.run_id = $1 AND s.thread_id = $2 AND (r.ms, r.n) > ($3, $4) ORDER BY r.ms, r.n"
	deleteRecords = "DELETE FROM stream_records r USING stream_runs s " +
		"WHERE s.run_id = $1 AND r.thread_id = s.thread_id AND r.ms BETWEEN s.first_ms AND s.last_ms AND r.run_id = s.run_id"
	// sweepRecords takes runs in bites, each of which one instance has. A run whose row is gone has records that nobody asks for.
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

// InsertRecords is run.Tx.InsertRecords. Frames are not kept: they follow from the rest.
func (tx *Tx) InsertRecords(t id.Thread, records []*bridge.Record) error {
	if len(records) == 0 {
		return nil
	}
	type span struct{ first, last int64 }
	spans := map[id.Run]span{}
	n := len(records)
	var (
		ms, ns, kinds, flags      = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		attempts, indexes         = make([]int64, n), make([]int64, n)
		runs, events, checkpoints = make([]string, n), make([]string, n), make([]string, n)
		data                      = make([][]byte, n)
	)
	for i, r := range records {
		for flag, set := range map[int64]bool{flagKept: r.Kept, flagEphemeral: r.Ephemeral, flagAhead: r.Ahead, flagSummarizer: r.Summarizer} {
			if set {
				flags[i] |= flag
			}
		}
		ms[i], ns[i], kinds[i] = r.Offset.MS, r.Offset.N, int64(r.Kind)
		runs[i], events[i], checkpoints[i], data[i] = string(r.Run), r.Event, string(r.Checkpoint), r.Data
		attempts[i], indexes[i] = int64(r.Attempt), r.Index
		s, ok := spans[r.Run]
		if !ok {
			s = span{r.Offset.MS, r.Offset.MS}
		}
		spans[r.Run] = span{min(s.first, r.Offset.MS), max(s.last, r.Offset.MS)}
	}
	tx.lock(t)
	if err := tx.exec(insertRecords, t, ms, ns, runs, kinds, flags, events, data, checkpoints, attempts, indexes); err != nil {
		return fmt.Errorf("insert records of thread %s: %w", t, err)
	}
	for r, s := range spans {
		if err := tx.exec(insertSpan, r, t, s.first, s.last); err != nil {
			return fmt.Errorf("insert records of thread %s: %w", t, err)
		}
	}
	return nil
}

// RunRecords is run.Store.RunRecords.
func (s *Store) RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	return s.read(ctx, func(c *reader) error { return runRecords(c.query, t, r, after, fn) })
}

// RunRecords is run.Tx.RunRecords.
func (tx *Tx) RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	tx.lock(t)
	return runRecords(tx.query, t, r, after, fn)
}

// runRecords looks only at the run's part of the thread's stream.
func runRecords(query func(string, func(*row) error, ...any) error, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	err := query(recordsOfRun, func(row *row) error {
		return fn(&bridge.Record{
			Event: row.Text(0), Data: row.Bytes(1), Summarizer: row.Int(2)&flagSummarizer != 0,
			Offset: bridge.Offset{MS: row.Int(3), N: row.Int(4)},
		})
	}, r, t, after.MS, after.N)
	if err != nil {
		return fmt.Errorf("records of run %s: %w", r, err)
	}
	return nil
}

// DeleteRecords is run.Tx.DeleteRecords. Records of runs that are gone are dropped too.
func (tx *Tx) DeleteRecords(endedBefore time.Time) (total int, err error) {
	for more := true; more; {
		if _, err := one(tx, sweepRecords, func(r *row) error {
			total += int(r.Int(0))
			more = r.Int(1) > 0
			return nil
		}, micros(endedBefore)); err != nil {
			return 0, fmt.Errorf("delete records: %w", err)
		}
	}
	return total, nil
}
