package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
)

var _ graph.Graph = (*pyGraph)(nil)

// pyGraph is one graph of a langgraph.json, executed by any free worker.
type pyGraph struct {
	pool *Pool
	id   string
}

// Graph returns the graph with this id. An unknown id is reported when the graph is used.
func (p *Pool) Graph(id string) graph.Graph { return &pyGraph{pool: p, id: id} }

// Ready waits until the first worker has loaded its graphs, or failed to.
func (g *pyGraph) Ready(ctx context.Context) error { return g.pool.Ready(ctx) }

func (g *pyGraph) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if err := g.stream(ctx, &inv, yield); err != nil {
			yield(graph.Event{}, err)
		}
	}
}

// stream yields events and returns the error with which the iterator ends; nil also when the consumer stopped.
func (g *pyGraph) stream(ctx context.Context, inv *graph.Invocation, yield func(graph.Event, error) bool) error {
	for {
		if err := g.execute(ctx, inv, yield); !errors.Is(err, errUnread) {
			return err
		}
	}
}

// execute is stream on one worker. The worker begins the run when it gets a go, after it has read it: a run begins on one worker only. execute returns errUnread when
// the worker has lost its place before that.
func (g *pyGraph) execute(ctx context.Context, inv *graph.Invocation, yield func(graph.Event, error) bool) error {
	c := newCall(ctx, g.id, backend{run: inv.Run, saver: inv.Saver, store: inv.Store, called: inv.Called, tracing: inv.Tracing})
	place := g.pool.place
	if inv.Isolated {
		place = g.pool.placeAlone
	}
	if err := place(ctx, c); err != nil {
		c.stopAsk()
		return err
	}
	defer c.leave()
	var head []byte
	if inv.Saver != nil && !inv.Temporary {
		// On failure the worker loads the checkpoint itself and reports the error to the graph.
		if t, err := inv.Saver.Load(ctx, inv.At); err == nil {
			head = appendTuple(nil, t)
			if t != nil && t.NS == "" && inv.Input == nil { // an input takes the run elsewhere
				c.begins(t.Tasks, wrote(t.Writes))
			}
		}
	}
	rested, begun := c.worker.rested(), false
	c.follows(inv.At.Thread)
	if err := c.worker.send(func(b []byte) []byte { return appendRun(b, c.number, g.id, inv, head) }); err != nil {
		c.finish(done{}, err)
		return fault.Newf(fault.TooLarge, "the input of the run is too large: %w", err)
	}
	for {
		events, over, resume := c.take()
		for _, e := range events {
			if ctx.Err() != nil {
				break
			}
			if !yield(e, nil) {
				if !over {
					c.cancel()
				}
				return nil
			}
		}
		if ctx.Err() != nil {
			switch {
			case over:
			case begun:
				c.cancel()
			default:
				_ = c.worker.send(cancelMessage(c.number))
			}
			return context.Cause(ctx)
		}
		if over {
			return asFailure(c.outcome())
		}
		if resume {
			_ = c.worker.send(pauseMessage(c.number, false))
		}
		if !begun && !c.worker.hasUnread(c) {
			begun = true
			_ = c.worker.send(goMessage(c.number))
		}
		select {
		case <-c.notify:
		case <-ctx.Done():
		case <-rested:
			rested = nil
			if !begun && c.abandon() {
				_ = c.worker.send(cancelMessage(c.number))
				return errUnread
			}
		}
	}
}

// refusal is an error of this server that ended a call: an ask of the worker failed.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// asFailure turns the error of a run into its failure, as clients see it.
func asFailure(err error) error {
	if r := (refusal{}); errors.As(err, &r) {
		return graph.ServerFailure(r.error)
	}
	return err
}

// outcome returns how a finished call ended. It waits for the saves of the worker.
func (c *call) outcome() error {
	<-c.idle
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.result.status == doneOK && c.refused == nil:
		return nil
	case c.fenced:
		return graph.ErrFenced
	case c.result.status == doneOK:
		return refusal{c.refused}
	case c.result.status == doneRefused:
		return refusal{c.failure()}
	case c.result.status == doneInvalid:
		return fault.New(fault.Invalid, c.result.text)
	case c.result.status == doneCancelled:
		return context.Canceled
	}
	return c.worker.failureOf(c.result.errType, c.result.text, c.result.detail)
}

// errSilent: the worker of a question has lost its place, and the question has saved nothing.
var errSilent = errors.New("the worker does not answer")

// question makes a call without events and returns its payload, which is msgpack. When no worker starts, or the worker dies or hangs, the error is
// fault.Unavailable.
func (g *pyGraph) question(ctx context.Context, cfg *graph.Config, op string, encode func([]byte) []byte) ([]byte, error) {
	payload, err := g.answer(ctx, cfg, op, encode, true)
	for mayMove := true; ctx.Err() == nil && (errors.Is(err, errSilent) || errors.Is(err, errUnread)); {
		mayMove = mayMove && !errors.Is(err, errSilent)
		payload, err = g.answer(ctx, cfg, op, encode, mayMove)
	}
	if errors.Is(err, graph.ErrWorkerDied) {
		err = fault.Wrap(fault.Unavailable, "The worker process died while it worked on the request. Try again.", err)
	}
	return payload, err
}

