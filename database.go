package understudy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/compat"
	"understudy/eventstore"
	"understudy/eventstore/mirror"
	"understudy/id"
	"understudy/internal/config"
	"understudy/proxy/record"
	"understudy/run"
	"understudy/storage/postgres"
	"understudy/storage/sqlite"
	"understudy/store"
	"understudy/thread"
	"understudy/transfer"
)

// database is what everything is kept in: a folder, or Postgres.
type database interface {
	Assistants() assistant.Store
	Threads() thread.Store
	Runs() run.Store
	Items() store.Backend
	Transfer() transfer.Target
	Upstream() record.Store

	eventstore.Archive
	eventstore.Reader
	thread.LogStore
	mirror.Store

	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
	Close() error
}

var (
	_ database = (*sqlite.Store)(nil)
	_ database = (*postgres.Store)(nil)
)

// place is where in the storage that the settings name something is kept.
type place struct {
	dir    string // of a folder
	schema string // of a Postgres database; "" is the one that its address says
}

// openDatabase opens what the settings name. changed is told of threads whose log changed; nil: nobody is.
func openDatabase(ctx context.Context, cfg *Settings, log *slog.Logger, registry prometheus.Registerer, now func() time.Time, changed func([]id.Thread)) (database, error) {
	return openPlace(ctx, cfg, place{dir: cfg.Data}, log, registry, now, changed)
}

