package postgres

import (
	"bytes"
	"context"
	"fmt"
	"strings"

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
	selectThread = "SELECT " + threadColumns + " FROM threads WHERE thread_id = $1"
	updateThread = "UPDATE threads SET (" + threadColumns + ") = ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) WHERE thread_id = $1"

	// Positions in threadColumns of what searches look at.
	colThreadStatus   = 6
	colThreadMetadata = 4
)

func scanThread(r *row) *thread.Thread {
	return &thread.Thread{
		ID:             id.Thread(r.Text(0)),
		CreatedAt:      r.Time(1),
		UpdatedAt:      r.Time(2),
		StateUpdatedAt: r.Time(3),
		Metadata:       r.Bytes(colThreadMetadata),
		Config:         r.Bytes(5),
		Status:         thread.Status(r.Text(colThreadStatus)),
		Touched:        r.Bool(7),
		Head:           id.Checkpoint(r.Text(8)),
		Interrupts:     r.Bytes(9),
		Error:          r.Bytes(10),
		TTL:            rows.DecodeTTL(r.Bytes(11)),
		StreamHigh:     r.Int(12),
	}
}

func threadArgs(t *thread.Thread) []any {
	return []any{
		t.ID, micros(t.CreatedAt), micros(t.UpdatedAt), micros(t.StateUpdatedAt), t.Metadata, t.Config, t.Status, t.Touched,
		t.Head, t.Interrupts, t.Error, rows.EncodeTTL(t.TTL), t.StreamHigh,
	}
}

// Thread is thread.Store.Thread and run.Store.Thread.
func (s *Store) Thread(ctx context.Context, t id.Thread) (out *thread.Thread, err error) {
	err = s.read(ctx, func(q *reader) error {
		found, err := one(q, selectThread, func(r *row) error {
			out = scanThread(r)
			return nil
		}, t)
		if err == nil && !found {
			err = errNoThread
		}
		return err
	})
	return out, err
}

// Thread is thread.Tx.Thread and run.Tx.Thread.
func (tx *Tx) Thread(t id.Thread) (*thread.Thread, error) {
	known, seen := tx.threads[t]
	if !seen {
		tx.lock(t)
		if _, err := one(tx, selectThread, func(r *row) error {
			known = scanThread(r)
			return nil
		}, t); err != nil {
			return nil, err
		}
		tx.threads[t] = known
	}
	if known == nil {
		return nil, errNoThread
	}
	out := *known
	return &out, nil
}

// know remembers the row of a thread as it is now.
func (tx *Tx) know(t *thread.Thread) {
	own := *t
	tx.threads[t.ID] = &own
}

// InsertThread is thread.Tx.InsertThread and run.Tx.InsertThread.
func (tx *Tx) InsertThread(t *thread.Thread) error {
	if _, err := tx.Thread(t.ID); err == nil {
		return fault.New(fault.Conflict, "thread already exists")
	} else if !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	}
	if err := tx.exec(insertThread, append(threadArgs(t), rows.Expiry(t))...); err != nil {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	}
	tx.know(t)
	return tx.index(t.ID, contain.Terms(t.Metadata), micros(t.UpdatedAt))
}

var insertThread = insertInto("threads", threadColumns+", expires_at")

// UpdateThread is thread.Tx.UpdateThread and run.Tx.UpdateThread. It keeps the index of metadata in step.
func (tx *Tx) UpdateThread(t *thread.Thread) error {
	was, err := tx.Thread(t.ID)
	if err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	if err := tx.exec(updateThread, threadArgs(t)...); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	if rows.Rearms(was, t) {
		if err := tx.exec(setExpiry, rows.Expiry(t), t.ID); err != nil {
			return fmt.Errorf("update thread %s: %w", t.ID, err)
		}
	}
	tx.know(t)
	updated := micros(was.UpdatedAt)
	if bytes.Equal(was.Metadata, t.Metadata) {
		if updated == micros(t.UpdatedAt) {
			return nil
		}
		return tx.terms(moveThread, t.ID, contain.Terms(t.Metadata), updated, micros(t.UpdatedAt))
	}
	if err := tx.unindex(t.ID, contain.Terms(was.Metadata), updated); err != nil {
		return fmt.Errorf("update thread %s: %w", t.ID, err)
	}
	return tx.index(t.ID, contain.Terms(t.Metadata), micros(t.UpdatedAt))
}

