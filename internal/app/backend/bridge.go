package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/compat"
	"understudy/internal/config"
	"understudy/internal/loop"
	"understudy/storage/sqlite"
)

// Bridge is a bridge.Bridge that works while Run does.
type Bridge interface {
	bridge.Bridge
	Run(ctx context.Context) error
}

// StreamLimits are the options that all live streams have in common.
func StreamLimits(cfg *config.Config, log *slog.Logger, registry prometheus.Registerer) bridge.Options {
	limits := bridge.Options{Records: cfg.Streams.Records, Bytes: int64(cfg.Streams.Bytes), Total: int64(cfg.Streams.Memory), TTL: cfg.Streams.ResumableTTL, Metrics: bridge.NewMetrics(registry), Log: log}
	if cfg.Storage.DatabaseURL == "" && cfg.Storage.Data != sqlite.InMemory {
		limits.Dir = cfg.Storage.Data
	}
	return limits
}

// OpenBridge makes what carries live streams.
func OpenBridge(cfg *config.Config, limits bridge.Options, log *slog.Logger, registry prometheus.Registerer) (Bridge, error) {
	if cfg.Streams.RedisURL == "" && cfg.Storage.DatabaseURL != "" && (cfg.Mode == config.Worker || cfg.Runs() == 0) {
		log.Warn("without Redis, streams show only the ends of runs on other servers, and nothing of stateless runs; set --redis-url")
	}
	if cfg.Streams.RedisURL != "" && cfg.Storage.DatabaseURL == "" {
		// Redis is for several servers, so the address of the database may be missing by mistake.
		log.Warn("Redis is not used, and neither is Postgres: without the address of a database this server keeps everything in its data folder, for itself",
			"data", cfg.Storage.Data, "fix", "set --database-url / UNDERSTUDY_DATABASE_URL, or remove "+cfg.Where("redis-url"))
	}
	if cfg.Streams.RedisURL == "" || cfg.Storage.DatabaseURL == "" {
		return bridge.NewMemory(limits), nil
	}
	trusted, err := trustedBy(cfg.Streams.RedisCA)
	if err != nil {
		return nil, err
	}
	if err := config.CheckRedis(cfg.Streams.RedisURL); err != nil {
		return nil, fmt.Errorf("redis-url: %w", err)
	}
	b, err := redis.New(redis.Options{
		Options: limits, URL: cfg.Streams.RedisURL, TLS: trusted, Prefix: cfg.Streams.RedisPrefix, Log: log, Registry: registry, Frame: func(event string, data []byte) []byte { return compat.AppendFrame(nil, event, data) },
	})
	if err != nil {
		return nil, err
	}
	// One that refuses us will keep doing so. One that is away comes back, and until then all else works.
	if err := waitForRedis(cfg, log, func() error { return AskRedis(context.Background(), cfg) }); errors.Is(err, ErrRedisRefuses) {
		return nil, errors.Join(err, b.Close())
	} else if err != nil {
		log.Error("Redis does not respond; streams return 503 until it does, runs continue; check --redis-url / REDIS_URI", "redis", cfg.RedisPlace(), "error", err)
	}
	return b, nil
}

// waitForRedis asks Redis, and logs from quietFor on that it does not answer.
func waitForRedis(cfg *config.Config, log *slog.Logger, ask func() error) error {
	defer loop.Repeat(quietFor, quietFor, func() {
		log.Info("Redis does not answer yet; the start waits for it, and continues without it", "redis", cfg.RedisPlace(), "at_most", RedisPatience.String())
	})()
	return ask()
}
