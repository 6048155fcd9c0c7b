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
	"understudy/internal/encryption"
	"understudy/internal/loop"
	"understudy/internal/scanlimit"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/thread/changes"
)

// copiesAtOnce bounds the copies of threads: each has its own connection and snapshot.
const copiesAtOnce = 2

// fileName is the database file in the data folder.
const fileName = "understudy.db"

// InMemory as the data folder keeps everything in memory until the store is closed, or in a
// temporary folder on a machine without /dev/shm.
const InMemory = ":memory:"

// Options configures a database. The zero value of every field except Dir works.
type Options struct {
	// Dir is the data folder. It is created and made accessible to its owner only.
	Dir string
	// Synchronous is "full" (default) or "normal". With full an acknowledged write survives a power
	// failure. With normal it survives a crash of the process; a power failure may lose the last
	// ones and leaves the database consistent.
	Synchronous string
	// Layout is how a new database stores lists: "compact" (default: each item once) or "langgraph"
	// (whole with every checkpoint, as LangGraph's savers do). An existing database keeps its
	// layout; both are readable in every database.
	Layout string
	// Keys encrypt the content of the database, if there are any: the first one what is written, all what is read. They have 16, 24 or 32
	// bytes. A database that was ever opened with keys does not open without the one that it was last opened with.
	Keys [][]byte
	// Unindexed are keys of threads' metadata that are kept out of the index, whose text is not encrypted. Searches for them read all threads.
	Unindexed []string
	// Handlers encrypt the keys that encrypt the content; nil: Keys encrypt it. The store closes them, also when Open fails.
	Handlers encryption.Handlers
	// Readers is the number of reading connections; 0 means 8. Scans use at most half of them.
	Readers int
	// SearchTimeout bounds a scan; 0 means 10 s.
	SearchTimeout time.Duration
	// Now is the clock for expiry; nil means time.Now.
	Now func() time.Time
	// Changed is called after a commit with the threads whose log it changed, or which it deleted.
	// It must not block. May be nil.
	Changed func(threads []id.Thread)
	// Touched is called after a commit with the threads and runs whose rows it created, changed or
	// deleted. It must not block. May be nil.
	Touched func([]changes.Change)
	// Logger gets what no caller can receive as an error; nil discards it.
	Logger *slog.Logger
	// Registry gets metrics of reads and writes; nil: no metrics.
	Registry prometheus.Registerer

	encrypting bool // Encrypt opens it, which needs no advice to run it
}

// Store is an open database, safe for concurrent use. Its own methods need no transaction;
// Assistants, Threads, Runs, Items and Upstream return the stores of the services.
type Store struct {
	relational.Store
	log     *slog.Logger
	metrics *measure.Metrics
	lock    *os.File
	readers *readers
	writer  *writer
	nearest *nearest
	folder  *folder
	scans   *scanlimit.Limits
	disk    *disk
	unwatch func() // ends the look at files on which nothing is written
	damage  damage

	now func() time.Time

	path   string        // of the database
	copies chan struct{} // a slot for each running copy of a thread
	// copyRows is the number of rows per transaction of a copy; tests lower it.
	copyRows int
	// longThread is the number of checkpoints from which on deleting those of a run is planned;
	// tests lower it.
	longThread int

	remove string // folder to remove on Close; "" none

	closing  sync.Once
	closeErr error
}

// Open locks the data folder, opens its database and migrates the schema. If another server holds
// the folder, the error names the process. Call Close after use.
func Open(ctx context.Context, opts Options) (_ *Store, err error) {
	if opts.Handlers != nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, opts.Handlers.Close())
			}
		}()
	}
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
		// SQLite's own in-memory databases have no log, so readers and the writer would block each
		// other. A database in a folder in memory has one.
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
	err = s.open(ctx, opts)
	for n := 0; isFull(err) && n < 16 && lend(opts.Dir); n++ {
		err = s.open(ctx, opts)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database in %s: %w", opts.Dir, err), lock.Close())
	}
	measure.Writable(opts.Registry, func() bool { return errors.Join(s.damage.refuses(), s.disk.refuses(false)) != nil })
	return s, nil
}