const (
	indexThread = "INSERT INTO thread_metadata (key, value, updated_at, thread_id) SELECT key, value, $3, $4 FROM unnest($1::text[], $2::text[]) AS term (key, value) " +
		"ON CONFLICT DO NOTHING"
	unindexThread = "DELETE FROM thread_metadata m USING unnest($1::text[], $2::text[]) AS term (key, value) " +
		`WHERE m.key = term.key COLLATE "C" AND m.value = term.value COLLATE "C" AND m.updated_at = $3 AND m.thread_id = $4`
	moveThread = "UPDATE thread_metadata m SET updated_at = $5 FROM unnest($1::text[], $2::text[]) AS term (key, value) " +
		`WHERE m.key = term.key COLLATE "C" AND m.value = term.value COLLATE "C" AND m.updated_at = $3 AND m.thread_id = $4`
)

func (tx *Tx) index(t id.Thread, terms []contain.Term, updated int64) error {
	return tx.terms(indexThread, t, terms, updated)
}

func (tx *Tx) unindex(t id.Thread, terms []contain.Term, updated int64) error {
	return tx.terms(unindexThread, t, terms, updated)
}

func (tx *Tx) terms(text string, t id.Thread, terms []contain.Term, updated ...any) error {
	if len(terms) == 0 {
		return nil
	}
	keys, values := make([]string, len(terms)), make([]string, len(terms))
	for i, term := range terms {
		keys[i], values[i] = term.Key, term.Value
	}
	args := append([]any{keys, values, updated[0], t}, updated[1:]...)
	if err := tx.exec(text, args...); err != nil {
		return fmt.Errorf("index metadata of thread %s: %w", t, err)
	}
	return nil
}

// deletesOfRow delete the row of a thread and its place in the queue, deletesOfThread what else is kept of it beside its checkpoints and events. Its id is
// their only argument.
var (
	deletesOfRow = []string{
		"DELETE FROM threads WHERE thread_id = $1",
		"DELETE FROM run_heads WHERE thread_id = $1",
		"DELETE FROM crons WHERE thread_id = $1",
	}
	deletesOfThread = append([]string{
		"DELETE FROM run_completions WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM model_calls WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM run_kwargs WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = $1)",
		"DELETE FROM runs WHERE thread_id = $1",
		"DELETE FROM stream_runs WHERE thread_id = $1",
		"DELETE FROM stream_records WHERE thread_id = $1",
	}, deletesOfRow...)
)

// hasMany finds threads that are not deleted in one transaction, which others would wait for.
const hasMany = "SELECT 1 WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = $1 LIMIT 1 OFFSET 100) " +
	"OR EXISTS (SELECT 1 FROM events WHERE thread_id = $1 LIMIT 1 OFFSET 200) " +
	"OR EXISTS (SELECT 1 FROM runs WHERE thread_id = $1 LIMIT 1 OFFSET 100) " +
	"OR EXISTS (SELECT 1 FROM stream_records WHERE thread_id = $1 LIMIT 1 OFFSET 500)"

// DeleteThread is thread.Tx.DeleteThread, run.Tx.DeleteThread and assistant.Tx.DeleteThread. What it deletes is sent in one piece.
func (tx *Tx) DeleteThread(t id.Thread) error {
	if _, err := tx.Thread(t); err != nil {
		return err
	}
	if many, err := one(tx, hasMany, nil, t); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	} else if many {
		return tx.RemoveThread(t)
	}
	if err := tx.deleteRows(t, deletesOfThread); err != nil {
		return fmt.Errorf("delete thread %s: %w", t, err)
	}
	if err := tx.deleteCheckpoints(t); err != nil {
		return fmt.Errorf("delete checkpoints of thread %s: %w", t, err)
	}
	if err := tx.deleteEvents(t); err != nil {
		return fmt.Errorf("delete events of thread %s: %w", t, err)
	}
	tx.forget(t)
	tx.threads[t] = nil
	return nil
}

