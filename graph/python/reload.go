package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"understudy/graph"
)

// generation is one version of what workers load. The pool's mutex guards what is not fixed.
type generation struct {
	opts     Options
	imported bool                      // a worker has become ready: no import kills one by itself
	deaths   map[string]int            // of workers, by the graph that they were importing
	skip     map[string]*graph.Failure // graphs that workers do not try to import any more, and why
	first    bool                      // of the pool
	shown    map[string]bool           // graphs whose first import was reported
	slow     map[string]bool           // graphs whose import was logged as slow
}

func newGeneration(opts Options) *generation {
	return &generation{opts: opts, deaths: map[string]int{}, skip: map[string]*graph.Failure{}, shown: map[string]bool{}, slow: map[string]bool{}}
}

// setup is what a worker reads from its environment when it starts.
func (g *generation) setup() string {
	s := g.opts.setup()
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

// blame notes that a worker died while it imported a graph. One death may have been an accident, and a graph that blocks has taken long
// enough: then the graph is left out, so that the others are served.
func (g *generation) blame(name string, late bool, why *graph.Failure) {
	if g.deaths[name]++; late || g.deaths[name] > 1 {
		g.skip[name] = why
	}
}

// Reload has workers with other options take the place of those that are there. The first of them has to import its graphs before
// it counts: until then, and when that fails, everything stays as it is. Then the old ones take no more runs, and end with those
// they have; what is left after grace ends with graph.ErrReloading. Workers, JobsPerWorker, limits and Logger stay those of New. An error
// is a *ReloadError when graphs are to blame.
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
		return &ReloadError{Problems: map[string]error{}, Err: first.startErr}
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

// admit puts a worker, and with it its generation, into service, unless graphs that worked do not import any more. It gives those that
// have to go.
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

// dismiss retires a worker whose time is over through no fault of its own.
func (w *worker) dismiss(within time.Duration) {
	w.mu.Lock()
	w.dismissed = true
	w.mu.Unlock()
	w.retire(max(within, time.Nanosecond), graph.ErrReloading)
}

// ReloadError says why workers were not replaced.
type ReloadError struct {
	Problems map[string]error // by graph that does not import any more
	Err      error            // of the worker itself, when it did not get so far
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
