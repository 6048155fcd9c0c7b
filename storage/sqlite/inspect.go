package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"zombiezen.com/go/sqlite"

	"understudy/internal/encryption"
	"understudy/internal/flock"
	"understudy/storage/internal/seal"
)

// Inspection is what Inspect finds in a data folder.
type Inspection struct {
	// Holder is the server that holds the folder's lock ("pid 12, since …"); "" if none.
	Holder string
	// Size is the size of the database with its log in bytes; 0: no database yet.
	Size int64
	// Schema is the number of the last migration of the database, Known that of this version. A
	// larger Schema cannot be opened.
	Schema, Known int
	// Locked is why the database does not open with the configured encryption; nil: it does, as far as that shows without handlers.
	Locked error
	// Begins reports that the database is not encrypted, and the next start with the configuration begins that.
	Begins bool
	// Damage has the lines of SQLite's quick_check, or why the file cannot be read; nil if it is
	// intact.
	Damage []string
}

// Inspect examines a data folder without changing it, also while a server uses it. A missing
// folder is empty. The check reads the whole database: if ctx ends before, the error says so.
func Inspect(ctx context.Context, dir string, c encryption.Configured) (Inspection, error) {
	in := Inspection{Known: len(migrations())}
	var err error
	if in.Holder, err = heldBy(dir); err != nil {
		return in, err
	}
	path := filepath.Join(dir, fileName)
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return in, err
		}
		in.Size += info.Size()
	}
	if in.Size == 0 {
		return in, emptied(path)
	}
	if err := accessible(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return in, err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		in.Damage = []string{err.Error()}
		return in, nil
	}
	defer conn.Close()
	if is := errForeign(""); errors.As(foreign(conn), &is) {
		return in, is
	}
	conn.SetInterrupt(ctx.Done())
	err = query(conn, "PRAGMA quick_check(10)", func(s *sqlite.Stmt) error {
		if text := s.ColumnText(0); text != "ok" {
			in.Damage = append(in.Damage, text)
		}
		return nil
	})
	if err == nil {
		_, err = one(conn, "SELECT max(number) FROM schema_migrations", func(s *sqlite.Stmt) error {
			in.Schema = s.ColumnInt(0)
			return nil
		})
	}
	if err == nil && in.Schema >= 3 { // else there is no table meta
		var known string
		if known, err = keyNote(conn); err == nil {
			var changes string
			changes, in.Locked = seal.Fits(ctx, c, known, keyTable{conn: conn})
			in.Begins = known == "" && changes != ""
		}
	}
	switch {
	case ctx.Err() != nil:
		return in, fmt.Errorf("check the database in %s: %w", dir, context.Cause(ctx))
	case err != nil:
		in.Damage = append(in.Damage, err.Error())
	}
	return in, nil
}

// heldBy returns who holds the lock of a data folder; "" if no process does. A shared lock for the
// test leaves other inspections undisturbed.
func heldBy(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = flock.Try(f, true)
	if errors.Is(err, flock.ErrLocked) {
		held, _ := io.ReadAll(io.LimitReader(f, 200))
		return holder(strings.TrimSpace(string(held))), nil
	}
	return "", err
}

// accessible returns why a file cannot be read: SQLite says only that it cannot open it.
func accessible(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%w, not a database: move it away and restore a backup (understudy restore), or name another data folder with --data",
			&fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR})
	}
	return nil
}

// emptied returns an error for an empty file where a database was.
func emptied(path string) error {
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // there is no database, which is created
	}
	if !existed(path) {
		return nil // a first start that did not get far
	}
	return fmt.Errorf("%s is empty, and was not: restore a backup (understudy restore), or delete it and %s to begin anew", path, reserveName)
}

// foreign returns an error for a database of another program, which may be imported.
func foreign(conn *sqlite.Conn) error {
	var names []string
	err := query(conn, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name", func(s *sqlite.Stmt) error {
		names = append(names, s.ColumnText(0))
		return nil
	})
	has := func(name string) bool { return slices.Contains(names, name) }
	switch {
	case err != nil:
		return err
	case has("assistant") && has("thread") && has("run"):
		return errForeign("one of LangGraph Server, and is not written to: name another folder with --data, and bring its threads over with understudy import")
	case len(names) > 0 && !has("schema_migrations"):
		return errForeign(fmt.Sprintf("of another program (its tables are %s), and is not written to: name another folder with --data; understudy import brings over threads in "+
			"files of LangGraph's SqliteSaver", strings.Join(names[:min(len(names), 5)], ", ")))
	}
	return nil
}

// errForeign is the error of foreign.
type errForeign string

func (e errForeign) Error() string { return "the database is " + string(e) }

// missing reports whether there is no database where there was one: it was deleted, or a volume is not mounted.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) && existed(path)
}

// existed reports whether a database was at path: a server makes the reserve when there is one.
func existed(path string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(path), reserveName))
	return err == nil
}

// refuseUnusable returns an error for what must not be written to: a database of another program, which may be imported, and an empty file in the place of a database.
// It runs before the file is opened for writing, because opening may already change it.
func refuseUnusable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // a missing file is created; opening reports other errors
	}
	if err := accessible(path); err != nil {
		return err
	}
	if info.Size() == 0 {
		return emptied(path)
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return classify(err)
	}
	defer conn.Close()
	return foreign(conn)
}
