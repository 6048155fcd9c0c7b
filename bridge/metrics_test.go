package bridge_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/metricstest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	now := time.UnixMilli(1_000_000)
	metrics := bridge.NewMetrics(registry)
	m := bridge.NewMemory(bridge.Options{Records: 8, LagBytes: 400, Dir: "/nowhere", Now: func() time.Time { return now }, Metrics: metrics})
	value := func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	ctx := t.Context()
	publish := func(n int, kind bridge.Kind) {
		for range n {
			require.NoError(t, m.Publish(ctx, "t", []*bridge.Record{{Run: "r", Kind: kind, Kept: true}}))
		}
	}
	reads, stays, cut := subscribe(t, m), subscribe(t, m), subscribe(t, m)
	publish(1, bridge.Token)
	now = now.Add(2 * time.Second)
	_, err := reads.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, 1.0, value("understudy_stream_lag_seconds"))
	require.Equal(t, []float64{0, 1}, lagWithin(t, registry, 1, 2.5), "it waited for two seconds")

	_, err = cut.Next(ctx)
	require.NoError(t, err)
	m.Interrupt("t", bridge.Offset{MS: 1 << 60})
	require.Equal(t, 3.0, value("understudy_subscribers_dropped_total", "reason", "interrupted"))
	require.Zero(t, value("understudy_subscribers_dropped_total", "reason", "slow"))
	_, err = stays.Next(ctx)
	require.NoError(t, err, "it was there before")
	_, err = stays.Next(ctx)
	require.ErrorIs(t, err, bridge.ErrInterrupted)

	slow := subscribe(t, m)
	publish(6, bridge.Token)
	_, err = slow.Next(ctx)
	require.ErrorIs(t, err, bridge.ErrSlow)
	require.Equal(t, 1.0, value("understudy_subscribers_dropped_total", "reason", "slow"))

	resume := func() {
		s, err := m.Subscribe(ctx, "t", &bridge.Offset{})
		require.NoError(t, err)
		metrics.Replayed(s.Gap(""))
		s.Close()
	}
	resume()
	require.Zero(t, value("understudy_replay_gaps_total"), "all is there yet")
	publish(4, bridge.Data)
	resume()
	require.Equal(t, []float64{1, 0}, []float64{value("understudy_replay_gaps_total", "missing", "tokens"), value("understudy_replay_gaps_total", "missing", "records")})
	publish(12, bridge.Data)
	resume()
	require.Equal(t, []float64{1, 1}, []float64{value("understudy_replay_gaps_total", "missing", "tokens"), value("understudy_replay_gaps_total", "missing", "records")})
}

func subscribe(t *testing.T, m *bridge.Memory) bridge.Subscription {
	t.Helper()
	s, err := m.Subscribe(t.Context(), "t", nil)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// lagWithin returns how many lags were at most so many seconds.
func lagWithin(t *testing.T, g prometheus.Gatherer, bounds ...float64) []float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	var out []float64
	for _, f := range families {
		if f.GetName() != "understudy_stream_lag_seconds" {
			continue
		}
		for _, bound := range bounds {
			for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
				if b.GetUpperBound() == bound {
					out = append(out, float64(b.GetCumulativeCount()))
				}
			}
		}
	}
	return out
}
