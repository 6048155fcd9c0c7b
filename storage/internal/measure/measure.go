// Package measure counts what storages of any kind do.
package measure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of a storage.
type Metrics struct {
	read, write prometheus.Observer
	// Retried counts transactions that were run again: they collided with others, or their
	// connection was dead.
	Retried prometheus.Counter
}

// New registers metrics with r; nil registers none.
func New(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	took := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "understudy_storage_seconds", Help: "Time of reads and of writing transactions, the wait for a connection and the sync of the disk included.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
	}, []string{"op"})
	return &Metrics{
		read: took.WithLabelValues("read"), write: took.WithLabelValues("write"),
		Retried: f.NewCounter(prometheus.CounterOpts{
			Name: "understudy_storage_retries_total", Help: "Reads and transactions that were run again, because they collided with others or their connection was dead.",
		}),
	}
}

// Read counts a read that began at a time and ends now.
func (m *Metrics) Read(begun time.Time) { m.read.Observe(time.Since(begun).Seconds()) }

// Write counts a transaction that began at a time and ends now.
func (m *Metrics) Write(begun time.Time) { m.write.Observe(time.Since(begun).Seconds()) }

// Writable exports whether the database saves; r may be nil.
func Writable(r prometheus.Registerer, refused func() bool) {
	if r == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_database_writable", Help: "Whether the database saves: 1, or 0 while it refuses to, because its disk is full or it is read-only.",
	}, func() float64 {
		if refused() {
			return 0
		}
		return 1
	}))
}
