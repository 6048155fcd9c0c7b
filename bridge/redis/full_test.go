//go:build unix

package redis_test

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
	"understudy/internal/redistest"
)

// A Redis that answers and takes nothing, for it is full or a replica, is as good as away: on the instance that publishes, and on one that only reads,
// streams end so that their readers come again, none begin, the gauge says so, and the log says once what helps. All of it recovers when Redis takes records again.
func TestRedisThatTakesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spoil, mend []any }{
		"full":      {[]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		"a replica": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--maxmemory-policy", "noeviction")
			client := server.Client()
			type instance struct {
				*redis.Bridge
				log *logtest.Buffer
				up  func() float64
				sub bridge.Subscription
			}
			var all []*instance
			for range 2 {
				registry, log := prometheus.NewRegistry(), &logtest.Buffer{}
				in := &instance{log: log, up: func() float64 { return metricstest.Value(t, registry, "understudy_redis_up") }}
				in.Bridge = open(t, redis.Options{URL: server.URL, Outage: 300 * time.Millisecond, Registry: registry, Log: slog.New(slog.NewTextHandler(log, nil))})
				in.sub = subscribe(t, in, nil)
				all = append(all, in)
			}
			first := kept("first")
			publish(t, all[0], first)
			for _, in := range all {
				require.Equal(t, []string{"first"}, events(t, in.sub, 1))
				require.Eventually(t, func() bool { return in.up() == 1 }, time.Minute, 5*time.Millisecond)
			}

			require.NoError(t, client.Do(t.Context(), c.spoil...).Err())
			publish(t, all[0], kept("second"))
			for _, in := range all {
				require.Empty(t, interrupted(t, in.sub))
				require.Zero(t, in.up())
				_, err := in.Subscribe(t.Context(), thread, &first.Offset)
				require.ErrorIs(t, err, bridge.ErrInterrupted)
				require.Equal(t, 1, strings.Count(in.log.String(), "redis accepts no records"), in.log.String())
				require.Contains(t, in.log.String(), "fix=")
			}

			require.NoError(t, client.Do(t.Context(), c.mend...).Err())
			for _, in := range all {
				require.Eventually(t, func() bool { return in.up() == 1 }, time.Minute, 5*time.Millisecond)
				require.Equal(t, []string{"second"}, events(t, subscribe(t, in, &first.Offset), 1))
				require.Contains(t, in.log.String(), "redis accepts records again")
			}
		})
	}
}

// However Redis fails, on the server that publishes and on one that only reads: of subscriptions that begin one after the other at most one waits, and none
// once Redis counts as away. When it works again everything arrives, once.
func TestOneWaitPerOutage(t *testing.T) {
	t.Parallel()
	const outage = 3 * time.Second
	command := func(words ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			require.NoError(t, s.Client().Do(t.Context(), words...).Err())
		}
	}
	send := func(sig syscall.Signal) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) { require.NoError(t, syscall.Kill(s.Pid(), sig)) }
	}
	for name, c := range map[string]struct {
		spoil, mend func(*testing.T, *redistest.Server)
	}{
		"hangs":     {send(syscall.SIGSTOP), send(syscall.SIGCONT)},
		"is paused": {command("CLIENT", "PAUSE", 15_000, "ALL"), func(*testing.T, *redistest.Server) {}},
		"is full":   {command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0")},
		"is gone":   {func(_ *testing.T, s *redistest.Server) { s.Stop() }, func(_ *testing.T, s *redistest.Server) { s.Restart() }},
	} {
		for _, publishes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, publishes: %t", name, publishes), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, "--maxmemory-policy", "noeviction", "--appendonly", "yes", "--appendfsync", "always")
				log := &logtest.Buffer{}
				away := func() bool { return strings.Contains(log.String(), "redis accepts no records") }
				b := open(t, redis.Options{URL: server.URL, Outage: outage, Log: slog.New(slog.NewTextHandler(log, nil))})
				first := kept("first")
				publish(t, b, first)
				follower := subscribe(t, b, &bridge.Offset{})
				require.Equal(t, []string{"first"}, events(t, follower, 1))

				c.spoil(t, server)
				if publishes {
					publish(t, b, kept("second"))
				}
				waited := 0
				try := func() {
					began := time.Now()
					sub, err := b.Subscribe(t.Context(), thread, nil)
					if took := time.Since(began); took > 2*outage/3 {
						waited++
						require.Less(t, took, outage+outage/3)
					}
					if err == nil {
						sub.Close()
					} else {
						require.ErrorIs(t, err, bridge.ErrInterrupted)
					}
				}
				for down := time.NewTicker(5 * time.Millisecond); !away(); <-down.C {
					try()
				}
				require.LessOrEqual(t, waited, 1)
				began := time.Now()
				for range 20 {
					_, err := b.Subscribe(t.Context(), thread, nil)
					require.ErrorIs(t, err, bridge.ErrInterrupted)
				}
				require.Less(t, time.Since(began), outage, "it is known to be away")
				require.Empty(t, interrupted(t, follower))

				c.mend(t, server)
				again := subscribe(t, b, &first.Offset)
				if publishes {
					require.Equal(t, []string{"second"}, events(t, again, 1))
				}
				publish(t, b, kept("third"))
				require.Equal(t, []string{"third"}, events(t, again, 1))
			})
		}
	}
}

// A Redis that hangs is as one that is away.
func TestHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Outage: 100 * time.Millisecond})
	s := subscribe(t, b, nil)
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, s, 1))
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGSTOP))
	publish(t, b, kept("2")) // does not wait
	_, err := b.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGCONT))
	require.Equal(t, []string{"2"}, events(t, s, 1))
}

// Readers of a hanging Redis are interrupted once the blocking read should have ended and Outage has passed.
func TestHangsForLong(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, redis.Options{URL: server.URL, Outage: 2 * time.Second})
	s := subscribe(t, b, nil)
	waits(t, server)
	began := time.Now()
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGSTOP))
	require.Empty(t, interrupted(t, s))
	require.Less(t, time.Since(began), 10*time.Second)
	require.Greater(t, time.Since(began), 2*time.Second)
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGCONT))
	publish(t, b, kept("1"))
	require.Equal(t, []string{"1"}, events(t, subscribe(t, b, &bridge.Offset{}), 1))
}
