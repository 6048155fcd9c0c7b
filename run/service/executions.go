package service

import (
	"context"
	"sync"
	"sync/atomic"
	"understudy/run/stream"

	"understudy/id"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/slots"
	"understudy/thread/partial"
)

// execution is one claim of a run that is executed in this process. It is owned by its goroutine; others only cancel it and wait.
type execution struct {
	*stream.Attempt
	calls  *completion.Calls // model calls that are not stored yet; nil: they are not counted
	waits  bool              // the run ended at an interrupt, which waits for an answer. Set by finish
	said   *partial.Tokens   // what it streams of answers; nil: not kept
	cancel context.CancelCauseFunc
	done   chan struct{} // closed after everything about the run was committed and published
	// unwritten: the run is not in the database yet, so no other server can know of it.
	unwritten atomic.Bool
	ending    atomic.Bool // the graph has stopped, and the end is being written

	turn   *slots.Turn        // of a suspect, from when it is lined up
	yields context.CancelFunc // of a suspect that has its turn: ends it; nil before
	turns  sync.WaitGroup     // what holds the turn
}

// wait returns when everything about the run was committed and published, or why that takes long.
func (ex *execution) wait(ctx context.Context) error {
	select {
	case <-ex.done:
		return nil
	case <-ex.Unsaved():
		return ex.UnsavedErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// executions are the runs that this process executes.
type executions struct {
	running sync.WaitGroup

	mu      sync.Mutex
	active  map[id.Run]*execution
	closing bool
}

func newExecutions() *executions { return &executions{active: map[id.Run]*execution{}} }

// add notes an execution that begins. before is closed when another one of the thread, which has ended, has published all of its records; nil: there is none.
// On a shared store one that has not ended is cancelled: the thread could be claimed, so this server stood still and does not know yet that it lost it.
func (e *executions) add(ex *execution, shared bool) (before <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.active {
		switch {
		case other.Run.Thread != ex.Run.Thread:
		case shared && !other.ending.Load():
			other.cancel(errLost)
		default:
			before = other.done
		}
	}
	e.active[ex.Run.ID] = ex
	if e.closing {
		ex.cancel(errShutdown)
	}
	e.running.Add(1)
	return before
}

// remove drops an execution that has ended.
func (e *executions) remove(ex *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[ex.Run.ID] == ex { // else the next attempt has been claimed by now
		delete(e.active, ex.Run.ID)
	}
}

// get returns the execution of a run; nil: it is not executed here.
func (e *executions) get(r id.Run) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[r]
}

// Attempt implements attempts.
func (e *executions) Attempt(r id.Run) *stream.Attempt {
	if ex := e.get(r); ex != nil {
		return ex.Attempt
	}
	return nil
}

// written returns the executions whose runs are in the database.
func (e *executions) written() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*execution, 0, len(e.active))
	for _, ex := range e.active {
		if !ex.unwritten.Load() {
			out = append(out, ex)
		}
	}
	return out
}

// concern reports whether a signal is about one of them.
func (e *executions) concern(sig run.Signal) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[sig.Run] != nil {
		return true
	}
	for _, ex := range e.active {
		if ex.Run.Thread == sig.Thread {
			return true
		}
	}
	return false
}

func (e *executions) len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.active)
}

// close makes add cancel executions that begin from now on, so that they are handed back.
func (e *executions) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
}

// cancelAll cancels those of a thread; "" is all threads.
func (e *executions) cancelAll(t id.Thread, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ex := range e.active {
		if t == "" || ex.Run.Thread == t {
			ex.cancel(cause)
		}
	}
}
