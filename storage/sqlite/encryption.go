package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/storage/internal/seal"
)

// useKeys checks the keys against the database, and returns the keyring that encrypts.
func useKeys(ctx context.Context, conn *sqlite.Conn, opts Options) (*seal.Keyring, error) {
	keys, err := seal.OpenKeyring(ctx, seal.Settings{Keys: opts.Keys, Handlers: opts.Handlers, Unindexed: opts.Unindexed, Log: opts.Logger}, keyTable{conn: conn})
	if err != nil {
		return nil, err
	}
	known, err := keyNote(conn)
	if err != nil {
		return nil, err
	}
	note, err := keys.Check(ctx, known)
	if err != nil || note == known {
		return keys, err
	}
	if known == "" && !opts.encrypting {
		opts.Logger.InfoContext(ctx, "encryption begins; run understudy encrypt if the database has older rows", "key", keys.ID())
	}
	if err := keys.Leave(ctx, known); err != nil {
		return nil, err
	}
	return keys, exec(conn, "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", seal.MetaKey, note)
}

// keyNote returns what a database says about the key it is encrypted with; "" if it is not encrypted.
func keyNote(conn *sqlite.Conn) (known string, err error) {
	_, err = one(conn, "SELECT value FROM meta WHERE key = ?", func(s *sqlite.Stmt) error {
		known = s.ColumnText(0)
		return nil
	}, seal.MetaKey)
	return known, err
}

// keyTable implements seal.Table: with a connection while the database is opened, then with the store.
type keyTable struct {
	conn  *sqlite.Conn
	store *Store
}

// Rows implements seal.Table.
func (t keyTable) Rows(ctx context.Context, from, below string, fn func(key, value string) error) error {
	read := func(conn *sqlite.Conn) error {
		return query(conn, "SELECT key, value FROM meta WHERE key >= ? AND key < ? ORDER BY key",
			func(s *sqlite.Stmt) error { return fn(s.ColumnText(0), s.ColumnText(1)) }, from, below)
	}
	if t.store == nil {
		return read(t.conn)
	}
	return t.store.read(ctx, read)
}

// UseHandlers makes what handlers have encrypted readable. It does not keep them.
func (f *Folder) UseHandlers(ctx context.Context, h encryption.Handlers) error {
	return seal.LoadDataKeys(ctx, h, keyTable{store: f.store})
}

// CursorKey returns the key for cursors of all servers of the database (package cursor).
func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	return seal.CursorKey(ctx, keyTable{store: s})
}

// Put implements seal.Table.
func (t keyTable) Put(ctx context.Context, rows map[string]string, replace bool) error {
	text := "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
	if replace {
		text = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
	}
	write := func(conn *sqlite.Conn) error {
		for key, value := range rows {
			if err := exec(conn, text, key, value); err != nil {
				return err
			}
		}
		return nil
	}
	if t.store == nil {
		return write(t.conn)
	}
	// In the empty context, which has a data key already.
	return t.store.writeOnce(encryption.With(ctx, ""), func(tx *Tx) error { return write(tx.conn) })
}

// Encrypt encrypts a database with the first of the keys: also what is not encrypted, or has an older key. It returns the number of changed
// values. Nothing of before is left in the file. No server may be running on the folder. It may be interrupted, and run again.
func Encrypt(ctx context.Context, opts Options) (changed int, err error) {
	opts.encrypting = true
	s, err := Open(ctx, opts)
	if isFull(err) {
		return 0, fmt.Errorf("%w. Nothing was changed: %s. Make room, and run the same command again", err, roomFor(filepath.Join(opts.Dir, fileName), opts.Dir))
	}
	if err != nil {
		return 0, err
	}
	if !s.writer.keys.Encrypts() {
		return 0, errors.Join(seal.ErrNoKey, s.Close())
	}
	left, err := s.writer.keys.Left(ctx)
	if err == nil {
		err = s.clearSearch(ctx)
	}
	if err == nil {
		changed, err = s.encrypt(ctx)
	}
	if err == nil {
		var n int
		n, err = s.SealCompletions(ctx)
		changed += n
	}
	if err == nil {
		err = s.hideNames(ctx)
	}
	if err == nil {
		err = s.writeOnce(ctx, func(tx *Tx) error {
			for _, row := range left {
				if err := tx.exec("DELETE FROM meta WHERE key = ?", row); err != nil {
					return err
				}
			}
			return nil
		})
	}
	path := s.path
	if fault.Is(err, fault.Unavailable) && s.disk.full.Load() {
		err = fmt.Errorf("%w. %d values were encrypted so far, and nothing is lost: %s. Make room, and run the same command again", err, changed, roomFor(path, opts.Dir))
	}
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
	return changed, vacuum(conn, path, opts.Dir)
}

