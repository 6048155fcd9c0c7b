package understudy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

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
func openDatabase(ctx context.Context, cfg *Settings, log *slog.Logger, registry prometheus.Registerer, changed func([]id.Thread)) (database, error) {
	return openPlace(ctx, cfg, place{dir: cfg.Data}, log, registry, changed)
}

func openPlace(ctx context.Context, cfg *Settings, at place, log *slog.Logger, registry prometheus.Registerer, changed func([]id.Thread)) (database, error) {
	if cfg.DatabaseURL == "" {
		rows, err := sqlite.Open(ctx, sqlite.Options{Dir: at.dir, Synchronous: string(cfg.Synchronous), Changed: changed, Logger: log, Registry: registry})
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
		URL: cfg.DatabaseURL, Schema: at.schema, Connections: cfg.DatabaseConnections, StatementTimeout: cfg.DatabaseTimeout, Synchronous: string(cfg.Synchronous), Logger: log, Registry: registry,
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

// openBridge makes what carries live streams.
func openBridge(cfg *Settings, log *slog.Logger, registry prometheus.Registerer) (liveBridge, error) {
	limits := bridge.Options{Records: cfg.StreamRecords, Bytes: int64(cfg.StreamBytes), TTL: cfg.ResumableTTL, Metrics: bridge.NewMetrics(registry)}
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
	b, err := redis.New(redis.Options{
		Options: limits, URL: cfg.RedisURL, TLS: trusted, Prefix: cfg.RedisPrefix, Log: log, Registry: registry, Frame: func(event string, data []byte) []byte { return compat.AppendFrame(nil, event, data) },
	})
	if err != nil {
		return nil, err
	}
	return b, nil
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
