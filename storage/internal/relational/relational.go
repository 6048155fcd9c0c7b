// Package relational is what the storages on SQLite and Postgres share: one file per table with its
// columns, how a row is read and written, its statements, and the reads and writes of the services
// that are the same on both.
//
// An engine implements DB, Querier and Writer, and embeds Store in its store and Tx in its
// transaction. A method that it declares itself replaces the one here; TestReplaced lists which do, and why.
package relational

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/cache"
	"understudy/internal/compact"
	"understudy/internal/contain"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/vectors"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
)

// Statement is a statement in the SQL of each database; "" if one of them needs none.
type Statement struct{ Postgres, SQLite string }

// same returns a statement that both databases understand.
func same(text string) Statement { return differing(text, text) }

// differing returns a statement with different SQL for each database. Parameters are $1, $2 … in
// both. SQLite would number these by position, so they become ?1, ?2 … when the program starts. It would also plan a statement again in each execution whose LIMIT is
// just a parameter, to know its value.
func differing(postgres, sqlite string) Statement {
	numbered := []byte(strings.ReplaceAll(sqlite, "LIMIT $", "LIMIT +$"))
	for i := 0; i+1 < len(numbered); i++ {
		if next := numbered[i+1]; numbered[i] == '$' && '0' <= next && next <= '9' {
			numbered[i] = '?'
		}
	}
	return Statement{Postgres: postgres, SQLite: string(numbered)}
}

// indexed returns a statement that names the index for SQLite; %s follows the table in format.
func indexed(index, format string) Statement {
	return differing(fmt.Sprintf(format, ""), fmt.Sprintf(format, " INDEXED BY "+index))
}

// Then returns the statement with more appended.
func (s Statement) Then(more Statement) Statement {
	return Statement{Postgres: s.Postgres + more.Postgres, SQLite: s.SQLite + more.SQLite}
}

// insertInto returns an INSERT of one row.
func insertInto(table, columns string) string {
	return "INSERT INTO " + table + " (" + columns + ") VALUES (" + marks(1, columns) + ")"
}

// marks returns the parameters of columns, beginning with a number: "$1, $2, $3".
func marks(from int, columns string) string {
	list := make([]string, strings.Count(columns, ",")+1)
	for i := range list {
		list[i] = fmt.Sprint("$", from+i)
	}
	return strings.Join(list, ", ")
}

