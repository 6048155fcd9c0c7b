package postgres

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/internal/metricstest"
	"understudy/internal/postgrestest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	address := postgrestest.Database(t)
	s, admin := open(t, Options{URL: address, Registry: registry}), connect(t, address)
	value := func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	reads, acquires := value("understudy_storage_seconds", "op", "read"), value("understudy_database_acquires_total")
	require.NoError(t, s.read(t.Context(), func(q *reader) error {
		require.Equal(t, 1.0, value("understudy_database_connections", "state", "used"))
		return q.query("SELECT 1", nil)
	}))
	require.Equal(t, reads+1, value("understudy_storage_seconds", "op", "read"))
	require.Equal(t, acquires+1, value("understudy_database_acquires_total"))
	require.Equal(t, 1.0, value("understudy_database_connections", "state", "idle"))
	require.EqualValues(t, s.pool.Config().MaxConns, value("understudy_database_connections_max"))

	// A connection that has to be made is waited for.
	waits, waited := value("understudy_database_acquire_waits_total"), value("understudy_database_acquire_wait_seconds_total")
	s.pool.Reset()
	require.NoError(t, s.Ping(t.Context()))
	require.Equal(t, waits+1, value("understudy_database_acquire_waits_total"))
	require.Greater(t, value("understudy_database_acquire_wait_seconds_total"), waited)

	times := 0
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		if times++; times == 1 {
			require.NoError(t, tx.query("SELECT 1", nil))
			execAll(t, admin, killOthers)
		}
		return tx.query("SELECT 1", nil)
	}))
	require.Equal(t, 2, times)
	require.Equal(t, 1.0, value("understudy_storage_seconds", "op", "write"))
	require.Equal(t, 1.0, value("understudy_storage_retries_total"))
}
