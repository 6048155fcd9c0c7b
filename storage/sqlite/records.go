package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

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

const selectRecords = "SELECT run_id, ms, n, kind, flags, event, data, checkpoint_id FROM stream_records " +
	"WHERE thread_id = ? AND (ms, n) > (?, ?) ORDER BY ms, n LIMIT ?"

// Records is run.Store.Records.
func (s *Store) Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) (out []*bridge.Record, err error) {
	if limit <= 0 {
		limit = -1
	}
	err = s.read(ctx, func(c *sqlite.Conn) error {
		return query(c, selectRecords, func(st *sqlite.Stmt) error {
			flags := st.ColumnInt(4)
			out = append(out, &bridge.Record{
				Run:       id.Run(st.ColumnText(0)),
				Offset:    bridge.Offset{MS: st.ColumnInt64(1), N: st.ColumnInt64(2)},
				Kind:      bridge.Kind(st.ColumnInt(3)),
				Kept:      flags&flagKept != 0,
				Ephemeral: flags&flagEphemeral != 0,
				Event:     st.ColumnText(5),
				Data:      columnBytes(st, 6),

				Checkpoint: id.Checkpoint(st.ColumnText(7)),
				Ahead:      flags&flagAhead != 0,
				Summarizer: flags&flagSummarizer != 0,
			})
			return nil
		}, t, after.MS, after.N, limit)
	})
	return out, err
}

// InsertRecords is run.Tx.InsertRecords. Frames are not kept: they follow from the rest.
func (tx *Tx) InsertRecords(t id.Thread, records []*bridge.Record) error {
	type span struct{ first, last int64 }
	spans := map[id.Run]span{}
	for _, r := range records {
		flags := 0
		if r.Kept {
			flags |= flagKept
		}
		if r.Ephemeral {
			flags |= flagEphemeral
		}
		if r.Ahead {
			flags |= flagAhead
		}
		if r.Summarizer {
			flags |= flagSummarizer
		}
		if err := tx.exec("INSERT INTO stream_records (thread_id, ms, n, run_id, kind, flags, event, data, checkpoint_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			t, r.Offset.MS, r.Offset.N, r.Run, int(r.Kind), flags, r.Event, r.Data, r.Checkpoint); err != nil {
			return fmt.Errorf("insert records of thread %s: %w", t, err)
		}
		s, ok := spans[r.Run]
		if !ok {
			s = span{r.Offset.MS, r.Offset.MS}
		}
		spans[r.Run] = span{min(s.first, r.Offset.MS), max(s.last, r.Offset.MS)}
	}
	for r, s := range spans {
		if err := tx.exec(`INSERT INTO stream_runs (run_id, thread_id, first_ms, last_ms) VALUES (?, ?, ?, ?)
			ON CONFLICT (run_id) DO UPDATE SET first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)`,
			r, t, s.first, s.last); err != nil {
			return fmt.Errorf("insert records of thread %s: %w", t, err)
		}
	}
	return nil
}

// recordsOfRun looks only at the run's part of the thread's stream.
const recordsOfRun = `SELECT r.event, r.data, r.flags, r.ms, r.n FROM stream_runs s JOIN stream_records r
	ON r.thread_id = s.thread_id AND r.ms BETWEEN max(s.first_ms, ?) AND s.last_ms AND r.run_id = s.run_id
	WHERE s.run_id = ? AND s.thread_id = ? AND (r.ms, r.n) > (?, ?) ORDER BY r.ms, r.n`

// RunRecords is run.Store.RunRecords.
func (s *Store) RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	return s.read(ctx, func(c *sqlite.Conn) error { return runRecords(c, t, r, after, fn) })
}

// RunRecords is run.Tx.RunRecords.
func (tx *Tx) RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	return runRecords(tx.conn, t, r, after, fn)
}

func runRecords(c *sqlite.Conn, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	err := query(c, recordsOfRun, func(s *sqlite.Stmt) error {
		return fn(&bridge.Record{
			Event: s.ColumnText(0), Data: columnBytes(s, 1), Summarizer: s.ColumnInt(2)&flagSummarizer != 0,
			Offset: bridge.Offset{MS: s.ColumnInt64(3), N: s.ColumnInt64(4)},
		})
	}, after.MS, r, t, after.MS, after.N)
	if err != nil {
		return fmt.Errorf("records of run %s: %w", r, err)
	}
	return nil
}

// DeleteRecords is run.Tx.DeleteRecords. Records of runs that are gone are dropped too.
func (tx *Tx) DeleteRecords(endedBefore time.Time) (int, error) {
	var over []id.Run
	if err := tx.query(`SELECT s.run_id FROM stream_runs s LEFT JOIN runs r ON r.run_id = s.run_id
		WHERE r.run_id IS NULL OR r.ended_at < ?`, func(s *sqlite.Stmt) error {
		over = append(over, id.Run(s.ColumnText(0)))
		return nil
	}, micros(endedBefore)); err != nil {
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

// deleteRecords drops the records of a run, looking only at its part of the thread's stream.
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