func openPlace(ctx context.Context, cfg *Settings, at place, log *slog.Logger, registry prometheus.Registerer, now func() time.Time, changed func([]id.Thread)) (database, error) {
	if cfg.DatabaseURL == "" {
		rows, err := sqlite.Open(ctx, sqlite.Options{Dir: at.dir, Synchronous: string(cfg.Synchronous), SearchTimeout: cfg.SearchTimeout, Changed: changed, Logger: log, Registry: registry})
		if err != nil {
			return nil, err
		}
		return rows, nil
	}
	if changed != nil {
		return nil, errors.New("history.jsonl follows the data folder of one server, and cannot follow a Postgres database: leave one of the two out")
	}
	// A program may have made settings that nobody has validated: what the driver says of an address can have a part of a password in it.
	if err := config.CheckPostgres(cfg.DatabaseURL); err != nil {
		return nil, fmt.Errorf("database-url: %w", err)
	}
	rows, err := postgres.Open(ctx, postgres.Options{
		URL: cfg.DatabaseURL, Schema: at.schema, Connections: cfg.DatabaseConnections, StatementTimeout: cfg.DatabaseTimeout, Synchronous: string(cfg.Synchronous), SearchTimeout: cfg.SearchTimeout, Logger: log, Registry: registry,
		Now:         now,
		IdleTimeout: cfg.Lease / 2, // a server that stands still lets go of its threads before its runs are taken over
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// liveBridge is a bridge that works while Run does.
type liveBridge interface {
	bridge.Bridge
	Run(ctx context.Context) error
}

// streamLimits are the options that all live streams have in common.
func streamLimits(cfg *Settings, log *slog.Logger, registry prometheus.Registerer) bridge.Options {
	limits := bridge.Options{Records: cfg.StreamRecords, Bytes: int64(cfg.StreamBytes), TTL: cfg.ResumableTTL, Metrics: bridge.NewMetrics(registry), Log: log}
	if cfg.DatabaseURL == "" && cfg.Data != sqlite.InMemory {
		limits.Dir = cfg.Data
	}
	return limits
}

// openBridge makes what carries live streams.
func openBridge(cfg *Settings, limits bridge.Options, log *slog.Logger, registry prometheus.Registerer) (liveBridge, error) {
	if cfg.RedisURL == "" && cfg.DatabaseURL != "" && (cfg.Mode == config.Worker || cfg.Runs() == 0) {
		log.Warn("without Redis (--redis-url) streams show only the ends of runs that another server executes, and of stateless runs nothing")
	}
	if cfg.RedisURL != "" && cfg.DatabaseURL == "" {
		log.Info("Redis is not used: the data folder has one server, whose streams stay in memory")
	}
	if cfg.RedisURL == "" || cfg.DatabaseURL == "" {
		return bridge.NewMemory(limits), nil
	}
	trusted, err := trustedBy(cfg.RedisCA)
	if err != nil {
		return nil, err
	}
	if err := config.CheckRedis(cfg.RedisURL); err != nil {
		return nil, fmt.Errorf("redis-url: %w", err)
	}
	b, err := redis.New(redis.Options{
		Options: limits, URL: cfg.RedisURL, TLS: trusted, Prefix: cfg.RedisPrefix, Log: log, Registry: registry, Frame: func(event string, data []byte) []byte { return compat.AppendFrame(nil, event, data) },
	})
	if err != nil {
		return nil, err
	}
	// One that refuses us will go on doing so. One that is away comes back, and until then all else works.
	if err := askRedis(context.Background(), cfg); errors.Is(err, errRedisRefuses) {
		return nil, errors.Join(err, b.Close())
	} else if err != nil {
		log.Error("Redis does not answer: until it does, streams answer 503, and runs go on without them; check --redis-url / REDIS_URI", "redis", cfg.RedisPlace(), "error", err)
	}
	return b, nil
}

// errRedisRefuses: the configuration is wrong, and waiting does not mend it.
var errRedisRefuses = errors.New("check --redis-url / REDIS_URI")

// redisClient makes a client for a few questions.
func redisClient(cfg *Settings) (*goredis.Client, error) {
	o, err := goredis.ParseURL(cfg.RedisURL)
	if err != nil {
		return nil, config.CheckRedis(cfg.RedisURL) // the driver's words may hold the password
	}
	trusted, err := trustedBy(cfg.RedisCA)
	if err != nil {
		return nil, err
	}
	if trusted != nil {
		o.TLSConfig = trusted
	}
	o.PoolSize, o.MaxRetries, o.DialerRetries = 1, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second, 2*time.Second
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// askRedis asks whether Redis lets us in and run scripts on our keys. errRedisRefuses: it never will.
func askRedis(ctx context.Context, cfg *Settings) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := redisClient(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	// No more than the streams need: their user may have no right to anything else.
	script := goredis.NewScript("return redis.call('HGETALL', KEYS[1])")
	// Two keys of different slots: a cluster refuses them.
	keys := []string{cfg.RedisPrefix + ":{start}:m", cfg.RedisPrefix + ":{end}:m"}
	if err = script.Load(ctx, client).Err(); err == nil {
		err = script.EvalSha(ctx, client, keys).Err()
	}
	return explainRedis(err, cfg)
}

// explainRedis tells what is a mistake of the configuration from what passes.
func explainRedis(err error, cfg *Settings) error {
	var (
		what     string
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		plain    tls.RecordHeaderError
	)
	switch {
	case err == nil:
		return nil
	case goredis.IsAuthError(err):
		what = "does not take the user and password, or wants one"
	case isCluster(err):
		what = "is a cluster, and streams need one Redis: its readers wait for all streams in one command. Name a Redis without cluster mode, with replicas and failover if you like"
	case goredis.IsPermissionError(err):
		what = "does not allow the user what streams need on keys that begin with --redis-prefix (docs/bridge.md has an ACL)"
	case strings.Contains(err.Error(), "DB index is out of range"), strings.Contains(err.Error(), "invalid DB index"), strings.Contains(err.Error(), "SELECT is not allowed"):
		what = "does not have the database whose number stands behind the host"
	case errors.As(err, &unknown), errors.As(err, &hostname):
		what = "has a certificate that is not trusted or not for this host (--redis-ca names a file with those that vouch for it)"
	case errors.As(err, &plain):
		what = "does not speak TLS there: write redis:// for rediss://, or its port for TLS"
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !strings.HasPrefix(cfg.RedisURL, "rediss:"):
		return fmt.Errorf("it ended the connection, as one that wants TLS does (then write rediss://): %w", err)
	case errors.Is(err, context.DeadlineExceeded) && strings.HasPrefix(cfg.RedisURL, "rediss:"):
		return fmt.Errorf("no answer in time, as from one that does not speak TLS (then write redis://): %w", err)
	default:
		return err
	}
	return fmt.Errorf("redis on %s %s: %w: %w", cfg.RedisPlace(), what, errRedisRefuses, err)
}

// isCluster reports whether an answer is one that only a node of a Redis Cluster gives.
func isCluster(err error) bool {
	return goredis.HasErrorPrefix(err, "CROSSSLOT") || goredis.HasErrorPrefix(err, "MOVED") || goredis.HasErrorPrefix(err, "ASK") ||
		goredis.HasErrorPrefix(err, "CLUSTERDOWN")
}

// trustedBy is TLS with those whom the certificates of a file vouch for; nil when there is no file.
func trustedBy(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("redis-ca: %w", err)
	}
	known := x509.NewCertPool()
	if !known.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("redis-ca: %s has no certificate in PEM", file)
	}
	return &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS12}, nil
}
