package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/storage/internal/seal"
)

// useKeys checks the keys against the database, and returns a ring that encrypts; nil without keys.
func useKeys(ctx context.Context, conn *sqlite.Conn, opts Options) (*seal.Ring, error) {
	ring, err := seal.NewRing(opts.Keys)
	if err != nil {
		return nil, err
	}
	known := ""
	if _, err := one(conn, "SELECT value FROM meta WHERE key = ?", func(s *sqlite.Stmt) error {
		known = s.ColumnText(0)
		return nil
	}, seal.MetaKey); err != nil {
		return nil, err
	}
	note, err := ring.Check(known)
	if err != nil || note == known {
		return ring, err
	}
	if known == "" {
		opts.Logger.InfoContext(ctx, "encryption begins; run understudy encrypt to encrypt what is there", "key", ring.ID())
	}
	return ring, exec(conn, "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", seal.MetaKey, note)
}

// Encrypt encrypts a database with the first of the keys: also what is not encrypted, or has an older key. It returns the number of changed
// values. Nothing of before is left in the file. No server may be running on the folder. It may be interrupted, and run again.
func Encrypt(ctx context.Context, opts Options) (changed int, err error) {
	s, err := Open(ctx, opts)
	if err != nil {
		return 0, err
	}
	if s.writer.ring == nil {
		return 0, errors.Join(seal.ErrNoKey, s.Close())
	}
	if err = s.clearSearch(ctx); err == nil {
		changed, err = s.encrypt(ctx)
	}
	if err == nil && len(opts.Unindexed) > 0 {
		err = s.write(ctx, func(tx *Tx) error {
			return tx.exec("DELETE FROM thread_metadata WHERE key IN (SELECT value FROM json_each(?))", opts.Unindexed)
		})
	}
	path := s.path
	if err = errors.Join(err, s.Close()); err != nil || opts.Dir == InMemory {
		return changed, err
	}
	// Free pages and the log still have the plain content.
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return changed, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	conn, err := connect(path, true, "full")
	if err != nil {
		return changed, classify(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if err := sqlitex.ExecuteTransient(conn, statement, nil); err != nil {
			return changed, fmt.Errorf("%s: %w", statement, classify(err))
		}
	}
	return changed, nil
}

// secret is a column with bytes, and the key of its table.
type secret struct {
	table, column string
	key           []string
}

// secrets returns all columns with bytes.
func (s *Store) secrets(ctx context.Context) (list []secret, err error) {
	err = s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, `SELECT t.name, c.name, (SELECT group_concat(k.name) FROM pragma_table_info(t.name) k WHERE k.pk > 0 ORDER BY k.pk)
			FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND c.type = 'BLOB' AND t.name <> 'schema_migrations' AND t.name NOT LIKE 'message\_words\_%' ESCAPE '\' ORDER BY 1, 2`,
			func(st *sqlite.Stmt) error {
				list = append(list, secret{st.ColumnText(0), st.ColumnText(1), strings.Split(st.ColumnText(2), ",")})
				return nil
			})
	})
	return list, err
}

// encryptBatch is how many rows a transaction encrypts.
const encryptBatch = 500

func (s *Store) encrypt(ctx context.Context) (changed int, err error) {
	secrets, err := s.secrets(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range secrets {
		var last []any
		for more := true; more; {
			var n int
			err := s.write(ctx, func(tx *Tx) (err error) {
				var next []any
				if n, next, err = tx.encrypt(c, last); err == nil {
					more, last = next != nil, next
				}
				return err
			})
			if changed += n; err != nil {
				return changed, fmt.Errorf("encrypt %s.%s: %w", c.table, c.column, err)
			}
		}
	}
	return changed, nil
}

// encrypt encrypts the rows of a column behind a key, and returns the last key; nil when there is nothing behind.
func (tx *Tx) encrypt(c secret, after []any) (changed int, last []any, err error) {
	key := strings.Join(c.key, ", ")
	text := "SELECT " + c.column + ", " + key + " FROM " + c.table
	if after != nil {
		text += " WHERE (" + key + ") > (?" + strings.Repeat(", ?", len(after)-1) + ")"
	}
	type found struct {
		value []byte
		key   []any
	}
	var list []found
	rows := 0
	err = query(tx.conn, text+" ORDER BY "+key+" LIMIT "+fmt.Sprint(encryptBatch), func(st *sqlite.Stmt) error {
		rows++
		last = nil
		for i := range c.key {
			if st.ColumnType(i+1) == sqlite.TypeInteger {
				last = append(last, st.ColumnInt64(i+1))
			} else {
				last = append(last, st.ColumnText(i+1))
			}
		}
		if st.ColumnIsNull(0) {
			return nil
		}
		value := make([]byte, st.ColumnLen(0))
		st.ColumnBytes(0, value)
		if !tx.ring.Current(value) {
			list = append(list, found{seal.Open(value), last})
		}
		return nil
	}, after...)
	if err != nil {
		return 0, nil, err
	}
	update := "UPDATE " + c.table + " SET " + c.column + " = ? WHERE " + strings.Join(c.key, " = ? AND ") + " = ?"
	for _, f := range list {
		if err := tx.exec(update, append([]any{f.value}, f.key...)...); err != nil {
			return changed, nil, err
		}
		changed++
	}
	if rows < encryptBatch {
		last = nil
	}
	return changed, last, nil
}
