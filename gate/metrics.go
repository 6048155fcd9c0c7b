package gate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	calls    *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	restarts prometheus.Counter
}

func newMetrics(r prometheus.Registerer, g *Gate) *metrics {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "understudy_gate_seconds", Help: "Time of questions to Python handlers of auth and embeddings.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5, 30},
		}, []string{"kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "understudy_gate_unavailable_total", Help: "Questions that Python handlers did not answer, by reason.",
		}, []string{"reason"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{Name: "understudy_gate_restarts_total", Help: "Times that the process of Python handlers died and was started again."}),
	}
	if r != nil {
		r.MustRegister(m.calls, m.refused, m.restarts, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "understudy_gate_up", Help: "Whether the process of Python handlers answers.",
		}, func() float64 {
			if g.Up() != nil {
				return 0
			}
			return 1
		}))
	}
	return m
}

func (m *metrics) took(kind string, began time.Time) {
	m.calls.WithLabelValues(kind).Observe(time.Since(began).Seconds())
}
