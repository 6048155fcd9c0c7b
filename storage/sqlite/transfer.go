package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/scanlimit"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/seal"
	"understudy/transfer"
)

// Transfer returns the store as package transfer uses it.
func (s *Store) Transfer() transfer.Target { return target{threads{s}} }

// target implements transfer.Target.
type target struct{ threads }

var _ transfer.Target = target{}

// Folder is the data folder of a server, or of a proxy's upstream, opened for reading only. A
// server may be running on it.
type Folder struct {
	*transfer.Storage
	store *Store
	path  string
}

// HasDatabase reports whether a data folder has a database, as far as that can be seen.
func HasDatabase(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileName))
	return !errors.Is(err, fs.ErrNotExist)
}

// ErrNoFolder: the path has no database of this program.
var ErrNoFolder = errors.New("no data folder")

// OpenFolder opens the database of a data folder without its lock and without changing it. path
// names the folder or its database file, keys decrypt it. ErrNoFolder for anything else. Call Close after use.
func OpenFolder(ctx context.Context, path string, keys ...[]byte) (*Folder, error) {
	if _, err := seal.NewRing(keys); err != nil {
		return nil, err
	}
	s, path, err := openBeside(ctx, path)
	if err != nil {
		return nil, err
	}
	s.Store = relational.NewStore(database{s}, s.now)
	var notes []string
	if err := s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, relational.CountUnmoved, func(st *sqlite.Stmt) error {
			notes = relational.UnmovedNotes(st.ColumnInt(0), st.ColumnInt(1), st.ColumnInt(2))
			return nil
		})
		return err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.readers.close())
	}
	return &Folder{Storage: transfer.NewStorage("the data folder "+filepath.Dir(path), s.Transfer(), s.Assistants(), notes...), store: s, path: path}, nil
}

// openBeside opens the database of a data folder for reading, also while a server runs on it, and returns its file. The schema is that of this program.
func openBeside(ctx context.Context, path string) (*Store, string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, fileName)
	}
	if filepath.Base(path) != fileName {
		return nil, "", ErrNoFolder
	}
	if _, err := os.Stat(path); err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrNoFolder, err)
	}
	readers, err := openReaders(path, 2)
	if err != nil {
		return nil, "", fmt.Errorf("open %s: %w", path, classify(err))
	}
	s := &Store{
		readers: readers, now: time.Now, log: slog.New(slog.DiscardHandler), metrics: measure.New(nil),
		damage: damage{log: slog.New(slog.DiscardHandler), path: path},
		scans:  scanlimit.New(1, 24*time.Hour), // no client waits behind an import
	}
	known, at := len(migrations()), 0
	err = s.read(ctx, func(c *sqlite.Conn) error {
		_, err := one(c, "SELECT max(number) FROM schema_migrations", func(st *sqlite.Stmt) error {
			at = st.ColumnInt(0)
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		err = fmt.Errorf("%s is no database of understudy: %w", path, err)
	case at > known:
		err = fmt.Errorf("%s was written by a newer version of this program (schema %d; this version knows %d): use that version", path, at, known)
	case at < known:
		err = older{path, at, known}
	}
	if err != nil {
		return nil, "", errors.Join(err, readers.close())
	}
	return s, path, nil
}

// ErrOlder is returned for a data folder that this version has not been started on yet.
var ErrOlder = errors.New("older schema")

type older struct {
	path      string
	at, known int
}

func (o older) Error() string {
	return fmt.Sprintf("%s was written by an older version of this program (schema %d; this version has %d): start this version on it once, then try again", o.path, o.at, o.known)
}

func (older) Is(target error) bool { return target == ErrOlder }

// Close closes the connections.
func (f *Folder) Close() error { return f.store.readers.close() }

// Is reports whether path is the same data folder.
func (f *Folder) Is(path string) bool {
	a, err1 := os.Stat(filepath.Join(path, fileName))
	b, err2 := os.Stat(f.path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
