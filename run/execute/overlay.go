package execute

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"

	"understudy/bridge"
	"understudy/checkpointer/saver"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/spans"
	"understudy/thread/partial"
)

// position is the root checkpoint that an execution has reached.
type position struct {
	mu sync.Mutex
	at id.Checkpoint // "": not known

	streamed *partial.Tokens // learns which steps are saved; nil: it is not kept
	passed   func()          // called with each checkpoint
	storage  *patient        // what it saves to, when that is shared; nil else
}

// away reports whether the storage could not be reached for so long that the execution gave up.
func (p *position) away() bool { return p.storage != nil && p.storage.away.Load() }

func (p *position) get() id.Checkpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *position) set(at id.Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = at
}

// positioned notes what was committed: the last root checkpoint, and that there is one.
type positioned struct {
	*saver.Saver[run.Tx]
	of     *Execution
	at     *position
	passed *atomic.Bool
	x      *Executor
	span   trace.Span // of the attempt
}

func (p positioned) Save(ctx context.Context, saves ...graph.Save) error {
	ctx, saved := p.x.saving(ctx, p.span)
	puts := 0
	for _, sv := range saves {
		if sv.Put != nil {
			puts++
		}
	}
	_, made := p.of.calls.Waiting()
	began, traced := p.x.Now(), p.of.spans.Load()
	var batch *spans.Batch
	if traced.Due() {
		batch = traced.Batch()
	}
	err := p.SaveAlso(ctx, func(tx run.Tx) error { return batch.Put(tx, p.of.Run.ID) }, saves...)
	saved(puts, err)
	traced.Saved(began, puts, err)
	if err != nil {
		p.x.fenced(ctx, err)
		return err
	}
	p.of.calls.Drop(made)
	traced.Stored(batch)
	for _, sv := range saves {
		if sv.Put == nil {
			continue
		}
		p.passed.Store(true)
		p.at.passed()
		if sv.Put.NS == "" {
			p.at.set(sv.Put.ID)
			p.at.streamed.Saved(int(gjson.GetBytes(sv.Put.Metadata, "step").Int()))
		}
	}
	return nil
}

// base returns the position of an execution; before its first checkpoint that is where it starts from. "" on a new thread.
func (x *Executor) base(ctx context.Context, r *run.Run, at *position) (id.Checkpoint, error) {
	if c := at.get(); c != "" {
		return c, nil
	}
	start := r.Kwargs.CheckpointID
	if start == "" || r.Kwargs.CheckpointNS != "" {
		head, err := x.Snapshots.Head(ctx, r.Thread)
		if err != nil {
			return "", fmt.Errorf("head of thread %s: %w", r.Thread, err)
		}
		start = head.ID
	}
	at.set(start)
	return start, nil
}

// clean takes out of what a run is called with what its client has from a transcript only, and returns which condensed messages it
// deletes. It happens when the run starts, not when it is made: only then it is known on which state. The row keeps what was sent.
func (x *Executor) clean(ctx context.Context, r *run.Run, inv *graph.Invocation, at *position) (deleted []string, err error) {
	if x.Overlay == nil || inv.At.NS != "" || !overlay.MayEcho(inv.Input) && !overlay.MayEcho(inv.Command) {
		return nil, nil
	}
	var base id.Checkpoint
	if !r.Kwargs.Temporary { // else it has no thread that messages could have been condensed on
		if base, err = x.base(ctx, r, at); err != nil {
			return nil, err
		}
	}
	input, err := x.Overlay.Clean(ctx, r.Graph, r.Thread, base, inv.Input)
	if err != nil {
		return nil, fmt.Errorf("input of run %s: %w", r.ID, err)
	}
	command, err := x.Overlay.CleanCommand(ctx, r.Graph, r.Thread, base, inv.Command)
	if err != nil {
		return nil, fmt.Errorf("command of run %s: %w", r.ID, err)
	}
	inv.Input, inv.Command = input.JSON, command.JSON
	return append(input.Deleted, command.Deleted...), nil
}

// mark notes on a record what readers with the overlay need of it, and on the held one before it, if there is one. The record itself is
// to be held when held is true: the next event decides what it is.
func (x *Executor) mark(ctx context.Context, r *run.Run, before, rec *bridge.Record, ev *graph.Event, at *position, summarizer *overlay.Summarizer) (held bool) {
	if x.Overlay == nil {
		return false
	}
	var err error
	base := func() (c id.Checkpoint) {
		if r.Kwargs.Temporary {
			return ""
		}
		c, err = x.base(ctx, r, at)
		return c
	}
	switch {
	case ev.Name == "updates" && ev.NS == "" && !r.Kwargs.Temporary && graph.MayCondense(ev.Data):
		if rec.Checkpoint = ev.Checkpoint; rec.Checkpoint == "" {
			rec.Checkpoint = base()
		}
		rec.Ahead = err == nil
	case ev.Name == "values" && ev.NS == "":
		if rec.Checkpoint = ev.Checkpoint; rec.Checkpoint == "" && !r.Kwargs.Temporary {
			rec.Checkpoint = base()
			rec.Ahead = err == nil
		}
	default:
		fate, cause := summarizer.Judge(ctx, ev.Name, ev.Data, base)
		rec.Summarizer, held = fate == overlay.Hidden || fate == overlay.HiddenBoth, fate == overlay.Held
		if before != nil {
			before.Summarizer = fate == overlay.HiddenBoth
		}
		if err == nil {
			err = cause
		}
	}
	if err != nil { // readers without the overlay get the record all the same
		x.Log.WarnContext(ctx, "record has no overlay", "run_id", r.ID, "error", err)
	}
	return held
}
