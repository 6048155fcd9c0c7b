package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"understudy/graph"
)

// Pool owns the worker processes. Its methods are safe for concurrent use; graphs work only while Run does.
type Pool struct {
	opts  Options
	setup string
	code  string // folder of the Python half; set by Run before the first worker starts

	// Times. Fields, so that tests need not wait.
	pingEvery    time.Duration // between pings of a worker
	answerWithin time.Duration // a worker that has not answered for so long gets no new runs
	silence      time.Duration // one that has not for so long goes out of service
	cancelGrace  time.Duration // what a cancelled run may take to end
	killGrace    time.Duration // what the other runs of a worker may take that has to go
	firstBackoff time.Duration // after a worker that died before it was ready; doubled each time
	lastBackoff  time.Duration

	wanted chan *worker // isolated workers to start

	mu       sync.Mutex
	workers  map[*worker]struct{}
	change   chan struct{} // closed and replaced when a worker became ready, answered again, or left
	running  bool
	stopped  bool
	greeting *hello        // of the last worker that became ready
	started  chan struct{} // closed when the first worker became ready or failed to
	failure  error         // why workers do not start; nil once one did
}

// New makes a pool. It starts nothing: that is Run's. It panics if opts.Serde is not JSON.
func New(opts Options) *Pool {
	if opts.Serde != nil && !json.Valid(opts.Serde) {
		panic("python: Options.Serde is not JSON")
	}
	opts = opts.withDefaults()
	return &Pool{
		opts: opts, setup: opts.setup(),
		pingEvery: 500 * time.Millisecond, answerWithin: time.Second, silence: 10 * time.Second,
		cancelGrace: 5 * time.Second, killGrace: time.Minute,
		firstBackoff: 100 * time.Millisecond, lastBackoff: 10 * time.Second,
		wanted: make(chan *worker), workers: make(map[*worker]struct{}), change: make(chan struct{}), started: make(chan struct{}),
	}
}

// Run starts the workers and replaces those that die, until ctx is done. It returns when every process is gone; runs that were on
// them end with graph.ErrReloading. A pool runs once.
func (p *Pool) Run(ctx context.Context) error {
	code, err := unpack()
	if err != nil {
		return err
	}
	defer os.RemoveAll(code)
	p.mu.Lock()
	if p.running || p.stopped {
		p.mu.Unlock()
		return errors.New("python: the pool has been run before")
	}
	p.code, p.running = code, true
	p.mu.Unlock()

	var all sync.WaitGroup
	for range p.opts.Workers {
		all.Go(func() { p.keep(ctx, &all) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case w := <-p.wanted:
			all.Go(func() { p.work(ctx, w) })
		}
	}
	p.mu.Lock()
	p.running, p.stopped = false, true
	p.mu.Unlock()
	p.changed()
	all.Wait()
	return nil
}

// keep has one worker in service until ctx is done.
func (p *Pool) keep(ctx context.Context, all *sync.WaitGroup) {
	backoff := p.firstBackoff
	for ctx.Err() == nil {
		w := newWorker(p, false)
		all.Go(func() { p.work(ctx, w) })
		select {
		case <-w.exited:
		case <-w.retired:
		}
		select {
		case <-w.ready:
			backoff = p.firstBackoff
			continue
		default:
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, p.lastBackoff)
	}
}

// work runs one worker from its start to its end.
func (p *Pool) work(ctx context.Context, w *worker) {
	p.mu.Lock()
	p.workers[w] = struct{}{}
	p.mu.Unlock()
	err := w.run(ctx)
	p.mu.Lock()
	delete(p.workers, w)
	p.mu.Unlock()
	select {
	case <-w.ready:
	default:
		if ctx.Err() == nil {
			p.failed(w, err)
		}
	}
	if ctx.Err() == nil && !w.isDoomed() && !w.isolated {
		p.opts.Logger.Warn("a worker died", "pid", w.pid, "status", fmt.Sprint(err))
	}
	p.changed()
}

func (p *Pool) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.change)
	p.change = make(chan struct{})
}

func (p *Pool) greeted(m hello) {
	p.mu.Lock()
	p.greeting, p.failure = &m, nil
	p.begun()
	p.mu.Unlock()
	p.changed()
}

func (p *Pool) failed(w *worker, err error) {
	text := w.tail.String()
	if text == "" {
		text = "it wrote nothing to stderr"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting != nil {
		return
	}
	p.failure = fmt.Errorf("a worker died while it loaded the graphs (%w): %s", errOr(err, "it left"), text)
	p.begun()
}

func errOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// begun closes p.started once. p.mu is held.
func (p *Pool) begun() {
	select {
	case <-p.started:
	default:
		close(p.started)
	}
}

// Ready waits until the first worker has loaded its graphs. An error says that none does: it carries the end of what the worker wrote to
// stderr. Graphs that do not import are no such error, see Problems.
func (p *Pool) Ready(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.started:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// Problems tells which graphs do not import, and why. Empty before a worker is ready.
func (p *Pool) Problems() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]error{}
	if p.greeting != nil {
		for name, f := range p.greeting.problems {
			out[name] = f
		}
	}
	return out
}

// Versions of langgraph and of Python in the workers; empty before one is ready.
func (p *Pool) Versions() (langgraph, python string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting == nil {
		return "", ""
	}
	return p.greeting.langgraph, p.greeting.python
}

// place puts a call on the worker with the fewest runs among those that answer, waiting for one if it has to.
func (p *Pool) place(ctx context.Context, c *call, isolated bool) error {
	if isolated {
		return p.placeAlone(ctx, c)
	}
	for {
		p.mu.Lock()
		change, stopped := p.change, p.stopped
		best := p.best()
		p.mu.Unlock()
		if stopped {
			return graph.ErrReloading
		}
		if best != nil && best.add(c) {
			return nil
		}
		if best != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-change:
		}
	}
}

// best is the worker for the next run; nil when there is none. p.mu is held.
func (p *Pool) best() *worker {
	var best *worker
	fewest, now := 0, time.Now()
	for w := range p.workers {
		if w.isolated {
			continue
		}
		takes, runs, answers := w.load(now)
		if takes && answers && (best == nil || runs < fewest) {
			best, fewest = w, runs
		}
	}
	return best
}

func (p *Pool) placeAlone(ctx context.Context, c *call) error {
	w := newWorker(p, true)
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
			continue
		case p.wanted <- w:
		}
		break
	}
	select {
	case <-ctx.Done():
		w.retire(true)
		return context.Cause(ctx)
	case <-w.exited:
		return graph.ErrWorkerDied
	case <-w.ready:
	}
	if !w.add(c) {
		return graph.ErrWorkerDied
	}
	return nil
}

// line logs what a graph printed or logged.
func (p *Pool) line(pid int, m logLine) {
	level := slog.LevelError
	switch {
	case m.level < 20:
		level = slog.LevelDebug
	case m.level < 30:
		level = slog.LevelInfo
	case m.level < 40:
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.String("line", m.text), slog.String("source", m.source), slog.Int("pid", pid))
	if m.run != "" {
		attrs = append(attrs, slog.String("run_id", m.run), slog.String("thread_id", m.thread))
	}
	p.opts.Logger.LogAttrs(context.Background(), level, "graph output", attrs...)
}