// upsert returns an INSERT of one row that replaces the row with the same key. The columns of the
// key come first.
func upsert(table, key, rest string) string {
	set := strings.Split(rest, ", ")
	for i, column := range set {
		set[i] = column + " = excluded." + column
	}
	return insertInto(table, key+", "+rest) + " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// Row is a row of a result, valid while it is visited. Its methods copy. NULL is the zero value of
// each.
type Row interface {
	Null(col int) bool
	Text(col int) string
	Bytes(col int) []byte // nil for NULL
	// Append appends bytes or text to a buffer.
	Append(buf []byte, col int) []byte
	Int(col int) int64
	Bool(col int) bool
	Time(col int) time.Time // from microseconds
}

// Querier runs reads: a connection, or a transaction.
//
// Arguments may be text, numbers, bytes, times, pointers to these, and lists of text. nil, nil
// slices, nil pointers and zero times are NULL; empty text is empty text. A list is an array on
// Postgres and JSON on SQLite.
type Querier interface {
	// Query calls fn for each row of the result; fn may be nil. ErrStop of fn ends it without an
	// error. fn must not use the querier, unless it is Nesting.
	Query(s Statement, fn func(Row) error, args ...any) error
	// Ask is Query that may be delayed until the next Query or Send, to share a round trip. fn runs
	// then.
	Ask(s Statement, fn func(Row) error, args ...any) error
	Send() error
	// Walk is Query for results that may be long and are mostly not read to their end. It needs a
	// snapshot. expected is the likely number of rows read.
	Walk(expected int, s Statement, fn func(Row) error, args ...any) error
}

// Nesting is a Querier whose row functions may use it for other statements.
type Nesting interface{ Nests() }

// Writer is a transaction.
type Writer interface {
	Querier
	// Exec runs a statement without a result. A later call may return its error, at the latest the
	// commit.
	Exec(s Statement, args ...any) error
	// Affected runs a statement and returns the number of changed rows.
	Affected(s Statement, args ...any) (int64, error)
	// Encrypts reports whether bytes are encrypted; text never is.
	Encrypts() bool
	// Lock reserves threads for the transaction until its end, and LockRun of a run's
	// thread. Where one transaction writes at a time they do nothing.
	Lock(threads ...id.Thread)
	LockRun(r id.Run)
	// RunInserted notes that the transaction has inserted a run, with the digest of its arguments: the
	// thread's queue has another head.
	RunInserted(r *run.Run, digest []byte) error
	// LogChanged records that the transaction changes the log of a thread.
	LogChanged(t id.Thread)
	// Thread implements thread.Tx.
	Thread(t id.Thread) (*thread.Thread, error)
	// IndexThread adds a thread to the index of metadata, by its terms and the time of its update
	// in microseconds.
	IndexThread(t id.Thread, terms []contain.Term, updated int64) error
	// LastSeq returns the seq of the last event of a thread, 0 if it has none. PutEvents inserts
	// events, whose seqs follow it, in order.
	LastSeq(t id.Thread) (eventstore.Seq, error)
	PutEvents(t id.Thread, events []*eventstore.Event) error
	// PutShared is PutEvents for events whose contents are stored already, as those bodies.
	PutShared(t id.Thread, events []*eventstore.Event, bodies []int64) error
	// PutVectors inserts the vectors of an item, which has none, and VectorsGone notes that it has none any more.
	PutVectors(namespace string, i *store.Item) error
	VectorsGone(namespace, key string)
	// PutPacks inserts packs of stream records. Where a pack begins that is there already, it keeps
	// the longer one.
	PutPacks(t id.Thread, packs []Pack) error
	// ChannelValue implements eventstore.Tx; each engine assembles values in its own way.
	ChannelValue(t id.Thread, channel, version string) (typ string, data []byte, err error)
}

// ErrStop ends a query early without an error.
var ErrStop = errors.New("stop")

// DB opens reads and writes. A function may run again if it failed because of the connection.
type DB interface {
	// Read runs fn on a connection. Each query sees the rows committed when it begins.
	Read(ctx context.Context, fn func(Querier) error) error
	// Snapshot is Read with all queries of fn seeing the same rows.
	Snapshot(ctx context.Context, fn func(Querier) error) error
	// Scan is Snapshot for queries that may read any number of rows. hint says how a client can
	// narrow the search.
	Scan(ctx context.Context, hint string, fn func(Querier) error) error
	// Write runs fn in a transaction and returns when it is durable.
	Write(ctx context.Context, fn func(*Tx) error) error

	// Fill adds values and writes to checkpoints of a thread, FillWrites writes only. Value returns
	// the value of a channel of the root namespace, nil if there is none. Each engine stores values
	// in its own way.
	Fill(q Querier, t id.Thread, bytes int, tuples ...*checkpointer.Tuple) error
	FillWrites(q Querier, t *checkpointer.Tuple) error
	// FillParts is Fill for the picked values only.
	FillParts(q Querier, t *checkpointer.Tuple, picks []checkpointer.Pick) error
	Value(q Querier, t id.Thread, channel, version string) (*checkpointer.Blob, error)
	// Parts adds the parts of each list value to the set of the same index.
	Parts(q Querier, t id.Thread, values [][]byte, sets []*compact.Set) error
	// Whole returns a function that reports whether a checkpoint of the thread has a value for each
	// named channel that it has a version of.
	Whole(q Querier, t id.Thread) func(ns string, c id.Checkpoint, channels []string) (bool, error)

	// Rank returns all items with vectors of a model in a namespace and those below it, in order of similarity. It may include items
	// that have expired or changed. nil: the engine holds no vectors in memory. It is called outside of reads.
	Rank(ctx context.Context, near *store.Near, prefix string) (*vectors.Ranking, error)
	// Sorted returns a statement for the same with the columns of items and the score, which the database sorts; "" if it cannot.
	// With neighbors, one of Neighbors, it is of these nearest vectors alone, which an index finds approximately. Vector reads a vector in
	// the form of the database.
	Sorted(near *store.Near, neighbors int) Statement
	Vector(v []float32, r Row, col int) bool
}

// Store has the reads that both engines share, and the writes that are transactions of their own, in a part for each resource; each engine embeds it in
// its own store.
type Store struct {
	*base
	accountStore
	assistantStore
	auditStore
	checkpointStore
	cronStore
	eventStore
	feedbackStore
	itemStore
	keyStore
	logStore
	readModelStore
	runStore
	searchStore
	threadStore
	usageStore
}

// base is what the parts of a Store need.
type base struct {
	db  DB
	now func() time.Time
	// Hidden reports keys of threads' metadata that are not in the index, because they are secret; nil: all are in it. It is set before the store is used.
	Hidden contain.Hidden
	counts *keptCounts // of threads by their terms
}

// Each part has the reads of one resource, in the files of its tables.
type (
	accountStore    struct{ *base }
	assistantStore  struct{ *base }
	auditStore      struct{ *base }
	checkpointStore struct{ *base }
	cronStore       struct{ *base } // and their occurrences
	eventStore      struct{ *base } // the log, its transcripts, pages and followers
	feedbackStore   struct{ *base }
	itemStore       struct{ *base } // and their vectors
	keyStore        struct{ *base } // and sessions
	logStore        struct{ *base } // for transfer
	readModelStore  struct{ *base }
	runStore        struct{ *base } // and their records, completions, spans and webhooks
	searchStore     struct{ *base }
	threadStore     struct{ *base } // and their expiry and pruning
	usageStore      struct{ *base } // of runs, by day
)

// NewStore returns a store on db; now is the clock for expiry.
func NewStore(db DB, now func() time.Time) Store {
	b := &base{db: db, now: now, counts: &keptCounts{now, cache.New[contain.Term, keptCount](maxCounts)}}
	return Store{
		base: b, accountStore: accountStore{b}, assistantStore: assistantStore{b}, auditStore: auditStore{b}, checkpointStore: checkpointStore{b},
		cronStore: cronStore{b}, eventStore: eventStore{b}, feedbackStore: feedbackStore{b}, itemStore: itemStore{b}, keyStore: keyStore{b},
		logStore: logStore{b}, readModelStore: readModelStore{b}, runStore: runStore{b}, searchStore: searchStore{b}, threadStore: threadStore{b},
		usageStore: usageStore{b},
	}
}

// Tx has the writes that both engines share; each engine embeds it in its own transaction.
type Tx struct {
	Writer
	Reach    Reach       // what exists for it
	inserted []id.Thread // by it, noted when Reach is of some threads only
	Touched  []changes.Change
}

// Touch notes that the row of a thread, or with a run the row of that run, is new, changed or gone. Readers of lists are notified after the commit.
func (tx *Tx) Touch(t id.Thread, r id.Run) {
	c := changes.Change{Thread: t, Run: r}
	if n := len(tx.Touched); n == 0 || tx.Touched[n-1] != c {
		tx.Touched = append(tx.Touched, c)
	}
}

// one is Query for statements that return at most one row; it reports whether there was one.
func one(q Querier, s Statement, fn func(Row) error, args ...any) (found bool, err error) {
	err = q.Query(s, func(r Row) error {
		found = true
		if fn != nil {
			if err := fn(r); err != nil {
				return err
			}
		}
		return ErrStop
	}, args...)
	return found, err
}

// has reports whether a statement returns a row.
func has(q Querier, s Statement, args ...any) (bool, error) { return one(q, s, nil, args...) }

// first returns the value of the first row; the zero value and false if there is none.
func first[T any](q Querier, s Statement, scan func(Row) T, args ...any) (v T, found bool, err error) {
	var got struct { // one allocation
		v     T
		found bool
	}
	err = q.Query(s, func(r Row) error {
		got.v, got.found = scan(r), true
		return ErrStop
	}, args...)
	return got.v, got.found, err
}

// the is first with an error for a missing row.
func the[T any](q Querier, missing error, s Statement, scan func(Row) T, args ...any) (T, error) {
	v, found, err := first(q, s, scan, args...)
	if err == nil && !found {
		err = missing
	}
	return v, err
}

// all returns the values of all rows.
func all[T any](q Querier, s Statement, scan func(Row) T, args ...any) (list []T, err error) {
	err = q.Query(s, func(r Row) error {
		list = append(list, scan(r))
		return nil
	}, args...)
	return list, err
}

// ask is all, delayed until the next query.
func ask[T any](q Querier, list *[]T, s Statement, scan func(Row) T, args ...any) error {
	return q.Ask(s, func(r Row) error {
		*list = append(*list, scan(r))
		return nil
	}, args...)
}

// within is all up to the row with which they have more than so many bytes. It needs a snapshot.
func within[T any](q Querier, bytes int, size func(T) int, s Statement, scan func(Row) T, args ...any) (list []T, err error) {
	err = q.Walk(1, s, func(r Row) error {
		v := scan(r)
		list = append(list, v)
		if bytes -= size(v); bytes < 0 {
			return ErrStop
		}
		return nil
	}, args...)
	return list, err
}

// from returns what a function reads; use it with a method of DB: from(ctx, s.db.Read, …).
func from[T any](ctx context.Context, read func(context.Context, func(Querier) error) error, fn func(Querier) (T, error)) (v T, err error) {
	err = read(ctx, func(q Querier) (err error) {
		v, err = fn(q)
		return err
	})
	return v, err
}

// Scans of results with one column.
func text[T ~string](r Row) T         { return T(r.Text(0)) }
func number[T ~int | ~int64](r Row) T { return T(r.Int(0)) }
func bytesOf(r Row) []byte            { return r.Bytes(0) }
func moment(r Row) time.Time          { return r.Time(0) }

// pointer reads a column that may be NULL.
func pointer[T any](r Row, col int, get func(int) T) *T {
	if r.Null(col) {
		return nil
	}
	v := get(col)
	return &v
}

// micros is for columns that are never NULL, where the zero time is a value.
func micros(t time.Time) int64 { return t.UnixMicro() }

// take calls add for a row that belongs to the page; it returns ErrStop with the last one.
func take(p *rows.Page, add func()) error {
	in, last := p.Take()
	if in {
		add()
	}
	if last {
		return ErrStop
	}
	return nil
}

// expected returns how many rows are likely to be read for a page.
func expected(limit, offset int) int {
	if limit <= 0 {
		return 1024
	}
	return offset + limit
}

// unlimited is a LIMIT that no result reaches.
const unlimited = 1 << 40

// limitOf returns n as a LIMIT; 0 or less means all.
func limitOf(n int) int {
	if n <= 0 {
		return unlimited
	}
	return n
}

// change runs a statement that must change a row, and returns missing if it does not. what begins
// the error of a failure.
func (tx *Tx) change(missing error, what string, s Statement, args ...any) error {
	n, err := tx.Affected(s, args...)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n == 0 {
		return missing
	}
	return nil
}

// orders are, by the name of a column, a statement sorted by it and then by an ID, ascending and
// descending. The ID makes the order total, so that pages do not overlap.
type orders map[string][2]Statement

// inOrder returns the orders of a selection.
func inOrder(selection Statement, id string, columns ...string) orders {
	out := orders{}
	for _, c := range columns {
		by := [2]string{c + ", " + id, c + " DESC, " + id + " DESC"}
		if c == id {
			by = [2]string{id, id + " DESC"}
		}
		_, name, qualified := strings.Cut(c, ".")
		if !qualified {
			name = c
		}
		out[name] = [2]Statement{selection.Then(same(" ORDER BY " + by[0])), selection.Then(same(" ORDER BY " + by[1]))}
	}
	return out
}

// with adds the orders by a column that are not those of inOrder.
func (o orders) with(column string, selection, ascending, descending Statement) orders {
	by := selection.Then(same(" ORDER BY "))
	o[column] = [2]Statement{by.Then(ascending), by.Then(descending)}
	return o
}

// pick returns the statement for a sort column; fault.Invalid for an unknown one.
func (o orders) pick(column, fallback string, ascending bool) (Statement, error) {
	if column == "" {
		column = fallback
	}
	texts, ok := o[column]
	if !ok {
		return Statement{}, fault.Newf(fault.Invalid, "cannot sort by %q", column)
	}
	if ascending {
		return texts[0], nil
	}
	return texts[1], nil
}

// execAll runs statements with the same arguments.
func (tx *Tx) execAll(list []Statement, args ...any) error {
	for _, s := range list {
		if err := tx.Exec(s, args...); err != nil {
			return err
		}
	}
	return nil
}
