package server

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/internal/metricstest"
)

// A proxy that hides /metrics hides all of it: no alias, and no other spelling of the path, is served.
func TestMetricsAreAtTheRootOnly(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MountPrefix = "agents" })
	for _, path := range []string{"/metrics", "/agents/metrics"} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, 200, res.StatusCode)
	}
	for _, prefix := range []string{"", "/agents", "/api/langgraph", "/api%2flanggraph"} {
		for _, form := range []string{"/metrics", "//metrics", "/./metrics", "/x/../metrics", "/%6detrics", "/%2Fmetrics", "/METRICS", "/metrics;", "/metrics%00", "/metrics%3F"} {
			if form == "/metrics" && (prefix == "" || prefix == "/agents") {
				continue
			}
			for _, method := range []string{"GET", "HEAD"} {
				res, _ := w.ask(t, method, prefix+form, "")
				require.Contains(t, []int{400, 404}, res.StatusCode, prefix+form)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.ask(t, "GET", "/threads/"+someThread, "")
	w.ask(t, "GET", "/made-up", "")
	res, body := w.ask(t, "GET", "/metrics", "")
	require.True(t, strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain"))
	require.Contains(t, body, `understudy_http_requests_total{method="GET",path="/threads/{thread_id}",status="200"} 1`)
	require.Contains(t, body, `path="other",status="404"`)
	require.Contains(t, body, "understudy_body_bytes 0\n")
	require.NotContains(t, body, someThread)
	_, body = w.ask(t, "GET", "/metrics?format=json", "")
	var got struct {
		Queue struct {
			Pending int      `json:"n_pending"`
			Running int      `json:"n_running"`
			Longest *float64 `json:"pending_runs_wait_time_max_secs"`
			Middle  *float64 `json:"pending_runs_wait_time_med_secs"`
			Due     *float64 `json:"pending_unblocked_runs_wait_time_max_secs"`
		}
		API struct {
			Requests []struct {
				Method, Path  string
				Status, Count int
			} `json:"http_requests_total"`
		}
		Workers struct{ Max, Active, Available int }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, []int{4, 2}, []int{got.Queue.Pending, got.Queue.Running})
	require.Positive(t, *got.Queue.Longest)
	require.Positive(t, *got.Queue.Middle)
	require.Positive(t, *got.Queue.Due)
	require.Equal(t, []int{10, 3, 7}, []int{got.Workers.Max, got.Workers.Active, got.Workers.Available})
	require.Len(t, got.API.Requests, 2, "probes are not among them")
	require.Equal(t, "", got.API.Requests[1].Path, "no route was found")
	require.Equal(t, []int{404, 1}, []int{got.API.Requests[1].Status, got.API.Requests[1].Count})
	for _, line := range []string{
		`lg_api_http_requests_total{method="GET",path="/threads/{thread_id}",status="200"} 1`, "lg_api_workers_max 10", "lg_api_workers_active 3", "lg_api_workers_available 7",
	} {
		_, body = w.ask(t, "GET", "/metrics", "")
		require.Contains(t, body, line+"\n")
	}
}

// Streams are counted while they are open, and when they end.
func TestMetricsOfStreams(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := setup(t, func(o *Options) { o.Registry = registry })
	l := following(w)
	l.records <- record(1, "values", "1")
	l.records <- record(2, "values", "2")
	answered := make(chan string, 1)
	go func() {
		_, body := w.ask(t, "POST", runsPath+"/stream", `{"assistant_id":"a"}`)
		answered <- body
	}()
	value := func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	require.Eventually(t, func() bool { return value("understudy_open_streams") == 1 }, time.Minute, time.Millisecond)
	close(l.records)
	require.Contains(t, <-answered, "data: 2")
	require.Eventually(t, func() bool { return value("understudy_open_streams") == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return value("understudy_streams_ended_total", "reason", "done") == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, 2.0, value("understudy_stream_events_total"))
	require.Eventually(t, func() bool {
		return value("understudy_http_request_seconds", "path", "/threads/{thread_id}/runs/stream") == 1
	}, time.Minute, time.Millisecond)
	s := w.s
	require.True(t, s.Bodies.Take(7))
	require.Equal(t, 7.0, value("understudy_body_bytes"))
	s.Bodies.Give(7)
}

// A database that is away takes nothing along but what it knows.
func TestMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(failing{})
	w := setup(t, func(o *Options) { o.Registry = registry })
	w.mu.Lock()
	w.err = errors.New("gone")
	w.mu.Unlock()
	res, body := w.ask(t, "GET", "/metrics", "")
	require.Equal(t, 200, res.StatusCode)
	require.Contains(t, body, "understudy_open_streams 0\n")
	_, body = w.ask(t, "GET", "/metrics?format=json", "")
	require.Contains(t, body, `{"queue":{"n_pending":null,`)
	require.Contains(t, body, `"workers":{"max":10,`)
}

// failing is a collector that fails.
type failing struct{}
