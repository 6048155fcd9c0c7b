package bridge

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count what happens to readers of live streams. Counting is per batch that a reader takes, not per record.
type Metrics struct {
	lag         prometheus.Histogram
	slow        prometheus.Counter
	interrupted prometheus.Counter
	gaps        [RecordGap + 1]prometheus.Counter
}

// NewMetrics registers the metrics with r. With nil they are not exported.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	dropped := f.NewCounterVec(prometheus.CounterOpts{
		Name: "understudy_subscribers_dropped_total", Help: "Readers of streams that were dropped, by reason: slow, or interrupted because the stream was lost on its way.",
	}, []string{"reason"})
	gaps := f.NewCounterVec(prometheus.CounterOpts{
		Name: "understudy_replay_gaps_total", Help: "Replays that clients did not get whole, because neither the live stream nor the database had it any more, by what was missing: tokens, or other records.",
	}, []string{"missing"})
	m := &Metrics{
		lag: f.NewHistogram(prometheus.HistogramOpts{
			Name: "understudy_stream_lag_seconds", Help: "Time from the publishing of a record to its reader, of the oldest record of each batch that a reader takes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}),
		slow: dropped.WithLabelValues("slow"), interrupted: dropped.WithLabelValues("interrupted"),
	}
	m.gaps[TokenGap], m.gaps[RecordGap] = gaps.WithLabelValues("tokens"), gaps.WithLabelValues("records")
	return m
}

// Replayed counts the gap of a replay that its client does not get whole. Records that the database still has are not a gap.
func (m *Metrics) Replayed(g Gap) {
	if g != NoGap {
		m.gaps[g].Inc()
	}
}

// dropped counts a reader that was dropped.
func (m *Metrics) dropped(why error) {
	if errors.Is(why, ErrInterrupted) { // which is an ErrSlow too
		m.interrupted.Inc()
	} else {
		m.slow.Inc()
	}
}

// took observes the delay of records that were published at this time, in ms, and are returned to a reader now. An offset ahead of the clock
// is not a delay.
func (m *Metrics) took(published, now int64) {
	m.lag.Observe(float64(max(0, now-published)) / 1000)
}
