package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ownPrefix is the path of the proxy's own routes. LangGraph Server does not use it.
const ownPrefix = "/understudy/"

// metrics counts calls. Labels never contain ids.
type metrics struct {
	registry  *prometheus.Registry
	calls     *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	open      prometheus.Gauge
	rewritten *prometheus.CounterVec
	failures  prometheus.Counter
}

func newMetrics(r *prometheus.Registry) *metrics {
	m := &metrics{
		registry: r,
		calls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_proxy_calls_total", Help: "Calls answered, by what they are to the overlay."}, []string{"kind", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "understudy_proxy_call_seconds", Help: "Time to the end of an answer, the upstream's own included.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30, 120, 600},
		}, []string{"kind"}),
		open:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "understudy_proxy_open_calls", Help: "Calls that are being answered, streams included."}),
		rewritten: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_proxy_rewritten_total", Help: "Answers that were changed, streams apart."}, []string{"kind"}),
		failures:  prometheus.NewCounter(prometheus.CounterOpts{Name: "understudy_proxy_upstream_failures_total", Help: "Calls that the upstream did not answer."}),
	}
	r.MustRegister(m.calls, m.latency, m.open, m.rewritten, m.failures)
	return m
}

// call counts a call, and its outcome when the returned function is called.
func (m *metrics) call(x *exchange) func() {
	m.open.Inc()
	return func() {
		m.open.Dec()
		status := "own" // package server counts these
		if x.status != 0 {
			status = strconv.Itoa(x.status)
		} else if x.kind != own {
			status = "left"
		}
		m.calls.WithLabelValues(string(x.kind), status).Inc()
		m.latency.WithLabelValues(string(x.kind)).Observe(time.Since(x.begun).Seconds())
	}
}

// ownRoute answers requests about the proxy itself.
func (p *Proxy) ownRoute(w http.ResponseWriter, r *http.Request, path string) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch path {
	case ownPrefix + "ok":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ok":true}`))
	case ownPrefix + "livez":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"live":true}`))
	case ownPrefix + "readyz":
		p.ready(w, r)
	case ownPrefix + "metrics":
		promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
	default:
		return false
	}
	return true
}

// readyTime is the time limit for the upstream to answer a readiness check.
const readyTime = 2 * time.Second

// ready reports whether calls should be sent to the proxy, in the format of the replacement. The database of the recordings is not checked: without
// it answers pass unchanged. With offline reads the upstream is not checked either, because they are meant for its outages.
func (p *Proxy) ready(w http.ResponseWriter, r *http.Request) {
	verdict := func(ok bool) string {
		if ok {
			return "ok"
		}
		return "failed"
	}
	open := p.streaming.Err() == nil
	all, upstream := open, ""
	if p.c.Offline == nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTime)
		defer cancel()
		// Any answer of the upstream counts: it may demand credentials, which this check does not have.
		status, _, _, err := p.c.Upstream.Ask(ctx, nil, http.MethodGet, "/ok", nil)
		there := err == nil && status < http.StatusInternalServerError
		if r.Context().Err() == nil {
			p.reachable(err == nil)
		}
		all, upstream = all && there, `,"upstream":"`+verdict(there)+`"`
	}
	w.Header().Set("Content-Type", "application/json")
	if !all {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintf(w, `{"ready":%t,"checks":{"draining":"%s"%s}}`, all, verdict(open), upstream)
}
