package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"understudy/graph"
	"understudy/internal/child"
)

// run starts the process and returns when it and all its goroutines have ended.
func (w *worker) run(ctx context.Context) error {
	// The kernel kills the child when the thread that started it ends, so the thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

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
	l := w.connect()

	w.supervise(ctx, l.gone, l.left)
	w.retire(exit{})
	w.stop(l)
	pipes.Wait()
	w.confess()
	w.endCalls(ctx.Err() != nil, l.waitErr, child.OOMKills() > ooms)
	w.reading.Wait()
	log.Debug("worker ended", "status", fmt.Sprint(l.waitErr))
	if l.waitErr == nil && l.readErr != nil && w.hasSpoken() && !errors.Is(l.readErr, io.EOF) && !errors.Is(l.readErr, net.ErrClosed) {
		return l.readErr // it was stopped after an invalid frame
	}
	return l.waitErr
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

// link is what joins a worker with its process.
type link struct {
	wires      sync.WaitGroup
	gone, left chan struct{} // closed when nothing comes any more from the socket, and when the process has ended
	// Their errors, after that.
	readErr, waitErr error
}

// connect reads and writes the worker's socket, and waits for its process, in goroutines of their own.
func (w *worker) connect() *link {
	l := &link{gone: make(chan struct{}), left: make(chan struct{})}
	connected := make(chan net.Conn, 1)
	l.wires.Go(func() {
		defer close(l.gone)
		defer close(connected)
		conn, err := w.child.Connect()
		if err != nil {
			l.readErr = err
			return
		}
		connected <- conn
		l.readErr = w.read(conn)
	})
	l.wires.Go(func() {
		if conn, ok := <-connected; ok {
			w.out.WriteTo(conn)
		}
	})
	l.wires.Go(func() { defer close(l.left); l.waitErr = w.child.Wait() })
	return l
}

// stop ends the process if it runs, with its children, and returns when the goroutines of link have ended.
func (w *worker) stop(l *link) {
	select {
	case <-l.left:
		// Its last output is still to be read. Forked children may hold its socket: those in its group end now, others are
		// not waited for.
		w.child.Kill()
		w.child.ExpectNone()
		select {
		case <-l.gone:
		case <-time.After(time.Second):
		}
	default:
	}

	// The worker exits when its socket closes. Its children die with its process group.
	w.out.Close()
	w.child.Hangup()
	timer := time.NewTimer(time.Second)
	select {
	case <-l.left:
	case <-timer.C:
		w.child.Kill()
		<-l.left
	}
	timer.Stop()
	w.child.Kill()
	l.wires.Wait()
	w.child.Drain()
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
		if !byUs {
			e.reason = ""
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
func (w *worker) supervise(ctx context.Context, gone, left <-chan struct{}) {
	ticker := time.NewTicker(w.pool.pingEvery)
	defer ticker.Stop()
	var number uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-left:
			return
		case <-ticker.C:
		}
		w.report(time.Now())
		if w.tick(time.Now()) {
			return
		}
		w.mu.Lock()
		ping := w.state != starting && w.pingAt.IsZero()
		if ping {
			w.pingAt = time.Now()
		}
		w.mu.Unlock()
		if ping {
			number++
			_ = w.send(pingMessage(number))
		}
	}
}
