// Package metricstest reads metrics in tests.
package metricstest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// Value returns what a counter or gauge says, or how often a histogram observed something; the sum of all that have the labels, which are
// pairs of name and value. 0 when there is none.
func Value(t testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if !matches(m, labels) {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				sum += m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				sum += float64(m.GetHistogram().GetSampleCount())
			default:
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func matches(m *dto.Metric, labels []string) bool {
	has := map[string]string{}
	for _, l := range m.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}
