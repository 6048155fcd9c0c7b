package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/scanlimit"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
	"understudy/storage/internal/seal"
	"understudy/thread/changes"
)

// Options configures a database. The zero value of every field except URL works.
type Options struct {
	// URL is the address: postgres://user:password@host:5432/database, or libpq's key=value form.
	// pool_max_conns, statement_timeout and similar parameters in it override the fields below.
	URL string
	// Connections is the maximum number of open connections; 0 means 16. Each server needs one more
	// to listen.
	Connections int
	// StatementTimeout ends longer statements; 0 means 30 s.
	StatementTimeout time.Duration
	// SearchTimeout bounds a search that no index answers; 0 means 10 s. Such searches use at most
	// a quarter of the connections.
	SearchTimeout time.Duration
	// IdleTimeout is how long a transaction may idle before Postgres ends it; 0 means 10 s. A
	// stalled server holds its locks for so long, so it must be shorter than others wait for them.
	IdleTimeout time.Duration
	// Synchronous is "full" (default: the setting of the database, by which an acknowledged write
	// normally survives a power failure) or "normal" (a crash may lose the last writes; the
	// database stays consistent).
	Synchronous string
	// Layout is how a new database stores lists: "compact" (default: each item once) or "langgraph"
	// (whole with every checkpoint, as LangGraph's savers do). An existing database keeps its
	// layout, and one with tables of LangGraph's savers gets langgraph; both are readable in every
	// database.
	Layout string
	// Keys encrypt the content of the database, if there are any: the first one what is written, all what is read. They have 16, 24 or 32
	// bytes. A database that was ever opened with keys does not open without the one that it was last opened with.
	Keys [][]byte
	// Unindexed are keys of threads' metadata that are kept out of the index, whose text is not encrypted. Searches for them read all threads.
	Unindexed []string
	// Handlers encrypt the keys that encrypt the content; nil: Keys encrypt it. The store closes them, also when Open fails.
	Handlers encryption.Handlers
	// Schema holds the tables and is created if missing; "" is the first one of the search_path.
	Schema string
	// Now is the clock for expiry; nil means time.Now.
	Now func() time.Time
	// Changed is called after a commit with the threads whose log it changed, or which it deleted.
	// It must not block. May be nil.
	Changed func(threads []id.Thread)
	// Touched is called after a commit with the threads and runs whose rows it created, changed or
	// deleted. It must not block. May be nil.
	Touched func([]changes.Change)
	// Heard is called by Listen with what other servers have touched; nil: anything. It must not
	// block. May be nil.
	Heard func([]changes.Change)
	// Logger gets what no caller can receive as an error; nil discards it.
	Logger *slog.Logger
	// Registry gets metrics of reads, writes and connections; nil: no metrics.
	Registry prometheus.Registerer

	encrypting bool // Encrypt opens it, which needs no advice to run it
}

// Store is an open database, safe for concurrent use. Its own methods need no transaction;
// Assistants, Threads, Runs, Items and Upstream return the stores of the services.
type Store struct {
	relational.Store
	log      *slog.Logger
	metrics  *measure.Metrics
	pool     *pgxpool.Pool
	metaPool *pgxpool.Pool // for the table meta: the connections of pool may all be waiting for a data key
	lists    *lists
	now      func() time.Time
	changed  func([]id.Thread)
	touched  func([]changes.Change)
	heard    func([]changes.Change) // not nil
	self     string                 // identifies this server in notifications of changes
	scans    *scanlimit.Limits
	copies   chan struct{} // a slot for each running copy of a thread
	// copyRows is the number of rows per transaction of a copy; tests lower it.
	copyRows int
	// patience bounds the wait for a response. A host that vanished sends nothing, and TCP notices
	// only after a quarter of an hour.
	patience time.Duration

	vector atomic.Pointer[pgvector] // nil until UseVectors
	keys   *seal.Keyring            // encrypts; nil does not

	refusal  refusal
	lacks    atomic.Bool // content was met whose key is not there, and the log says so
	indexing atomic.Bool // messages are to be indexed

	mu    sync.Mutex                // guards known
	known map[id.Assistant]*stamped // cached assistants
}

