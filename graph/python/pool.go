package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"understudy/graph"
	"understudy/internal/logctx"
	"understudy/internal/logs"
	"understudy/internal/loop"
)

// Pool owns the worker processes. Its methods are safe for concurrent use; graphs work only while Run does.
type Pool struct {
	opts    Options
	metrics *metrics

	// Times. Fields, so that tests need not wait.
	pingEvery    time.Duration // between pings of a worker
	answerWithin time.Duration // a worker silent for this long gets no new runs
	stalled      time.Duration // a worker silent for this long is logged, and may lose its place if something waits for one
	silence      time.Duration // a worker silent for this long loses its place until it answers
	lost         time.Duration // a worker silent for this long is retired
	cancelGrace  time.Duration // for a cancelled run to end
	killGrace    time.Duration // for the other runs of a worker that must end
	slowStart    time.Duration // until the log says that an interpreter does not run the worker's code
	startWithin  time.Duration // until a worker imports the first graph, and after the last
	importWithin time.Duration // for the import of one graph
	firstBackoff time.Duration // after a worker died before it was ready; doubled each time
	lastBackoff  time.Duration
	patience     time.Duration // how long starts must have failed in a row before runs end because of it

	early     sync.Mutex    // held by worker.restEarly
	made      atomic.Uint64 // workers
	wanted    chan *worker  // workers to start outside of places: isolated ones, and the first of a reload
	reloading chan struct{} // has room for one: held by Reload

	mu           sync.Mutex
	gen          *generation
	waiting      int       // calls that wait for a worker
	spares       []*worker // workers without a place: the first of a reload, and those that answered again
	workers      map[*worker]struct{}
	change       chan struct{} // closed and replaced when a worker became ready, answered again, or left
	running      bool
	stopped      bool
	greeting     *hello        // of the last worker that became ready, without failed imports that succeeded in another worker of its generation
	greeter      *generation   // its generation
	startTook    time.Duration // the start of the last worker that became ready
	started      chan struct{} // closed when the first worker became ready or failed to
	failure      error         // why workers do not start; nil once one has
	cause        *StartError   // the same for operators
	failures     int           // of consecutive starts
	failing      time.Time     // time of the first of them
	patient      bool          // the last failure may be temporary
	loggedReason string        // last logged reason
	loggedAt     time.Time
	blocking     map[string]*blocking // by place
	blocks       int                  // how often event loops were blocked
	blockedAt    string               // where the last time
}

// New returns a pool without starting workers, which Run does. It panics if opts.Serde is not JSON.
func New(opts Options) *Pool {
	if opts.Serde != nil && !json.Valid(opts.Serde) {
		panic("python: Options.Serde is not JSON")
	}
	opts = opts.withDefaults()
	p := &Pool{
		opts: opts, gen: newGeneration(opts),
		pingEvery: 500 * time.Millisecond, answerWithin: time.Second, stalled: 2 * time.Second, silence: 10 * time.Second, lost: 2 * time.Minute,
		cancelGrace: 5 * time.Second, killGrace: time.Minute, slowStart: 5 * time.Second, startWithin: time.Minute, importWithin: 2 * time.Minute,
		firstBackoff: 100 * time.Millisecond, lastBackoff: 10 * time.Second, patience: time.Minute,
		wanted: make(chan *worker), reloading: make(chan struct{}, 1), workers: make(map[*worker]struct{}), change: make(chan struct{}), started: make(chan struct{}), blocking: make(map[string]*blocking),
	}
	p.gen.first = true
	p.metrics = newMetrics(opts.Registry, p)
	return p
}

// Run starts the workers and replaces those that die, until ctx is done. It returns when all processes have ended; their runs end
// with graph.ErrReloading. A pool runs once.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.running || p.stopped {
		p.mu.Unlock()
		return errors.New("python: the pool has been run before")
	}
	p.running = true
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

