package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

var errNoThread = fault.New(fault.NotFound, "thread not found")

const (
	threadColumns = "thread_id, created_at, updated_at, state_updated_at, metadata, config, status, touched, head, " +
		"interrupts, error, ttl, stream_high"
	selectThread = "SELECT " + threadColumns + " FROM threads WHERE thread_id = ?"

	// Positions in threadColumns of what searches look at.
	colThreadStatus   = 6
	colThreadMetadata = 4
)

func scanThread(s *sqlite.Stmt) *thread.Thread {
	return &thread.Thread{
		ID:             id.Thread(s.ColumnText(0)),
		CreatedAt:      columnTime(s, 1),
		UpdatedAt:      columnTime(s, 2),
		StateUpdatedAt: columnTime(s, 3),
		Metadata:       columnBytes(s, colThreadMetadata),
		Config:         columnBytes(s, 5),
		Status:         thread.Status(s.ColumnText(colThreadStatus)),
		Touched:        s.ColumnBool(7),
		Head:           id.Checkpoint(s.ColumnText(8)),
		Interrupts:     columnBytes(s, 9),
		Error:          columnBytes(s, 10),
		TTL:            rows.DecodeTTL(columnBytes(s, 11)),
		StreamHigh:     s.ColumnInt64(12),
	}
}

func threadArgs(t *thread.Thread) []any {
	return []any{
		t.ID, micros(t.CreatedAt), micros(t.UpdatedAt), micros(t.StateUpdatedAt), t.Metadata, t.Config, string(t.Status), t.Touched,
		t.Head, t.Interrupts, t.Error, rows.EncodeTTL(t.TTL), t.StreamHigh,
	}
}

// micros is for columns that are never NULL, where the zero time is a time.
func micros(t time.Time) int64 { return t.UnixMicro() }

func loadThread(conn *sqlite.Conn, t id.Thread) (out *thread.Thread, err error) {
	found, err := one(conn, selectThread, func(s *sqlite.Stmt) error {
		out = scanThread(s)
		return nil
	}, t)
	if err == nil && !found {
		err = errNoThread
	}
	return out, err
}

// Thread is thread.Store.Thread and run.Store.Thread.
func (s *Store) Thread(ctx context.Context, t id.Thread) (out *thread.Thread, err error) {
	err = s.read(ctx, func(c *sqlite.Conn) error {
		out, err = loadThread(c, t)
		return err
	})
	return out, err
}

// Thread is thread.Tx.Thread and run.Tx.Thread.
func (tx *Tx) Thread(t id.Thread) (*thread.Thread, error) { return loadThread(tx.conn, t) }

