package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolMetrics reads the state of the pool at each scrape.
type poolMetrics struct {
	pool                                       *pgxpool.Pool
	connections, most, acquires, waits, waited *prometheus.Desc
}

// newPoolMetrics returns a collector for pool.
func newPoolMetrics(pool *pgxpool.Pool) poolMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return poolMetrics{
		pool:        pool,
		connections: desc("understudy_database_connections", "Connections to Postgres, by state.", "state"),
		most:        desc("understudy_database_connections_max", "Connections to Postgres that there may be."),
		acquires:    desc("understudy_database_acquires_total", "Connections that were taken from the pool."),
		waits:       desc("understudy_database_acquire_waits_total", "Connections that had to be waited for, because none was idle."),
		waited:      desc("understudy_database_acquire_wait_seconds_total", "Time for which connections were waited for."),
	}
}

// Describe implements prometheus.Collector.
func (m poolMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.pool.Stat()
	gauge := func(d *prometheus.Desc, v int32, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	gauge(m.connections, s.IdleConns(), "idle")
	gauge(m.connections, s.AcquiredConns(), "used")
	gauge(m.connections, s.ConstructingConns(), "opening")
	gauge(m.most, s.MaxConns())
	counter(m.acquires, float64(s.AcquireCount()))
	counter(m.waits, float64(s.EmptyAcquireCount()))
	counter(m.waited, s.EmptyAcquireWaitTime().Seconds())
}
