package python

import (
	"fmt"
	"time"

	"understudy/internal/child"
)

// state is where a worker is in its life. It goes forward, but for a silent worker, which returns to serving when it answers.
type state int

const (
	starting state = iota // imports the graphs
	serving               // takes runs
	silent                // takes runs, but has lost its place because its loop does not answer
	leaving               // takes no more runs, and ends when it has none
	killed                // by this server
)

// exit is how a worker leaves service. Zero: it was not needed any more.
type exit struct {
	reason    reason    // zero: in order
	blameless bool      // it is replaced or surplus: if it was not ready yet, that is no failed start
	deadline  time.Time // when it is killed even if it has runs; at once, if its loop does not answer, unless it is blameless. Zero: never
	err       error     // of runs that are left at the deadline; nil: a graph.Death
}

// reason is why this server ends a worker, for its runs and the log, and what to do about it.
type reason struct{ text, fix string }

// checkup is what a look at a worker found.
type checkup struct {
	quiet  time.Duration // since the ping that its loop has not answered; zero: none
	mute   time.Duration // for which neither its loop nor its watch (blocked.py) has said anything
	large  bool          // it is over its memory limit
	served bool          // it took runs until now
	reason reason        // why it cannot stay; zero: it can, or leaves in order
	kill   bool          // it was put into the state killed
	forced bool          // it may have runs, and is killed all the same
	hangs  bool          // it takes long to start, and has not begun to import
	slow   bool          // it takes long to import a graph

	graph, at, code string        // what it imports, and the line that is at work
	took            time.Duration // for that, or for its start
}

// tick kills the worker if it must be killed now, and reports whether it did.
func (w *worker) tick(now time.Time) bool {
	memory, limit := int64(0), w.pool.opts.MemoryLimit
	if limit > 0 {
		memory = child.ResidentMemory(w.pid)
	}
	c := w.examine(now, memory, limit)
	if c.forced {
		w.pool.metrics.killed.Inc()
	}
	if c.hangs {
		w.pool.slowToStart(w, c.took)
	}
	if c.slow {
		w.pool.slow(w, c.graph, c.at, c.code, c.took)
	}
	if c.large && c.served {
		w.pool.opts.Logger.Warn("a worker is over its memory limit and goes out of service", "pid", w.pid, "bytes", memory, "limit", limit)
	}
	if c.kill {
		w.child.Kill()
		return true
	}
	w.probe(c)
	switch {
	case c.large:
		w.retire(exit{reason: c.reason, deadline: now.Add(w.pool.killGrace)})
	case c.quiet > w.pool.lost:
		w.retire(exit{}) // its runs may still succeed
		select {
		case <-w.lost:
		default:
			close(w.lost) // by this goroutine only
		}
	case c.quiet > w.pool.silence:
		w.rest(c.quiet)
	default:
		w.restEarly(c.quiet)
	}
	return false
}

// examine decides whether the worker has to be killed, and if so puts it into that state.
func (w *worker) examine(now time.Time, memory, limit int64) checkup {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := checkup{large: memory > limit, served: w.state < leaving, graph: w.graph, at: w.at, code: w.code, took: now.Sub(w.since)}
	if !w.pingAt.IsZero() {
		c.quiet = now.Sub(w.pingAt)
	}
	switch {
	case w.state == starting && w.graph != "" && w.heard.After(w.since):
		c.mute = now.Sub(w.heard)
	case w.state == starting && w.graph != "":
		c.mute = c.took
	case w.heard.Before(w.pingAt):
		c.mute = c.quiet
	}
	within := w.pool.startWithin
	if c.graph != "" {
		within = w.pool.importWithin
	}
	late := w.state == starting && c.took > within
	switch {
	case late && c.graph != "":
		c.reason = reason{fmt.Sprintf("importing %s took longer than %s", c.graph, c.took.Round(time.Second)), "let the module do less when it is imported"}
		if c.at != "" {
			c.reason.text += ", at " + c.at
		}
	case late:
		c.reason.text = fmt.Sprintf("it was not ready after %s", c.took.Round(time.Second))
	case c.large:
		c.reason = reason{fmt.Sprintf("it had %d MiB of memory and may have %d (--worker-memory)", memory>>20, limit>>20), lessMemoryOfWorker}
	}
	overdue := !w.exit.deadline.IsZero() &&
		(now.After(w.exit.deadline) || w.state == leaving && c.quiet > w.pool.answerWithin && !w.exit.blameless)
	c.forced = late || overdue || memory > 2*limit
	c.kill = c.forced || w.state == leaving && len(w.calls) == 0
	if !c.kill {
		c.slow = w.state == starting && c.graph != "" && c.took >= slowImport
		c.hangs = w.state == starting && !w.begun && c.took >= w.pool.slowStart
		return c
	}
	w.state = killed
	if w.exit.reason.text == "" {
		w.exit.reason = c.reason
	}
	if c.reason.text != "" {
		w.exit.err = nil
	}
	return c
}

// isKilled reports whether this server has killed the worker.
func (w *worker) isKilled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == killed
}

// epitaph describes a worker that was never ready: the graph it was importing ("": none yet), why it was killed ("": it was not), and
// whether it was to blame.
func (w *worker) epitaph() (graph, verdict string, blameless bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == killed {
		verdict = w.exit.reason.text
	}
	return w.graph, verdict, w.exit.blameless
}

// retire takes the worker out of service. Of several exits the first reason and the earliest deadline count.
func (w *worker) retire(e exit) {
	w.mu.Lock()
	first := w.state < leaving
	if first {
		w.state = leaving
	}
	if w.exit.reason.text == "" {
		w.exit.reason = e.reason
	}
	w.exit.blameless = w.exit.blameless || e.blameless
	if !e.deadline.IsZero() && (w.exit.deadline.IsZero() || e.deadline.Before(w.exit.deadline)) {
		w.exit.deadline, w.exit.err = e.deadline, e.err
	}
	w.mu.Unlock()
	if first {
		close(w.retired)
		w.pool.changed()
	}
}