// open opens the parts in the order of their dependencies; the writer, which accepts work, comes
// last.
func (s *Store) open(ctx context.Context, opts Options) error {
	path := filepath.Join(opts.Dir, fileName)
	s.damage.log, s.damage.path = s.log, path
	if err := refuseUnusable(path); err != nil {
		return err
	}
	if missing(path) {
		s.log.Warn("the database that was in this folder is missing; a new one is made", "path", path,
			"fix", "if its conversations are wanted, stop the server, delete the new one and restore a backup (understudy restore)")
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
	// The folder belongs to this process alone, so unfinished copies are those that a crash ended.
	if err := newTx(conn, nil).abandonCopies(""); err != nil {
		return errors.Join(classify(err), conn.Close())
	}
	keys, err := useKeys(ctx, conn, opts)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	layout, err := decideLayout(conn, opts.Layout)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.readers, err = openReaders(path, opts.Readers)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.scans = scanlimit.New(opts.Readers/2, opts.SearchTimeout)
	s.path, s.copies, s.copyRows, s.longThread = path, make(chan struct{}, copiesAtOnce), rows.CopyRows, longThread
	if s.folder, err = startFolder(path, opts.Synchronous, s.log); err != nil {
		return errors.Join(err, s.readers.close(), conn.Close())
	}
	if s.disk, err = watchDisk(conn, path, &s.folder.folding, s.remove != "", s.log); err != nil {
		return errors.Join(err, s.folder.close(), s.readers.close(), conn.Close())
	}
	s.nearest = &nearest{log: s.log, limit: vectorMemory()}
	s.writer = (&writer{
		conn: conn, lists: newLists(layout == layoutLangGraph), folder: s.folder, disk: s.disk, vectors: s.nearest, keys: keys, log: s.log,
		changed: opts.Changed, touched: opts.Touched,
	}).start()
	s.Hidden = keys.Hidden()
	keys.Use(keyTable{store: s})
	s.unwatch = loop.Repeat(presence, presence, func() { _ = s.disk.check(1) })
	return nil
}

// Close waits for writes that have begun, refuses those that wait, and unlocks the folder. Further
// calls return the first result.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.unwatch()
		// Readers close first: the last connection to close folds the log, and only the writer may
		// do that.
		err := errors.Join(s.readers.close(), s.folder.close())
		s.closeErr = errors.Join(err, s.writer.close(), s.writer.keys.Close(), s.lock.Close())
		if s.remove != "" {
			s.closeErr = errors.Join(s.closeErr, os.RemoveAll(s.remove))
		}
	})
	return s.closeErr
}

// Ping returns an error if the database cannot be read, its file is missing, or the disk is full.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.read(ctx, func(c *sqlite.Conn) error { return exec(c, "SELECT 1 FROM sqlite_schema LIMIT 1") }); err != nil {
		return err
	}
	if err := s.disk.check(1); err != nil { // not the log: Close may just be removing it
		return err
	}
	if err := s.damage.refuses(); err != nil {
		return err
	}
	return s.disk.refuses(false)
}

// busyTimeout lets a connection wait for the short locks of another one, such as a fold at the end
// of the log.
const busyTimeout = "PRAGMA busy_timeout = 10000"

// connect opens and configures a connection. All tuning of SQLite is here.
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
			"PRAGMA cache_size = -4096",     // 4 MiB
			"PRAGMA wal_autocheckpoint = 0", // see folder
			"PRAGMA journal_size_limit = 67108864",
		)
	} else {
		pragmas = append(pragmas,
			"PRAGMA query_only = ON",
			"PRAGMA cache_size = -512", // pages of the file are mapped: only those in the log are cached
		)
	}
	for _, p := range pragmas {
		if err := sqlitex.ExecuteTransient(conn, p, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p, err), conn.Close())
		}
	}
	return conn, nil
}
