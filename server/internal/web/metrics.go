package web

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts HTTP requests. Labels never contain ids.
type metrics struct {
	Registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	Streams  prometheus.Gauge
	Ended    *prometheus.CounterVec
	Events   prometheus.Counter
}

const (
	RequestsName = "understudy_http_requests_total"
	NoRoute      = "other" // unknown paths are not used as labels
)

func newMetrics(r *prometheus.Registry, bodies, reads *Budget) *metrics {
	m := &metrics{
		Registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: RequestsName, Help: "Requests answered."}, []string{"method", "path", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "understudy_http_request_seconds", Help: "Time to the end of an answer, open ones included.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 120, 600},
		}, []string{"method", "path"}),
		Streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "understudy_open_streams", Help: "Streams and waits that are open."}),
		Ended:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_streams_ended_total", Help: "Streams and waits that ended, by reason."}, []string{"reason"}),
		Events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "understudy_stream_events_total", Help: "Events written to streams."}),
	}
	r.MustRegister(m.requests, m.latency, m.Streams, m.Ended, m.Events, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_body_bytes", Help: "Memory held by request bodies.",
	}, func() float64 { return float64(bodies.InUse()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_read_bytes", Help: "Memory held by long answers that are being sent.",
	}, func() float64 { return float64(reads.InUse()) }))
	return m
}

func (m *metrics) request(method, route string, status int, took time.Duration) {
	switch method {
	case fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPut, fiber.MethodPatch, fiber.MethodDelete, fiber.MethodOptions:
	default:
		method = "other" // nor are unknown methods
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(method, route).Observe(took.Seconds())
}
