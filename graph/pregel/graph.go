package pregel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

var _ graph.Graph = (*Graph)(nil)

// Semantics is the version of LangGraph that this package reproduces. The metadata of checkpoints contain it.
const Semantics = "1.2.22"

// defaultLimit is LangGraph's default recursion limit.
const defaultLimit = 10007

// Name is the graph's name.
func (g *Graph) Name() string { return g.name }

// Stream implements graph.Graph. The stream mode events covers the graph, its nodes and the models that StartModel
// announces.
func (g *Graph) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if err := g.stream(ctx, &inv, yield); err != nil {
			yield(graph.Event{}, err)
		}
	}
}

// stream yields events and returns the error with which the iterator ends; nil also when the consumer stopped.
func (g *Graph) stream(ctx context.Context, inv *graph.Invocation, yield func(graph.Event, error) bool) error {
	idsAfter(string(inv.After))
	l, in, err := g.begin(ctx, inv)
	if err != nil {
		return err
	}
	err = l.show(ctx, in, l.x.finish, yield)
	switch {
	case errors.Is(err, errStopped):
		return nil
	case ctx.Err() != nil && !errors.Is(err, graph.ErrFenced):
		return context.Cause(ctx)
	}
	return err
}

// errStopped is the error of show when the consumer of the events stopped.
var errStopped = errors.New("the consumer stopped")

// show runs the loop and yields its events. It returns after the run has ended, with what finish makes of its error. A run
// that succeeded, but whose last events were not yielded because ctx ended, has the cause of that as its error.
func (l *loop) show(ctx context.Context, in input, finish func(error) error, yield func(graph.Event, error) bool) error {
	x := l.x
	defer x.cancel(nil)
	x.out = newStream()
	done := make(chan error, 1)
	go func() {
		done <- finish(l.guardedRun(in))
		x.out.wake()
	}()
	var err error
	var spare []graph.Event
	over := false
	for {
		events := x.out.take(spare)
		yielded := 0
		for i := range events {
			if ctx.Err() != nil {
				break
			}
			if !yield(events[i], nil) {
				x.cancel(context.Canceled)
				x.out.close()
				if !over {
					<-done //nolint:errcheck // it was canceled
				}
				return errStopped
			}
			yielded++
		}
		skipped := yielded < len(events)
		clear(events)
		spare = events
		switch {
		case ctx.Err() != nil:
			x.out.close()
			if !over {
				err = <-done
			}
			if err == nil && (skipped || x.out.incomplete()) {
				return context.Cause(ctx)
			}
			return err
		case over && len(events) == 0:
			return err
		case over:
			continue
		}
		select {
		case <-x.out.notify:
		case err = <-done:
			over = true
		case <-ctx.Done():
		}
	}
}

// guardedRun runs the loop. A panic outside of a node becomes an error of the engine.
func (l *loop) guardedRun(in input) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicked{value: r, stack: stack()}
		}
	}()
	return l.run(in)
}

// finish waits for what the run left running, and returns its error in the form that graph.Graph promises.
func (x *exec) finish(err error) error {
	err = x.flush(err)
	var known *graph.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, graph.ErrFenced):
		return err
	case x.ctx.Err() != nil && errors.Is(err, context.Cause(x.ctx)):
		return err
	}
	return failure(err)
}

// flush waits for what the run left running, shows the last messages, and returns the error of the run.
func (x *exec) flush(err error) error {
	err = x.drain(err)
	x.messages.flush(nil)
	return err
}

// drain waits for what the run left running, and returns its error.
func (x *exec) drain(err error) error {
	if x.saves != nil {
		if serr := x.saves.wait(); serr != nil {
			err = x.savingFailed(serr)
		}
	}
	x.settle()
	return err
}

// settle waits for abandoned node functions, for at most the grace period.
func (x *exec) settle() {
	x.cancel(errGivenUp)
	x.runs.mu.Lock()
	if x.runs.n.Load() == 0 {
		x.runs.mu.Unlock()
		return
	}
	ended := make(chan struct{})
	x.runs.ended = ended
	x.runs.mu.Unlock()
	timer := time.NewTimer(x.patience())
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		x.log.Warn("run ended before all functions of its nodes")
	}
}

