package relational

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"understudy/access"
	"understudy/id"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/storage/internal/rows"
	"understudy/thread"
)

// ErrNoThread: there is no such thread.
var ErrNoThread = fault.New(fault.NotFound, "thread not found")

const (
	ThreadColumns = "thread_id, created_at, updated_at, state_updated_at, metadata, config, status, touched, head, " +
		"interrupts, error, ttl, stream_high"

	// Positions in ThreadColumns of the columns that searches read.
	colThreadStatus   = 6
	colThreadMetadata = 4
)

// ScanThread reads a row of ThreadColumns.
func ScanThread(r Row) *thread.Thread {
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

// ThreadArgs returns the values of ThreadColumns.
func ThreadArgs(t *thread.Thread) []any {
	return []any{
		t.ID, micros(t.CreatedAt), micros(t.UpdatedAt), micros(t.StateUpdatedAt), t.Metadata, t.Config, string(t.Status), t.Touched,
		t.Head, t.Interrupts, t.Error, rows.EncodeTTL(t.TTL), t.StreamHigh,
	}
}

var (
	SelectThread = same("SELECT " + ThreadColumns + " FROM threads WHERE thread_id = $1")
	insertThread = same(insertInto("threads", ThreadColumns+", expires_at, listed"))
	UpdateThread = same("UPDATE threads SET (" + ThreadColumns + ") = (" + marks(1, ThreadColumns) + ") WHERE thread_id = $1")
	// ReindexThread is UpdateThread for a thread that the same transaction adds to the index of metadata again.
	ReindexThread = same("UPDATE threads SET (" + ThreadColumns + ", listed) = (" + marks(1, ThreadColumns) + ", $3) WHERE thread_id = $1")
	SetExpiry     = same("UPDATE threads SET expires_at = $1 WHERE thread_id = $2")
	threadsAfter  = same("SELECT " + ThreadColumns + " FROM threads WHERE thread_id > $1 ORDER BY thread_id LIMIT $2")

	HasActive = same("SELECT 1 FROM (SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'running' " +
		"UNION ALL SELECT 1 FROM runs WHERE thread_id = $1 AND status = 'pending') AS active LIMIT 1")
	// HasMany finds threads with too many rows to delete in one transaction, for which others would
	// wait.
	HasMany = same("SELECT 1 WHERE EXISTS (SELECT 1 FROM checkpoints WHERE thread_id = $1 LIMIT 1 OFFSET 100) " +
		"OR EXISTS (SELECT 1 FROM events WHERE thread_id = $1 LIMIT 1 OFFSET 200) " +
		"OR EXISTS (SELECT 1 FROM runs WHERE thread_id = $1 LIMIT 1 OFFSET 100) " +
		"OR EXISTS (SELECT 1 FROM stream_records WHERE thread_id = $1 LIMIT 1 OFFSET 500)")
)

// Thread implements thread.Store and run.Store.
func (s threadStore) Thread(ctx context.Context, t id.Thread) (*thread.Thread, error) {
	return from(ctx, s.db.Read, func(q Querier) (*thread.Thread, error) { return ThreadInReach(ctx, q, t) })
}

// LoadThread reads a thread; ErrNoThread if there is none.
func LoadThread(q Querier, t id.Thread) (*thread.Thread, error) {
	return the(q, ErrNoThread, SelectThread, ScanThread, t)
}

// ThreadsAfter implements transfer.Target.
func (s threadStore) ThreadsAfter(ctx context.Context, after id.Thread, limit, bytes int) ([]*thread.Thread, error) {
	return from(ctx, s.db.Snapshot, func(q Querier) ([]*thread.Thread, error) {
		return within(q, bytes, (*thread.Thread).Size, threadsAfter, ScanThread, after, limit)
	})
}

// Thread implements thread.Tx and run.Tx.
func (tx *Tx) Thread(t id.Thread) (*thread.Thread, error) {
	row, err := LoadThread(tx, t)
	if err == nil && !tx.InReach(row) {
		return nil, ErrNoThread
	}
	return row, err
}

// InsertThread implements thread.Tx and run.Tx.
func (tx *Tx) InsertThread(t *thread.Thread) error {
	err := tx.Anywhere(func() error {
		_, err := tx.Writer.Thread(t.ID)
		return err
	})
	if err == nil {
		return fault.New(fault.Conflict, "thread already exists")
	} else if !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	}
	if err := tx.Exec(insertThread, append(ThreadArgs(t), rows.Expiry(t), micros(t.UpdatedAt))...); err != nil {
		return fmt.Errorf("insert thread %s: %w", t.ID, err)
	}
	if tx.Reach.Threads != nil {
		tx.inserted = append(tx.inserted, t.ID)
	}
	tx.Touch(t.ID, "")
	return tx.IndexThread(t.ID, contain.Terms(t.Metadata), micros(t.UpdatedAt))
}

