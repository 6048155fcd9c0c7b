package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"understudy/internal/config"
)

// ErrRedisRefuses: the configuration is wrong, so retrying does not help.
var ErrRedisRefuses = errors.New("check --redis-url / REDIS_URI")

// redisPatience is how long Redis has for all answers to a start or a check.
const redisPatience = 5 * time.Second

// RedisClient makes a client for a few questions.
func RedisClient(cfg *config.Config) (*goredis.Client, error) {
	o, err := goredis.ParseURL(cfg.Streams.RedisURL)
	if err != nil {
		return nil, config.CheckRedis(cfg.Streams.RedisURL) // the driver's words may hold the password
	}
	trusted, err := trustedBy(cfg.Streams.RedisCA)
	if err != nil {
		return nil, err
	}
	if trusted != nil {
		o.TLSConfig = trusted
	}
	o.PoolSize, o.MaxRetries, o.DialerRetries = 1, -1, 1
	// The context is the only limit: on a busy machine a TLS handshake takes seconds, and one that is cut short hides that a certificate is refused.
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisPatience, redisPatience, redisPatience
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// AskRedis asks whether Redis lets us in and run scripts on our keys. ErrRedisRefuses: it never will.
func AskRedis(ctx context.Context, cfg *config.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	client, err := RedisClient(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	// No more than the streams need: their user may have no right to anything else.
	script := goredis.NewScript("return redis.call('HGETALL', KEYS[1])")
	// Two keys of different slots: a cluster refuses them.
	keys := []string{cfg.Streams.RedisPrefix + ":{start}:m", cfg.Streams.RedisPrefix + ":{end}:m"}
	if err = script.Load(ctx, client).Err(); err == nil {
		err = script.EvalSha(ctx, client, keys).Err()
	}
	return explainRedis(err, cfg)
}

// explainRedis distinguishes mistakes of the configuration from temporary failures.
func explainRedis(err error, cfg *config.Config) error {
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
		what = "rejects the user or password, or requires one"
	case isCluster(err):
		what = "is a cluster, which streams do not support: one command reads all of them. Use a Redis without cluster mode, with replicas and failover if needed"
	case goredis.IsPermissionError(err):
		what = "denies the user commands that streams need on keys with --redis-prefix (docs/bridge.md has an ACL)"
	case strings.Contains(err.Error(), "DB index is out of range"), strings.Contains(err.Error(), "invalid DB index"), strings.Contains(err.Error(), "SELECT is not allowed"):
		what = "has no database with the number in the URL"
	case errors.As(err, &unknown), errors.As(err, &hostname):
		what = "has a certificate that is not trusted or not for this host (set --redis-ca to its CA certificates)"
	case errors.As(err, &plain):
		what = "does not use TLS on this port: write redis://, or use its TLS port"
	case (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) && !strings.HasPrefix(cfg.Streams.RedisURL, "rediss:"):
		return fmt.Errorf("it closed the connection; if it requires TLS, write rediss://: %w", err)
	case errors.Is(err, context.DeadlineExceeded) && strings.HasPrefix(cfg.Streams.RedisURL, "rediss:"):
		return fmt.Errorf("no response in time; if it does not use TLS, write redis://: %w", err)
	default:
		return err
	}
	return fmt.Errorf("redis on %s %s: %w: %w", cfg.RedisPlace(), what, ErrRedisRefuses, err)
}

// isCluster reports whether an error is one that only a node of a Redis Cluster returns.
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
		return nil, fmt.Errorf("redis-ca: %s contains no PEM certificate", file)
	}
	return &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS12}, nil
}
