package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Sent is a client's input in the form for the graph.
type Sent struct {
	JSON json.RawMessage // the same bytes when nothing had to be dropped
	// Deleted names condensed messages that were deleted. The graph no longer has them: they are recorded with the next
	// checkpoint.
	Deleted []string
}

// Clean removes from an input or update messages that a client has only from a transcript: markers, and condensed messages that are
// unchanged. at is the root checkpoint to which the input will be applied. The choice of the request has no effect: the client may have
// read with another one.
//
// When a client removes everything and continues with a list of its own, only markers are dropped.
func (o *Overlay) Clean(ctx context.Context, graph string, t id.Thread, at id.Checkpoint, sent json.RawMessage) (Sent, error) {
	out := Sent{JSON: sent}
	if o == nil || !MayEcho(sent) {
		return out, nil
	}
	r := o.Read(t, Look{Key: o.settings(graph).Key})
	defer r.Done()
	c := cleaner{r: r, condensed: map[string]*entry{}, nameless: map[string]*entry{}, markers: map[string]*marker{}, summaries: map[string]string{}}
	if err := c.load(ctx, at); err != nil {
		return out, err
	}
	out.JSON = c.update(sent)
	out.Deleted = c.deleted
	return out, nil
}

// CleanCommand is Clean for the update of a command. Input for nodes (`goto`) is not part of the state: only markers are removed from
// it.
func (o *Overlay) CleanCommand(ctx context.Context, graph string, t id.Thread, at id.Checkpoint, command json.RawMessage) (Sent, error) {
	out := Sent{JSON: command}
	if o == nil || !MayEcho(command) {
		return out, nil
	}
	if start, end, ok := jsonscan.Member(command, "update"); ok {
		s, err := o.Clean(ctx, graph, t, at, command[start:end:end])
		if err != nil {
			return out, err
		}
		out.JSON, out.Deleted = spliced(command, start, end, s.JSON), s.Deleted
	}
	start, end, ok := jsonscan.Member(out.JSON, "goto")
	if !ok {
		return out, nil
	}
	to := out.JSON[start:end:end]
	sends, list := jsonscan.Elements(to)
	if !list {
		sends = []json.RawMessage{to}
	}
	changed := false
	for i, send := range sends {
		from, until, ok := jsonscan.Member(send, "input")
		if !ok {
			continue
		}
		s, err := o.Clean(ctx, graph, "", "", send[from:until:until])
		if err != nil {
			return out, err
		}
		now := spliced(send, from, until, s.JSON)
		changed = changed || !bytes.Equal(now, send)
		sends[i] = now
	}
	switch {
	case changed && list:
		out.JSON = jsonscan.Splice(out.JSON, start, end, jsonscan.Join(sends))
	case changed:
		out.JSON = jsonscan.Splice(out.JSON, start, end, sends[0])
	}
	return out, nil
}

// spliced is jsonscan.Splice, but returns b itself when nothing changes.
func spliced(b json.RawMessage, start, end int, with []byte) json.RawMessage {
	if bytes.Equal(b[start:end], with) {
		return b
	}
	return jsonscan.Splice(b, start, end, with)
}

// MayEcho reports whether a client's input can contain messages that had been shown to it. New messages usually have no id, and then
// there is nothing to clean.
func MayEcho(sent json.RawMessage) bool {
	return bytes.Contains(sent, []byte(`"id"`)) || bytes.Contains(sent, []byte(`"`+MarkerKey+`"`))
}

type cleaner struct {
	r         *Reading
	condensed map[string]*entry  // by id
	nameless  map[string]*entry  // by the id under which they are shown; in the graph they have none
	markers   map[string]*marker // by id
	summaries map[string]string  // id of a marker -> id of its summary in the list
	calls     map[string]bool    // ids of tool calls that only partial answers have
	shown     []*entry
	deleted   []string
}

func (c *cleaner) load(ctx context.Context, at id.Checkpoint) error {
	tr, err := c.r.transcript(ctx, at)
	if err != nil || tr == nil {
		return err
	}
	lists, err := c.r.contents.get(ctx, c.r.o.events, c.r.thread, tr.Entries, tr.List)
	if err != nil {
		return err
	}
	in := make(map[int64]bool, len(lists[1])) // by key: a summary may have the id of a message that it replaces
	for _, e := range lists[1] {
		in[e.key] = true
		if e.anonymous && e.marker == nil {
			c.nameless[e.id] = e
		}
		if e.marker != nil && e.id != "" {
			c.summaries[e.marker.ID] = e.id
		}
	}
	c.shown = lists[0]
	for _, e := range c.shown {
		if e.partial != "" && !in[e.key] {
			gjson.GetBytes(e.text, "tool_calls.#.id").ForEach(func(_, call gjson.Result) bool {
				if c.calls == nil {
					c.calls = map[string]bool{}
				}
				c.calls[call.String()] = true
				return true
			})
		}
		switch {
		case e.marker != nil:
			c.markers[e.marker.ID] = e.marker
		case !in[e.key]:
			c.condensed[e.id] = e
		}
	}
	return nil
}

