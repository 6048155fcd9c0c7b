package record

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

// State shows the state of a thread. live: it is the head, read without its id.
func (r *Recorder) State(ctx context.Context, c *proxy.Call, t id.Thread, live bool, body []byte) []byte {
	// Most states are shown unchanged; they are validated when recorded or changed.
	list, _, _ := r.show(ctx, c, t, live, overlay.State, []json.RawMessage{body})
	shown := list[0]
	if !sameBytes(shown, body) && !jsonscan.Valid(body) {
		return body
	}
	return shown
}

// History shows each entry of a history as of its checkpoint. partial reports that the limit of histories omits transcripts after the first
// entries.
func (r *Recorder) History(ctx context.Context, c *proxy.Call, t id.Thread, body []byte) (out []byte, entries int, partial bool) {
	if !jsonscan.Valid(body) {
		return body, 0, false
	}
	items, ok := jsonscan.Elements(body)
	if !ok || len(items) == 0 {
		return body, 0, false
	}
	now, entries, partial := r.show(ctx, c, t, false, overlay.History, items)
	return rejoin(body, items, now), entries, partial
}

// rejoin returns body, an array of items, with the items replaced by now.
func rejoin(body []byte, items, now []json.RawMessage) []byte {
	same := true
	for i := range items {
		same = same && sameBytes(items[i], now[i])
	}
	if same {
		return body
	}
	return jsonscan.Join(now)
}

func sameBytes(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// show shows snapshots of a thread. Snapshots that cannot be shown are returned unchanged.
func (r *Recorder) show(ctx context.Context, c *proxy.Call, t id.Thread, live bool, place overlay.Place, bodies []json.RawMessage) (out []json.RawMessage, entries int, partial bool) {
	ctx = overlay.With(ctx, c.Choice)
	out = slices.Clone(bodies)
	views := make([]*view, len(bodies))
	var roots []*view
	for i, b := range bodies {
		v := look(b)
		if v.root() && r.overlay.Look(ctx, v.graph, place).On {
			views[i], roots = v, append(roots, v)
		}
	}
	if len(roots) == 0 {
		return out, 0, false
	}
	links, err := r.ensure(ctx, c, t, live, roots...)
	if err != nil {
		r.unshown(ctx, t, err)
	}
	reading := r.overlay.Read(t, r.overlay.Look(ctx, roots[0].graph, place))
	defer reading.Done()
	for i, v := range views {
		if v == nil {
			continue
		}
		l, recorded := links[v.id]
		values := json.RawMessage(v.values.of(v.body))
		if recorded {
			s := &checkpointer.Snapshot{Key: checkpointer.Key{Thread: t, ID: v.id}, Values: values, Tasks: v.results()}
			if err := reading.Snapshot(ctx, s, live); err != nil {
				r.unshown(ctx, t, err)
			} else {
				values = s.Values
			}
		}
		reading.Count(values)
		out[i] = v.with(values, !recorded || l.Incomplete)
	}
	entries, partial = reading.Spent()
	return out, entries, partial
}

// unshown logs why something is shown as the upstream has it.
func (r *Recorder) unshown(ctx context.Context, t id.Thread, err error) {
	if ctx.Err() == nil {
		r.log.WarnContext(ctx, "overlay failed; response passed unchanged", "thread_id", t, "error", err)
	}
}

// with returns the body with other values, and with a note that earlier messages are unknown.
func (v *view) with(values json.RawMessage, incomplete bool) []byte {
	type part struct {
		at   span
		text []byte
	}
	var parts []part
	if now := v.values.of(v.body); !sameBytes(now, values) {
		parts = append(parts, part{v.values, values})
	}
	if metadata := v.metadata.of(v.body); incomplete && len(metadata) > 0 && metadata[0] == '{' {
		o := jsonobj.Of(metadata)
		o.Set("incomplete", json.RawMessage("true"))
		parts = append(parts, part{v.metadata, o.JSON()})
	}
	if len(parts) == 0 {
		return v.body
	}
	if len(parts) == 2 && parts[0].at.start > parts[1].at.start {
		parts[0], parts[1] = parts[1], parts[0]
	}
	var out bytes.Buffer
	out.Grow(len(v.body) + len(values))
	from := 0
	for _, p := range parts {
		out.Write(v.body[from:p.at.start])
		out.Write(p.text)
		from = p.at.end
	}
	out.Write(v.body[from:])
	return out.Bytes()
}
