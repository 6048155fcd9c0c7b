package redis

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics describe the connection between this server and Redis.
type metrics struct {
	up      atomic.Bool // the last read worked
	dropped prometheus.Counter
	gaps    prometheus.Counter
	refused prometheus.Counter
}

// newMetrics registers the metrics, including gauges read from the bridge when they are scraped.
func newMetrics(r prometheus.Registerer, b *Bridge) *metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_redis_queue_bytes", Help: "Records that wait to be sent to Redis."}, func() float64 {
		b.queue.mu.Lock()
		defer b.queue.mu.Unlock()
		return float64(b.queue.bytes)
	})
	for state, n := range map[string]func() uint32{
		"idle": func() uint32 { return b.client.PoolStats().IdleConns },
		"used": func() uint32 { s := b.client.PoolStats(); return s.TotalConns - min(s.IdleConns, s.TotalConns) },
	} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "understudy_redis_connections", Help: "Connections to Redis, by state.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(n()) })
	}
	m := &metrics{
		dropped: f.NewCounter(prometheus.CounterOpts{Name: "understudy_redis_records_dropped_total", Help: "Records that were dropped because the queue to Redis was full."}),
		refused: f.NewCounter(prometheus.CounterOpts{Name: "understudy_redis_records_refused_total", Help: "Records that Redis will never take."}),
		gaps:    f.NewCounter(prometheus.CounterOpts{Name: "understudy_redis_stream_gaps_total", Help: "Reads of a stream in which entries were missing, so that its readers came again."}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_redis_up", Help: "Whether the last read from Redis worked, and it takes records: 1 or 0."}, func() float64 {
		if m.up.Load() && !b.queue.shut.Load() {
			return 1
		}
		return 0
	})
	return m
}
