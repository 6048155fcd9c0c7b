package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/completion"
)

// invocation is what the graph is called with. The first attempt gets the input; a later one continues from what an earlier one saved.
func (x *Executor) invocation(ctx context.Context, ex *Execution, at *position) (graph.Invocation, error) {
	r := ex.Run
	k := &r.Kwargs
	config, err := x.config(r)
	if err != nil {
		return graph.Invocation{}, err
	}
	inv := graph.Invocation{
		Config:    config,
		Run:       r.ID,
		Attempt:   r.Attempt,
		Arguments: k.Arguments,
		At:        checkpointer.Key{Thread: r.Thread, NS: k.CheckpointNS, ID: k.CheckpointID},
		Isolated:  r.Failures > 0,
		Log:       x.Log.With("run_id", r.ID, "thread_id", r.Thread),
	}
	inv.Command, inv.Tracing = commandOf(k), ex.spans.Load().Tracing()
	if r.Attempt > 1 && r.Passed && k.Durability != "exit" && !k.Temporary {
		inv.Input, inv.Command = nil, nil
		inv.At, inv.CheckpointMap = checkpointer.Key{Thread: r.Thread}, nil
	}
	if inv.At.ID != "" && !k.Temporary { // a fork does not load the head that its checkpoints have to come after
		row, err := x.Store.Thread(ctx, r.Thread)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return inv, err
		}
		if err == nil {
			inv.After = row.Head
		}
	}
	deleted, err := x.clean(ctx, r, &inv, at)
	if err != nil || k.Temporary {
		return inv, err
	}
	return inv, x.keep(ctx, ex, &inv, at, deleted)
}

// config is the configuration that a run was created with, and what a graph may ask about its server.
func (x *Executor) config(r *run.Run) (graph.Config, error) {
	k := &r.Kwargs
	config := jsonobj.Of(k.Config)
	metadata := jsonobj.Of(config.Get("metadata"))
	metadata.Set("run_attempt", strconv.AppendInt(nil, int64(r.Attempt), 10))
	metadata.SetText("langgraph_api_version", x.Version)
	metadata.SetText("langgraph_plan", "self-hosted")
	metadata.SetText("langgraph_host", "self-hosted")
	metadata.SetText("langgraph_api_url", x.URL)
	config.Set("metadata", metadata.JSON())
	if len(k.ContextKeys) > 0 {
		keys, err := json.Marshal(k.ContextKeys)
		if err != nil {
			return graph.Config{}, err
		}
		configurable := jsonobj.Of(config.Get("configurable"))
		configurable.Set("__context_keys__", keys)
		config.Set("configurable", configurable.JSON())
	}
	var inside func() string
	if x.Inside != nil {
		inside = func() string { return x.Inside.OfRun(k.Config) } // for graphs in Python: others do not call the server
	}
	return graph.Config{Thread: r.Thread, Config: config.JSON(), Context: k.Context, CheckpointMap: k.CheckpointMap, Store: x.Items, URL: x.URL, Inside: inside}, nil
}

// commandOf returns the command that a run executes. One that says nothing is none: the run takes its input, or resumes its thread.
func commandOf(k *run.Arguments) json.RawMessage {
	if jsonobj.Of(k.Command).Len() == 0 {
		return nil
	}
	return k.Command
}

// keep adds to an invocation what saves the run's checkpoints, model calls and notes. deleted are the messages that the input deletes.
func (x *Executor) keep(ctx context.Context, ex *Execution, inv *graph.Invocation, at *position, deleted []string) error {
	r := ex.Run
	passed := &atomic.Bool{}
	passed.Store(r.Passed && r.Failures == 0 && r.Crashes == 0)
	var storage saver.Store[run.Tx] = x.Store
	if at.storage != nil {
		storage = at.storage
		if inv.Store != nil {
			inv.Store = patientItems{inv.Store, at.storage}
		}
	}
	var earlier []graph.ModelCall
	if r.Attempt > 1 {
		var err error
		if earlier, err = x.Store.ModelCalls(ctx, r.ID); err != nil {
			return err
		}
	}
	ex.calls = completion.NewCalls(x.Log.With("run_id", r.ID), earlier)
	ex.notes = completion.NewNotes(inv.Log)
	inv.Called, inv.Noted = ex.calls.Add, ex.notes.Add
	fence := func(tx run.Tx) error {
		if err := x.fence(tx, r); err != nil {
			return err
		}
		return ex.calls.Put(tx, r.ID)
	}
	saves := saver.New(storage, fence, func(tx run.Tx, _ *checkpointer.Put) error {
		if passed.Load() {
			return nil
		}
		return tx.MarkPassed(r.ID)
	})
	saves.Keys, saves.Calls = x.Overlay.Key, ex.calls.Of
	saves.NoteDeleted(deleted)
	inv.Saver = positioned{saves, ex, at, passed, x, trace.SpanFromContext(ctx)}
	return nil
}

// fence refuses writes of an execution that does not own its run any more, or whose cancel was requested.
func (x *Executor) fence(tx run.Tx, r *run.Run) error {
	run.Expect(tx, func(e run.Expecting) { e.ExpectSave(r) })
	attempt, status, cancel, err := tx.Fence(r.ID)
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && (attempt != r.Attempt || status != run.Running):
		return errFencedLost
	case err == nil && cancel != "":
		return errFencedCancelled
	}
	return err
}

// Why fence refuses a write.
var (
	errFencedLost      = fmt.Errorf("another server has the run, or it was deleted: %w", graph.ErrFenced)
	errFencedCancelled = fmt.Errorf("the cancel of the run was requested: %w", graph.ErrFenced)
)

// fenced counts a write that fence refused. The transaction that asks fence may have run more than once.
func (x *Executor) fenced(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errFencedLost):
		x.metrics.fencedLost.Inc()
		x.Log.WarnContext(ctx, "write refused: the run is not this server's any more", "error", err)
	case errors.Is(err, errFencedCancelled):
		x.metrics.fencedCancelled.Inc()
	}
}
