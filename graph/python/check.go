package python

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"understudy/graph"
)

// Checked is what Check reports about a graph, as soon as it is known.
type Checked struct {
	// Imported is called once for each graph. err is nil, a *graph.Failure with the traceback in Detail if the graph is the cause, or why no worker
	// starts.
	Imported func(name string, err error, took time.Duration)
	// Built is called for each graph that was imported and cannot be built with an empty configuration: a factory fails, or makes no graph.
	Built func(name string, err error)
	// Unused is called for each graph that was compiled with a checkpointer or a store, which the server replaces by its own.
	Unused func(name, what string)
}

// factoryWithin is how long a factory may take.
const factoryWithin = 10 * time.Second

// Check imports the graphs of opts in one worker, as a server does, and builds each once. A graph whose import ends the worker, or takes longer than
// within, is left out of the next one. The functions are not called at the same time.
func Check(ctx context.Context, opts Options, within time.Duration, found Checked) error {
	names := make([]string, 0, len(opts.Graphs))
	for name := range opts.Graphs {
		names = append(names, name)
	}
	slices.Sort(names)
	var mu sync.Mutex
	seen, works := map[string]bool{}, map[string]bool{}
	var p *Pool
	report := func(name string, err error, took time.Duration) {
		p.mu.Lock()
		if why := p.gen.skip[name]; why != nil { // with what the worker wrote before it ended, which the next one does not know
			err = why
		}
		p.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		if !seen[name] {
			seen[name], works[name] = true, err == nil
			found.Imported(name, err, took)
		}
	}
	opts.Workers, opts.Loaded = 1, report
	p = New(opts)
	p.importWithin = within
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	err := p.settled(ctx)
	problems := p.Problems()
	for _, name := range names {
		why := problems[name]
		if why == nil {
			why = err
		}
		report(name, why, 0) // unless it was
	}
	unused := p.unused()
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		found.Unused(name, unused[name])
	}
	for _, name := range names {
		if err != nil || !works[name] {
			continue
		}
		if err := Build(ctx, p.Graph(name)); err != nil {
			found.Built(name, err)
		}
	}
	cancel()
	return <-ended
}

// deathsPerGraph is after how many ends of workers a graph is left out.
const deathsPerGraph = 2

// settled waits until a worker has loaded the graphs, without those whose import ended the workers before it, or until none will.
func (p *Pool) settled(ctx context.Context) error {
	for {
		p.mu.Lock()
		change, greeted, failures, cause, failure := p.change, p.greeting != nil, p.failures, p.cause, p.failure
		p.mu.Unlock()
		switch {
		case greeted:
			return nil
		case failures > 0 && (cause.Hopeless || cause.Graph == "" || failures > deathsPerGraph*len(p.opts.Graphs)):
			return failure
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Build builds a graph with an empty configuration, as requests for its schemas do. The error is a *graph.Failure, or says that it took too long. It is nil when
// no worker starts, or none has answered: nothing is known of the graph then.
func Build(ctx context.Context, g graph.Graph) error {
	ctx, cancel := context.WithTimeoutCause(ctx, factoryWithin, fmt.Errorf("it takes longer than %s", factoryWithin))
	defer cancel()
	_, err := g.Describe(ctx, graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	if f := (*graph.Failure)(nil); errors.As(err, &f) {
		if f.Type == graph.WorkerStartError {
			return nil // of the processes, not of the graph: the pool logs it
		}
		return f
	}
	if err == nil || errors.Is(err, errUnread) { // other code keeps the workers busy, which is logged
		return nil
	}
	return fmt.Errorf("build with an empty configuration: %w", err)
}
