package execute

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"understudy/run"
)

// metrics count what becomes of runs. All labels are looked up here, none during a run.
type metrics struct {
	waited   prometheus.Histogram
	took     prometheus.Histogram
	ended    map[run.Status]prometheus.Counter
	attempts [dropped + 1]prometheus.Counter
	// Writes that were refused: those of attempts that have lost their run, and those of runs whose cancel was requested.
	fencedLost, fencedCancelled prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	vec := func(name, help, label string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		waited: f.NewHistogram(prometheus.HistogramOpts{
			Name: "understudy_run_wait_seconds", Help: "Time from when a run was due to its first claim, those that wait for another run of their thread included.",
			Buckets: []float64{.005, .025, .1, .25, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
		took: f.NewHistogram(prometheus.HistogramOpts{
			Name: "understudy_attempt_seconds", Help: "Time from a claim of a run to the commit of how it ended.",
			Buckets: []float64{.005, .025, .1, .25, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
		}),
		ended: map[run.Status]prometheus.Counter{},
	}
	ended := vec("understudy_runs_ended_total", "Runs that ended on this instance, by status.", "status")
	for _, status := range []run.Status{run.Success, run.Error, run.Interrupted, run.Timeout} {
		m.ended[status] = ended.WithLabelValues(string(status))
	}
	attempts := vec("understudy_attempts_ended_total", "Attempts that ended on this instance, by outcome; a run that died or was handed back has more of them.", "outcome")
	for kind := range m.attempts {
		m.attempts[kind] = attempts.WithLabelValues(outcomeKind(kind).words().label)
	}
	fenced := vec("understudy_fenced_writes_total", "Writes of runs that were refused: lost, another instance has the run; cancelled, its cancel was requested.", "reason")
	m.fencedLost, m.fencedCancelled = fenced.WithLabelValues("lost"), fenced.WithLabelValues("cancelled")
	return m
}

// claimed counts the wait of a run for its first claim.
func (m *metrics) claimed(r *run.Run) {
	if r.Attempt == 1 {
		m.waited.Observe(max(0, r.StartedAt.Sub(r.CreatedAt)).Seconds())
	}
}

// over counts an attempt whose end was written.
func (m *metrics) over(kind outcomeKind, took time.Duration) {
	m.attempts[kind].Inc()
	m.took.Observe(took.Seconds())
}
