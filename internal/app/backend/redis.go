package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"understudy/internal/config"
)

// ErrRedisRefuses: the configuration is wrong, so retrying does not help.
var ErrRedisRefuses = errors.New("check --redis-url / REDIS_URI")

// RedisPatience is how long Redis has for all answers to a start or a check.
const RedisPatience = 5 * time.Second

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
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = RedisPatience, RedisPatience, RedisPatience
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// handshakeTime is how long a TLS handshake may take before the address is asked whether it uses TLS at all: Redis logs an error for what is no handshake.
const handshakeTime = 500 * time.Millisecond

// AskRedis asks whether Redis lets us in and run scripts on our keys. ErrRedisRefuses: it never will.
func AskRedis(ctx context.Context, cfg *config.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, RedisPatience)
	defer cancel()
	client, err := RedisClient(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	if at := client.Options(); at.TLSConfig != nil {
		// Redis without TLS takes the handshake for the beginning of a long command, and answers nothing.
		asked, ended := context.WithCancelCause(ctx)
		probed := make(chan struct{})
		ctx = asked
		go func() {
			defer close(probed)
			late := time.NewTimer(handshakeTime)
			defer late.Stop()
			select {
			case <-asked.Done():
				return
			case <-late.C:
			}
			if answersPlain(asked, at.Addr) {
				ended(errPlain)
			}
		}()
		defer func() { ended(nil); <-probed }()
	}
	// No more than the streams need: their user may have no right to anything else.
	script := goredis.NewScript("return redis.call('HGETALL', KEYS[1])")
	// Two keys of different slots: a cluster refuses them.
	keys := []string{cfg.Streams.RedisPrefix + ":{start}:m", cfg.Streams.RedisPrefix + ":{end}:m"}
	if err = script.Load(ctx, client).Err(); err == nil {
		err = script.EvalSha(ctx, client, keys).Err()
	}
	if err != nil && errors.Is(context.Cause(ctx), errPlain) {
		err = errPlain
	}
	if closedOn(err) && client.Options().Network == "tcp" && client.Options().TLSConfig == nil && answersTLS(ctx, client.Options().Addr) {
		err = errTLS
	}
	return explainRedis(err, cfg)
}

var (
	errPlain = errors.New("it answers a command without TLS")
	errTLS   = errors.New("it answers a TLS handshake")
)

// closedOn reports whether err is the end of a connection that the other side closed.
func closedOn(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// answersPlain reports whether a Redis at an address answers commands without TLS.
func answersPlain(ctx context.Context, address string) bool {
	conn, done, err := probe(ctx, address)
	if err != nil {
		return false
	}
	defer done()
	first := make([]byte, 1)
	if _, err = io.WriteString(conn, "PING\r\n"); err == nil {
		_, err = io.ReadFull(conn, first)
	}
	return err == nil && (first[0] == '+' || first[0] == '-')
}

// answersTLS reports whether what listens at an address uses TLS.
func answersTLS(ctx context.Context, address string) bool {
	conn, done, err := probe(ctx, address)
	if err != nil {
		return false
	}
	defer done()
	//nolint:gosec // nothing is sent on this connection, and nothing read from it is used
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) == nil
}

// probe connects to an address. The connection is closed by done, or when the context ends.
func probe(ctx context.Context, address string) (conn net.Conn, done func(), err error) {
	if conn, err = new(net.Dialer).DialContext(ctx, "tcp", address); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() { stop(); _ = conn.Close() }, nil
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
	case errors.As(err, &plain), errors.Is(err, errPlain):
		what = "does not use TLS on this port: write redis://, or use its TLS port"
	case errors.Is(err, errTLS):
		what = "uses TLS on this port: write rediss://, or use its port without TLS"
	case closedOn(err) && !strings.HasPrefix(cfg.Streams.RedisURL, "rediss:"):
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
