package redis_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/internal/metricstest"
	"understudy/internal/redistest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	measured := func(opts redis.Options) (*redis.Bridge, func(name string, labels ...string) float64) {
		registry := prometheus.NewRegistry()
		opts.URL, opts.Registry, opts.Metrics = server.URL, registry, bridge.NewMetrics(registry)
		return open(t, opts), func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	}
	becomes := func(want float64, value func() float64) {
		t.Helper()
		require.Eventually(t, func() bool { return value() == want }, time.Minute, 5*time.Millisecond)
	}
	a, ofA := measured(redis.Options{QueueBytes: 1000})
	b, ofB := measured(redis.Options{})
	s := subscribe(t, b, nil)
	first := kept("first")
	publish(t, a, first)
	require.Equal(t, []string{"first"}, events(t, s, 1))
	require.Equal(t, 1.0, ofB("understudy_stream_lag_seconds"))
	becomes(1, func() float64 { return ofB("understudy_redis_up") })
	require.Positive(t, ofB("understudy_redis_connections"))

	large := kept("large")
	large.Data = make([]byte, 2000)
	publish(t, a, large)
	require.Empty(t, interrupted(t, s))
	require.Equal(t, 1.0, ofA("understudy_redis_records_dropped_total"))
	require.Equal(t, 1.0, ofB("understudy_redis_stream_gaps_total"))
	require.Equal(t, 1.0, ofB("understudy_subscribers_dropped_total", "reason", "interrupted"))
	require.Equal(t, bridge.RecordGap, subscribe(t, b, &first.Offset).Gap(""))
	require.Zero(t, ofB("understudy_replay_gaps_total", "missing", "records"), "the database may have it")

	c := server.Client()
	require.NoError(t, c.Set(t.Context(), "understudy:{other}:m", "text", 0).Err())
	require.NoError(t, b.Publish(t.Context(), "other", []*bridge.Record{kept("lost"), kept("lost")}))
	becomes(2, func() float64 { return ofB("understudy_redis_records_refused_total") })

	becomes(0, func() float64 { return ofB("understudy_redis_queue_bytes") })
	server.Stop()
	becomes(0, func() float64 { return ofB("understudy_redis_up") })
	publish(t, b, kept("waits"))
	require.Positive(t, ofB("understudy_redis_queue_bytes"))
}