// keep maintains one worker in service until ctx is done.
func (p *Pool) keep(ctx context.Context, all *sync.WaitGroup) {
	begin := func() *worker {
		w := p.takeSpare()
		if w == nil {
			w = p.newWorker(false)
			all.Go(func() { p.work(ctx, w) })
		}
		return w
	}
	backoff := loop.NewBackoff(p.firstBackoff, p.lastBackoff)
	var w *worker
	for ctx.Err() == nil {
		if w == nil {
			w = begin()
		}
		select {
		case <-w.exited:
		case <-w.retired:
		case <-w.rested():
		case <-w.worn:
			w = p.succeed(ctx, w, begin)
			continue
		}
		select {
		case <-w.ready:
			backoff.Reset()
			w = nil
			continue
		default:
		}
		w = nil
		pause := backoff.Next()
		if p.isHopeless() {
			pause = p.lastBackoff
		}
		loop.Sleep(ctx, pause)
	}
}

// succeed replaces a worker that has executed its share of runs. The old one continues until the new one is ready.
func (p *Pool) succeed(ctx context.Context, w *worker, begin func() *worker) *worker {
	for {
		next := begin()
		select {
		case <-next.ready:
			w.retire(exit{})
			return next
		case <-w.exited:
			return next
		case <-w.retired:
			return next
		case <-next.exited:
		}
		if !loop.Sleep(ctx, p.lastBackoff) {
			return w
		}
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
			p.failed(ctx, w, err)
		}
	}
	died := ctx.Err() == nil && !w.isKilled()
	if died {
		p.metrics.died.Inc()
	}
	if died && !w.isolated && w.startErr == nil {
		p.opts.Logger.Warn("a worker died", "pid", w.pid, "cause", w.cause, "fix", w.fix)
	}
	close(w.exited)
	p.changed()
}

func (p *Pool) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.change)
	p.change = make(chan struct{})
}

// FixUnused is what to do about the checkpointer or store that a graph was compiled with.
const FixUnused = "call compile() without it: this server keeps conversations and items in its own database, and `understudy import` copies those of a PostgresSaver or SqliteSaver (docs/moving.md)"

func (p *Pool) greeted(w *worker, m hello) {
	for name, why := range m.problems {
		p.loaded(w, name, why, 0) // graphs that were not imported
	}
	p.mu.Lock()
	if want := w.gen.opts.PythonVersion; want != "" && !strings.HasPrefix(m.python+".", want+".") && !w.gen.imported {
		p.opts.Logger.Warn("the interpreter is not of the version that langgraph.json asks for", "python", m.python, "python_version", want, "interpreter", w.gen.opts.Python,
			"fix", "name an interpreter of Python "+want+" with --python, or change python_version")
	}
	if !w.gen.imported {
		for _, name := range slices.Sorted(maps.Keys(m.unused)) {
			p.opts.Logger.Warn("a graph was compiled with a "+m.unused[name]+" of its own, which is not used", "graph", name, "fix", FixUnused)
		}
	}
	p.failures, p.loggedReason, w.gen.imported = 0, "", true
	p.startTook = time.Since(w.began)
	if !w.standby && w.gen == p.gen { // else it is not in service, or about to leave
		// A file may have changed since another worker of the generation imported it. If that import worked, the graph counts as working:
		// otherwise a reload would accept the broken file as unchanged.
		if before := p.greeting; before != nil && p.greeter == w.gen {
			m.problems = maps.Clone(m.problems)
			maps.DeleteFunc(m.problems, func(name string, _ *graph.Failure) bool { return before.problems[name] == nil })
		}
		p.greeting, p.greeter, p.failure = &m, w.gen, nil
		p.begun()
	}
	p.mu.Unlock()
}

// loaded reports the first import of a graph.
func (p *Pool) loaded(w *worker, name string, why *graph.Failure, took time.Duration) {
	p.mu.Lock()
	_, served := w.gen.opts.Graphs[name]
	report := served && w.gen.first && !w.isolated && !w.gen.shown[name]
	w.gen.shown[name] = true
	p.mu.Unlock()
	if !report || p.opts.Loaded == nil {
		return
	}
	if why == nil {
		p.opts.Loaded(name, nil, took)
		return
	}
	p.opts.Loaded(name, why, took)
}

