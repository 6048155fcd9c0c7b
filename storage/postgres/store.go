package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"understudy/id"
	"understudy/storage/internal/measure"
)

// Options says how a database is opened. The zero value of every field but URL works.
type Options struct {
	// URL is the address: postgres://user:password@host:5432/database, or the words of libpq. pool_max_conns, statement_timeout and the like
	// are taken from it, and what it does not say from here.
	URL string
	// Connections is how many are open at most: 16. Each instance needs one more to listen.
	Connections int
	// StatementTimeout ends statements that take longer: 30 s.
	StatementTimeout time.Duration
	// IdleTimeout is how long a transaction may wait for us before Postgres ends it: 10 s. An instance that stands still holds what it has locked for
	// so long; it must be shorter than others wait for it.
	IdleTimeout time.Duration
	// Synchronous is "full" (default: what the database is set to, which mostly means that a write that was answered survives a power cut) or
	// "normal" (its last moments may be lost then; the database stays whole).
	Synchronous string
	// Layout is how a database that does not exist yet keeps lists: "compact" (default: each item once) or "langgraph" (whole with
	// every checkpoint, as LangGraph's savers do). It is decided once; both are read in every database. Where tables of LangGraph's savers are
	// already, it is langgraph.
	Layout string
	// Schema holds the tables, and is made when it is missing; "" is the one that comes first in the search_path.
	Schema string
	// Now is the clock that says what has expired; nil is the machine's.
	Now func() time.Time
	// Changed is told after a commit of threads whose log it changed, or which it deleted. It must not block. nil: nobody is.
	Changed func(threads []id.Thread)
	// Logger takes what nobody can be told otherwise; nil discards it.
	Logger *slog.Logger
	// Registry takes metrics of reads, writes and connections; nil: nobody sees them.
	Registry prometheus.Registerer
}

// Store is an open database. It is safe for concurrent use. Its methods are those that need no transaction; the stores of the domain
// packages are given by Assistants, Threads, Runs and Items.
type Store struct {
	log     *slog.Logger
	metrics *measure.Metrics
	pool    *pgxpool.Pool
	lists   *lists
	now     func() time.Time
	changed func([]id.Thread)

	mu    sync.Mutex                // guards known
	known map[id.Assistant]*stamped // assistants, as they were last seen
}

// connectTime is how long a connection may take to be made, when the address does not say.
const connectTime = 5 * time.Second

// Open connects to a database and brings its schema up to date. A database of LangGraph Server is refused. Close the store.
func Open(ctx context.Context, opts Options) (*Store, error) {
	config, err := configure(&opts)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	fail := func(err error) error {
		c := config.ConnConfig
		return fmt.Errorf("open database %s on %s:%d: %w", c.Database, c.Host, c.Port, classify(ended(ctx, err)))
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fail(err)
	}
	var layout string
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) (err error) {
		layout, err = prepare(ctx, conn.Conn(), migrations(), opts)
		return err
	}); err != nil {
		pool.Close()
		return nil, fail(err)
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(newPoolMetrics(pool))
	}
	return newStore(opts, pool, layout), nil
}

func newStore(opts Options, pool *pgxpool.Pool, layout string) *Store {
	return &Store{
		metrics: measure.New(opts.Registry), log: opts.Logger, pool: pool, lists: newLists(layout == layoutLangGraph), now: opts.Now, changed: opts.Changed,
	}
}

// configure checks options, fills in what they leave open, and says how to connect.
func configure(opts *Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		// The driver's words repeat the address without its password.
		return nil, fmt.Errorf("the address cannot be read: %w; it looks like postgres://user:password@host:5432/database", err)
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
	// A context that ends ends the query, not the connection: those are dear.
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 2 * time.Second}
	}
	return config, nil
}

// Close waits for reads and writes that have begun. It may be called more than once.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return classify(ended(ctx, s.pool.Ping(ctx))) }
