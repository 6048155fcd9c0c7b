package queue

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"understudy/internal/within"
)

// watch registers metrics of the queue; r nil: they are not exported.
func (q *Queue) watch(r prometheus.Registerer) {
	f := promauto.With(r)
	q.takeovers = f.NewCounter(prometheus.CounterOpts{
		Name: "understudy_takeovers_total", Help: "Runs that were taken over because the lease of their server expired.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_jobs", Help: "Runs that this instance executes at once at most."}, func() float64 {
		most, _ := q.Load()
		return float64(most)
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_jobs_used", Help: "Runs that this instance executes."}, func() float64 {
		_, used := q.Load()
		return float64(used)
	})
	if r != nil {
		r.MustRegister(newQueueMetrics(q))
	}
}

// queueMetrics reads the state of the queue from the database at each scrape.
type queueMetrics struct {
	q                                          *Queue
	up, pending, running, due, oldest, longest *prometheus.Desc
}

// queueTime bounds the query: a scrape does not wait for a database that does not respond.
const queueTime = 2 * time.Second

func newQueueMetrics(q *Queue) queueMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	upTo := "; counted up to " + strconv.Itoa(queueBound) + ", over all instances."
	return queueMetrics{
		q:       q,
		up:      desc("understudy_database_up", "Whether the queue could be read from the database: 1 or 0. At 0 the numbers of the queue are left out."),
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
	q, err := within.Do(ctx, m.q.State)
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if err != nil {
		gauge(m.up, 0)
		return
	}
	now := m.q.Clock.Now()
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