// slowImport is how long an import may take before it is logged.
const slowImport = 1500 * time.Millisecond

// slow logs that the import of a graph takes long, because later graphs wait for it, and what it does; again after twice the time.
func (p *Pool) slow(w *worker, name, at, code string, took time.Duration) {
	p.mu.Lock()
	due := took >= w.gen.slow[name]
	if due {
		w.gen.slow[name] = 2 * took
	}
	p.mu.Unlock()
	if !due {
		return
	}
	attrs := []any{"graph", name, "pid", w.pid, logctx.Took(took)}
	if at != "" {
		attrs = append(attrs, "at", at, "code", code)
	}
	p.opts.Logger.Info("still importing a graph; the graphs after it wait", attrs...)
}

// failed notes that a worker died before it was ready. Later workers skip a graph whose import killed it.
func (p *Pool) failed(ctx context.Context, w *worker, err error) {
	d := w.diagnose(ctx, err)
	if d == nil {
		return
	}
	w.startErr, w.why = d.err, d.cause
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patient = w.gen.imported || d.outside || d.short
	if d.cause.Graph != "" && !p.patient {
		w.gen.blame(d.cause.Graph, d.ended, &graph.Failure{
			Type: "ImportError", Message: fmt.Sprintf("The process that imported graph '%s' died: %v", d.cause.Graph, d.exit), Detail: d.wrote, Fix: d.cause.Fix,
		})
	}
	if w.standby {
		return // Reload returns it
	}
	if p.failures++; p.failures == 1 {
		p.failing = time.Now()
		if d.late {
			p.failing = w.began
		}
	}
	if d.late { // a time limit counts as long as the other failures
		p.failures = max(p.failures, startFailures)
	}
	p.failure, p.cause = d.err, d.cause
	p.logFailure(p.cause)
	p.begun()
}

// FixStart returns what to do about a process that ended before it loaded anything; "" unknown. It is for processes that need no langgraph.
func FixStart(why string) string {
	if strings.Contains(why, tooOld) {
		return NewerPython
	}
	return ""
}

// isHopeless reports that the interpreter cannot run a worker.
func (p *Pool) isHopeless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures > 0 && p.cause != nil && p.cause.Hopeless
}

// begun closes p.started once. The caller holds p.mu.
func (p *Pool) begun() {
	select {
	case <-p.started:
	default:
		close(p.started)
	}
}

// Ready waits until the first worker has loaded its graphs. The error of a failed start contains the end of the worker's stderr. Graphs
// that fail to import are not an error here, see Problems.
func (p *Pool) Ready(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.started:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting != nil {
		return nil
	}
	return p.failure
}

// Problems returns the import errors by graph. It is empty before a worker is ready.
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

// unused is what graphs were compiled with and the server replaces. See hello.
func (p *Pool) unused() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting == nil {
		return nil
	}
	return p.greeting.unused
}

// ErrImporting says that a graph is still being imported.
var ErrImporting = errors.New("the graph is still being imported")

// Imports returns for each graph of the pool nil if it is imported, and otherwise why not: ErrImporting, why no worker starts, or its own error.
func (p *Pool) Imports() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]error, len(p.gen.opts.Graphs))
	for name := range p.gen.opts.Graphs {
		switch {
		case p.greeting == nil && p.failure != nil:
			out[name] = p.failure
		case p.greeting == nil:
			out[name] = ErrImporting
		case p.greeting.problems[name] != nil:
			out[name] = p.greeting.problems[name]
		default:
			out[name] = nil
		}
	}
	return out
}

// Versions returns the versions of langgraph and of Python in the workers; empty before one is ready.
func (p *Pool) Versions() (langgraph, python string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting == nil {
		return "", ""
	}
	return p.greeting.langgraph, p.greeting.python
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
	p.opts.Logger.LogAttrs(context.Background(), level, logs.GraphOutput, attrs...)
}
