package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// Follow shows the values of one run, one after the other, when it is not known which checkpoints they belong to: each is folded into what
// was shown before, beginning with the transcript of a checkpoint. So what is said and condensed within the run stays too. It is owned
// by one goroutine.
type Follow struct {
	look        Look
	ahead       *Ahead
	shown, list []*entry
	whole       bool // nothing was condensed so far

	// raw are the values that passed last as they are, up to the end of their messages, which begin at start. behind: they have not been
	// folded yet.
	raw    []byte
	start  int
	behind bool
}

// Follow begins with the checkpoint that the run started from; "" or one that was not recorded: with nothing.
func (o *Overlay) Follow(ctx context.Context, t id.Thread, l Look, at id.Checkpoint, ahead *Ahead) (*Follow, error) {
	f := &Follow{look: l, ahead: ahead, whole: true}
	r := o.Read(t, l)
	defer r.Done()
	tr, err := r.transcript(ctx, at)
	if err != nil || tr == nil {
		return f, err
	}
	lists, err := r.contents.get(ctx, o.events, t, tr.Entries, tr.List)
	if err != nil {
		return nil, err
	}
	f.shown, f.list = lists[0], lists[1]
	f.whole = same(f.shown, f.list)
	return f, nil
}

// same reports whether a list is shown as it is. Entries are one for each event while contents stay in memory.
func same(shown, list []*entry) bool {
	if len(shown) != len(list) {
		return false
	}
	for i := range shown {
		if shown[i] != list[i] || shown[i].stored != nil || shown[i].marker != nil {
			return false
		}
	}
	return true
}

// Passes reports whether the next values pass as they are. It is cheap, and mostly so; else Values says what is shown.
func (f *Follow) Passes(values []byte) bool { return !f.look.On || f.whole && f.grows(values) }

// Values gives the next values with what was said before. They are valid JSON. Where nothing was condensed they come back as they are.
func (f *Follow) Values(values json.RawMessage) json.RawMessage {
	if f.Passes(values) {
		return values
	}
	start, end, ok := jsonscan.Member(values, f.look.Key)
	if !ok {
		return values
	}
	items, ok := jsonscan.Elements(values[start:end])
	if !ok {
		return values
	}
	if f.behind {
		if before, ok := jsonscan.Elements(append(f.raw[f.start:], ']')); ok {
			f.fold(before)
		}
		f.behind = false
	}
	now := f.fold(items)
	if f.whole {
		f.raw, f.start = append(f.raw[:0], bytes.TrimRight(values[:end-1], " \t\r\n")...), start
		return values
	}
	f.raw = nil
	return now.into(values, start, end, f.look.Markers)
}

// grows reports whether values only add messages to those that passed last, none of them a summary. They need not be decoded then.
func (f *Follow) grows(values []byte) bool {
	n := len(f.raw)
	if n == 0 || len(values) <= n || !bytes.Equal(f.raw, values[:n]) || bytes.Contains(values[n:], summarization) {
		return false
	}
	i := jsonscan.Blank(values, n)
	for first := f.raw[n-1] == '['; i < len(values) && values[i] != ']'; first = false {
		if !first {
			if values[i] != ',' {
				return false
			}
			i = jsonscan.Blank(values, i+1)
		}
		if i = jsonscan.Skip(values, i); i > len(values) {
			return false
		}
		i = jsonscan.Blank(values, i)
	}
	if i >= len(values) {
		return false
	}
	if i = len(bytes.TrimRight(values[:i], " \t\r\n")); i > n {
		f.raw, f.behind = append(f.raw, values[n:i]...), true
	}
	return true
}

// fold makes the messages of the next values those that the ones after them are compared with.
func (f *Follow) fold(items []json.RawMessage) folded {
	w := newFolder(f.shown, f.list, items, f.ahead)
	if w == nil {
		return folded{shown: f.shown}
	}
	// The bytes of the values are the caller's.
	for _, e := range w.revised {
		e.text = bytes.Clone(e.text)
	}
	for i := range w.fresh {
		e := w.fresh[i].entry
		e.text = bytes.Clone(e.text)
	}
	f.shown, f.list = w.result().shown, w.now
	for i := range w.fresh {
		n := &w.fresh[i]
		if !n.hidden {
			f.shown = append(f.shown, n.entry)
		} else if j := slices.Index(f.list, n.entry); j >= 0 { // a summary that stands for nothing
			f.list[j] = &entry{id: n.id, marker: newMarker(eventstore.Summary{}, "")}
		}
	}
	f.whole = same(f.shown, f.list)
	return folded{shown: f.shown}
}