// copiesAtOnce bounds the copies of threads: each needs a connection to read and another one to
// write.
const copiesAtOnce = 2

// connectTime bounds connecting, unless the address has connect_timeout.
const connectTime = 5 * time.Second

// grace is how much longer than its statement timeout Postgres is waited for: if it is reachable,
// it ends the statement itself.
const grace = 5 * time.Second

// Open connects to a database and migrates its schema. A database of LangGraph Server is refused.
// Call Close after use.
func Open(ctx context.Context, opts Options) (_ *Store, err error) {
	if opts.Handlers != nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, opts.Handlers.Close())
			}
		}()
	}
	if opts.Heard == nil {
		opts.Heard = func([]changes.Change) {}
	}
	config, err := configure(&opts)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	fail := func(err error) error {
		c := config.ConnConfig
		return fmt.Errorf("open database %s on %s:%d: %w", c.Database, c.Host, c.Port, classify(ended(ctx, err)))
	}
	pool, err := newPool(ctx, config)
	if err != nil {
		return nil, fail(err)
	}
	var layout string
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		if layout, err = prepare(ctx, conn.Conn(), migrations(), opts); err != nil {
			return err
		}
		r, err := room(ctx, conn.Conn())
		if short := r.Short(int(config.MaxConns)); err == nil && short != "" {
			opts.Logger.WarnContext(ctx, short+". Lower --database-connections, or raise max_connections in postgresql.conf.")
		}
		return err
	}); err != nil {
		pool.Close()
		return nil, fail(err)
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(newPoolMetrics(pool))
	}
	s, err := newStore(ctx, opts, pool, layout)
	if err != nil {
		pool.Close()
		return nil, fail(err)
	}
	measure.Writable(opts.Registry, func() bool { return s.refusal.known() })
	if s.keys, err = s.useKeys(ctx, opts); err != nil {
		s.closePools()
		return nil, fail(err)
	}
	s.Hidden = s.keys.Hidden()
	return s, nil
}

// metaConnections bounds the connections for the table meta. They close when they are idle.
const metaConnections = 2

// newStore returns a store on an open pool.
func newStore(ctx context.Context, opts Options, pool *pgxpool.Pool, layout string) (*Store, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns, config.MaxConnIdleTime = metaConnections, 0, 0, time.Minute
	metaPool, err := newPool(ctx, config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		copyRows: rows.CopyRows, scans: scanlimit.New(int(pool.Config().MaxConns)/4, opts.SearchTimeout),
		copies:  make(chan struct{}, max(1, min(copiesAtOnce, int(pool.Config().MaxConns)/4))),
		metrics: measure.New(opts.Registry), log: opts.Logger, pool: pool, metaPool: metaPool, lists: newLists(layout == layoutLangGraph), now: opts.Now,
		changed: opts.Changed, touched: opts.Touched, heard: opts.Heard, self: string(id.NewRun()),
		refusal: refusal{tryRoom: tryRoom, askAgain: askAgain}, patience: patienceFor(pool.Config().ConnConfig.RuntimeParams["statement_timeout"]),
	}
	s.Store = relational.NewStore(database{s}, opts.Now)
	return s, nil
}

func (s *Store) closePools() {
	s.pool.Close()
	s.metaPool.Close()
}

// patienceFor returns the patience for a statement_timeout as Postgres prints it.
func patienceFor(timeout string) time.Duration {
	if d, limited := timeoutOf(timeout); limited {
		return d + grace
	}
	return ever
}

// ever is the patience without a limit; adding to it does not overflow.
const ever = math.MaxInt64 / 2

// timeoutOf reads a statement_timeout; limited is false if it does not end statements, or is no time.
func timeoutOf(timeout string) (d time.Duration, limited bool) {
	number := strings.TrimRight(timeout, " abcdefghijklmnopqrstuvwxyz")
	unit, known := map[string]time.Duration{
		"us": time.Microsecond, "": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}[strings.TrimSpace(timeout[len(number):])]
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !known || n <= 0 || n*float64(unit) >= ever { // 0 means no timeout
		return 0, false
	}
	return time.Duration(n * float64(unit)), true
}

