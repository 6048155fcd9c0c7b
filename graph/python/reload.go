package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"understudy/graph"
	"understudy/internal/cache"
	"understudy/internal/child"
)

// generation is one version of what workers load. The pool's mutex guards the fields that change.
type generation struct {
	opts     Options
	imported bool                      // a worker has become ready: no import is fatal by itself
	deaths   map[string]int            // of workers, by the graph being imported
	skip     map[string]*graph.Failure // graphs that workers no longer import, and why
	first    bool                      // of the pool
	shown    map[string]bool           // graphs whose first import was reported
	slow     map[string]time.Duration  // graphs whose import was logged as slow, and after how long it is next
	fixes    *cache.Cache[string, string]
	hung     bool // it was logged that the interpreter does not run the worker's code

	probing   sync.Once
	notPython error // found by probing
}

// probe returns what shows that the interpreter is none; nil when it is one. It is tried once.
func (g *generation) probe(ctx context.Context) error {
	g.probing.Do(func() { g.notPython = notPython(ctx, &g.opts) })
	return g.notPython
}

func newGeneration(opts Options) *generation {
	return &generation{opts: opts, deaths: map[string]int{}, skip: map[string]*graph.Failure{}, shown: map[string]bool{}, slow: map[string]time.Duration{}, fixes: cache.New[string, string](maxFixes)}
}

// setup returns the configuration that a worker reads from its environment at start; server is nil when it inherits its socket.
func (g *generation) setup(server *child.Address) string {
	s := g.opts.setup()
	s.Server = server
	for name, why := range g.skip {
		if s.Skip == nil {
			s.Skip = map[string]string{}
		}
		s.Skip[name] = why.Message
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic("python: setup of a worker: " + err.Error()) // Serde is not JSON: New and Reload have checked it
	}
	return string(text)
}

// blame notes that a worker died while it imported a graph. A single death may be an accident; after another one, or when the import
// exceeded its time, the graph is skipped, so that the others are served.
func (g *generation) blame(name string, late bool, why *graph.Failure) {
	if g.deaths[name]++; late || g.deaths[name] >= deathsPerGraph {
		g.skip[name] = why
	}
}

// Reload replaces the workers by new ones with other options. The first new one must import its graphs: until then, and if that fails,
// nothing changes. Then the old ones take no more runs, and end after their runs; runs left after grace end with graph.ErrReloading.
// Workers, JobsPerWorker, limits and Logger stay those of New. The error is a *ReloadError when graphs are the cause.
func (p *Pool) Reload(ctx context.Context, opts Options, grace time.Duration) error {
	if opts.Serde != nil && !json.Valid(opts.Serde) {
		return errors.New("python: Options.Serde is not JSON")
	}
	select {
	case p.reloading <- struct{}{}:
		defer func() { <-p.reloading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	first := p.workerOf(newGeneration(opts.withDefaults()), false)
	first.standby = true
	if err := p.want(ctx, first); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		first.dismiss(p.killGrace)
		return context.Cause(ctx)
	case <-first.exited:
		return &ReloadError{Problems: map[string]error{}, Err: first.startErr, Why: first.why}
	case <-first.ready:
	}
	old, err := p.admit(first)
	if err != nil {
		first.dismiss(p.killGrace)
		return err
	}
	for _, w := range old {
		w.dismiss(grace)
	}
	p.changed()
	return nil
}

// admit puts a worker and its generation into service, unless graphs that worked fail to import. It returns the workers to retire.
func (p *Pool) admit(first *worker) (old []*worker, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := map[string]error{}
	for name, why := range first.greeting.problems {
		_, known := p.gen.opts.Graphs[name]
		if known && p.greeting != nil && p.greeting.problems[name] == nil {
			problems[name] = why
		}
	}
	if len(problems) > 0 {
		return nil, &ReloadError{Problems: problems}
	}
	p.gen, p.greeting, p.greeter, p.failure = first.gen, &first.greeting, first.gen, nil
	p.begun()
	first.standby = false
	p.spares = append(p.spares, first)
	for w := range p.workers {
		if w != first {
			old = append(old, w)
		}
	}
	return old, nil
}

// dismiss retires a worker that must end through no fault of its own.
func (w *worker) dismiss(within time.Duration) {
	w.retire(exit{blameless: true, deadline: time.Now().Add(within), err: graph.ErrReloading})
}

// ReloadError is the reason why workers were not replaced.
type ReloadError struct {
	Problems map[string]error // by graph that no longer imports
	Err      error            // of the worker itself, if it died before it was ready
	Why      *StartError      // the same for operators; may be nil
}

func (e *ReloadError) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	text := "graphs do not import any more:"
	for _, name := range slices.Sorted(maps.Keys(e.Problems)) {
		text += fmt.Sprintf(" %s (%v)", name, e.Problems[name])
	}
	return text
}

func (e *ReloadError) Unwrap() error { return e.Err }
