package redis_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
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
				log *text
				up  func() float64
				sub bridge.Subscription
			}
			var all []*instance
			for range 2 {
				registry, log := prometheus.NewRegistry(), &text{}
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

// text is what a logger wrote.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
