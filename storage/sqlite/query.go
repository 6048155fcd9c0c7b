package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
)

// query runs a statement and calls row for each row; row may be nil, and its error ends the query.
// The connection caches prepared statements by text, so text must be one of a few. row must not
// run the same text on the same connection: that would reset the statement.
func query(conn *sqlite.Conn, text string, row func(*sqlite.Stmt) error, args ...any) error {
	return visit(conn, text, row, nil, args)
}

// visit is query for row functions of this package (own) or of relational (fn).
func visit(conn *sqlite.Conn, text string, own func(*sqlite.Stmt) error, fn func(relational.Row) error, args []any) (err error) {
	defer seal.Recovered(&err)
	stmt, err := conn.Prepare(text)
	if err != nil {
		return classify(err)
	}
	large := false
	defer func() {
		// Reset releases the read lock of a statement that was not read to its end. Its error
		// repeats that of Step.
		if e := stmt.Reset(); err == nil && e != nil {
			err = classify(e)
		}
		if large { // a cached statement keeps copies of its arguments until it is bound again
			if e := stmt.ClearBindings(); err == nil && e != nil {
				err = classify(e)
			}
		}
	}()
	for i, a := range args {
		bind(stmt, i+1, a)
		large = large || isLarge(a)
	}
	for {
		more, err := stmt.Step()
		if err != nil {
			return classify(err)
		}
		if !more {
			return nil
		}
		switch {
		case own != nil:
			err = own(stmt)
		case fn != nil:
			err = fn(row{stmt})
		}
		if err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
}

// errStop ends a query early without an error.
var errStop = relational.ErrStop

// exec runs a statement without reading rows.
func exec(conn *sqlite.Conn, text string, args ...any) error { return query(conn, text, nil, args...) }

// one is query for statements that return at most one row; it reports whether there was one.
func one(conn *sqlite.Conn, text string, row func(*sqlite.Stmt) error, args ...any) (found bool, err error) {
	err = query(conn, text, func(s *sqlite.Stmt) error {
		found = true
		if row != nil {
			if err := row(s); err != nil {
				return err
			}
		}
		return errStop
	}, args...)
	return found, err
}

// bind sets a parameter; see relational.Querier for the types. Use orNull where empty text means
// NULL.
func bind(stmt *sqlite.Stmt, i int, arg any) {
	switch v := arg.(type) {
	case nil:
		stmt.BindNull(i)
	case string:
		stmt.BindText(i, rows.Text(v))
	case id.Thread:
		stmt.BindText(i, rows.Text(string(v)))
	case id.Run:
		stmt.BindText(i, rows.Text(string(v)))
	case id.Checkpoint:
		stmt.BindText(i, rows.Text(string(v)))
	case []byte:
		bindBytes(stmt, i, v)
	case json.RawMessage:
		bindBytes(stmt, i, v)
	case int:
		stmt.BindInt64(i, int64(v))
	case int64:
		stmt.BindInt64(i, v)
	case bool:
		stmt.BindBool(i, v)
	case time.Time:
		if v.IsZero() {
			stmt.BindNull(i)
		} else {
			stmt.BindInt64(i, v.UnixMicro())
		}
	default:
		switch rv := reflect.ValueOf(arg); rv.Kind() {
		case reflect.String:
			stmt.BindText(i, rows.Text(rv.String()))
		case reflect.Int, reflect.Int64:
			stmt.BindInt64(i, rv.Int())
		case reflect.Pointer:
			if rv.IsNil() {
				stmt.BindNull(i)
			} else {
				bind(stmt, i, rv.Elem().Interface())
			}
		case reflect.Slice: // for json_each
			list, err := json.Marshal(arg)
			if err != nil {
				panic(fmt.Sprintf("sqlite: cannot bind %T: %v", arg, err))
			}
			stmt.BindText(i, string(rows.JSON(list)))
		default:
			panic(fmt.Sprintf("sqlite: cannot bind %T", arg))
		}
	}
}

// isLarge reports whether an argument is worth releasing at once.
func isLarge(arg any) bool {
	const limit = 64 << 10
	switch v := arg.(type) {
	case string:
		return len(v) > limit
	case []byte:
		return len(v) > limit
	case json.RawMessage:
		return len(v) > limit
	}
	return false
}

func bindBytes(stmt *sqlite.Stmt, i int, b []byte) {
	if b == nil {
		stmt.BindNull(i)
	} else {
		stmt.BindBytes(i, b)
	}
}

// orNull returns NULL for empty text.
func orNull[T ~string](v T) any {
	if v == "" {
		return nil
	}
	return string(v)
}

// columnBytes returns a copy of a value; nil for NULL. SQLite's own memory is valid until the next
// step only.
func columnBytes(stmt *sqlite.Stmt, col int) []byte {
	if stmt.ColumnIsNull(col) {
		return nil
	}
	b := make([]byte, stmt.ColumnLen(col))
	stmt.ColumnBytes(col, b)
	return seal.Open(b)
}

// sealed returns arguments with all bytes encrypted.
func sealed(ring *seal.Ring, args []any) []any {
	if ring == nil {
		return args
	}
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case []byte:
			arg = ring.Seal(v)
		case json.RawMessage:
			arg = ring.Seal(v)
		}
		out[i] = arg
	}
	return out
}

// columnTime reads microseconds as UTC; the zero time for NULL.
func columnTime(stmt *sqlite.Stmt, col int) time.Time {
	if stmt.ColumnIsNull(col) {
		return time.Time{}
	}
	return time.UnixMicro(stmt.ColumnInt64(col)).UTC()
}

// classify turns SQLite's errors into errors of this program. Those that a caller or operator can
// act on get a kind; others stay as they are.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if isFull(err) {
		return fault.Wrap(fault.Unavailable, "the disk is full: nothing can be saved until there is room", err)
	}
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultNoMem:
		return fault.Wrap(fault.Unavailable, "not enough memory for this at the moment; try again later", err)
	case sqlite.ResultTooBig:
		return fault.Wrap(fault.TooLarge, "a value is larger than SQLite stores, which is 1 GB: keep large data out of the state, for example in files that it names", err)
	case sqlite.ResultIOErr:
		return fault.Wrap(fault.Unavailable, "disk I/O error", err)
	case sqlite.ResultConstraint:
		if code == sqlite.ResultConstraintPrimaryKey || code == sqlite.ResultConstraintUnique {
			return fault.Wrap(fault.Conflict, "already exists", err)
		}
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return fault.Wrap(fault.Unavailable, damagedText, err)
	case sqlite.ResultReadOnly:
		return fault.Wrap(fault.Unavailable, "the disk is read-only: nothing can be saved", err)
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return fault.Wrap(fault.Unavailable, "the database is locked by another program", err)
	}
	return err
}

// read runs fn on a reading connection.
func (s *Store) read(ctx context.Context, fn func(conn *sqlite.Conn) error) error {
	defer s.metrics.Read(time.Now())
	return s.damage.read(s.readers.read(ctx, fn))
}

// snapshot is read with all queries of fn seeing one state of the database.
func (s *Store) snapshot(ctx context.Context, fn func(conn *sqlite.Conn) error) error {
	defer s.metrics.Read(time.Now())
	return s.damage.read(s.readers.snapshot(ctx, fn))
}

// scan is snapshot for queries that may read any number of rows. hint says how a client can narrow
// the search.
func (s *Store) scan(ctx context.Context, hint string, fn func(conn *sqlite.Conn) error) error {
	return s.scans.Do(ctx, hint, func(ctx context.Context) error { return s.snapshot(ctx, fn) })
}