// deleteRows runs statements of the thread, and deletes what the index of metadata has of it.
func (tx *Tx) deleteRows(t id.Thread, texts []string) error {
	was, err := tx.Thread(t)
	if err != nil {
		return err
	}
	if err := tx.unindex(t, contain.Terms(was.Metadata), micros(was.UpdatedAt)); err != nil {
		return err
	}
	for _, text := range texts {
		if err := tx.exec(text, t); err != nil {
			return err
		}
	}
	return nil
}

const hasActive = "SELECT 1 FROM (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running' " +
	"UNION ALL SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'pending') AS active LIMIT 1"

// hasOthers is hasActive beside one run.
const hasOthers = "SELECT 1 FROM (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running' AND run_id <> $2 " +
	"UNION ALL SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'pending' AND run_id <> $2) AS active LIMIT 1"

// HasActiveRuns is thread.Tx.HasActiveRuns.
func (tx *Tx) HasActiveRuns(t id.Thread) (bool, error) {
	tx.lock(t)
	// Who ends a run has asked for the others.
	if known := tx.runs[tx.ending]; known != nil && known.run.Thread == t && known.run.Status.Over() {
		found, err := one(tx, hasOthers, nil, t, tx.ending)
		if err == nil && !found {
			delete(tx.heads, t) // while a run goes on its thread has none in the queue, and there is none to come
		}
		return found, err
	}
	found, err := one(tx, hasActive, nil, t)
	if err == nil {
		tx.idle[t] = !found
	}
	return found, err
}

var (
	threadSorts = map[string]bool{"thread_id": true, "status": true, "created_at": true, "updated_at": true, "state_updated_at": true}

	prefixedThreadColumns = "t." + strings.ReplaceAll(threadColumns, ", ", ", t.")
)

const (
	// fewThreads is up to how many threads with a term are read whole and sorted, when the index of metadata does not have them in
	// the order that is asked. Above it they are so common that a walk in that order meets a page of them soon.
	fewThreads = 2000
	// maxTerms bounds the terms that are looked for in the index; the rest is checked on the rows.
	maxTerms = 4
)

// threadScan is how the rows of a search are read: a statement that gives a superset of them in order, with what remains to be
// checked on each.
type threadScan struct {
	text   string
	args   []any
	match  *contain.Matcher // nil: nothing to check
	status thread.Status    // "": nothing to check
}

