package run

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count what becomes of runs. All labels are looked up here, none during a run.
type metrics struct {
	waited    prometheus.Histogram
	took      prometheus.Histogram
	ended     map[Status]prometheus.Counter
	attempts  [dropped + 1]prometheus.Counter
	takeovers prometheus.Counter
	// Writes that were refused: those of attempts that have lost their run, and those of runs whose cancel was asked for.
	fencedLost, fencedCancelled prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	count := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
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
		ended:     map[Status]prometheus.Counter{},
		takeovers: count("understudy_takeovers_total", "Runs that were taken over because the lease of whoever had them ended."),
	}
	ended := vec("understudy_runs_ended_total", "Runs that ended on this instance, by status.", "status")
	for _, status := range []Status{Success, Error, Interrupted, Timeout} {
		m.ended[status] = ended.WithLabelValues(string(status))
	}
	attempts := vec("understudy_attempts_ended_total", "Attempts that ended on this instance, by outcome; a run that died or was handed back has more of them.", "outcome")
	for kind := range m.attempts {
		m.attempts[kind] = attempts.WithLabelValues(outcomeKind(kind).label())
	}
	fenced := vec("understudy_fenced_writes_total", "Writes of runs that were refused: lost, another instance has the run; cancelled, its cancel was asked for.", "reason")
	m.fencedLost, m.fencedCancelled = fenced.WithLabelValues("lost"), fenced.WithLabelValues("cancelled")
	return m
}

// watchQueue reports how the queue stands.
func watchQueue(r prometheus.Registerer, q *queue) {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_jobs", Help: "Runs that this instance executes at once at most."}, func() float64 {
		most, _ := q.load()
		return float64(most)
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_jobs_used", Help: "Runs that this instance executes."}, func() float64 {
		_, used := q.load()
		return float64(used)
	})
	if r != nil {
		r.MustRegister(newQueueMetrics(q))
	}
}

// label is the outcome as a label.
func (k outcomeKind) label() string {
	return [...]string{"success", "error", "cancelled", "timeout", "worker_died", "handed_back", "lost"}[k]
}

// claimed counts the wait of a run for its first claim.
func (m *metrics) claimed(r *Run) {
	if r.Attempt == 1 {
		m.waited.Observe(max(0, r.StartedAt.Sub(r.CreatedAt)).Seconds())
	}
}

// over counts an attempt whose end was written.
func (m *metrics) over(kind outcomeKind, took time.Duration) {
	m.attempts[kind].Inc()
	m.took.Observe(took.Seconds())
}

// queueMetrics asks the database how the queue stands when somebody looks.
type queueMetrics struct {
	q                                          *queue
	up, pending, running, due, oldest, longest *prometheus.Desc
}

// queueTime bounds the query: a scrape does not wait for a database that does not respond.
const queueTime = 2 * time.Second

func newQueueMetrics(q *queue) queueMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	upTo := "; counted up to " + strconv.Itoa(queueBound) + ", over all instances."
	return queueMetrics{
		q:       q,
		up:      desc("understudy_database_up", "Whether the database told how the queue stands: 1 or 0. At 0 the numbers of the queue are left out."),
		pending: desc("understudy_runs_pending", "Runs that wait"+upTo),
		running: desc("understudy_runs_running", "Runs that are being worked on"+upTo),
		due:     desc("understudy_runs_due", "Runs that wait for nothing but a job"+upTo),
		oldest:  desc("understudy_queue_wait_seconds", "How long the first of the runs has waited that wait for nothing but a job."),
		longest: desc("understudy_queue_longest_wait_seconds", "How long the first of all waiting runs has, those behind another of their thread included."),
	}
}

// Describe implements prometheus.Collector.
func (m queueMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.pending, m.running, m.due, m.oldest, m.longest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m queueMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueTime) // a collector is given none
	defer cancel()
	q, err := m.q.state(ctx)
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if err != nil {
		gauge(m.up, 0)
		return
	}
	now := m.q.now()
	gauge(m.up, 1)
	gauge(m.pending, float64(q.Pending))
	gauge(m.running, float64(q.Running))
	gauge(m.due, float64(q.Due))
	gauge(m.oldest, since(now, q.FirstDue).Seconds())
	gauge(m.longest, since(now, q.First).Seconds())
}

// since is how long ago a time was: 0 when it is to come, or zero.
func since(now, t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t))
}
