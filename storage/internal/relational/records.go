package relational

import (
	"context"
	"fmt"
	"strings"

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

// recordColumns are the columns of a record without its attempt.
const recordColumns = "run_id, ms, n, kind, flags, event, data, checkpoint_id"

var (
	// SelectRecords also returns attempt and number on Postgres: only servers that share a database
	// need them.
	SelectRecords = differing("SELECT "+recordColumns+", attempt, idx FROM stream_records WHERE thread_id = $1 AND (ms, n) > ($2, $3) ORDER BY ms, n LIMIT $4",
		"SELECT "+recordColumns+", 0, 0 FROM stream_records WHERE thread_id = $1 AND (ms, n) > ($2, $3) ORDER BY ms, n LIMIT $4")
	// RecordsOfRun reads the run's part of the thread's stream only.
	RecordsOfRun = extremes(`SELECT r.event, r.data, r.flags, r.ms, r.n FROM stream_runs s JOIN stream_records r
		ON r.thread_id = s.thread_id AND r.ms BETWEEN greatest(s.first_ms, $3) AND s.last_ms AND r.run_id = s.run_id
		WHERE s.run_id = $1 AND s.thread_id = $2 AND (r.ms, r.n) > ($3, $4) ORDER BY r.ms, r.n`)
	// putSpan records where in the thread's stream the records of a run are, if it is not gone.
	putSpan = extremes(`INSERT INTO stream_runs (run_id, thread_id, first_ms, last_ms) SELECT run_id, $2, $3, $4 FROM runs ` + OfThreads + `run_id = $1 ON CONFLICT (run_id)
		DO UPDATE SET first_ms = least(stream_runs.first_ms, excluded.first_ms), last_ms = greatest(stream_runs.last_ms, excluded.last_ms)`)
)

// extremes returns a statement with least and greatest, which SQLite calls min and max.
func extremes(text string) Statement {
	return differing(text, strings.NewReplacer("least(", "min(", "greatest(", "max(").Replace(text))
}

// RecordFlags packs the boolean fields of a record into a number.
func RecordFlags(r *bridge.Record) (flags int64) {
	for _, f := range [...]struct {
		flag int64
		set  bool
	}{{flagKept, r.Kept}, {flagEphemeral, r.Ephemeral}, {flagAhead, r.Ahead}, {flagSummarizer, r.Summarizer}} {
		if f.set {
			flags |= f.flag
		}
	}
	return flags
}

// scanRecord reads a row of recordColumns.
func scanRecord(r Row) *bridge.Record {
	flags := r.Int(4)
	return &bridge.Record{
		Run:       id.Run(r.Text(0)),
		Offset:    bridge.Offset{MS: r.Int(1), N: r.Int(2)},
		Kind:      bridge.Kind(r.Int(3)),
		Kept:      flags&flagKept != 0,
		Ephemeral: flags&flagEphemeral != 0,
		Event:     r.Text(5),
		Data:      r.Bytes(6),

		Checkpoint: id.Checkpoint(r.Text(7)),
		Ahead:      flags&flagAhead != 0,
		Summarizer: flags&flagSummarizer != 0,

		Attempt: int(r.Int(8)),
		Index:   r.Int(9),
	}
}

// Records implements run.Store.
func (s *Store) Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) ([]*bridge.Record, error) {
	return from(ctx, s.db.Read, func(q Querier) ([]*bridge.Record, error) {
		return all(q, SelectRecords, scanRecord, t, after.MS, after.N, limitOf(limit))
	})
}

// InsertRecords implements run.Tx. Wire frames are not stored: they are derived from the rest.
// Records of runs that are gone are left out.
func (tx *Tx) InsertRecords(t id.Thread, records []*bridge.Record) error {
	if len(records) == 0 {
		return nil
	}
	tx.Lock(t)
	err := tx.PutRecords(t, records)
	type span struct{ first, last int64 }
	spans := map[id.Run]span{}
	for _, r := range records {
		s, ok := spans[r.Run]
		if !ok {
			s = span{r.Offset.MS, r.Offset.MS}
		}
		spans[r.Run] = span{min(s.first, r.Offset.MS), max(s.last, r.Offset.MS)}
	}
	for r, s := range spans {
		if err == nil {
			err = tx.Exec(putSpan, r, t, s.first, s.last)
		}
	}
	if err != nil {
		return fmt.Errorf("insert records of thread %s: %w", t, err)
	}
	return nil
}

// RunRecords implements run.Store.
func (s *Store) RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	return s.db.Read(ctx, func(q Querier) error { return runRecords(q, t, r, after, fn) })
}

// RunRecords implements run.Tx.
func (tx *Tx) RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	tx.Lock(t)
	return runRecords(tx, t, r, after, fn)
}

// runRecords calls fn for the records of a run after an offset.
func runRecords(q Querier, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	err := q.Query(RecordsOfRun, func(row Row) error {
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
