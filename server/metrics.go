package server

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"understudy/internal/jsonobj"
	"understudy/internal/within"
	"understudy/run"
	"understudy/server/internal/web"
)

// queueTime is the time limit for reading the state of the queue.
const queueTime = 2 * time.Second

// showMetrics answers with the metrics of LangGraph Server as JSON, or with all metrics for Prometheus.
func (s *Server) showMetrics(c *fiber.Ctx) error {
	if c.Query("format") == "json" {
		return web.SendJSON(c, s.metricsJSON(c.UserContext()))
	}
	// Partial results are shown in spite of an error: metrics are read when something is wrong.
	families, err := s.Metrics.Registry.Gather()
	if err != nil {
		s.Log.Warn("some metrics could not be collected", "error", err)
	}
	var b bytes.Buffer
	for _, f := range append(families, s.langgraphMetrics(families)...) {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return err
		}
	}
	c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
	c.Response().SetBodyRaw(b.Bytes())
	return nil
}

// metricsJSON returns the answer of LangGraph Server with additions of ours. While the database is unavailable the queue is null.
func (s *Server) metricsJSON(ctx context.Context) []byte {
	// Both ask the database: at once, so that one that does not answer is waited for once.
	gathered := make(chan []*dto.MetricFamily, 1)
	go func() {
		families, _ := s.Metrics.Registry.Gather() // partial on error
		gathered <- families
	}()
	var q run.Queue
	var most, used int
	known := false
	if s.opts.Runs != nil {
		ctx, cancel := context.WithTimeout(ctx, queueTime)
		defer cancel()
		var err error
		q, err = within.Do(ctx, s.opts.Runs.Queue)
		known = err == nil
		most, used = s.opts.Runs.Load()
	}
	number := func(b []byte, key string, n int, known bool) []byte {
		if b = append(b, key...); !known {
			return append(b, "null"...)
		}
		return strconv.AppendInt(b, int64(n), 10)
	}
	now := time.Now()
	wait := func(b []byte, key string, due time.Time) []byte {
		if b = append(b, key...); due.IsZero() {
			return append(b, "null"...)
		}
		return strconv.AppendFloat(b, now.Sub(due).Seconds(), 'f', 6, 64)
	}
	b := number(nil, `{"queue":{"n_pending":`, q.Pending, known)
	b = wait(b, `,"pending_runs_wait_time_max_secs":`, q.First)
	b = wait(b, `,"pending_runs_wait_time_med_secs":`, q.Middle)
	b = wait(b, `,"pending_unblocked_runs_wait_time_max_secs":`, q.FirstDue)
	b = number(b, `,"n_running":`, q.Running, known)
	b = append(b, `},"api":{"http_requests_total":[`...)
	families := <-gathered
	for i, r := range requestsOf(families) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonobj.AppendText(append(b, `{"method":`...), r.method)
		b = jsonobj.AppendText(append(b, `,"path":`...), r.path)
		b = append(append(b, `,"status":`...), r.status...)
		b = strconv.AppendInt(append(b, `,"count":`...), int64(r.count), 10)
		b = append(b, '}')
	}
	b = strconv.AppendInt(append(b, `],"open_streams":`...), s.Slots.InUse(), 10)
	b = strconv.AppendInt(append(b, `,"body_bytes_in_use":`...), s.Bodies.InUse(), 10)
	b = number(b, `},"workers":{"max":`, most, true)
	b = number(b, `,"active":`, used, true)
	b = number(b, `,"available":`, most-used, true)
	return append(b, `}}`...)
}

// requests counts the requests of a method on a path that were answered with a status.
type requests struct {
	method, path, status string
	count                float64
}

// requestsOf returns the counts of LangGraph Server: without probes and unmatched paths.
func requestsOf(families []*dto.MetricFamily) (out []requests) {
	for _, f := range families {
		if f.GetName() != web.RequestsName {
			continue
		}
		for _, m := range f.GetMetric() {
			r := requests{count: m.GetCounter().GetValue()}
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "method":
					r.method = l.GetValue()
				case "path":
					if r.path = l.GetValue(); r.path == web.NoRoute {
						r.path = ""
					}
				case "status":
					r.status = l.GetValue()
				}
			}
			if !web.Probes[r.path] {
				out = append(out, r)
			}
		}
	}
	return out
}

// langgraphMetrics returns the metrics that dashboards and autoscalers of LangGraph Server query, under its names.
func (s *Server) langgraphMetrics(families []*dto.MetricFamily) []*dto.MetricFamily {
	gauge := func(name, help string, v float64) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}}}}
	}
	var out []*dto.MetricFamily
	name, help := "lg_api_http_requests_total", "As understudy_http_requests_total, without probes."
	counted := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_COUNTER.Enum()}
	for _, r := range requestsOf(families) {
		m := &dto.Metric{Counter: &dto.Counter{Value: &r.count}}
		for _, l := range [][2]string{{"method", r.method}, {"path", r.path}, {"status", r.status}} {
			m.Label = append(m.Label, &dto.LabelPair{Name: &l[0], Value: &l[1]})
		}
		counted.Metric = append(counted.Metric, m)
	}
	if len(counted.Metric) > 0 {
		out = append(out, counted)
	}
	for _, same := range [][2]string{{"understudy_runs_pending", "lg_api_num_pending_runs"}, {"understudy_runs_running", "lg_api_num_running_runs"}} {
		for _, f := range families {
			if f.GetName() == same[0] && len(f.GetMetric()) == 1 {
				out = append(out, gauge(same[1], "As "+same[0]+".", f.GetMetric()[0].GetGauge().GetValue()))
			}
		}
	}
	if s.opts.Runs != nil {
		most, used := s.opts.Runs.Load()
		out = append(out,
			gauge("lg_api_workers_max", "As understudy_jobs.", float64(most)),
			gauge("lg_api_workers_active", "As understudy_jobs_used.", float64(used)),
			gauge("lg_api_workers_available", "Jobs that are free.", float64(most-used)))
	}
	return out
}