// begin reads an invocation.
func (g *Graph) begin(ctx context.Context, inv *graph.Invocation) (_ *loop, _ input, err error) {
	x := &exec{
		log: slog.Default(), thread: inv.Thread, run: inv.Run, store: inv.Store, modes: modesOf(inv.Modes, inv.Subgraphs), config: inv.Config.Config,
		context: inv.Context, durability: inv.Durability, attempt: inv.Attempt, grace: g.limits.CancelGrace, at: inv.At.ID,
		called: inv.Called, tracing: inv.Tracing,
	}
	if inv.Log != nil {
		x.log = inv.Log
	}
	if x.grace <= 0 {
		x.grace = defaultGrace
	}
	if x.durability == "" {
		x.durability = durabilityAsync
	}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	defer func() {
		if err != nil { // there will be no run that ends it
			x.cancel(err)
		}
	}()
	if inv.Saver != nil && !inv.Temporary {
		x.saver = inv.Saver
		x.saves = newSaves(ctx, inv.Saver, func(err error) { x.cancel(x.savingFailed(err)) })
	}
	if x.modes.anyMessages() {
		x.messages = newMessageStream()
	}
	x.knownContext(g)
	limit, workers := x.configure(g)
	if limit < 1 {
		return nil, input{}, failure(Errorf("ValueError", "recursion_limit must be at least 1"))
	}
	x.workers = newWorkers(workers)
	before, err := nodesOf(inv.InterruptBefore, g.before)
	if err != nil {
		return nil, input{}, err
	}
	after, err := nodesOf(inv.InterruptAfter, g.after)
	if err != nil {
		return nil, input{}, err
	}
	l := &loop{scope: scope{
		g: g, x: x, ctx: x.ctx, keeps: x.saver != nil && g.mode != Never, outKeys: g.result, before: before, after: after, limit: limit,
	}}
	if x.modes.events {
		l.outKeys = g.out // LangGraph Server passes output keys only when it does not stream events
	}
	if inv.At.NS == "" {
		l.addressed = string(inv.At.ID)
	}
	gjson.ParseBytes(inv.CheckpointMap).ForEach(func(k, v gjson.Result) bool {
		l.above = append(l.above, field{k.String(), fromString(v.String())})
		if k.String() == "" {
			l.addressed = v.String()
		}
		return true
	})
	in := input{}
	switch {
	case len(inv.Command) > 0 && string(inv.Command) != "null":
		in.given, in.command = true, readCommand(inv.Command)
	case len(inv.Input) > 0 && string(inv.Input) != "null":
		if !json.Valid(inv.Input) {
			return nil, input{}, fault.New(fault.Invalid, "the input is not valid JSON")
		}
		in.given, in.v = true, fromJSON(compact(inv.Input))
	}
	return l, in, nil
}

// hiddenConfigurable lists keys of configurable that stay out of the metadata of checkpoints.
var hiddenConfigurable = []string{
	"langgraph_auth_user", "langgraph_auth_permissions", "thread_id", "run_id", "checkpoint_ns", "checkpoint_id",
}

// knownContext removes from the context all keys that the graph does not declare, and from configurable those that came with the
// context. A graph that declares a context always gets one.
func (x *exec) knownContext(g *Graph) {
	const from = "configurable.__context_keys__"
	keys := gjson.GetBytes(x.config, from)
	var declared []structField
	if g.contextType != nil && g.contextType.Kind() == reflect.Struct {
		declared = fieldsOf(g.contextType)
	}
	isDeclared := func(name string) bool {
		return declared == nil || slices.ContainsFunc(declared, func(f structField) bool { return f.name == name })
	}
	if keys.Exists() {
		config := jsonobj.Of(x.config)
		configurable := jsonobj.Of(config.Get("configurable"))
		configurable.Delete("__context_keys__")
		for _, key := range keys.Array() {
			if !isDeclared(key.String()) {
				configurable.Delete(key.String())
			}
		}
		config.Set("configurable", configurable.JSON())
		x.config = config.JSON()
	}
	if g.contextType == nil {
		return
	}
	given := gjson.ParseBytes(x.context)
	if !given.Exists() || given.Type == gjson.Null {
		x.context = json.RawMessage("{}")
		return
	}
	if !given.IsObject() || declared == nil {
		return
	}
	context := jsonobj.Of(x.context)
	for _, key := range context.Keys() {
		if !isDeclared(key) {
			context.Delete(key)
		}
	}
	x.context = context.JSON()
}

