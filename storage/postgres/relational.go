package postgres

import (
	"context"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

// Reading connections and transactions, as relational uses them.
var (
	// Reading connections and transactions implement the interfaces of relational.
	_ relational.Querier = (*reader)(nil)
	_ relational.Writer  = (*Tx)(nil)
)

// visit adapts a function of relational to rows of this package.
func visit(fn func(relational.Row) error) func(*row) error {
	if fn == nil {
		return nil
	}
	return func(r *row) error { return fn(r) }
}

func (r *reader) Query(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return r.query(s.Postgres, visit(fn), args...)
}

func (r *reader) Ask(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	r.ask(s.Postgres, visit(fn), args...)
	return nil
}

func (r *reader) Send() error { return r.send() }

// Walk reads a long result in pieces.
func (r *reader) Walk(expected int, s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return r.walk(expected, s.Postgres, visit(fn), args...)
}

func (tx *Tx) Query(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return tx.query(s.Postgres, visit(fn), args...)
}

func (tx *Tx) Ask(s relational.Statement, fn func(relational.Row) error, args ...any) error {
	if tx.err == nil {
		tx.ask(s.Postgres, visit(fn), args...)
	}
	return tx.err
}

func (tx *Tx) Send() error { return tx.send() }

// Walk reads the whole result at once: in a transaction results are short.
func (tx *Tx) Walk(_ int, s relational.Statement, fn func(relational.Row) error, args ...any) error {
	return tx.Query(s, fn, args...)
}

func (tx *Tx) Exec(s relational.Statement, args ...any) error { return tx.exec(s.Postgres, args...) }

func (tx *Tx) Affected(s relational.Statement, args ...any) (int64, error) {
	return tx.affected(s.Postgres, args...)
}

func (tx *Tx) Lock(threads ...id.Thread) { tx.lock(threads...) }
func (tx *Tx) LockRun(r id.Run)          { tx.lockRun(r) }
func (tx *Tx) LogChanged(t id.Thread)    { tx.changes(t) }

// database implements relational.DB on the store.
type database struct{ s *Store }

func (d database) Read(ctx context.Context, fn func(relational.Querier) error) error {
	return d.s.read(ctx, func(r *reader) error { return fn(r) })
}

func (d database) Snapshot(ctx context.Context, fn func(relational.Querier) error) error {
	return d.s.snapshot(ctx, func(r *reader) error { return fn(r) })
}

func (d database) Scan(ctx context.Context, hint string, fn func(relational.Querier) error) error {
	return d.s.scan(ctx, hint, func(r *reader) error { return fn(r) })
}

func (d database) Write(ctx context.Context, fn func(*relational.Tx) error) error {
	return d.s.write(ctx, func(tx *Tx) error { return fn(&tx.Tx) })
}

// Fill loads the values and writes of all tuples together.
func (database) Fill(q relational.Querier, t id.Thread, bytes int, tuples ...*checkpointer.Tuple) error {
	return newLoader(q.(querier), t).fill(bytes, tuples)
}

func (database) FillWrites(q relational.Querier, t *checkpointer.Tuple) error {
	newLoader(q.(querier), t.Thread).askWrites([]*checkpointer.Tuple{t}, 0)
	return q.Send()
}

func (database) FillParts(q relational.Querier, t *checkpointer.Tuple, picks []checkpointer.Pick) error {
	return newLoader(q.(querier), t.Thread).fillParts(t, picks)
}

func (database) Value(q relational.Querier, t id.Thread, channel, version string) (*checkpointer.Blob, error) {
	return newLoader(q.(querier), t).blob(blobKey{"", rows.ChannelVersion{Channel: channel, Version: version}})
}

// Parts adds the parts of each list value to the set of the same index.
func (database) Parts(q relational.Querier, t id.Thread, values [][]byte, sets []*compact.Set) error {
	l := newLoader(q.(querier), t)
	if err := l.named(values, new(compact.Set)); err != nil { // loads the chunks of all values in one query
		return err
	}
	for i := range values {
		if err := l.named(values[i:i+1], sets[i]); err != nil {
			return err
		}
	}
	return nil
}

// Whole returns a function that reports whether a checkpoint has all its delta channels' values,
// with one query per namespace.
func (database) Whole(q relational.Querier, t id.Thread) func(string, id.Checkpoint, []string) (bool, error) {
	known := map[string]map[id.Checkpoint]bool{} // checkpoints that lack a value, by namespace
	return func(ns string, c id.Checkpoint, channels []string) (bool, error) {
		if known[ns] == nil {
			known[ns] = map[id.Checkpoint]bool{}
			if err := q.(querier).query(lacking, func(r *row) error {
				known[ns][id.Checkpoint(r.Text(0))] = true
				return nil
			}, t, ns, channels); err != nil {
				return false, err
			}
		}
		return !known[ns][c], nil
	}
}
