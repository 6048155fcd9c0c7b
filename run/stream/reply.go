package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/thread"
)

// reply is what wait and join respond with, folded from the records of a run one by one. It is the rule of LangGraph Server:
// an error, else the interrupts, else the last values. A single record with interrupts is the answer itself, values included;
// of several only their interrupts are, in order, and an interrupt that both `updates` and `values` show counts twice. Records of
// subgraphs do not count. The zero value is the answer of a run without records; copies are independent.
type reply struct {
	values     *bridge.Record    // the last without interrupts
	waiting    *bridge.Record    // the first with interrupts
	interrupts []json.RawMessage // of all records with interrupts; not empty: waiting is set
	failure    json.RawMessage
	// seen and at are of the last record; those up to it do not count again. Numbered records are known by their place.
	seen bridge.Offset
	at   ordinal
}

var nullJSON = json.RawMessage(`null`)

// interruptsKey is the key of values and updates under which they show interrupts.
const interruptsKey = "__interrupt__"

// concerns reports whether an answer may depend on a record.
func concerns(rec *bridge.Record) bool {
	switch rec.Event {
	case "metadata", "values", "updates", "error":
		return true
	}
	return false
}

func (a *reply) add(rec *bridge.Record) {
	if !concerns(rec) {
		return
	}
	switch {
	case rec.Index > 0:
		if !a.at.before(ordinalOf(rec)) {
			return
		}
		a.at = ordinalOf(rec)
	case rec.Offset != (bridge.Offset{}):
		if !after(rec.Offset, a.seen) {
			return
		}
		a.seen = rec.Offset
	}
	switch rec.Event {
	case "metadata": // an attempt begins; it shows the interrupts of an earlier one again
		a.waiting, a.interrupts = nil, nil
	case "error":
		a.failure = rec.Data
	case "values", "updates":
		if list := interruptsIn(rec.Data); list != nil {
			if a.waiting == nil {
				a.waiting = rec
			}
			a.interrupts = append(a.interrupts[:len(a.interrupts):len(a.interrupts)], list)
		} else if rec.Event == "values" {
			a.values = rec
		}
	}
}

// interruptsIn returns the items of the list of interrupts that values or updates show, without its brackets; nil when there are none.
func interruptsIn(data []byte) json.RawMessage {
	if !bytes.Contains(data, []byte(`"`+interruptsKey+`"`)) {
		return nil
	}
	return items(jsonobj.Of(data).Get(interruptsKey))
}

// items returns what is between the brackets of a JSON list; nil when it is empty or no list.
func items(list json.RawMessage) json.RawMessage {
	inner, ok := bytes.CutPrefix(bytes.TrimSpace(list), []byte("["))
	if !ok {
		return nil
	}
	if inner = bytes.TrimSpace(bytes.TrimSuffix(inner, []byte("]"))); len(inner) == 0 {
		return nil
	}
	return inner
}

// waitingAt is the answer that shows interrupts alone.
func waitingAt(lists []json.RawMessage) json.RawMessage {
	out := []byte(`{"` + interruptsKey + `":[`)
	for i, list := range lists {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, list...)
	}
	return append(out, "]}"...)
}

// answered is the outcome of a run whose records were all seen.
func (f *Followers) answered(ctx context.Context, r *run.Run, a *reply, look overlay.Look) (run.Result, error) {
	shown := a.values
	if a.waiting != nil {
		shown = a.waiting
	}
	switch {
	case a.failure != nil:
		return run.Result{Error: a.failure}, nil
	case len(a.interrupts) > 1:
		return run.Result{Values: waitingAt(a.interrupts)}, nil
	case shown != nil:
		rec, err := f.forms.shown(ctx, r.Thread, shown, look)
		if err != nil {
			return run.Result{}, err
		}
		return run.Result{Values: rec.Data}, nil
	case r.Kwargs.Temporary:
		return run.Result{Values: json.RawMessage(`{}`)}, nil
	default:
		return f.threadAnswer(ctx, r.Thread, look)
	}
}

// interruptsOf returns an answer with the interrupts that a thread waits at; nil when there are none.
func interruptsOf(t *thread.Thread) json.RawMessage {
	var lists []json.RawMessage
	jsonobj.Of(t.Interrupts).Each(func(_ string, list json.RawMessage) {
		if inner := items(list); inner != nil {
			lists = append(lists, inner)
		}
	})
	if lists == nil {
		return nil
	}
	return waitingAt(lists)
}

// threadAnswer is the answer of a run whose stream says nothing of its values, from its thread: the interrupts that it waits at, else the
// values of its head.
func (f *Followers) threadAnswer(ctx context.Context, t id.Thread, look overlay.Look) (run.Result, error) {
	row, err := f.Store.Thread(ctx, t)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return run.Result{}, err
	}
	if err == nil {
		if interrupts := interruptsOf(row); interrupts != nil {
			return run.Result{Values: interrupts}, nil
		}
	}
	return f.threadValues(ctx, t, look)
}

// threadValues are the values of the head of a thread; null when it has none.
func (f *Followers) threadValues(ctx context.Context, t id.Thread, look overlay.Look) (run.Result, error) {
	row, err := f.Store.Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return run.Result{Values: nullJSON}, nil
	}
	if err != nil {
		return run.Result{}, err
	}
	if row.Head == "" {
		return run.Result{Values: nullJSON}, nil
	}
	values, err := f.Snapshots.Values(ctx, checkpointer.Key{Thread: t, ID: row.Head})
	if err != nil {
		return run.Result{}, fmt.Errorf("values of thread %s: %w", t, err)
	}
	if look.On {
		reading := f.Overlay.Read(t, look)
		defer reading.Done()
		if values, err = reading.Values(ctx, row.Head, values, overlay.RecordView); err != nil {
			return run.Result{}, fmt.Errorf("values of thread %s: %w", t, err)
		}
	}
	return run.Result{Values: values}, nil
}

// Join follows a run to its end for its result. A run that is over answers with its thread as it is now.
func (f *Followers) Join(ctx context.Context, t id.Thread, r id.Run) (run.Follower, error) {
	row, sub, err := f.subscribe(ctx, t, r, nil)
	if errors.Is(err, bridge.ErrInterrupted) && row != nil && !row.Kwargs.Temporary {
		return &unseenRun{f: f, run: row}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := f.Attempts.Attempt(r).UnsavedErr(); err != nil && !row.Status.Over() {
		if sub != nil {
			sub.Close()
		}
		return nil, err
	}
	if !row.Status.Over() {
		return f.follow(ctx, row, sub, following{so: f.Attempts.Attempt(r).reply()}), nil
	}
	if sub != nil {
		sub.Close()
	}
	return &endedRun{f: f, thread: t, look: f.Overlay.Look(ctx, row.Graph, overlay.Wait)}, nil
}
