package deerflow

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// tables are DeerFlow's own. Queries have the same text for both databases, and select texts only.
type tables interface {
	// has reports whether there is a table.
	has(ctx context.Context, table string) (bool, error)
	// columns returns the names of the columns of a table.
	columns(ctx context.Context, table string) ([]string, error)
	// each calls fn with the columns of each row; NULL is "".
	each(ctx context.Context, query string, args []any, fn func(row []string) error) error
	close() error
}

type sqliteTables struct{ conn *sqlite.Conn }

func openSQLite(path string) (tables, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	uri := url.URL{Scheme: "file", OmitHost: true, Path: absolute, RawQuery: "mode=ro"}
	if info, err := os.Stat(path + "-wal"); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		uri.RawQuery = "mode=ro&immutable=1" // no process writes, so no files are made next to it
	}
	conn, err := sqlite.OpenConn(uri.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return sqliteTables{conn}, nil
}

func (t sqliteTables) has(ctx context.Context, table string) (found bool, err error) {
	err = t.each(ctx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name = $1", []any{table}, func([]string) error { found = true; return nil })
	return found, err
}

func (t sqliteTables) columns(ctx context.Context, table string) (names []string, err error) {
	err = t.each(ctx, "SELECT name FROM pragma_table_info($1)", []any{table}, func(r []string) error { names = append(names, r[0]); return nil })
	return names, err
}

func (t sqliteTables) each(ctx context.Context, query string, args []any, fn func(row []string) error) error {
	t.conn.SetInterrupt(ctx.Done())
	return sqlitex.Execute(t.conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(st *sqlite.Stmt) error {
		row := make([]string, st.ColumnCount())
		for i := range row {
			row[i] = st.ColumnText(i)
		}
		return fn(row)
	}})
}

func (t sqliteTables) close() error { return t.conn.Close() }

type postgresTables struct{ conn *pgx.Conn }

func openPostgres(ctx context.Context, address string) (tables, error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SET TIME ZONE 'UTC'"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return postgresTables{conn}, nil
}

func (t postgresTables) has(ctx context.Context, table string) (found bool, err error) {
	err = t.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&found)
	return found, err
}

func (t postgresTables) columns(ctx context.Context, table string) (names []string, err error) {
	query := "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"
	err = t.each(ctx, query, []any{table}, func(r []string) error { names = append(names, r[0]); return nil })
	return names, err
}

func (t postgresTables) each(ctx context.Context, query string, args []any, fn func(row []string) error) error {
	rows, err := t.conn.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		row := make([]string, len(values))
		for i, v := range values {
			if v != nil {
				row[i] = fmt.Sprint(v)
			}
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t postgresTables) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // also after the import was cancelled
	defer cancel()
	return t.conn.Close(ctx)
}

// text casts columns of any type to text.
func text(columns ...string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = "CAST(" + c + " AS TEXT)"
	}
	return strings.Join(out, ", ")
}

// when reads a time as either database writes it, in UTC; 1970 when it cannot be read.
func when(s string) time.Time {
	s = strings.Replace(s, "T", " ", 1)
	for _, layout := range []string{"2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Unix(0, 0).UTC()
}
