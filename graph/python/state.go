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
	reason    string    // why this server ends it, for runs and the log; "": in order
	blameless bool      // it is replaced or surplus: if it was not ready yet, that is no failed start
	deadline  time.Time // when it is killed even if it has runs; at once, if its loop does not answer, unless it is blameless. Zero: never
	err       error     // of runs that are left at the deadline; nil: a graph.Death
}

// tick kills the worker if it must be killed now, and reports whether it did.
func (w *worker) tick(now time.Time) bool {
	memory, limit := int64(0), w.pool.opts.MemoryLimit
	if limit > 0 {
		memory = child.ResidentMemory(w.pid)
	}
	w.mu.Lock()
	quiet := time.Duration(0)
	if !w.pingAt.IsZero() {
		quiet = now.Sub(w.pingAt)
	}
	reason := ""
	importing := w.graph
	within := w.pool.startWithin
	if importing != "" {
		within = w.pool.importWithin
	}
	took := now.Sub(w.since)
	late := w.state == starting && took > within
	switch {
	case late && importing != "":
		reason = fmt.Sprintf("importing %s took longer than %s", importing, took.Round(time.Second))
		if w.at != "" {
			reason += ", at " + w.at
		}
	case late:
		reason = fmt.Sprintf("it was not ready after %s", took.Round(time.Second))
	case memory > limit:
		reason = fmt.Sprintf("it had %d MiB of memory and may have %d (--worker-memory)", memory>>20, limit>>20)
	}
	has := !w.exit.deadline.IsZero()
	overdue := has && (now.After(w.exit.deadline) || w.state == leaving && quiet > w.pool.answerWithin && !w.exit.blameless)
	forced := late || overdue || memory > 2*limit
	kill := forced || w.state == leaving && len(w.calls) == 0
	served := w.state < leaving
	slow := w.state == starting && importing != "" && took >= slowImport && !kill
	hangs := w.state == starting && !w.begun && took >= w.pool.slowStart && !kill
	if kill {
		w.state = killed
		if w.exit.reason == "" {
			w.exit.reason = reason
		}
		if reason != "" {
			w.exit.err = nil
		}
	}
	at, code := w.at, w.code
	w.mu.Unlock()
	if kill && forced {
		w.pool.metrics.killed.Inc()
	}
	if hangs {
		w.pool.slowToStart(w, took)
	}
	if slow {
		w.pool.slow(w, importing, at, code, took)
	}
	if memory > limit && served {
		w.pool.opts.Logger.Warn("a worker is over its memory limit and goes out of service", "pid", w.pid, "bytes", memory, "limit", limit)
	}
	switch {
	case kill:
		w.child.Kill()
		return true
	case memory > limit:
		w.retire(exit{reason: reason, deadline: now.Add(w.pool.killGrace)})
	case quiet > w.pool.lost:
		w.retire(exit{}) // its runs may still succeed
		select {
		case <-w.lost:
		default:
			close(w.lost) // by this goroutine only
		}
	case quiet > w.pool.silence:
		w.rest(quiet)
	}
	return false
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
		verdict = w.exit.reason
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
	if w.exit.reason == "" {
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