// InsertThread is thread.Tx.InsertThread and run.Tx.InsertThread.
func (tx *Tx) InsertThread(t *thread.Thread) error {
	if found, err := tx.one("SELECT 1 FROM threads WHERE thread_id = ?", nil, t.ID); err != nil {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	} else if found {
		return fault.New(fault.Conflict, "thread already exists")
	}
	if err := tx.exec("INSERT INTO threads ("+threadColumns+", expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		append(threadArgs(t), rows.Expiry(t))...); err != nil {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	}
	return tx.index(t.ID, contain.Terms(t.Metadata), micros(t.UpdatedAt))
}

// UpdateThread is thread.Tx.UpdateThread and run.Tx.UpdateThread. It keeps the index of metadata in step. A column that an
// index has is named only if it changed: SQLite writes all indexes of the columns that are named.
func (tx *Tx) UpdateThread(t *thread.Thread) error {
	was, err := loadThread(tx.conn, t.ID)
	if err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	text := "UPDATE threads SET metadata = ?, config = ?, touched = ?, head = ?, interrupts = ?, error = ?, ttl = ?, stream_high = ?"
	args := []any{t.Metadata, t.Config, t.Touched, t.Head, t.Interrupts, t.Error, rows.EncodeTTL(t.TTL), t.StreamHigh}
	if rows.Rearms(was, t) {
		text, args = text+", expires_at = ?", append(args, rows.Expiry(t))
	}
	if t.Status != was.Status {
		text, args = text+", status = ?", append(args, string(t.Status))
	}
	for _, c := range []struct {
		set      string
		was, now int64
	}{
		{", created_at = ?", micros(was.CreatedAt), micros(t.CreatedAt)},
		{", updated_at = ?", micros(was.UpdatedAt), micros(t.UpdatedAt)},
		{", state_updated_at = ?", micros(was.StateUpdatedAt), micros(t.StateUpdatedAt)},
	} {
		if c.was != c.now {
			text, args = text+c.set, append(args, c.now)
		}
	}
	if err := tx.exec(text+" WHERE thread_id = ?", append(args, t.ID)...); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	updated := micros(was.UpdatedAt)
	if updated == micros(t.UpdatedAt) && bytes.Equal(was.Metadata, t.Metadata) {
		return nil
	}
	if err := tx.unindex(t.ID, contain.Terms(was.Metadata), updated); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	return tx.index(t.ID, contain.Terms(t.Metadata), micros(t.UpdatedAt))
}

// indexed gives what the index of metadata says of a thread: fault.NotFound without a thread.
func (tx *Tx) indexed(t id.Thread) (metadata []byte, updated int64, err error) {
	found, err := tx.one("SELECT metadata, updated_at FROM threads WHERE thread_id = ?", func(s *sqlite.Stmt) error {
		metadata, updated = columnBytes(s, 0), s.ColumnInt64(1)
		return nil
	}, t)
	if err == nil && !found {
		err = errNoThread
	}
	return metadata, updated, err
}

func (tx *Tx) index(t id.Thread, terms []contain.Term, updated int64) error {
	for _, term := range terms {
		if err := tx.exec("INSERT INTO thread_metadata (key, value, updated_at, thread_id) VALUES (?, ?, ?, ?)",
			term.Key, term.Value, updated, t); err != nil {
			return fmt.Errorf("index metadata of thread %s: %w", t, err)
		}
	}
	return nil
}

func (tx *Tx) unindex(t id.Thread, terms []contain.Term, updated int64) error {
	for _, term := range terms {
		if err := tx.exec("DELETE FROM thread_metadata WHERE key = ? AND value = ? AND updated_at = ? AND thread_id = ?",
			term.Key, term.Value, updated, t); err != nil {
			return err
		}
	}
	return nil
}

// DeleteThread is thread.Tx.DeleteThread, run.Tx.DeleteThread and assistant.Tx.DeleteThread.
func (tx *Tx) DeleteThread(t id.Thread) error {
	if many, err := tx.one(hasMany, nil, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	} else if many {
		return tx.RemoveThread(t)
	}
	if err := tx.deleteRow(t); err != nil {
		return err
	}
	// One by one: to delete them all SQLite would make a table of what it is about to delete, and most threads that go have one run.
	var runs []string
	if err := tx.query("SELECT run_id FROM runs WHERE thread_id = ?", func(s *sqlite.Stmt) error {
		runs = append(runs, s.ColumnText(0))
		return nil
	}, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	for _, r := range runs {
		for _, text := range []string{"DELETE FROM run_kwargs WHERE run_id = ?", "DELETE FROM runs WHERE run_id = ?"} {
			if err := tx.exec(text, r); err != nil {
				return fmt.Errorf("delete run %s of thread %s: %w", r, t, err)
			}
		}
	}
	// Threads of stateless runs go as they came, without any of these: asking is cheaper than a dozen deletes of nothing.
	var checkpoints, events, rest bool
	if _, err := tx.one(whatThreadHas, func(s *sqlite.Stmt) error {
		checkpoints, events, rest = s.ColumnBool(0), s.ColumnBool(1), s.ColumnBool(2)
		return nil
	}, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if rest {
		for _, table := range []string{"run_heads", "crons", "stream_records", "stream_runs"} {
			if err := tx.exec("DELETE FROM "+table+" WHERE thread_id = ?", t); err != nil {
				return fmt.Errorf("delete thread %s: %w", t, err)
			}
		}
	}
	if checkpoints {
		if err := tx.deleteCheckpoints(t); err != nil {
			return fmt.Errorf("delete checkpoints of thread %s: %w", t, err)
		}
	}
	if events {
		if err := tx.deleteEvents(t); err != nil {
			return fmt.Errorf("delete events of thread %s: %w", t, err)
		}
	}
	return nil
}

// deleteRow deletes the row of a thread, and what the index of metadata has of it.
func (tx *Tx) deleteRow(t id.Thread) error {
	metadata, updated, err := tx.indexed(t)
	if err != nil {
		return err
	}
	if err := tx.unindex(t, contain.Terms(metadata), updated); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if err := tx.exec("DELETE FROM threads WHERE thread_id = ?", t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	return nil
}

// hasMany finds threads that are not deleted in one transaction, which others would wait for.
const hasMany = "SELECT 1 FROM (SELECT 1 FROM checkpoints WHERE thread_id = ?1 LIMIT 1 OFFSET 100) " +
	"UNION ALL SELECT 1 FROM (SELECT 1 FROM events WHERE thread_id = ?1 LIMIT 1 OFFSET 200) " +
	"UNION ALL SELECT 1 FROM (SELECT 1 FROM runs WHERE thread_id = ?1 LIMIT 1 OFFSET 100) " +
	"UNION ALL SELECT 1 FROM (SELECT 1 FROM stream_records WHERE thread_id = ?1 LIMIT 1 OFFSET 500) LIMIT 1"

// whatThreadHas tells whether a thread has anything of its checkpoints, anything of the log, and anything that is rare.
const whatThreadHas = "SELECT EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM checkpoint_writes WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM checkpoint_blobs WHERE thread_id = ?1), " +
	"EXISTS (SELECT 1 FROM events WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM transcripts WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM event_lineage WHERE thread_id = ?1), " +
	"EXISTS (SELECT 1 FROM run_heads WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM crons WHERE thread_id = ?1) " +
	"OR EXISTS (SELECT 1 FROM stream_records WHERE thread_id = ?1) OR EXISTS (SELECT 1 FROM stream_runs WHERE thread_id = ?1)"

// HasActiveRuns is thread.Tx.HasActiveRuns.
func (tx *Tx) HasActiveRuns(t id.Thread) (bool, error) {
	active, err := tx.one("SELECT 1 FROM runs WHERE thread_id = ? AND status = 'running' LIMIT 1", nil, t)
	if active || err != nil {
		return active, err
	}
	return tx.one("SELECT 1 FROM runs WHERE thread_id = ? AND status = 'pending' LIMIT 1", nil, t)
}

var (
	threadSorts = map[string]bool{"thread_id": true, "status": true, "created_at": true, "updated_at": true, "state_updated_at": true}

	prefixedThreadColumns = "t." + strings.ReplaceAll(threadColumns, ", ", ", t.")
)

// fewThreads is up to how many threads with a term are read whole and sorted, when the index of metadata does not have them in
// the order that is asked. Above it they are so common that a walk in that order meets a page of them soon.
const fewThreads = 2000

// threadScan is how the rows of a search are read: a statement that gives a superset of them in order, with what remains to be
// checked on each.
type threadScan struct {
	text   string
	args   []any
	match  *contain.Matcher // nil: nothing to check
	status thread.Status    // "": nothing to check

	// terms, instead of a statement: the threads that have all of them, in order of updated_at.
	terms     []contain.Term
	ascending bool
}

// planThreads chooses the index that a search reads. Its statements are few: their texts do not depend on values.
func planThreads(c *sqlite.Conn, q thread.Query) (threadScan, error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return threadScan{}, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	by := q.SortBy
	if by == "" {
		by = "updated_at"
	}
	if !threadSorts[by] {
		return threadScan{}, fault.Newf(fault.Invalid, "cannot sort by %q", by)
	}
	direction := " DESC"
	if q.Ascending {
		direction = ""
	}
	if match.Everything() {
		match = nil
	}
	scan := threadScan{match: match, status: q.Status}

	if len(q.IDs) > 0 {
		ids, err := jsonTexts(q.IDs)
		if err != nil {
			return threadScan{}, err
		}
		scan.text = "SELECT " + threadColumns + " FROM threads WHERE thread_id IN (SELECT value FROM json_each(?)) ORDER BY " +
			sortBy("", by, direction)
		scan.args = []any{ids}
		return scan, nil
	}
	terms, all := match.Terms()
	if len(terms) > 0 {
		if by == "updated_at" && len(terms) > 1 {
			scan.terms, scan.ascending = terms, q.Ascending
			if all {
				scan.match = nil
			}
			return scan, nil
		}
		term, few := terms[0], false
		if by != "updated_at" {
			if term, few, err = rarest(c, terms); err != nil {
				return threadScan{}, err
			}
		}
		if all && len(terms) == 1 {
			scan.match = nil
		}
		from := "SELECT " + prefixedThreadColumns + " FROM thread_metadata m CROSS JOIN threads t ON t.thread_id = m.thread_id " +
			"WHERE m.key = ? AND m.value = ? ORDER BY "
		scan.args = []any{term.Key, term.Value}
		switch {
		case by == "updated_at": // the order of the index
			scan.text = from + sortBy("m.", by, direction)
			return scan, nil
		case few:
			scan.text = from + sortBy("t.", by, direction)
			return scan, nil
		}
		scan.match, scan.args = match, nil
	}
	if q.Status != "" && (by == "updated_at" || by == "status") {
		scan.text = "SELECT " + threadColumns + " FROM threads WHERE status = ? ORDER BY " + sortBy("", by, direction)
		scan.args, scan.status = []any{string(q.Status)}, ""
		return scan, nil
	}
	scan.text = "SELECT " + threadColumns + " FROM threads ORDER BY " + sortBy("", by, direction)
	return scan, nil
}

// sortBy is an ORDER BY with ties broken by id, the whole in one direction.
func sortBy(table, column, direction string) string {
	if column == "thread_id" {
		return table + "thread_id" + direction
	}
	return table + column + direction + ", " + table + "thread_id" + direction
}

// rarest gives the term that the fewest threads have, without counting far beyond that number; and whether they are few.
func rarest(c *sqlite.Conn, terms []contain.Term) (best contain.Term, few bool, err error) {
	for bound := 32; ; bound *= 8 {
		least := bound
		for _, term := range terms {
			n := 0
			if _, err := one(c, "SELECT count(*) FROM (SELECT 1 FROM thread_metadata WHERE key = ? AND value = ? LIMIT ?)",
				func(s *sqlite.Stmt) error {
					n = s.ColumnInt(0)
					return nil
				}, term.Key, term.Value, bound); err != nil {
				return best, false, err
			}
			if n < least {
				best, least = term, n
			}
		}
		if least < bound {
			return best, least <= fewThreads, nil
		}
		if bound > fewThreads {
			return terms[0], false, nil
		}
	}
}

// listThreads is thread.Store.Threads (the name is taken by the adapter).
func (s *Store) listThreads(ctx context.Context, q thread.Query) (out []*thread.Thread, err error) {
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	loaded := 0
	err = s.eachThread(ctx, q, func(st *sqlite.Stmt) error {
		in, last := p.Take()
		if in {
			var t *thread.Thread
			t, loaded = q.Fit(scanThread(st), loaded)
			out = append(out, t)
		}
		if last {
			return errStop
		}
		return nil
	})
	return out, err
}

func (s *Store) eachThread(ctx context.Context, q thread.Query, row func(*sqlite.Stmt) error) error {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	search := func(c *sqlite.Conn) error {
		scan, err := planThreads(c, q)
		if err != nil {
			return err
		}
		check := func(st *sqlite.Stmt) error {
			if scan.status != "" && st.ColumnText(colThreadStatus) != string(scan.status) ||
				scan.match != nil && !scan.match.Match(columnBytes(st, colThreadMetadata)) {
				return nil
			}
			return row(st)
		}
		if scan.terms != nil {
			return eachWithAll(c, scan.terms, scan.ascending, check)
		}
		return query(c, scan.text, check, scan.args...)
	}
	if rows.ScansThreads(q, match) {
		return s.scan(ctx, rows.NarrowThreads, search)
	}
	return s.snapshot(ctx, search)
}

// place is where a thread stands in the order of updated_at.
type place struct {
	updated int64
	thread  string
}

// seeks find the next thread with a term, at a place or strictly after it, descending and ascending.
var seeks = func() (texts [2][2]string) {
	for i, order := range []struct{ op, direction string }{{"<", " DESC"}, {">", ""}} {
		for j, op := range []string{order.op + "=", order.op} {
			texts[i][j] = "SELECT updated_at, thread_id FROM thread_metadata WHERE key = ? AND value = ? AND (updated_at, thread_id) " + op +
				" (?, ?) ORDER BY " + sortBy("", "updated_at", order.direction) + " LIMIT 1"
		}
	}
	return texts
}()

// eachWithAll visits the threads that have all terms, in order. The lists of the terms are in the same order, so it leaps: each
// list in turn is asked for its first place not before that of the others. However common one term is, its threads that lack
// another are passed over by a single look into the index.
func eachWithAll(c *sqlite.Conn, terms []contain.Term, ascending bool, visit func(*sqlite.Stmt) error) error {
	at, texts := place{math.MaxInt64, rows.LastText}, seeks[0]
	if ascending {
		at, texts = place{math.MinInt64, ""}, seeks[1]
	}
	stopped := false
	for !stopped {
		text := texts[1] // strictly after the last one
		for agree, i := 0, 0; agree < len(terms); i = (i + 1) % len(terms) {
			next := at
			found, err := one(c, text, func(st *sqlite.Stmt) error {
				next = place{st.ColumnInt64(0), st.ColumnText(1)}
				return nil
			}, terms[i].Key, terms[i].Value, at.updated, at.thread)
			if err != nil || !found {
				return err
			}
			if next == at {
				agree++
			} else {
				at, agree = next, 1
			}
			text = texts[0]
		}
		if err := query(c, selectThread, func(st *sqlite.Stmt) error {
			err := visit(st)
			stopped = errors.Is(err, errStop)
			return err
		}, at.thread); err != nil {
			return err
		}
	}
	return nil
}

// CountThreads is thread.Store.CountThreads. What an index alone can count does not touch the rows.
func (s *Store) CountThreads(ctx context.Context, q thread.Query) (n int, err error) {
	match, err := contain.Parse(q.Metadata)
	if err != nil {
		return 0, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	terms, all := match.Terms()
	text, args := "", []any(nil)
	switch {
	case len(q.IDs) > 0:
	case match.Everything() && q.Status == "":
		text = "SELECT count(*) FROM threads"
	case match.Everything():
		text, args = "SELECT count(*) FROM threads WHERE status = ?", []any{string(q.Status)}
	case q.Status == "" && all && len(terms) == 1:
		text, args = "SELECT count(*) FROM thread_metadata WHERE key = ? AND value = ?", []any{terms[0].Key, terms[0].Value}
	}
	if text == "" {
		q.SortBy, q.Limit, q.Offset = "", 0, 0
		err = s.eachThread(ctx, q, func(*sqlite.Stmt) error {
			n++
			return nil
		})
		return n, err
	}
	err = s.scan(ctx, rows.NarrowThreads, func(c *sqlite.Conn) error {
		_, err := one(c, text, func(st *sqlite.Stmt) error {
			n = st.ColumnInt(0)
			return nil
		}, args...)
		return err
	})
	return n, err
}

var _ thread.Store = threads{}