// newPool returns a pool that tests idle connections before use. If one is dead, the others are
// probably dead too, so all are renewed.
func newPool(ctx context.Context, config *pgxpool.Config) (pool *pgxpool.Pool, err error) {
	if config.PingTimeout <= 0 {
		config.PingTimeout = connectTime
	}
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if p.IdleDuration < time.Second {
			return false
		}
		limited, cancel := context.WithTimeout(ctx, config.PingTimeout)
		defer cancel()
		if p.Conn.Ping(limited) == nil {
			return false
		}
		if ctx.Err() == nil {
			pool.Reset()
		}
		return true // it fails at its first use, and the pool closes it
	}
	pool, err = pgxpool.NewWithConfig(ctx, config)
	return pool, err
}

// patient bounds how long the database may be silent.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.patience)
}

// silent reports whether a connection failed because of silence, and renews all. The operation is
// not repeated, because its caller has waited long enough.
func (s *Store) silent(ctx context.Context, err error) bool {
	var network net.Error
	if ctx.Err() != nil || !errors.As(err, &network) || !network.Timeout() {
		return false
	}
	s.pool.Reset()
	return true
}

// rollback ends the transaction even if the caller's context has ended.
func (s *Store) rollback(ctx context.Context, conn *pgxpool.Conn) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(commitTime, s.patience))
	defer cancel()
	_, _ = conn.Exec(limited, "ROLLBACK") // a failure closes the connection, which also rolls back
}

// configure checks options, fills in defaults, and returns how to connect.
func configure(opts *Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		// The driver's message repeats the address without its password.
		return nil, fmt.Errorf("the address cannot be parsed: %w; write it as postgres://user:password@host:5432/database", err)
	}
	switch opts.Layout {
	case "", layoutCompact, layoutLangGraph:
	default:
		return nil, fmt.Errorf(`layout is %q, must be "compact" or "langgraph"`, opts.Layout)
	}
	if opts.Connections <= 0 {
		opts.Connections = 16
	}
	if opts.StatementTimeout <= 0 {
		opts.StatementTimeout = 30 * time.Second
	}
	if opts.IdleTimeout <= 0 {
		opts.IdleTimeout = 10 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if asked, err := pgconn.ParseConfig(opts.URL); err != nil || asked.RuntimeParams["pool_max_conns"] == "" {
		config.MaxConns = int32(opts.Connections)
	}
	params := config.ConnConfig.RuntimeParams
	if d, limited := timeoutOf(params["statement_timeout"]); limited && d < time.Second {
		opts.Logger.Warn("statements of the database end very soon", "statement_timeout", params["statement_timeout"], "is", d,
			"fix", "a number without a unit is milliseconds: write statement_timeout=30s in the address")
	}
	set := func(name, value string) {
		if params[name] == "" {
			params[name] = value
		}
	}
	set("application_name", "understudy")
	set("statement_timeout", fmt.Sprint(opts.StatementTimeout.Milliseconds()))
	set("idle_in_transaction_session_timeout", fmt.Sprint(opts.IdleTimeout.Milliseconds()))
	set("lock_timeout", fmt.Sprint(opts.StatementTimeout.Milliseconds()))
	set("timezone", "UTC")
	if opts.Schema != "" {
		params["search_path"] = pgx.Identifier{opts.Schema}.Sanitize()
	}
	switch opts.Synchronous {
	case "", "full":
	case "normal":
		set("synchronous_commit", "off")
	default:
		return nil, fmt.Errorf(`synchronous is %q, must be "full" or "normal"`, opts.Synchronous)
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTime
	}
	// The end of a context cancels the query and keeps the connection, which is expensive to open.
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 2 * time.Second}
	}
	return config, nil
}

// Close waits for reads and writes that have begun. Further calls do nothing.
func (s *Store) Close() error {
	s.closePools()
	return s.keys.Close()
}
