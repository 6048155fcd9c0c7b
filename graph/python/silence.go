package python

import (
	"errors"
	"slices"
	"time"

	"understudy/internal/child"
	"understudy/internal/logctx"
)

// A worker whose loop does not answer may be busy with a long task, such as the import of a large module. After Pool.silence, or before it if
// something waits and needsAnother, another one takes its place, so that runs are served. When it answers again it gets a place, because it has its imports, and the surplus worker is
// ended. After Pool.lost it is retired.
//
// What it has not read moves to another worker: a run that it reads later does not begin (pyGraph.execute). Other runs stay, because they have had effects and may still succeed. A question that has saved nothing moves to another worker, but only
// once: if it is its own code that blocks, it must not block one worker after the other. The second worker is waited for until it is retired.

// rested returns a channel that is closed while the worker has lost its place.
func (w *worker) rested() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.resting
}

// rest removes the place of a worker that has been silent for some time.
func (w *worker) rest(quiet time.Duration) {
	w.mu.Lock()
	select {
	case <-w.resting:
		w.mu.Unlock()
		return
	default:
	}
	if w.state > silent { // it has no place any more, but may have questions
		close(w.resting)
	}
	if w.state != serving || w.isolated { // an isolated one has no place
		w.mu.Unlock()
		return
	}
	w.state = silent
	close(w.resting)
	runs := len(w.calls)
	w.mu.Unlock()
	w.pool.opts.Logger.Warn("worker does not answer; another one takes its place until it does", "pid", w.pid, logctx.Took(quiet), "runs", runs)
}

// errUnread: a worker has lost its place before it read a call, or a question has ended before that.
var errUnread = errors.New("no worker has read it yet")

// unread reports whether the worker has not read the message of a call, which may not have been sent. The caller holds w.mu.
func (w *worker) unread(c *call) bool { return c.behind == 0 || w.answered < c.behind }

// hasUnread reports whether the worker has not read a call.
func (w *worker) hasUnread(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unread(c)
}

// needsAnother reports whether another worker takes the place of a silent one before Pool.silence: something waits, and the silent one is known to remain so for longer than
// a start takes. There is one such start at a time: when the machine is too busy for the workers that there are, more of them make it worse.
func (w *worker) needsAnother(quiet time.Duration) bool {
	if quiet <= w.pool.stalled || !w.holdsUp() {
		return false
	}
	w.mu.Lock()
	why := w.stall
	w.mu.Unlock()
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if why != child.Stopped && (why != child.Busy || quiet <= p.startTook) {
		return false
	}
	for other := range p.workers {
		other.mu.Lock()
		pending := other.state == starting || other.state == silent
		other.mu.Unlock()
		if other != w && pending {
			return false
		}
	}
	return true
}

// restEarly removes the place of a worker that needs another one before Pool.silence.
func (w *worker) restEarly(quiet time.Duration) {
	w.pool.early.Lock()
	defer w.pool.early.Unlock()
	if w.needsAnother(quiet) {
		w.rest(quiet)
	}
}

// holdsUp reports whether something waits until the worker answers, or another one takes its place.
func (w *worker) holdsUp() bool {
	w.pool.mu.Lock()
	waiting := w.pool.waiting > 0
	w.pool.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		waiting = waiting || w.unread(c)
	}
	return waiting
}

// readmit assigns a place to a worker that answers again.
func (p *Pool) readmit(w *worker, quiet time.Duration) {
	p.mu.Lock()
	if !slices.Contains(p.spares, w) {
		p.spares = append(p.spares, w)
	}
	surplus := p.surplus()
	p.mu.Unlock()
	p.opts.Logger.Info("worker answers again and stays in service", "pid", w.pid, logctx.Took(quiet))
	if surplus != nil {
		surplus.retire(exit{blameless: true})
	}
}

// surplus returns the youngest worker that has a place, if every place has one; else nil. The caller holds p.mu.
func (p *Pool) surplus() *worker {
	var youngest *worker
	placed := 0
	for w := range p.workers {
		w.mu.Lock()
		has := !w.isolated && !w.standby && w.state <= serving && !slices.Contains(p.spares, w)
		w.mu.Unlock()
		if !has {
			continue
		}
		placed++
		if youngest == nil || w.number > youngest.number {
			youngest = w
		}
	}
	if placed < p.opts.Workers {
		return nil
	}
	return youngest
}

// takeSpare returns a worker without a place for a place without a worker; nil when there is none.
func (p *Pool) takeSpare() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.spares) > 0 {
		w := p.spares[0]
		p.spares = p.spares[1:]
		if _, there := p.workers[w]; there {
			return w
		}
	}
	return nil
}
