package server

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metrics counts at the boundary of HTTP. No ids are labels.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	streams  prometheus.Gauge
	ended    *prometheus.CounterVec
	events   prometheus.Counter
	runs     Runs
}

func newMetrics(r *prometheus.Registry, runs Runs) *metrics {
	m := &metrics{
		registry: r,
		runs:     runs,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_http_requests_total", Help: "Requests answered."}, []string{"method", "path", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "understudy_http_request_seconds", Help: "Time to the end of an answer, open ones included.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 120, 600},
		}, []string{"method", "path"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "understudy_open_streams", Help: "Streams and waits that are open."}),
		ended:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_streams_ended_total", Help: "Streams and waits that ended, by reason."}, []string{"reason"}),
		events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "understudy_stream_events_total", Help: "Events written to streams."}),
	}
	r.MustRegister(m.requests, m.latency, m.streams, m.ended, m.events)
	return m
}

func (m *metrics) request(method, route string, status int, took time.Duration) {
	switch method {
	case fiber.MethodGet, fiber.MethodHead, fiber.MethodPost, fiber.MethodPut, fiber.MethodPatch, fiber.MethodDelete, fiber.MethodOptions:
	default:
		method = "other" // clients make up methods too
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.latency.WithLabelValues(method, route).Observe(took.Seconds())
}

// counts gives the length of the queue, -1 where it is not known.
func (m *metrics) counts(ctx context.Context) (pending, running int) {
	if m.runs == nil {
		return 0, 0
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pending, running, err := m.runs.Counts(ctx)
	if err != nil {
		return -1, -1
	}
	return pending, running
}

func (s *Server) showMetrics(c *fiber.Ctx) error {
	pending, running := s.metrics.counts(c.UserContext())
	if c.Query("format") == "json" {
		b := strconv.AppendInt([]byte(`{"queue":{"n_pending":`), int64(pending), 10)
		b = append(b, `,"pending_runs_wait_time_max_secs":null,"pending_runs_wait_time_med_secs":null,"pending_unblocked_runs_wait_time_max_secs":null,"n_running":`...)
		b = strconv.AppendInt(b, int64(running), 10)
		b = append(b, `},"api":{"open_streams":`...)
		b = strconv.AppendInt(b, s.slots.inUse(), 10)
		b = append(b, `,"body_bytes_in_use":`...)
		b = strconv.AppendInt(b, s.bodies.inUse(), 10)
		return sendJSON(c, append(b, `}}`...))
	}
	families, err := s.metrics.registry.Gather()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return err
		}
	}
	for _, g := range []struct {
		name, help string
		n          int64
	}{
		{"understudy_runs_pending", "Runs that wait.", int64(pending)},
		{"understudy_runs_running", "Runs that are being worked on.", int64(running)},
		{"understudy_body_bytes", "Memory held by request bodies.", s.bodies.inUse()},
	} {
		b.WriteString("# HELP " + g.name + " " + g.help + "\n# TYPE " + g.name + " gauge\n" + g.name + " " + strconv.FormatInt(g.n, 10) + "\n")
	}
	c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
	c.Response().SetBodyRaw(b.Bytes())
	return nil
}
