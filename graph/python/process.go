package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"understudy/graph"
	"understudy/internal/child"
)

// run starts the process and returns when it and all its goroutines have ended.
func (w *worker) run(ctx context.Context) error {
	ooms := child.OOMKills()
	if err := w.start(); err != nil {
		return err
	}
	defer w.child.Close()
	log := w.pool.opts.Logger.With("pid", w.pid)
	log.Debug("worker started")

	_ = w.send(codeMessage) // its size is fixed and far below the limit
	var pipes sync.WaitGroup
	pipes.Go(func() { w.pipe(w.child.Stdout, "stdout", nil) })
	pipes.Go(func() { w.pipe(w.child.Stderr, "stderr", &w.tail) })
	w.child.Attach(w.out, w.read)

	w.supervise(ctx)
	w.retire(exit{})
	w.child.End()
	pipes.Wait()
	w.confess()
	readErr, waitErr := w.child.ReadErr, w.child.WaitErr
	w.endCalls(ctx.Err() != nil, waitErr, child.OOMKills() > ooms)
	w.reading.Wait()
	log.Debug("worker ended", "status", fmt.Sprint(waitErr))
	if waitErr == nil && readErr != nil && w.hasSpoken() && !errors.Is(readErr, io.EOF) && !errors.Is(readErr, net.ErrClosed) {
		return readErr // it was stopped after an invalid frame
	}
	return waitErr
}

// start starts the process.
func (w *worker) start() (err error) {
	w.child, err = child.Start(child.Program{
		Python: w.gen.opts.Python, Package: "understudy_worker", Dir: w.gen.opts.Dir, Env: w.gen.opts.Env,
		Setup: func(server *child.Address) string {
			w.pool.mu.Lock()
			defer w.pool.mu.Unlock()
			return w.gen.setup(server)
		},
	})
	if err == nil {
		w.pid = w.child.PID
	}
	return err
}

// endCalls ends the calls that are open, with the reason for which the worker has ended. status is what waiting for its process returned.
func (w *worker) endCalls(stopped bool, status error, outOfMemory bool) {
	w.mu.Lock()
	e, byUs := w.exit, w.state == killed
	calls := slices.Collect(maps.Values(w.calls))
	w.mu.Unlock()
	var why error
	switch {
	case byUs && e.err != nil:
		why = e.err
	case stopped && !byUs:
		why = graph.ErrReloading
	default:
		switch {
		case w.child.Forced:
			e.reason = closedSocket
		case !byUs:
			e.reason = reason{}
		}
		w.cause, w.fix = deathOf(status, e.reason, outOfMemory)
	}
	w.report(time.Time{})
	for _, c := range calls {
		if why == nil {
			c.finish(done{}, c.died(w.cause, w.fix))
		} else {
			c.finish(done{}, why)
		}
	}
}

// supervise returns when the worker must end or has ended.
func (w *worker) supervise(ctx context.Context) {
	ticker := time.NewTicker(w.pool.pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.child.Gone:
			return
		case <-w.child.Left:
			return
		case <-ticker.C:
		}
		w.report(time.Now())
		if w.tick(time.Now()) {
			return
		}
		w.ping()
	}
}