// update cleans an object of channels, a list of such objects, or a list of [channel, value].
func (c *cleaner) update(sent json.RawMessage) json.RawMessage {
	if start, end, ok := jsonscan.Member(sent, c.r.look.Key); ok {
		if now, changed := c.messages(sent[start:end:end]); changed {
			return jsonscan.Splice(sent, start, end, now)
		}
		return sent
	}
	items, ok := jsonscan.Elements(sent)
	if !ok {
		return sent
	}
	changed := false
	for i, item := range items {
		now := item
		if pair, ok := jsonscan.Elements(item); !ok {
			now = c.update(item)
		} else if len(pair) == 2 && jsonscan.IsKey(pair[0], c.r.look.Key) {
			if value, dropped := c.messages(pair[1]); dropped {
				now = jsonscan.Join([]json.RawMessage{pair[0], value})
			}
		}
		if !bytes.Equal(now, item) {
			items[i], changed = now, true
		}
	}
	if !changed {
		return sent
	}
	return jsonscan.Join(items)
}

// messages cleans the value of the channel: a list of messages, or one.
func (c *cleaner) messages(sent json.RawMessage) (now json.RawMessage, changed bool) {
	items, ok := jsonscan.Elements(sent)
	if !ok {
		items = []json.RawMessage{sent}
	}
	afresh := false
	kept := make([]json.RawMessage, 0, len(items))
	for _, item := range items {
		stays := detached(item)
		mid, removes := removal(item)
		switch {
		case removes && mid == removeAll:
			afresh = true
		case removes:
			stays = c.removal(item, mid)
		case isMarker(item, c.isShown), c.answers(item):
			stays = nil
		case !afresh && c.unchanged(c.condensed, stays):
			stays = nil
		case c.unchanged(c.nameless, stays):
			if start, end, ok := jsonscan.Member(stays, "id"); ok {
				stays = jsonscan.Splice(stays, start, end, []byte("null"))
			}
		}
		if stays != nil {
			kept = append(kept, stays)
		}
		changed = changed || !bytes.Equal(stays, item)
	}
	if !changed {
		return sent, false
	}
	return jsonscan.Join(kept), true
}

func (c *cleaner) isShown(mid string) bool {
	return slices.ContainsFunc(c.shown, func(e *entry) bool { return e.marker == nil && e.id == mid })
}

// removal returns a remove message for the graph; nil when the graph does not have the message.
func (c *cleaner) removal(item json.RawMessage, mid string) json.RawMessage {
	if c.condensed[mid] != nil {
		c.deleted = append(c.deleted, mid)
		return nil
	}
	m := c.markers[mid]
	if m == nil {
		return item
	}
	if summary := c.summaries[mid]; summary != "" {
		// Deleting the marker deletes the summary and the messages that it replaces.
		o := jsonobj.Of(item)
		o.SetText("type", "remove")
		o.SetText("id", summary)
		o.Delete("kwargs")
		o.Delete("lc")
		return o.JSON()
	}
	for _, mid := range m.IDs {
		if c.condensed[mid] != nil {
			c.deleted = append(c.deleted, mid)
		}
	}
	return nil
}

// answers reports whether an item is the result of a tool call that is only in a partial answer. Clients add results for calls without
// one, but models reject results of unknown calls.
func (c *cleaner) answers(item json.RawMessage) bool {
	if len(c.calls) == 0 {
		return false
	}
	if jsonscan.Text(item, "type") == "constructor" {
		item = jsonscan.Raw(item, "kwargs")
	}
	call := jsonscan.Text(item, "tool_call_id")
	return call != "" && c.calls[call]
}

// unchanged reports whether a message is one of known with the same content. Clients omit fields and add their own, so only fields that a
// person or a model can see are compared.
//
// A client that left a stream early has only the beginning of a partial answer and of its tool calls: that counts as unchanged.
func (c *cleaner) unchanged(known map[string]*entry, item json.RawMessage) bool {
	if jsonscan.Text(item, "type") == "constructor" {
		item = jsonscan.Raw(item, "kwargs")
	}
	e := known[jsonscan.Text(item, "id")]
	if e == nil {
		return false
	}
	if e.partial != "" {
		return strings.HasPrefix(eventstore.Text(e.text), eventstore.Text(item))
	}
	for _, name := range [...]string{"content", "tool_calls", "tool_call_id", "name", "additional_kwargs", "status"} {
		if was, now := jsonscan.Raw(e.text, name), jsonscan.Raw(item, name); !void(now) && !bytes.Equal(was, now) && !equal(gjson.ParseBytes(was), gjson.ParseBytes(now)) {
			return false
		}
	}
	return true
}

// void reports whether a value is absent or empty.
func void(v json.RawMessage) bool {
	switch string(v) {
	case "", "null", "{}", "[]":
		return true
	}
	return false
}

// equal compares JSON independent of the order of keys.
func equal(a, b gjson.Result) bool {
	switch {
	case a.IsObject() && b.IsObject():
		of := a.Map()
		same, n := true, 0
		b.ForEach(func(k, v gjson.Result) bool {
			was, ok := of[k.String()]
			n++
			same = ok && equal(was, v)
			return same
		})
		return same && n == len(of)
	case a.IsArray() && b.IsArray():
		as, bs := a.Array(), b.Array()
		if len(as) != len(bs) {
			return false
		}
		for i := range as {
			if !equal(as[i], bs[i]) {
				return false
			}
		}
		return true
	}
	return a.Type == b.Type && a.String() == b.String()
}
