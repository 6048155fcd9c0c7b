package sqlite

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/internal/metricstest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), Registry: registry})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ping(t.Context()))
	require.Equal(t, 1.0, metricstest.Value(t, registry, "understudy_storage_seconds", "op", "read"))
	require.NoError(t, s.write(t.Context(), func(*Tx) error { return nil }))
	require.Equal(t, 1.0, metricstest.Value(t, registry, "understudy_storage_seconds", "op", "write"))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Ping(t.Context()), errClosed)
}