// answer asks one worker. It returns errUnread when that loses its place, or ctx ends, before it has read the question. If the question may move, it returns errSilent
// when the worker loses its place before the question has saved anything.
func (g *pyGraph) answer(ctx context.Context, cfg *graph.Config, op string, encode func([]byte) []byte, mayMove bool) ([]byte, error) {
	c := newCall(ctx, g.id, backend{saver: cfg.Saver, store: cfg.Store})
	if err := g.pool.place(ctx, c); err != nil {
		c.stopAsk()
		if f := (*graph.Failure)(nil); errors.As(err, &f) {
			err = fault.Wrap(fault.Unavailable, f.Message, err)
		} else if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", errUnread, err)
		}
		return nil, err
	}
	defer c.leave()
	rested := c.worker.rested()
	c.follows("")
	err := c.worker.send(func(b []byte) []byte {
		b = msgp.AppendArrayHeader(b, 4)
		b = msgp.AppendInt(b, toCall)
		b = msgp.AppendUint64(b, c.number)
		b = msgp.AppendString(b, op)
		return encode(b)
	})
	if err != nil {
		c.finish(done{}, err)
		return nil, fault.Newf(fault.TooLarge, "the request is too large: %w", err)
	}
	// An abandoned query does no harm, unlike a run: its worker is kept.
	cancel := func() { _ = c.worker.send(cancelMessage(c.number)) }
	for {
		select {
		case <-ctx.Done():
			cancel()
			if c.worker.hasUnread(c) {
				return nil, fmt.Errorf("%w: %w", errUnread, context.Cause(ctx))
			}
			return nil, context.Cause(ctx)
		case <-rested:
			rested = nil
			switch unread := c.worker.hasUnread(c); {
			case !unread && !mayMove, !c.abandon():
			case unread:
				cancel()
				return nil, errUnread
			default:
				cancel()
				return nil, errSilent
			}
			continue
		case <-c.worker.lost:
			cancel()
			return nil, fault.Newf(fault.Unavailable, "The worker process has not answered for %s: code of a graph may block it. Try again.", c.worker.pool.lost)
		case <-c.notify:
		}
		if _, over, _ := c.take(); over {
			if err := c.outcome(); err != nil {
				return nil, err
			}
			return c.result.payload, nil
		}
	}
}

func (g *pyGraph) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	if live {
		at.ID = "" // an id would make it a record
	}
	payload, err := g.question(ctx, &cfg, "explain", func(b []byte) []byte {
		return appendCommon(msgp.AppendMapHeader(b, commonPairs), g.id, withThread(cfg, at), at)
	})
	if err != nil {
		return checkpointer.Explanation{}, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
	}
	d := &decoder{b: payload}
	if d.array() != 5 {
		return checkpointer.Explanation{}, errBadMessage
	}
	e := checkpointer.Explanation{Values: d.bytes(), Next: d.strs(), Tasks: d.bytes(), Shape: d.str(), ShapeJSON: d.bytes()}
	return e, d.err
}

func (g *pyGraph) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	payload, err := g.question(ctx, &cfg, "update", func(b []byte) []byte {
		b = appendCommon(msgp.AppendMapHeader(b, commonPairs+1), g.id, withThread(cfg, at), at)
		b = msgp.AppendString(b, "steps")
		b = msgp.AppendArrayHeader(b, uint32(len(steps)))
		for _, step := range steps {
			b = msgp.AppendArrayHeader(b, uint32(len(step)))
			for _, u := range step {
				b = msgp.AppendArrayHeader(b, 4)
				b = appendJSON(b, u.Values)
				b = msgp.AppendString(b, u.AsNode)
				b = msgp.AppendString(b, u.TaskID)
				b = appendJSON(b, u.Command)
			}
		}
		return b
	})
	if err != nil {
		if fault.Is(err, fault.Invalid) {
			return checkpointer.Key{}, unknownNode(err, steps)
		}
		return checkpointer.Key{}, fmt.Errorf("update thread %s: %w", at.Thread, err)
	}
	d := &decoder{b: payload}
	if d.array() != 3 {
		return checkpointer.Key{}, errBadMessage
	}
	key := checkpointer.Key{Thread: id.Thread(d.str()), NS: d.str(), ID: id.Checkpoint(d.str())}
	return key, d.err
}

// unknownNode returns the refusal of an update: a *graph.UnknownNode when LangGraph says that of a node in steps.
func unknownNode(err error, steps [][]graph.StateUpdate) error {
	for _, u := range slices.Concat(steps...) {
		if unknown := (&graph.UnknownNode{Node: u.AsNode}); err.Error() == unknown.Error() {
			return unknown
		}
	}
	return err
}

func (g *pyGraph) Describe(ctx context.Context, cfg graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	payload, err := g.question(ctx, &cfg, "describe", func(b []byte) []byte {
		b = appendCommon(msgp.AppendMapHeader(b, commonPairs+4), g.id, cfg, checkpointer.Key{})
		b = msgp.AppendString(b, "kind")
		b = msgp.AppendString(b, what.Kind)
		b = msgp.AppendString(b, "xray")
		b = msgp.AppendInt(b, what.XRay)
		b = msgp.AppendString(b, "namespace")
		b = msgp.AppendString(b, what.Namespace)
		b = msgp.AppendString(b, "recurse")
		return msgp.AppendBool(b, what.Recurse)
	})
	if err != nil {
		return nil, fmt.Errorf("describe graph %s: %w", g.id, err)
	}
	d := &decoder{b: payload}
	out := d.bytes()
	return out, d.err
}

func withThread(cfg graph.Config, at checkpointer.Key) graph.Config {
	if at.Thread != "" {
		cfg.Thread = at.Thread
	}
	return cfg
}
