package gate

import (
	"context"
	"errors"
	"sync"
)

// alone is a gate with a process for one purpose, which runs from its start to Close.
type alone struct {
	gate  *Gate
	stop  context.CancelFunc
	ended chan struct{}
	once  *sync.Once
}

// startAlone starts the process and waits until it has loaded its part.
func startAlone(ctx context.Context, g *Gate) (alone, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := alone{gate: g, stop: stop, ended: make(chan struct{}), once: &sync.Once{}}
	go func() {
		defer close(a.ended)
		_ = g.Run(running) // Ready has its error
	}()
	if err := g.Ready(ctx); err != nil {
		return alone{}, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close ends the process.
func (a alone) Close() error {
	a.once.Do(a.stop)
	<-a.ended
	return nil
}

// PID returns the process that answers; 0 when none does.
func (a alone) PID() int {
	if p := a.gate.serving(); p != nil {
		return p.pid
	}
	return 0
}