// planThreads chooses the index that a search reads. Its statements are few: their texts do not depend on values.
func planThreads(q querier, search thread.Query) (threadScan, error) {
	match, err := contain.Parse(search.Metadata)
	if err != nil {
		return threadScan{}, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	by := search.SortBy
	if by == "" {
		by = "updated_at"
	}
	if !threadSorts[by] {
		return threadScan{}, fault.Newf(fault.Invalid, "cannot sort by %q", by)
	}
	direction := " DESC"
	if search.Ascending {
		direction = ""
	}
	if match.Everything() {
		match = nil
	}
	scan := threadScan{match: match, status: search.Status}
	if len(search.IDs) > 0 {
		scan.text = "SELECT " + threadColumns + " FROM threads WHERE thread_id = ANY($1) ORDER BY " + sortBy("", by, direction)
		scan.args = []any{search.IDs}
		return scan, nil
	}
	terms, all := match.Terms()
	if len(terms) > 0 {
		best, few := 0, false
		if by != "updated_at" || len(terms) > 1 {
			if best, few, err = rarest(q, terms); err != nil {
				return threadScan{}, err
			}
		}
		if by == "updated_at" || few {
			terms[0], terms[best] = terms[best], terms[0]
			if all && len(terms) <= maxTerms {
				scan.match = nil
			}
			scan.text, scan.args = withTerms(terms[:min(len(terms), maxTerms)])
			if by == "updated_at" { // the order of the index
				scan.text += " ORDER BY " + sortBy("m0.", by, direction)
			} else {
				scan.text += " ORDER BY " + sortBy("t.", by, direction)
			}
			return scan, nil
		}
	}
	if search.Status != "" && (by == "updated_at" || by == "status") {
		scan.text = "SELECT " + threadColumns + " FROM threads WHERE status = $1 ORDER BY " + sortBy("", by, direction)
		scan.args, scan.status = []any{search.Status}, ""
		return scan, nil
	}
	scan.text = "SELECT " + threadColumns + " FROM threads ORDER BY " + sortBy("", by, direction)
	return scan, nil
}

// withTerms selects the threads that have all terms: it walks those that have the first, and looks the others up in the same index.
func withTerms(terms []contain.Term) (text string, args []any) {
	var b strings.Builder
	b.WriteString("SELECT " + prefixedThreadColumns + " FROM thread_metadata m0 JOIN threads t ON t.thread_id = m0.thread_id WHERE m0.key = $1 AND m0.value = $2")
	args = []any{terms[0].Key, terms[0].Value}
	for i, term := range terms[1:] {
		fmt.Fprintf(&b, " AND EXISTS (SELECT 1 FROM thread_metadata m WHERE m.key = $%d AND m.value = $%d AND m.updated_at = m0.updated_at AND m.thread_id = m0.thread_id)",
			2*i+3, 2*i+4)
		args = append(args, term.Key, term.Value)
	}
	return b.String(), args
}

// sortBy is an ORDER BY with ties broken by id, the whole in one direction.
func sortBy(table, column, direction string) string {
	if column == "thread_id" {
		return table + "thread_id" + direction
	}
	return table + column + direction + ", " + table + "thread_id" + direction
}

const countTerm = "SELECT count(*) FROM (SELECT 1 FROM thread_metadata WHERE key = $1 AND value = $2 LIMIT $3) AS counted"

// rarest gives the term that the fewest threads have, without counting far beyond fewThreads; and whether they are few.
func rarest(q querier, terms []contain.Term) (best int, few bool, err error) {
	counts := make([]int64, len(terms))
	for i, term := range terms {
		q.ask(countTerm, func(r *row) error {
			counts[i] = r.Int(0)
			return nil
		}, term.Key, term.Value, fewThreads+1)
	}
	if err := q.send(); err != nil {
		return 0, false, err
	}
	for i, n := range counts {
		if n < counts[best] {
			best = i
		}
	}
	return best, counts[best] <= fewThreads, nil
}

// listThreads is thread.Store.Threads (the name is taken by the adapter).
func (s *Store) listThreads(ctx context.Context, q thread.Query) (out []*thread.Thread, err error) {
	p := rows.Page{Limit: q.Limit, Offset: q.Offset}
	loaded := 0
	err = s.eachThread(ctx, q, func(r *row) error {
		in, last := p.Take()
		if in {
			var t *thread.Thread
			t, loaded = q.Fit(scanThread(r), loaded)
			out = append(out, t)
		}
		if last {
			return errStop
		}
		return nil
	})
	return out, err
}

func (s *Store) eachThread(ctx context.Context, search thread.Query, fn func(*row) error) error {
	match, err := contain.Parse(search.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	each := func(q *reader) error {
		scan, err := planThreads(q, search)
		if err != nil {
			return err
		}
		first := 1024
		if search.Limit > 0 {
			first = search.Offset + search.Limit
		}
		return q.walk(first, scan.text, func(r *row) error {
			if scan.status != "" && r.Text(colThreadStatus) != string(scan.status) ||
				scan.match != nil && !scan.match.Match(r.Bytes(colThreadMetadata)) {
				return nil
			}
			return fn(r)
		}, scan.args...)
	}
	if rows.ScansThreads(search, match) {
		return s.scan(ctx, rows.NarrowThreads, each)
	}
	return s.snapshot(ctx, each)
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
		text, args = "SELECT count(*) FROM threads WHERE status = $1", []any{q.Status}
	case q.Status == "" && all && len(terms) == 1:
		text, args = "SELECT count(*) FROM thread_metadata WHERE key = $1 AND value = $2", []any{terms[0].Key, terms[0].Value}
	}
	if text == "" {
		q.SortBy, q.Limit, q.Offset = "", 0, 0
		err = s.eachThread(ctx, q, func(*row) error {
			n++
			return nil
		})
		return n, err
	}
	err = s.scan(ctx, rows.NarrowThreads, func(c *reader) error {
		_, err := one(c, text, func(r *row) error {
			n = int(r.Int(0))
			return nil
		}, args...)
		return err
	})
	return n, err
}

var _ thread.Store = threads{}
