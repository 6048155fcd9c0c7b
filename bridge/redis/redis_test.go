package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/bridge"
	"understudy/bridge/bridgetest"
	"understudy/bridge/redis"
	"understudy/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dialing) }

var worlds atomic.Int64

// open starts an instance, and ends it with the test.
func open(t testing.TB, opts redis.Options) *redis.Bridge {
	t.Helper()
	b, err := redis.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		_ = b.Close()
	})
	return b
}

// prefix returns a test keys of its own.
func prefix() string { return fmt.Sprint("w", worlds.Add(1)) }

func TestBridge(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	bridgetest.Run(t, func(t *testing.T, opts bridge.Options) bridge.Bridge {
		return open(t, redis.Options{Options: opts, URL: server.URL, Prefix: prefix()})
	})
	require.NotEqual(t, strconv.Itoa(0), server.Info("total_commands_processed"))
}

func TestInstances(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	bridgetest.RunInstances(t, func(*testing.T) func(*testing.T, bridge.Options) bridge.Bridge {
		world := prefix()
		return func(t *testing.T, opts bridge.Options) bridge.Bridge {
			return open(t, redis.Options{Options: opts, URL: server.URL, Prefix: world})
		}
	})
}

// xadd is an entry that no bridge wrote.
func xadd(stream string) *goredis.XAddArgs {
	return &goredis.XAddArgs{Stream: stream, ID: "9999999999999-0", Values: []any{"what", "ever"}}
}
