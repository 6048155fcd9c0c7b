package execute

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/slots"
	"understudy/run/spans"
	"understudy/run/stream"
	"understudy/thread/partial"
)

// Execution is one claim of a run that is executed in this process. It is owned by its goroutine; others only cancel it and wait.
type Execution struct {
	*stream.Attempt
	calls     *completion.Calls              // model calls that are not stored yet; nil: they are not counted
	notes     *completion.Notes              // rows of the graph for the log; nil: there are none
	spans     atomic.Pointer[spans.Recorder] // records its spans; nil: none are recorded, or the run has not begun
	continues bool                           // another attempt continues the run. Set by finish
	waits     bool                           // the run ended at an interrupt, which waits for an answer. Set by finish, or without a thread by its records
	tried     *ending                        // an end whose commit returned an error, so that it may be written; nil: none. Owned by finish
	streamed  *partial.Tokens                // what it streams of answers; nil: not kept
	Cancel    context.CancelCauseFunc        // stops it; the cause is one of those below
	done      chan struct{}                  // closed after everything about the run was committed and published
	// unwritten: the run is not in the database yet, so no other server can know of it.
	unwritten atomic.Bool
	ending    atomic.Bool // the graph has stopped, and the end is being written

	turn   *slots.Turn        // of a suspect, from when it is lined up
	yields context.CancelFunc // of a suspect that has its turn: ends it; nil before
	turns  sync.WaitGroup     // what holds the turn
}

// Unwritten reports whether the run is not in the database yet.
func (ex *Execution) Unwritten() bool { return ex.unwritten.Load() }

// Wait returns when everything about the run was committed and published, or why that takes long.
func (ex *Execution) Wait(ctx context.Context) error {
	select {
	case <-ex.done:
		return nil
	case <-ex.Unsaved():
		return ex.UnsavedErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Why an execution was stopped: causes of its context.
var (
	ErrCancelled = errors.New("the run was cancelled")
	ErrGone      = errors.New("the run or its thread was deleted")
	ErrShutdown  = fmt.Errorf("the server shuts down: %w", graph.ErrHandedOver)
	errTimeout   = errors.New("the run took longer than it may")
	ErrLost      = fmt.Errorf("another instance has taken the run over: %w", graph.ErrHandedOver)
)

// Executions are the runs that this process executes.
type Executions struct {
	running sync.WaitGroup

	mu      sync.Mutex
	active  map[id.Run]*Execution
	closing bool
}

// NewExecutions holds none yet.
func NewExecutions() *Executions { return &Executions{active: map[id.Run]*Execution{}} }

// add notes an execution that begins. before is closed when another one of the thread, which has ended, has published all of its records; nil: there is none.
// On a shared store one that has not ended is cancelled: the thread could be claimed, so this server stood still and does not know yet that it lost it.
func (e *Executions) add(ex *Execution, shared bool) (before <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.active {
		switch {
		case other.Run.Thread != ex.Run.Thread:
		case shared && !other.ending.Load():
			other.Cancel(ErrLost)
		default:
			before = other.done
		}
	}
	e.active[ex.Run.ID] = ex
	if e.closing {
		ex.Cancel(ErrShutdown)
	}
	e.running.Add(1)
	return before
}

// remove drops an execution that has ended.
func (e *Executions) remove(ex *Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active[ex.Run.ID] == ex { // else the next attempt has been claimed by now
		delete(e.active, ex.Run.ID)
	}
}

// get returns the execution of a run; nil: it is not executed here.
func (e *Executions) get(r id.Run) *Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active[r]
}

// Attempt implements stream.Attempts.
func (e *Executions) Attempt(r id.Run) *stream.Attempt {
	if ex := e.get(r); ex != nil {
		return ex.Attempt
	}
	return nil
}

// NoteSpans encodes the spans that wait, and those that run for long as they are; nil: there are none. Pass it to PutSpans and SpansStored.
func (ex *Execution) NoteSpans() *spans.Batch {
	r := ex.spans.Load()
	r.NoteOpen()
	return r.Batch()
}

// PutSpans stores spans of NoteSpans.
func (ex *Execution) PutSpans(tx run.SpanTx, b *spans.Batch) error { return b.Put(tx, ex.Run.ID) }

// SpansStored forgets spans that are stored.
func (ex *Execution) SpansStored(b *spans.Batch) { ex.spans.Load().Stored(b) }

// Spans returns the spans of a run that are not stored, if this process executes it.
func (e *Executions) Spans(r id.Run) []spans.Span {
	if ex := e.get(r); ex != nil {
		return ex.spans.Load().Now()
	}
	return nil
}

// Busiest returns the graph with the most executions, and when the oldest of all began.
func (e *Executions) Busiest() (graph string, count int, oldest time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]int{}
	for _, ex := range e.active {
		g := ex.Run.Graph
		if counts[g]++; counts[g] > count || counts[g] == count && g < graph {
			graph, count = g, counts[g]
		}
		if began := ex.Run.StartedAt; oldest.IsZero() || began.Before(oldest) {
			oldest = began
		}
	}
	return graph, count, oldest
}

// Written returns the executions whose runs are in the database.
func (e *Executions) Written() []*Execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*Execution, 0, len(e.active))
	for _, ex := range e.active {
		if !ex.unwritten.Load() {
			out = append(out, ex)
		}
	}
	return out
}

// Of returns those of a thread.
func (e *Executions) Of(t id.Thread) (out []*Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ex := range e.active {
		if ex.Run.Thread == t {
			out = append(out, ex)
		}
	}
	return out
}

// Concern reports whether a signal is about one of them.
func (e *Executions) Concern(sig run.Signal) bool {
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

// Len returns how many there are.
func (e *Executions) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.active)
}

// Close makes add cancel executions that begin from now on, so that they are handed back.
func (e *Executions) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
}

// Wait returns when all have ended.
func (e *Executions) Wait() { e.running.Wait() }

// CancelAll cancels all.
func (e *Executions) CancelAll(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ex := range e.active {
		ex.Cancel(cause)
	}
}