// vacuum writes the database anew, without the pages and the log that still have former content. It does not begin without the room for it, because a full disk is a
// fault of other programs too.
func vacuum(conn *sqlite.Conn, path, dir string) error {
	var need int64
	if _, err := one(conn, "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size", func(s *sqlite.Stmt) error {
		need = s.ColumnInt64(0)
		return nil
	}); err != nil {
		return err
	}
	need += need/100 + 1<<20 // heads of the log's pages, and its index
	if short := shortOf(dir, tempFolder(), need, freeBytes); short != "" {
		return errNoRoom(short, nil)
	}
	for _, statement := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		err := sqlitex.ExecuteTransient(conn, statement, nil)
		switch {
		case err != nil && isFull(err): // something else has taken the room meanwhile
			return errNoRoom(roomFor(path, dir), err)
		case err != nil:
			return fmt.Errorf("%s: %w", statement, classify(err))
		}
	}
	return nil
}

// errNoRoom says that content is encrypted, and what was there before not yet removed.
func errNoRoom(short string, cause error) error {
	text := "all content is encrypted with the current key; what was there before is still in free parts of the file, because there is no room to write it anew: " + short +
		". Make room, or name a folder on another disk with SQLITE_TMPDIR, and run the same command again: nothing is lost"
	if cause == nil {
		return fault.New(fault.Unavailable, text)
	}
	return fault.Wrap(fault.Unavailable, text, cause)
}

// shortOf returns what is missing so that a folder and the one of temporary files can take need bytes each; "" if nothing is, or free does not know.
func shortOf(dir, temp string, need int64, free func(string) (bytes int64, disk uint64, known bool)) string {
	has, disk, known := free(dir)
	hasTemp, tempDisk, tempKnown := free(temp)
	switch {
	case known && tempKnown && disk == tempDisk && has < 2*need:
		return (&NoRoomError{dir, 2 * need, has}).Error()
	case known && has < need:
		return (&NoRoomError{dir, need, has}).Error()
	case tempKnown && hasTemp < need:
		return fmt.Sprintf("that needs %s for temporary files on the disk of %s, which has %s", Megabytes(need), temp, Megabytes(hasTemp))
	}
	return ""
}

// roomFor says how much room encrypting a database takes at most.
func roomFor(path, dir string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "it needs twice the size of the database"
	}
	return fmt.Sprintf("it needs up to %s on the disk of %s, and as much for temporary files on that of %s", Megabytes(info.Size()+info.Size()/100+1<<20), dir, tempFolder())
}

// tempFolder is where SQLite makes its temporary files.
func tempFolder() string {
	if runtime.GOOS == "windows" {
		return os.TempDir()
	}
	for _, dir := range []string{os.Getenv("SQLITE_TMPDIR"), os.Getenv("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp"} {
		if info, err := os.Stat(dir); dir != "" && err == nil && info.IsDir() {
			return dir
		}
	}
	return "."
}

// Encrypts implements relational.Writer.
func (tx *Tx) Encrypts() bool { return tx.ring != nil }

// hideNames removes what must not be readable from the index of threads.
func (s *Store) hideNames(ctx context.Context) error {
	hidden := s.writer.keys.Hidden()
	if hidden == nil {
		return nil
	}
	var names []string
	if err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, "SELECT DISTINCT key FROM thread_metadata", func(st *sqlite.Stmt) error {
			names = append(names, st.ColumnText(0))
			return nil
		})
	}); err != nil {
		return err
	}
	if err := s.writer.keys.Learn(ctx, names); err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !hidden(name) })
	return s.write(ctx, func(tx *Tx) error {
		return tx.exec("DELETE FROM thread_metadata WHERE key IN (SELECT value FROM json_each(?))", names)
	})
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
			if err != nil {
				return changed, fmt.Errorf("encrypt %s.%s: %w", c.table, c.column, err)
			}
			changed += n
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
