package python_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/metricstest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	o := harmful(t)
	registry := prometheus.NewRegistry()
	o.Registry = registry
	p := start(t, o)
	require.NoError(t, p.Up())
	value := func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	require.Equal(t, 1.0, value("understudy_workers", "state", "ready"))
	require.Greater(t, value("understudy_worker_memory_bytes"), 10e6)
	_, err := collect(t, p.Graph("act"), invocation(newMemory(), `{"how":"os exit"}`, "updates"))
	require.ErrorIs(t, err, graph.ErrWorkerDied)
	await(t, "its death is counted", func() bool { return value("understudy_worker_deaths_total", "cause", "died") == 1 })
	require.NoError(t, p.Up(), "it is being replaced")
	well(t, p)
}

func TestUp(t *testing.T) {
	t.Parallel()
	p := python.New(python.Options{Python: "/bin/false", Workers: 1, Graphs: map[string]python.Spec{"g": {Path: "./g.py:g"}}})
	require.ErrorContains(t, p.Up(), "no worker")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	await(t, "that workers do not start is known", func() bool {
		var f *graph.Failure
		return errors.As(p.Up(), &f) && f.Type == "WorkerStartError"
	})
	cancel()
	require.NoError(t, <-ended)
}
