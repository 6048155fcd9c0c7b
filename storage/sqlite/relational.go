package sqlite

import (
	"context"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// row implements relational.Row on a statement.
type row struct{ s *sqlite.Stmt }

func (r row) Null(col int) bool      { return r.s.ColumnIsNull(col) }
func (r row) Text(col int) string    { return r.s.ColumnText(col) }
func (r row) Bytes(col int) []byte   { return columnBytes(r.s, col) }
func (r row) Int(col int) int64      { return r.s.ColumnInt64(col) }
func (r row) Bool(col int) bool      { return r.s.ColumnBool(col) }
func (r row) Time(col int) time.Time { return columnTime(r.s, col) }

// Append copies a value into buf without an allocation of its own.
func (r row) Append(buf []byte, col int) []byte {
	at, n := len(buf), r.s.ColumnLen(col)
	buf = slices.Grow(buf, n)[:at+n]
	r.s.ColumnBytes(col, buf[at:])
	if seal.IsSealed(buf[at:]) {
		return append(buf[:at], seal.Open(buf[at:])...)
	}
	return buf
}

// querier implements relational.Querier on a connection. There are no round trips to save here, so
// queries that Postgres would batch run at once.
type querier struct{ conn *sqlite.Conn }

var (
	_ relational.Querier = querier{}
	_ relational.Writer  = (*Tx)(nil)
)

// Query implements relational.Querier.
func (q querier) Query(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return visit(q.conn, s.SQLite, nil, fn, args)
}

// Ask runs the query at once: batching saves nothing without a network.
func (q querier) Ask(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return q.Query(s, fn, args...)
}

func (querier) Send() error { return nil }

func (querier) Nests() {} // implements relational.Nesting

func (q querier) Walk(_ int, s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return q.Query(s, fn, args...)
}

// Query counts the rows that a transaction reads, which tests limit: the writer holds up all
// others while it reads.
func (tx *Tx) Query(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	args = sealed(tx.ring, args)
	if fn == nil {
		return tx.querier.Query(s, nil, args...)
	}
	return tx.querier.Query(s, func(r relational.Row) error {
		tx.visited++
		return fn(r)
	}, args...)
}

func (tx *Tx) Ask(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return tx.Query(s, fn, args...)
}

func (tx *Tx) Walk(_ int, s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return tx.Query(s, fn, args...)
}

func (tx *Tx) Exec(s relational.Statement, args ...any) error {
	return exec(tx.conn, s.SQLite, sealed(tx.ring, args)...)
}

// Affected runs a statement and returns the number of changed rows. A statement without text for
// SQLite does nothing.
func (tx *Tx) Affected(s relational.Statement, args ...any) (int64, error) {
	if s.SQLite == "" {
		return 0, nil
	}
	err := tx.Exec(s, args...)
	return int64(tx.conn.Changes()), err
}

// Lock and LockRun do nothing: only one transaction writes at a time.
func (*Tx) Lock(...id.Thread) {}
func (*Tx) LockRun(id.Run)    {}

// LogChanged records that this transaction changes the log of a thread. Followers of the log are
// notified after the commit.
func (tx *Tx) LogChanged(t id.Thread) {
	if n := len(tx.threads); n == 0 || tx.threads[n-1] != t {
		tx.threads = append(tx.threads, t)
	}
}

// database implements relational.DB on the store.
type database struct{ s *Store }

func (d database) Read(ctx context.Context, fn func(relational.Querier) error) error {
	return d.s.read(ctx, func(c *sqlite.Conn) error { return fn(querier{c}) })
}

func (d database) Snapshot(ctx context.Context, fn func(relational.Querier) error) error {
	return d.s.snapshot(ctx, func(c *sqlite.Conn) error { return fn(querier{c}) })
}

func (d database) Scan(ctx context.Context, hint string, fn func(relational.Querier) error) error {
	return d.s.scan(ctx, hint, func(c *sqlite.Conn) error { return fn(querier{c}) })
}

func (d database) Write(ctx context.Context, fn func(*relational.Tx) error) error {
	return d.s.write(ctx, func(tx *Tx) error { return fn(&tx.Tx) })
}

// Fill shares values between the tuples of a thread.
func (database) Fill(q relational.Querier, t id.Thread, bytes int, tuples ...*checkpointer.Tuple) error {
	l := newLoader(q.(querier).conn, t)
	l.bound(bytes)
	for i, tuple := range tuples {
		if !tuple.Left {
			if err := l.fill(tuple); err != nil {
				return err
			}
		}
		if tuple.Left {
			checkpointer.Leave(tuples[i+1:]...)
			break
		}
	}
	return nil
}

func (database) FillWrites(q relational.Querier, t *checkpointer.Tuple) error {
	return newLoader(q.(querier).conn, t.Thread).fillWrites(t)
}

func (database) FillParts(q relational.Querier, t *checkpointer.Tuple, picks []checkpointer.Pick) error {
	return newLoader(q.(querier).conn, t.Thread).fillParts(t, picks)
}

func (database) Value(q relational.Querier, t id.Thread, channel, version string) (*checkpointer.Blob, error) {
	return newLoader(q.(querier).conn, t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
}

// Parts adds the parts of each list value to the set of the same index.
func (database) Parts(q relational.Querier, t id.Thread, values [][]byte, sets []*compact.Set) error {
	l := newLoader(q.(querier).conn, t)
	for i, value := range values {
		if err := l.named(value, sets[i]); err != nil {
			return err
		}
	}
	return nil
}

// Whole returns a function that reports whether a checkpoint has all its delta channels' values.
func (database) Whole(q relational.Querier, t id.Thread) func(string, id.Checkpoint, []string) (bool, error) {
	return func(ns string, c id.Checkpoint, channels []string) (bool, error) {
		return whole(q.(querier).conn, checkpointer.Key{Thread: t, NS: ns, ID: c}, channels)
	}
}
