package python

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"understudy/internal/child"
)

// metrics count the outcomes of worker processes.
type metrics struct {
	died, killed            prometheus.Counter
	blocked, blockedSeconds prometheus.Counter
}

// newMetrics registers the metrics, including gauges read from the pool when they are scraped.
func newMetrics(r prometheus.Registerer, p *Pool) *metrics {
	f := promauto.With(r)
	for state, n := range map[string]func(census) int{
		"ready":    func(c census) int { return c.ready },
		"starting": func(c census) int { return c.starting },
		"leaving":  func(c census) int { return c.leaving },
	} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "understudy_workers", Help: "Python processes, by state: leaving ones end with their runs.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(n(p.census())) })
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_worker_memory_bytes", Help: "Resident memory of all Python processes; Linux only."}, func() float64 {
		sum := int64(0)
		for _, pid := range p.census().pids {
			sum += child.ResidentMemory(pid)
		}
		return float64(sum)
	})
	deaths := f.NewCounterVec(prometheus.CounterOpts{
		Name: "understudy_worker_deaths_total", Help: "Python processes that died, or were killed because they did not end in time or had too much memory.",
	}, []string{"cause"})
	return &metrics{
		died: deaths.WithLabelValues("died"), killed: deaths.WithLabelValues("killed"),
		blocked: f.NewCounter(prometheus.CounterOpts{
			Name: "understudy_worker_blocked_total", Help: "Times that code of a graph blocked the event loop of its Python process for more than a second.",
		}),
		blockedSeconds: f.NewCounter(prometheus.CounterOpts{
			Name: "understudy_worker_blocked_seconds_total", Help: "Seconds for which code of graphs blocked event loops, of the times that are over.",
		}),
	}
}

// census says how many workers there are.
type census struct {
	ready, starting, leaving int
	pids                     []int
}

func (p *Pool) census() (c census) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		w.mu.Lock()
		switch {
		case w.state >= leaving:
			c.leaving++
		case w.state != starting:
			c.ready++
		default:
			c.starting++
		}
		if w.state != starting {
			c.pids = append(c.pids, w.pid)
		}
		w.mu.Unlock()
	}
	return c
}

// errStarting: no worker has loaded the graphs yet.
var errStarting = errors.New("no worker has loaded the graphs yet")

// Never returns why no worker has ever become ready, a *StartError, once starts have failed for this long, or at once when they are hopeless; nil before
// that.
func (p *Pool) Never(failing time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.greeting != nil || p.failures == 0:
		return nil
	case !p.cause.Hopeless && (p.failures < startFailures || time.Since(p.failing) < failing):
		return nil
	}
	return p.cause
}

// Up returns why runs cannot be executed now: no worker is there yet, or none starts any more. It does not wait. It returns nil while a dead
// worker is being replaced.
func (p *Pool) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 && p.failure != nil {
		if err := p.unstartable(); err != nil {
			return err
		}
	}
	if p.greeting == nil {
		return errStarting
	}
	return nil
}

// Memory returns the resident memory of each worker that has started, in bytes, ascending.
func (p *Pool) Memory() (sizes []int64) {
	for _, pid := range p.census().pids {
		sizes = append(sizes, child.ResidentMemory(pid))
	}
	slices.Sort(sizes)
	return sizes
}

// Workers returns how many Python processes there are, those that start and those that end included.
func (p *Pool) Workers() int {
	c := p.census()
	return c.ready + c.starting + c.leaving
}
