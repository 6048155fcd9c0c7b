package remote

import (
	"encoding/json"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

const (
	// heldEvents and heldBytes limit the events between `values` and their checkpoint. On the wire they are adjacent; an upstream where they are not gets its
	// values shown at once.
	heldEvents = 64
	heldBytes  = 8 << 20
)

// held are events in their order, of which some `values` wait for their checkpoint, and the others for those: an upstream sends a checkpoint behind its values,
// readers of events of this server get it before.
type held struct {
	events []heldEvent
	weight int
}

type heldEvent struct {
	graph.Event
	waits bool
}

// add adds an event. It reports whether there are too many by now.
func (h *held) add(e graph.Event, waits bool) (full bool) {
	h.events = append(h.events, heldEvent{e, waits})
	h.weight += len(e.Data)
	return len(h.events) > heldEvents || h.weight > heldBytes && len(h.events) > 1
}

// settle ends the waiting of values of a namespace, with the event that names their checkpoint, if there is one. found is false when none wait.
func (h *held) settle(ns string, at id.Checkpoint, named *graph.Event) (found bool) {
	for i := range h.events {
		e := &h.events[i]
		if !e.waits || e.NS != ns {
			continue
		}
		if e.waits = false; ns == "" {
			e.Checkpoint = at
		}
		if named != nil {
			h.events = append(h.events[:i+1], h.events[i:]...)
			h.events[i] = heldEvent{Event: *named}
		}
		return true
	}
	return false
}

// ready removes and returns the events that need not wait; with all, every event.
func (h *held) ready(all bool) (out []heldEvent) {
	n := 0
	for n < len(h.events) && (all || !h.events[n].waits) {
		h.weight -= len(h.events[n].Data)
		n++
	}
	out, h.events = h.events[:n:n], h.events[n:]
	if len(h.events) == 0 {
		*h = held{}
	}
	return out
}

// waits reports whether `values` of a namespace wait for their checkpoint: those of the root because they are shown with it, those of others where clients want
// the ids of checkpoints.
func (r *run) waits(name, ns string) bool {
	return r.live && name == "values" && (ns == "" || r.names())
}

// names reports whether the client wants the ids of checkpoints.
func (r *run) names() bool { return r.wants(graph.ModeIDs) }

// named returns the event with the id of a checkpoint; nil when it is not wanted.
func (r *run) named(s *snapshot) *graph.Event {
	if !r.names() || s.Checkpoint.NS != "" && !r.inv.Subgraphs {
		return nil
	}
	o := &jsonobj.Object{}
	o.SetText("id", string(s.Checkpoint.ID))
	if s.Parent.ID != "" {
		o.SetText("parent_id", string(s.Parent.ID))
	}
	for _, key := range []string{"step", "source"} {
		value := jsonscan.Raw(s.Metadata, key)
		if value == nil {
			value = json.RawMessage("null")
		}
		o.Set(key, value)
	}
	e := &graph.Event{Name: graph.ModeIDs, NS: s.Checkpoint.NS, Data: o.JSON()}
	if e.NS == "" {
		e.Checkpoint = s.Checkpoint.ID
	}
	return e
}

// hold passes an event on, or has it wait.
func (r *run) hold(e graph.Event) error {
	waits := r.waits(e.Name, e.NS)
	if waits || e.NS != "" {
		r.held.settle(e.NS, "", nil) // the values before have no checkpoint of their own: subgraphs may save none
	}
	full := r.held.add(e, waits)
	return r.release(full)
}

// settle passes on what waited for a checkpoint.
func (r *run) settle(s *snapshot) error {
	named := r.named(s)
	if !r.held.settle(s.Checkpoint.NS, s.Checkpoint.ID, named) && named != nil {
		r.held.add(*named, false)
	}
	return r.release(false)
}

// release yields the events that need not wait; with all, every event.
func (r *run) release(all bool) error {
	for _, e := range r.held.ready(all) {
		if !r.consumer(e.Event, nil) {
			return errStopped
		}
	}
	return nil
}
