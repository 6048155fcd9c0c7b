package python

import (
	"context"
	"fmt"
	"time"
)

// Check imports one graph of opts in its own process and returns the error, or nil. within is the time limit. If the graph is the
// cause, the error is a *graph.Failure with the traceback in Detail.
func Check(ctx context.Context, opts Options, name string, within time.Duration) error {
	spec, ok := opts.Graphs[name]
	if !ok {
		return fmt.Errorf("there is no graph %q", name)
	}
	opts.Graphs, opts.Workers = map[string]Spec{name: spec}, 1
	p := New(opts)
	p.importWithin = within
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	err := p.Ready(ctx)
	if err == nil {
		err = p.Problems()[name]
	}
	cancel()
	if e := <-ended; err == nil {
		err = e
	}
	return err
}