// HasActiveRuns implements thread.Tx.
func (tx *Tx) HasActiveRuns(t id.Thread) (bool, error) {
	tx.Lock(t)
	return has(tx, HasActive, t)
}

const (
	// fewThreads is the number of threads with a term up to which all are read and sorted, if the
	// index of metadata does not have the requested order. Beyond it they are so common that a walk
	// in that order soon finds a page of them.
	fewThreads = 2000
	// veryFew threads are read and checked in less time than Postgres takes to plan a search by more than one term: a cursor is planned each time.
	veryFew = 64
	// maxTerms bounds the terms that use the index; others are checked on the rows.
	maxTerms = 4
)

// Searches for threads by what they select, each in every order. Their texts do not depend on
// values, so that they are few.
var (
	threadSorts     = []string{"thread_id", "status", "created_at", "updated_at", "state_updated_at"}
	allThreads      = inOrder(same("SELECT "+ThreadColumns+" FROM threads"), "thread_id", threadSorts...)
	threadsOfStatus = inOrder(same("SELECT "+ThreadColumns+" FROM threads WHERE status = $1"), "thread_id", threadSorts...)
	threadsOfIDs    = inOrder(differing("SELECT "+ThreadColumns+" FROM threads WHERE thread_id = ANY($1)",
		"SELECT "+ThreadColumns+" FROM threads WHERE thread_id IN (SELECT value FROM json_each($1))"), "thread_id", threadSorts...)
	// threadsOfTerms walk the threads with the first of one, two … terms, in order of updated_at,
	// and look up the others in the same index.
	threadsOfTerms = func() (list [maxTerms]orders) {
		for n := range list {
			text := "SELECT t." + strings.ReplaceAll(ThreadColumns, ", ", ", t.") +
				" FROM thread_metadata m0%s JOIN threads t ON t.thread_id = m0.thread_id WHERE m0.key = $1 AND m0.value = $2"
			for i := range n {
				text += fmt.Sprintf(" AND EXISTS (SELECT 1 FROM thread_metadata m WHERE m.key = $%d AND m.value = $%d AND m.updated_at = m0.updated_at AND m.thread_id = m0.thread_id)",
					2*i+3, 2*i+4)
			}
			selection := differing(fmt.Sprintf(text, ""), fmt.Sprintf(text, " CROSS")) // CROSS JOIN keeps SQLite's order of the tables
			list[n] = inOrder(selection, "t.thread_id", "t.thread_id", "t.status", "t.created_at", "t.state_updated_at")
			list[n]["updated_at"] = inOrder(selection, "m0.thread_id", "m0.updated_at")["updated_at"]
		}
		return list
	}()
	CountTerm = same("SELECT count(*) FROM (SELECT 1 FROM thread_metadata WHERE key = $1 AND value = $2 LIMIT $3) AS counted")
)

// ThreadSearch is how the rows of a search are read: a statement that returns a superset of them
// in order, and what remains to be checked on each.
type ThreadSearch struct {
	Text   Statement
	args   []any
	match  *contain.Matcher // nil if nothing is left to check
	reach  *access.Filter   // nil if nothing is left to check
	status thread.Status    // "" if nothing is left to check

	// Terms replace the statement: the threads that have all of them, in order of updated_at. With any, those that have one of them.
	Terms     []contain.Term
	any       bool
	unlisted  bool // with any: also those that are not listed
	ascending bool
}

// PlanThreads chooses the index that a search reads, of the threads that reach selects. hidden are keys that are not in it.
func PlanThreads(q Querier, of thread.Query, reach *access.Filter, hidden contain.Hidden) (ThreadSearch, error) {
	return planThreads(&counter{q: q}, of, reach, hidden)
}