// propagated lists keys of configurable that join the metadata of a run.
var propagated = []string{"thread_id", "checkpoint_id", "checkpoint_ns", "run_id", "assistant_id", "graph_id"}

// configure reads the configuration of a run.
func (x *exec) configure(g *Graph) (limit, workers int) {
	limit, workers = cmp.Or(g.steps, defaultLimit), g.limits.PerRun
	if workers <= 0 {
		workers = DefaultPerRun
	}
	// Skip work whose result is not read: most runs without subgraph streaming need neither.
	m := x.modes
	shown := m.anyMessages() || m.tasks || m.debug || m.events
	keeps := x.saver != nil
	var stored, metadata fieldSet
	gjson.ParseBytes(x.config).ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "recursion_limit":
			if v.Type == gjson.Number {
				limit = int(v.Int())
			}
		case "max_concurrency":
			if n := int(v.Int()); n > 0 {
				workers = n
			}
		case "tags":
			for _, tag := range v.Array() {
				x.tags = append(x.tags, tag.String())
			}
		case "configurable":
			if !keeps {
				break
			}
			v.ForEach(func(k, v gjson.Result) bool {
				if name := k.String(); !strings.HasPrefix(name, "__") && !slices.Contains(hiddenConfigurable, name) {
					stored.setRaw(name, compact([]byte(v.Raw)))
				}
				return true
			})
		case "metadata":
			if !keeps && !shown {
				break
			}
			v.ForEach(func(k, v gjson.Result) bool {
				name := k.String()
				metadata.setRaw(name, compact([]byte(v.Raw)))
				if name == "run_attempt" {
					metadata.setRaw("langgraph_version", []byte(`"`+Semantics+`"`))
				}
				return true
			})
		}
		return true
	})
	if !keeps && !shown {
		return limit, workers
	}
	for _, name := range propagated {
		v := gjson.GetBytes(x.config, "configurable."+name)
		switch {
		case name == "thread_id" && !v.Exists() && x.thread != "":
			v = gjson.ParseBytes(appendQuoted(nil, string(x.thread)))
		case name == "checkpoint_id" && x.at != "":
			v = gjson.ParseBytes(appendQuoted(nil, string(x.at)))
		}
		if v.Exists() && v.Raw != `""` && v.Type != gjson.Null && metadata.find(name) < 0 {
			metadata.setRaw(name, compact([]byte(v.Raw)))
		}
	}
	x.metadata = metadata.list
	if !keeps {
		return limit, workers
	}
	for _, f := range x.metadata {
		stored.setRaw(f.name, f.v.JSON())
	}
	x.stored = slices.DeleteFunc(stored.list, func(f field) bool { return f.name == "source" || f.name == "step" || f.name == "parents" })
	return limit, workers
}

// nodesOf reads a list of nodes or "*".
func nodesOf(raw json.RawMessage, unset []string) ([]string, error) {
	v := gjson.ParseBytes(raw)
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return unset, nil
	case v.Type == gjson.String:
		return []string{v.Str}, nil
	case v.IsArray():
		var nodes []string
		for _, n := range v.Array() {
			nodes = append(nodes, n.String())
		}
		if len(nodes) == 0 {
			return unset, nil
		}
		return nodes, nil
	}
	return nil, fault.New(fault.Invalid, `interrupt_before and interrupt_after are lists of nodes, or "*"`)
}

// keyOf returns the checkpoint that a call refers to.
func keyOf(cfg graph.Config, at checkpointer.Key) checkpointer.Key {
	if at.Thread == "" {
		at.Thread = cfg.Thread
	}
	return at
}
