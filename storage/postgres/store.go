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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"understudy/id"
	"understudy/internal/scan"
	"understudy/storage/internal/measure"
	"understudy/storage/internal/relational"
	"understudy/storage/internal/rows"
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
	// SearchTimeout is how long a search may take that no index answers: 10 s. Such searches have a quarter of the connections at most.
	SearchTimeout time.Duration
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
	relational.Store
	log     *slog.Logger
	metrics *measure.Metrics
	pool    *pgxpool.Pool
	lists   *lists
	now     func() time.Time
	changed func([]id.Thread)
	scans   *scan.Limits
	copies  chan struct{} // one for each copy of a thread that is under way
	// copyRows is how many rows a transaction adds to a copy; tests lower it.
	copyRows int
	// patience is how long an answer is waited for. A host that has vanished says nothing, and TCP notices after a quarter of an hour.
	patience time.Duration

	mu    sync.Mutex                // guards known
	known map[id.Assistant]*stamped // assistants, as they were last seen
}

// copiesAtOnce bounds the copies of threads: each has a connection that reads, and needs another one to write.
const copiesAtOnce = 2

// connectTime is how long a connection may take to be made, when the address does not say.
const connectTime = 5 * time.Second

// grace is how much longer an answer is waited for than Postgres may work on a statement: it is the one to end it, if it is there.
const grace = 5 * time.Second

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
	return newStore(opts, pool, layout), nil
}

func newStore(opts Options, pool *pgxpool.Pool, layout string) *Store {
	s := &Store{
		copyRows: rows.CopyRows, scans: scan.New(int(pool.Config().MaxConns)/4, opts.SearchTimeout),
		copies:  make(chan struct{}, max(1, min(copiesAtOnce, int(pool.Config().MaxConns)/4))),
		metrics: measure.New(opts.Registry), log: opts.Logger, pool: pool, lists: newLists(layout == layoutLangGraph), now: opts.Now, changed: opts.Changed,
		patience: patienceFor(pool.Config().ConnConfig.RuntimeParams["statement_timeout"]),
	}
	s.Store = relational.NewStore(database{s}, opts.Now)
	return s
}

// patienceFor gives our patience where a statement may take so long, in the words of Postgres.
func patienceFor(timeout string) time.Duration {
	const ever = math.MaxInt64 / 2
	number := strings.TrimRight(timeout, " abcdefghijklmnopqrstuvwxyz")
	unit, known := map[string]time.Duration{
		"us": time.Microsecond, "": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}[strings.TrimSpace(timeout[len(number):])]
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !known || n <= 0 || n*float64(unit) >= ever { // 0: no timeout
		return ever
	}
	return time.Duration(n*float64(unit)) + grace
}

// newPool is a pool that tries connections that were idle before it gives them. When one of them is dead, the others will not be better.
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
		return true // this one fails at once, and the pool closes it
	}
	pool, err = pgxpool.NewWithConfig(ctx, config)
	return pool, err
}

// patient bounds how long the database may be silent.
func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.patience)
}

// silent reports whether a connection is dead because nothing was heard on it. The others will not be better. Who asked has waited long enough, so
// it is not done again.
func (s *Store) silent(ctx context.Context, err error) bool {
	var network net.Error
	if ctx.Err() != nil || !errors.As(err, &network) || !network.Timeout() {
		return false
	}
	s.pool.Reset()
	return true
}

// rollback undoes everything, whether or not somebody waits for it.
func (s *Store) rollback(ctx context.Context, conn *pgxpool.Conn) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(commitTime, s.patience))
	defer cancel()
	_, _ = conn.Exec(limited, "ROLLBACK") // a connection on which this fails is closed, which is one too
}

// configure checks options, fills in what they leave open, and says how to connect.
func configure(opts *Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		// The driver's words repeat the address without its password.
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
func (s *Store) Ping(ctx context.Context) error {
	limited, cancel := s.patient(ctx)
	defer cancel()
	return classify(ended(ctx, s.pool.Ping(limited)))
}