func planThreads(c *counter, of thread.Query, reach *access.Filter, hidden contain.Hidden) (ThreadSearch, error) {
	match, err := contain.Parse(of.Metadata)
	if err != nil {
		return ThreadSearch{}, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	by := of.SortBy
	if by == "" {
		by = "updated_at"
	}
	plan := ThreadSearch{status: of.Status, ascending: of.Ascending, reach: reach}
	if !match.Everything() {
		plan.match = match
	}
	read := func(from orders, args ...any) (ThreadSearch, error) {
		plan.args = args
		plan.Text, err = from.pick(by, "", of.Ascending)
		return plan, err
	}
	if len(of.IDs) > 0 {
		return read(threadsOfIDs, of.IDs)
	}
	terms := termsOf(match, reach, hidden)
	any, err := terms.anyOf(c)
	if err != nil {
		return plan, err
	}
	if len(any.terms) > 0 && (by != "updated_at" || len(terms.all) > 0) {
		if better, err := any.isBetter(c, terms.all); err != nil || better {
			return plan.ofAny(c.q, by, &terms, any), err
		}
	}
	found := func(all bool) { // whether the index has found what has all terms
		if all && terms.matched {
			plan.match = nil
		}
		if all && terms.reached {
			plan.reach = nil
		}
	}
	if _, sorts := allThreads[by]; sorts && len(terms.all) > 0 {
		terms := terms.all
		_, nests := c.q.(Nesting)
		best, fewest := 0, math.MaxInt
		if by != "updated_at" || len(terms) > 1 {
			if best, fewest, err = c.rarest(terms); err != nil {
				return plan, err
			}
		}
		if by == "updated_at" && len(terms) > 1 && nests && fewest > fewThreads {
			plan.Terms = terms
			found(true)
			return plan, nil
		}
		if by == "updated_at" || fewest <= fewThreads {
			terms[0], terms[best] = terms[best], terms[0]
			most := maxTerms
			if fewest <= veryFew && !nests {
				most = 1
			}
			found(len(terms) <= most)
			terms = terms[:min(len(terms), most)]
			return read(threadsOfTerms[len(terms)-1], termArgs(terms)...)
		}
	}
	if by == "updated_at" && len(any.terms) > 0 {
		return plan.ofAny(c.q, by, &terms, any), nil
	}
	if of.Status != "" && (by == "updated_at" || by == "status") {
		plan.status = ""
		return read(threadsOfStatus, string(of.Status))
	}
	return read(allThreads)
}

// SearchThreads implements the search of thread.Store.
func (s threadStore) SearchThreads(ctx context.Context, of thread.Query) (out []*thread.Thread, err error) {
	p := rows.Page{Limit: of.Limit, Offset: of.Offset}
	loaded := 0
	err = s.eachThread(ctx, of, func(r Row) error {
		return take(&p, func() {
			var t *thread.Thread
			t, loaded = of.Fit(ScanThread(r), loaded)
			out = append(out, t)
		})
	})
	return out, err
}

// eachThread calls fn for each row that matches, in order.
func (s threadStore) eachThread(ctx context.Context, of thread.Query, fn func(Row) error) error {
	match, err := contain.Parse(of.Metadata)
	if err != nil {
		return fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	reach := access.Reach(ctx, access.Threads)
	read := func(c *counter) error {
		q := c.q
		plan, err := planThreads(c, of, reach, s.Hidden)
		if err != nil || c.wrong {
			return err
		}
		last := ""
		check := func(r Row) error {
			if c.wrong {
				return ErrStop
			}
			if plan.any { // a thread with two of the terms comes twice
				t := r.Text(0)
				if t == last {
					return nil
				}
				last = t
			}
			if plan.status != "" && r.Text(colThreadStatus) != string(plan.status) ||
				plan.match != nil && !plan.match.Match(r.Bytes(colThreadMetadata)) ||
				plan.reach != nil && !plan.reach.Match(r.Bytes(colThreadMetadata)) {
				return nil
			}
			return fn(r)
		}
		switch {
		case plan.Terms != nil && plan.any:
			return eachWithAny(q, plan.Terms, plan.unlisted, plan.ascending, check)
		case plan.Terms != nil:
			return eachWithAll(q, plan.Terms, plan.ascending, check)
		}
		return q.Walk(expected(of.Limit, of.Offset), plan.Text, check, plan.args...)
	}
	search := func(q Querier) error {
		_, nests := q.(Nesting) // without round trips it costs little to be certain
		c := &counter{q: q, kept: s.counts, presumes: !nests}
		if err := read(c); err != nil || !c.wrong {
			return err
		}
		return read(&counter{q: q, kept: s.counts})
	}
	if terms := termsOf(match, reach, s.Hidden); terms.scans(of) {
		return s.db.Scan(ctx, rows.NarrowThreads, search)
	}
	return s.db.Snapshot(ctx, search)
}

// place is the position of a thread in the order of updated_at.
type place struct {
	updated int64
	thread  string
}

// Seeks find the next thread with a term, at a place or strictly after it, descending and
// ascending.
var Seeks = func() (texts [2][2]Statement) {
	for i, order := range []struct{ op, direction string }{{"<", " DESC"}, {">", ""}} {
		for j, op := range []string{order.op + "=", order.op} {
			texts[i][j] = same("SELECT updated_at, thread_id FROM thread_metadata WHERE key = $1 AND value = $2 AND (updated_at, thread_id) " + op +
				" ($3, $4) ORDER BY updated_at" + order.direction + ", thread_id" + order.direction + " LIMIT 1")
		}
	}
	return texts
}()

// eachWithAll calls visit for the threads that have all terms, in order. The lists of the terms
// have the same order, so it leaps: each list in turn returns its first place that is not before
// that of the others. However common one term is, a single lookup skips its threads that lack
// another. It makes one query after the other, so it is for databases without round trips.
func eachWithAll(q Querier, terms []contain.Term, ascending bool, visit func(Row) error) error {
	at, texts := place{math.MaxInt64, rows.LastText}, Seeks[0]
	if ascending {
		at, texts = place{math.MinInt64, ""}, Seeks[1]
	}
	var next place
	var found, stopped bool
	look := func(r Row) error {
		next, found = place{r.Int(0), r.Text(1)}, true
		return ErrStop
	}
	for !stopped {
		text := texts[1] // strictly after the last place
		for agree, i := 0, 0; agree < len(terms); i = (i + 1) % len(terms) {
			found = false
			if err := q.Query(text, look, terms[i].Key, terms[i].Value, at.updated, at.thread); err != nil || !found {
				return err
			}
			if next == at {
				agree++
			} else {
				at, agree = next, 1
			}
			text = texts[0]
		}
		if err := q.Query(SelectThread, func(r Row) error {
			err := visit(r)
			stopped = errors.Is(err, ErrStop)
			return err
		}, at.thread); err != nil {
			return err
		}
	}
	return nil
}

var (
	countThreads  = same("SELECT count(*) FROM threads")
	countOfStatus = same("SELECT count(*) FROM threads WHERE status = $1")
	countOfTerm   = same("SELECT count(*) FROM thread_metadata WHERE key = $1 AND value = $2")
)

// CountThreads implements thread.Store. What an index alone can count does not read rows.
func (s threadStore) CountThreads(ctx context.Context, of thread.Query) (n int, err error) {
	match, err := contain.Parse(of.Metadata)
	if err != nil {
		return 0, fault.Newf(fault.Invalid, "metadata: %w", err)
	}
	terms := termsOf(match, access.Reach(ctx, access.Threads), s.Hidden)
	exact := terms.matched && terms.reached
	var text Statement
	var args []any
	switch {
	case len(of.IDs) > 0 || !exact || len(terms.any) > 0:
	case len(terms.all) == 0 && of.Status == "":
		text = countThreads
	case len(terms.all) == 0:
		text, args = countOfStatus, []any{string(of.Status)}
	case of.Status == "" && len(terms.all) == 1:
		text, args = countOfTerm, []any{terms.all[0].Key, terms.all[0].Value}
	}
	if text == (Statement{}) {
		of.SortBy, of.Limit, of.Offset = "", 0, 0
		err = s.eachThread(ctx, of, func(Row) error {
			n++
			return nil
		})
		return n, err
	}
	err = s.db.Scan(ctx, rows.NarrowThreads, func(q Querier) (err error) {
		n, _, err = first(q, text, number[int], args...)
		return err
	})
	return n, err
}

// Args returns the arguments of Text.
func (p ThreadSearch) Args() []any { return p.args }
