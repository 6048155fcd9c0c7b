package pregel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// exec is one run, with all graphs nested in it.
type exec struct {
	ctx     context.Context //nolint:containedctx // of the run
	cancel  context.CancelCauseFunc
	log     *slog.Logger
	thread  id.Thread
	run     id.Run
	at      id.Checkpoint // checkpoint that the run addresses; "": the newest
	saver   graph.Saver   // nil: checkpoints are not kept
	saves   *saves        // nil: checkpoints are not kept
	store   graph.Store
	called  func(graph.ModelCall) // nil: model calls are not counted
	tracing *graph.Tracing        // nil: no spans are reported
	spans   atomic.Uint64         // that were reported
	out     *stream               // nil: events are not read
	modes   modes

	config     json.RawMessage
	context    json.RawMessage
	metadata   []field // of the configuration
	stored     []field // what of the configuration goes into metadata of checkpoints
	grace      time.Duration
	graceEnds  atomic.Pointer[time.Time] // nil: nothing waits for nodes yet
	tags       []string
	durability string
	attempt    int
	resumeMap  map[string]*value
	replay     *replayState
	messages   *messageStream
	workers    *workers
	runs       running // functions of nodes
}

// running counts the running node functions, and notifies a waiter when the last has ended.
type running struct {
	n     atomic.Int64
	ended chan struct{} // closed by the last if settle waits
	mu    sync.Mutex
}

// patience returns what is left of the grace period for nodes that ignore their context. It begins with the first call.
func (x *exec) patience() time.Duration {
	ends := time.Now().Add(x.grace)
	if !x.graceEnds.CompareAndSwap(nil, &ends) {
		ends = *x.graceEnds.Load()
	}
	return time.Until(ends)
}

func (x *exec) begin() { x.runs.n.Add(1) }

func (x *exec) end() {
	if x.runs.n.Add(-1) > 0 {
		return
	}
	x.runs.mu.Lock()
	defer x.runs.mu.Unlock()
	if x.runs.ended != nil && x.runs.n.Load() == 0 {
		close(x.runs.ended)
		x.runs.ended = nil
	}
}

// replayState holds the position of subgraphs when a run resumes from an old checkpoint.
type replayState struct {
	before  string
	mu      sync.Mutex
	visited map[string]bool
}

func (r *replayState) first(ns string) bool {
	if i := strings.LastIndexByte(ns, ':'); i >= 0 {
		ns = ns[:i]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.visited[ns] {
		return false
	}
	r.visited[ns] = true
	return true
}

// load reads a checkpoint after all earlier saves are committed.
func (x *exec) load(k checkpointer.Key) (*checkpointer.Tuple, error) {
	if err := x.saves.wait(); err != nil {
		return nil, x.savingFailed(err)
	}
	t, err := x.saver.Load(x.ctx, k)
	if err != nil {
		what := fmt.Sprintf("read checkpoint %s of thread %s", k.ID, k.Thread)
		if k.ID == "" {
			what = fmt.Sprintf("read the last checkpoint of thread %s", k.Thread)
		}
		return nil, &storageError{what, err}
	}
	return t, nil
}

func (x *exec) list(q checkpointer.List) ([]*checkpointer.Tuple, error) {
	if err := x.saves.wait(); err != nil {
		return nil, x.savingFailed(err)
	}
	found, err := x.saver.List(x.ctx, q)
	if err != nil {
		return nil, &storageError{fmt.Sprintf("read checkpoints of thread %s", q.Thread), err}
	}
	return found, nil
}
