package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"understudy/id"
	"understudy/internal/scan"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
)

// copiesAtOnce bounds the copies of threads: each has a connection of its own.
const copiesAtOnce = 2

// fileName is the database within the data folder.
const fileName = "understudy.db"

// InMemory as the data folder keeps everything in memory (on a machine without /dev/shm: in a temporary folder), until the store is
// closed.
const InMemory = ":memory:"

// Options says how a database is opened. The zero value of every field but Dir works.
type Options struct {
	// Dir is the data folder. It is created, and made accessible to its owner only.
	Dir string
	// Synchronous is "full" (default: a write that was answered survives a power cut) or "normal" (it survives a crash of the
	// process, but a power cut may take the last ones; the database stays whole).
	Synchronous string
	// Layout is how a database that does not exist yet keeps lists: "compact" (default: each item once) or "langgraph" (whole with
	// every checkpoint, as LangGraph's savers do). It is decided once; both are read in every database.
	Layout string
	// Readers is the number of reading connections; 0 means 8. Searches that no index answers have half of them at most.
	Readers int
	// SearchTimeout is how long such a search may take: 10 s.
	SearchTimeout time.Duration
	// Now is the clock that says what has expired; nil is the machine's.
	Now func() time.Time
	// Changed is told after a commit of threads whose log it changed, or which it deleted. It must not block. nil: nobody is.
	Changed func(threads []id.Thread)
	// Logger takes what nobody can be told otherwise; nil discards it.
	Logger *slog.Logger
	// Registry takes metrics of reads and writes; nil: nobody sees them.
	Registry prometheus.Registerer
}

// Store is an open database. It is safe for concurrent use. Its methods are those that need no transaction; the stores of the domain
// packages are given by Assistants, Threads, Runs and Items.
type Store struct {
	relational.Store
	log     *slog.Logger
	metrics *measure.Metrics
	lock    *os.File
	readers *readers
	writer  *writer
	folder  *folder
	scans   *scan.Limits
	disk    *disk

	now func() time.Time

	path   string        // of the database
	copies chan struct{} // one for each copy of a thread that is under way
	// copyRows is how many rows a transaction adds to a copy; tests lower it.
	copyRows int
	// longThread is from how many checkpoints on it is planned what deleting those of a run deletes; tests lower it.
	longThread int

	remove string // folder to remove on Close; "" none

	closing  sync.Once
	closeErr error
}

// Open locks the data folder, opens the database in it and brings its schema up to date. A folder that another server holds is an
// error that names the process. Close the store.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.Dir == "" {
		return nil, errors.New("open database: no data folder given")
	}
	switch opts.Synchronous {
	case "":
		opts.Synchronous = "full"
	case "full", "normal":
	default:
		return nil, fmt.Errorf(`open database: synchronous is %q, must be "full" or "normal"`, opts.Synchronous)
	}
	switch opts.Layout {
	case "":
		opts.Layout = layoutCompact
	case layoutCompact, layoutLangGraph:
	default:
		return nil, fmt.Errorf(`open database: layout is %q, must be "compact" or "langgraph"`, opts.Layout)
	}
	if opts.Readers <= 0 {
		opts.Readers = 8
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	volatile := opts.Dir == InMemory
	if volatile {
		// A folder in memory, and not SQLite's own in-memory databases: those have no log, so that readers and the writer would wait
		// for each other.
		dir, err := memoryDir()
		if err != nil {
			return nil, fmt.Errorf("open database in memory: %w", err)
		}
		opts.Dir, opts.Synchronous = dir, "off"
	} else if err := makeDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	s := &Store{log: opts.Logger, metrics: measure.New(opts.Registry), lock: lock, now: opts.Now}
	s.Store = relational.NewStore(database{s}, opts.Now)
	if volatile {
		s.remove = opts.Dir
	}
	if err := s.open(ctx, opts); err != nil {
		return nil, errors.Join(fmt.Errorf("open database in %s: %w", opts.Dir, err), lock.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, opts Options) error {
	path := filepath.Join(opts.Dir, fileName)
	if err := refuseForeign(path); err != nil {
		return err
	}
	if err := makeFile(path); err != nil {
		return err
	}
	conn, err := connect(path, true, opts.Synchronous)
	if err != nil {
		return classify(err)
	}
	if err := migrate(ctx, conn, migrations(), opts.Logger); err != nil {
		return errors.Join(err, conn.Close())
	}
	// The folder belongs to this process alone: copies that are under way are those that a crash ended.
	if err := newTx(conn, nil).abandonCopies(""); err != nil {
		return errors.Join(classify(err), conn.Close())
	}
	layout, err := decideLayout(conn, opts.Layout)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.readers, err = openReaders(path, opts.Readers)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.scans = scan.New(opts.Readers/2, opts.SearchTimeout)
	s.path, s.copies, s.copyRows, s.longThread = path, make(chan struct{}, copiesAtOnce), rows.CopyRows, longThread
	if s.folder, err = startFolder(path, opts.Synchronous, s.log); err != nil {
		return errors.Join(err, s.readers.close(), conn.Close())
	}
	if s.disk, err = watchDisk(conn, path, &s.folder.folding, s.remove != "", s.log); err != nil {
		return errors.Join(err, s.folder.close(), s.readers.close(), conn.Close())
	}
	s.writer = startWriter(conn, newLists(layout == layoutLangGraph), s.folder, s.disk, s.log, opts.Changed)
	return nil
}

// Close waits for writes that have begun, refuses those that wait, and gives the folder free. It may be called more than once.
func (s *Store) Close() error {
	s.closing.Do(func() {
		// Readers go first: the last connection to close folds the log into the database, and only the writer may.
		err := errors.Join(s.readers.close(), s.folder.close())
		s.closeErr = errors.Join(err, s.writer.close(), s.lock.Close())
		if s.remove != "" {
			s.closeErr = errors.Join(s.closeErr, os.RemoveAll(s.remove))
		}
	})
	return s.closeErr
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.read(ctx, func(c *sqlite.Conn) error { return exec(c, "SELECT 1 FROM sqlite_schema LIMIT 1") }); err != nil {
		return err
	}
	if err := s.disk.check(1); err != nil { // the log goes when the store is closed, perhaps just now
		return err
	}
	return s.disk.refuses(false)
}

const busyTimeout = "PRAGMA busy_timeout = 10000"

// connect opens a connection and sets it up. Everything that tunes SQLite is here.
func connect(path string, writes bool, synchronous string) (*sqlite.Conn, error) {
	flags := sqlite.OpenReadWrite | sqlite.OpenURI
	if writes {
		flags |= sqlite.OpenCreate | sqlite.OpenWAL
	}
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	pragmas := []string{
		busyTimeout,
		"PRAGMA foreign_keys = ON",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA mmap_size = 1073741824",
	}
	if writes {
		pragmas = append(pragmas,
			"PRAGMA synchronous = "+synchronous,
			"PRAGMA cache_size = -65536",    // 64 MiB
			"PRAGMA wal_autocheckpoint = 0", // see folder
			"PRAGMA journal_size_limit = 67108864",
		)
	} else {
		pragmas = append(pragmas,
			"PRAGMA query_only = ON",
			"PRAGMA cache_size = -8192",
		)
	}
	for _, p := range pragmas {
		if err := sqlitex.ExecuteTransient(conn, p, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p, err), conn.Close())
		}
	}
	return conn, nil
}
