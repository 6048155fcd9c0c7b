package relational

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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

// recordColumns are the columns of a row, which is a Pack or one record. attempt and idx follow:
// SQLite has none, because only servers that share a database need those of single records.
const recordColumns = "r.run_id, r.ms, r.n, r.kind, r.flags, r.event, r.data, r.checkpoint_id, r.last_ms, r.last_n, r.records, "

var (
	// SelectRecords reads rows with records above the offset ($4, $5), in the order of their first
	// ones and from the row that follows ($2, $3).
	SelectRecords = ofAttempts(same(`SELECT ` + recordColumns + `@attempt FROM stream_records r
		WHERE r.thread_id = $1 AND (r.ms, r.n) > ($2, $3) AND ((r.ms, r.n) > ($4, $5) OR (r.last_ms, r.last_n) > ($4, $5)) ORDER BY r.ms, r.n LIMIT $6`))
	// RecordsOfRun reads the run's part of the thread's stream only.
	RecordsOfRun = ofAttempts(extremes(`SELECT ` + recordColumns + `@attempt FROM stream_runs s JOIN stream_records r
		ON r.thread_id = s.thread_id AND r.ms BETWEEN greatest(s.first_ms, $3) AND s.last_ms AND r.run_id = s.run_id
		WHERE s.run_id = $1 AND s.thread_id = $2 ORDER BY r.ms, r.n`))
	// putSpan records where in the thread's stream the records of a run are, if it is not gone.
	putSpan = extremes(`INSERT INTO stream_runs (run_id, thread_id, first_ms, last_ms) SELECT run_id, $2, $3, $4 FROM runs ` + OfThreads + `run_id = $1 ON CONFLICT (run_id)
		DO UPDATE SET first_ms = least(stream_runs.first_ms, excluded.first_ms), last_ms = greatest(stream_runs.last_ms, excluded.last_ms)`)

	eventsGone = same("SELECT events_gone FROM threads WHERE thread_id = $1")
	markGone   = extremes("UPDATE threads SET events_gone = greatest(events_gone, $2) WHERE thread_id = $1")
)

// ofAttempts returns a statement with the columns attempt and idx for @attempt.
func ofAttempts(s Statement) Statement {
	return differing(strings.Replace(s.Postgres, "@attempt", "r.attempt, r.idx", 1), strings.Replace(s.SQLite, "@attempt", "0, 0", 1))
}

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

// setFlags is the reverse of RecordFlags.
func setFlags(r *bridge.Record, flags int64) {
	r.Kept, r.Ephemeral = flags&flagKept != 0, flags&flagEphemeral != 0
	r.Ahead, r.Summarizer = flags&flagAhead != 0, flags&flagSummarizer != 0
}

// scanRecords reads a row of recordColumns.
func scanRecords(r Row) ([]*bridge.Record, error) {
	run, first := id.Run(r.Text(0)), bridge.Offset{MS: r.Int(1), N: r.Int(2)}
	if n := int(r.Int(10)); n > 0 {
		records, err := unpacked(Pack{Run: run, Attempt: int(r.Int(11)), First: first, Records: n, Data: r.Bytes(6)})
		if err != nil {
			return nil, fmt.Errorf("records of run %s at %s: %w", run, first, err)
		}
		return records, nil
	}
	rec := &bridge.Record{
		Run: run, Offset: first, Kind: bridge.Kind(r.Int(3)), Event: r.Text(5), Data: r.Bytes(6),
		Checkpoint: id.Checkpoint(r.Text(7)), Attempt: int(r.Int(11)), Index: r.Int(12),
	}
	setFlags(rec, r.Int(4))
	return []*bridge.Record{rec}, nil
}

// rowsAtOnce bounds the rows of one query, and so the memory for packs.
const rowsAtOnce = 256

// Records implements run.Store.
func (s runStore) Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) ([]*bridge.Record, error) {
	return fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) ([]*bridge.Record, error) {
		return recordsAfter(q, t, after, limitOf(limit))
	})
}

