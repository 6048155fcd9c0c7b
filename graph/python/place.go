package python

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"understudy/graph"
	"understudy/internal/loop"
)

// startFailures is how many starts in a row must have failed before questions are refused. When workers have started before, or were killed
// from outside, the cause may be temporary: then starts must also have failed for Pool.patience.
const startFailures = 3

// unstartable returns why no worker serves and none starts; nil while one may. The caller holds p.mu.
func (p *Pool) unstartable() error {
	if p.failures < startFailures || p.patient && time.Since(p.failing) < p.patience {
		return nil
	}
	for w := range p.workers {
		if takes, _, _ := w.load(time.Now()); takes || !w.standby && w.starts() {
			return nil
		}
	}
	return startFailure(p.failure, p.cause)
}

// Broken returns why runs of a graph fail here: it does not import, or no worker starts. It is nil while they may work, as before the graph has loaded.
func (p *Pool) Broken(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ours := p.gen.opts.Graphs[name]; !ours {
		return nil
	}
	if err := p.unstartable(); err != nil {
		return err
	}
	if p.greeting != nil && p.greeting.problems[name] != nil {
		return p.greeting.problems[name]
	}
	return nil
}

// leaves reports whether a call is a run that another server can execute and this one cannot.
func (p *Pool) leaves(c *call) bool {
	return c.backend.run != "" && p.opts.Elsewhere != nil && p.Broken(c.graph) != nil && p.opts.Elsewhere(c.graph)
}

// startFailure returns the error of runs when no worker starts; why may be nil.
func startFailure(err error, why *StartError) error {
	f := &graph.Failure{Type: graph.WorkerStartError, Message: "No worker process can be started: " + lastLine(err.Error()), Detail: err.Error()}
	if why != nil {
		f.Fix = why.Fix
	}
	return f
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n ")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// place assigns a call to the worker with the fewest runs among those that respond, and waits until there is one. When none starts, the error
// is a *graph.Failure with the reason: for a run only after Pool.patience, because it was accepted and the cause may be temporary. A run that only another server
// can execute ends with graph.ErrElsewhere.
func (p *Pool) place(ctx context.Context, c *call) error {
	for {
		p.mu.Lock()
		change, stopped, failure := p.change, p.stopped, p.unstartable()
		if c.backend.run != "" && time.Since(p.failing) < p.patience {
			failure = nil
		}
		best := p.best(c.graph)
		p.mu.Unlock()
		if stopped {
			return graph.ErrReloading
		}
		if p.leaves(c) { // asked after best: a worker that has just become ready may be the first that failed to import it
			return graph.ErrElsewhere
		}
		if failure != nil {
			return failure
		}
		if best != nil && best.add(c) {
			return nil
		}
		if best != nil {
			continue
		}
		p.waits(1)
		select {
		case <-ctx.Done():
			p.waits(-1)
			return context.Cause(ctx)
		case <-change:
			p.waits(-1)
		}
	}
}

// waits counts calls that wait for a worker.
func (p *Pool) waits(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting += n
}

// best returns the worker for the next run of a graph; nil when there is none. A worker that started while the file of the graph was broken
// is used only when no other has the graph. The caller holds p.mu.
func (p *Pool) best(name string) *worker {
	var best *worker
	fewest, has, now := 0, false, time.Now()
	for w := range p.workers {
		if w.isolated || w.standby {
			continue
		}
		takes, runs, answers := w.load(now)
		if !takes || !answers {
			continue
		}
		if imports := w.imports(name); best == nil || imports && !has || imports == has && runs < fewest {
			best, fewest, has = w, runs, imports
		}
	}
	return best
}

// placeAlone assigns a call to a worker of its own. A worker that ends before it has the call is not the run's failure: another one is
// started, until Pool.patience is over.
func (p *Pool) placeAlone(ctx context.Context, c *call) error {
	began := time.Now()
	for backoff := loop.NewBackoff(p.firstBackoff, p.lastBackoff); ; {
		w := p.newWorker(true)
		if err := p.want(ctx, w); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			w.retire(exit{deadline: time.Now().Add(p.killGrace)})
			return context.Cause(ctx)
		case <-w.exited:
			if p.leaves(c) {
				return graph.ErrElsewhere
			}
		case <-w.ready:
			if p.leaves(c) {
				w.retire(exit{deadline: time.Now().Add(p.killGrace)})
				return graph.ErrElsewhere
			}
			if w.add(c) {
				return nil
			}
			<-w.exited // it was retired as soon as it was ready
		}
		if time.Since(began) >= p.patience {
			return startFailure(cmp.Or(w.startErr, errEnded), w.why)
		}
		if !backoff.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}

// errEnded: a worker was ready, but ended before it received a run.
var errEnded = errors.New("a worker ended before it was given a run")

// want requests Run to start a worker.
func (p *Pool) want(ctx context.Context, w *worker) error {
	for {
		p.mu.Lock()
		stopped, change := p.stopped, p.change
		p.mu.Unlock()
		if stopped {
			return graph.ErrReloading
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-change:
		case p.wanted <- w:
			return nil
		}
	}
}