// recordsAfter returns at most limit records above an offset.
func recordsAfter(q Querier, t id.Thread, after bridge.Offset, limit int) (out []*bridge.Record, err error) {
	m := merger{after: after, fn: func(r *bridge.Record) error {
		if out = append(out, r); len(out) == limit {
			return ErrStop
		}
		return nil
	}}
	// row is the key of the last row read.
	row := bridge.Offset{MS: after.MS - packSpan - 1, N: math.MaxInt64}
	for size := min(limit+1, rowsAtOnce); ; size = rowsAtOnce {
		n := 0
		if err := q.Query(SelectRecords, func(r Row) error {
			n++
			row = bridge.Offset{MS: r.Int(1), N: r.Int(2)}
			records, err := scanRecords(r)
			if err != nil {
				return err
			}
			return m.add(records)
		}, t, row.MS, row.N, after.MS, after.N, size); err != nil {
			return nil, err
		}
		if n < size && len(out) < limit {
			if err := m.flush(); err != nil && !errors.Is(err, ErrStop) {
				return nil, err
			}
		}
		if n < size || len(out) == limit {
			return out, nil
		}
	}
}

// KeepRecords implements run.Store. Wire frames are not stored: they are derived from the rest.
// Records of runs that are gone are left out.
func (s runStore) KeepRecords(ctx context.Context, records map[id.Thread][]*bridge.Record) error {
	// Compressed before the transaction, in which others wait.
	kept := make([]keptRecords, 0, len(records))
	for _, t := range slices.Sorted(maps.Keys(records)) { // an engine that locks threads one by one wants the same order everywhere
		if len(records[t]) > 0 {
			kept = append(kept, keptRecords{thread: t, packs: packed(records[t]), spans: spansOf(records[t])})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return s.db.Write(ctx, func(tx *Tx) error {
		for _, k := range kept {
			if err := tx.keep(k); err != nil {
				return fmt.Errorf("keep records of thread %s: %w", k.thread, err)
			}
		}
		return nil
	})
}

// keptRecords are records of a thread as they are stored.
type keptRecords struct {
	thread id.Thread
	packs  []Pack
	spans  map[id.Run]offsetSpan
}

// offsetSpan has the milliseconds of the first and the last offset of a run's records.
type offsetSpan struct{ first, last int64 }

func spansOf(records []*bridge.Record) map[id.Run]offsetSpan {
	spans := map[id.Run]offsetSpan{}
	for _, r := range records {
		s, ok := spans[r.Run]
		if !ok {
			s = offsetSpan{r.Offset.MS, r.Offset.MS}
		}
		spans[r.Run] = offsetSpan{min(s.first, r.Offset.MS), max(s.last, r.Offset.MS)}
	}
	return spans
}

func (tx *Tx) keep(k keptRecords) error {
	tx.Lock(k.thread)
	if err := tx.PutPacks(k.thread, k.packs); err != nil {
		return err
	}
	for _, r := range slices.Sorted(maps.Keys(k.spans)) {
		if err := tx.Exec(putSpan, r, k.thread, k.spans[r].first, k.spans[r].last); err != nil {
			return err
		}
	}
	return nil
}

// RunRecords implements run.Store.
func (s runStore) RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	_, err := fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) (struct{}, error) { return struct{}{}, runRecords(q, t, r, after, fn) })
	return err
}

// RunRecords implements run.Tx.
func (tx *Tx) RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	tx.Lock(t)
	return runRecords(tx, t, r, after, fn)
}

// runRecords calls fn for the records of a run after an offset.
func runRecords(q Querier, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	m := merger{after: after, fn: fn}
	err := q.Query(RecordsOfRun, func(row Row) error {
		records, err := scanRecords(row)
		if err != nil {
			return err
		}
		return m.add(records)
	}, r, t, after.MS-packSpan)
	if err == nil {
		err = m.flush()
	}
	if err != nil {
		return fmt.Errorf("records of run %s: %w", r, err)
	}
	return nil
}

// EventsGone implements run.Store.
func (s runStore) EventsGone(ctx context.Context, t id.Thread) (time.Time, error) {
	return fromThread(ctx, s.base, t, s.db.Read, func(q Querier, t id.Thread) (time.Time, error) {
		until, _, err := first(q, eventsGone, func(r Row) int64 { return r.Int(0) }, t)
		if err != nil {
			return time.Time{}, fmt.Errorf("deleted events of thread %s: %w", t, err)
		}
		if until == 0 {
			return time.Time{}, nil
		}
		return time.UnixMicro(until).UTC(), nil
	})
}

// MarkGone implements run.Tx.
func (tx *Tx) MarkGone(t id.Thread, until time.Time) error {
	tx.Lock(t)
	if err := tx.Exec(markGone, t, micros(until)); err != nil {
		return fmt.Errorf("deleted events of thread %s: %w", t, err)
	}
	return nil
}
