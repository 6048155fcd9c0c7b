package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"

	"understudy/eventstore"
	"understudy/eventstore/judge"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// removeAll is the id of a remove message that stands for all messages.
const removeAll = "__remove_all__"

// point is a state of a conversation: what a person sees, what the model sees, and the facts by which the next state is
// judged.
type point struct {
	shown, list []*entry
	anonymous   map[string]struct{} // ids assigned to messages without one
	run         id.Run              // that made the state
	source      string              // of its checkpoint
	texts       string              // eventstore.TextsOf
	made        int64               // the key of the last entry without an event; keys descend from -1
}

// fold returns what a person sees of values that follow a point, as it will be when they are recorded: package judge decides both.
// items are the messages of the values. ok is false when they are not messages: then the values are shown unchanged.
func (p *point) fold(values json.RawMessage, items []json.RawMessage, ahead *Ahead) (next *point, ok bool, err error) {
	f := folder{point: *p, ahead: ahead, step: judge.Step[*entry]{Shown: p.shown, List: p.list, Deleted: ahead.Deleted}}
	if ok = f.match(named(items, p.list)); !ok {
		return nil, false, nil
	}
	channels := textChannels(values)
	if f.step.Loses() && ahead.ByClient != nil && judge.Calls(string(ahead.Run), string(p.run), p.source) {
		f.step.Client = func(mid string) bool { return ahead.ByClient(removeAll) || ahead.ByClient(mid) }
	}
	f.verdict = f.step.Judge()
	marker, err := f.make(eventstore.ChangedText(p.texts, channels))
	if err != nil {
		return nil, false, err
	}
	next = &f.point
	next.list = append(append(make([]*entry, 0, f.step.Prefix+len(f.now)), p.list[:f.step.Prefix]...), f.now...)
	next.shown = f.step.Order(f.verdict, f.now, marker)
	next.run, next.source, next.texts = ahead.Run, "loop", eventstore.TextsOf(channels)
	return next, true, nil
}

// folder is the state of fold.
type folder struct {
	point   // after the step
	ahead   *Ahead
	step    judge.Step[*entry]
	verdict *judge.Verdict[*entry]
	items   []json.RawMessage // those of step.Next
	now     []*entry          // the entries of step.Next; nil until created
}

// match finds the items in the list and the transcript; ok is false when one is not a message.
func (f *folder) match(items []json.RawMessage) (ok bool) {
	n := 0
	for n < len(f.list) && n < len(items) && f.list[n].stands(items[n]) {
		n++
	}
	n = judge.Beginning(f.list, n)
	f.step.Prefix = n
	items = items[n:]
	keys := make([]judge.Item, len(items))
	types := make([]judge.Next[*entry], len(items))
	for i, item := range items {
		m, ok := eventstore.ShownMessage(item)
		if !ok {
			return false
		}
		if keys[i].ID = m.ID; m.ID == "" {
			keys[i].Digest = eventstore.ContentDigest(item)
		}
		types[i] = judge.Next[*entry]{Declared: m.LCSource == lcSummarization, Speech: eventstore.CanSummarize(m.Type)}
	}
	byID := map[string]*entry{}
	if len(items) > 0 {
		byID = make(map[string]*entry, len(f.shown))
		for _, list := range [...][]*entry{f.shown, f.list} {
			for _, e := range list {
				byID[e.id] = e
			}
		}
		delete(byID, "") // markers of summaries without a message
	}
	found, gone := judge.Find(f.list, n, keys, func(mid string) *entry { return byID[mid] })
	f.step.Gone = gone
	for i, item := range items {
		if found[i].Again {
			continue
		}
		next, was := types[i], found[i].Was
		next.Was = was
		next.Revised = was != nil && keys[i].ID != "" && !was.stands(item)
		f.step.Next, f.items = append(f.step.Next, next), append(f.items, item)
		if next.Revised {
			was = nil
		}
		f.now = append(f.now, was)
	}
	return true
}

// stands reports whether an item is the unchanged message of an entry. Of a summary only the text is shown and compared.
func (e *entry) stands(item []byte) bool {
	switch {
	case e.marker == nil:
		return bytes.Equal(e.as(), item) || e.anonymous && sameButID(e.as(), item)
	case e.anonymous && jsonscan.Text(item, "id") == "":
		return e.digest == eventstore.ContentDigest(item)
	default:
		return e.id != "" && jsonscan.Text(item, "id") == e.id && eventstore.Text(item) == e.marker.Words()
	}
}

// sameButID compares a recorded message, which was assigned an id, with one that has none.
func sameButID(recorded, item []byte) bool {
	a, aEnd, ok := jsonscan.Member(recorded, "id")
	b, bEnd, has := jsonscan.Member(item, "id")
	return ok && has && string(item[b:bEnd]) == "null" &&
		bytes.Equal(recorded[:a], item[:b]) && bytes.Equal(recorded[aEnd:], item[bEnd:])
}

// make creates the entries of new or revised messages, and the marker of condensed ones; nil when there are none. channel is the summary's
// text from a channel.
func (f *folder) make(channel string) (marker *entry, err error) {
	if f.verdict.Summary < 0 && len(f.verdict.Condensed) > 0 {
		marker = f.entry("")
		marker.marker = newMarker(eventstore.SummaryOf(&f.step, f.verdict, "", nil, "", channel), f.ahead.Run)
	}
	for i, item := range f.items {
		if f.now[i] != nil {
			continue
		}
		e, err := f.message(item)
		if err != nil {
			return nil, err
		}
		f.now[i] = e
		was := f.step.Next[i].Was
		if hidden := f.verdict.Hidden != nil && f.verdict.Hidden[i]; !hidden && (was == nil || was.marker == nil) {
			continue
		}
		var s eventstore.Summary
		switch {
		case f.verdict.Summarizes(i):
			s = eventstore.SummaryOf(&f.step, f.verdict, e.id, e.text, "", channel)
			marker = e
		case was != nil:
			s = was.marker.Revised(e.text)
		default:
			s = eventstore.HiddenSummary(e.id, e.text)
		}
		*e = entry{key: e.key, id: e.id, anonymous: e.anonymous, digest: e.digest, marker: newMarker(s, f.ahead.Run)}
	}
	return marker, nil
}

// entry returns an entry that has no event yet.
func (f *folder) entry(mid string) *entry {
	f.made--
	return &entry{key: f.made, id: mid}
}

// message returns the entry of a message. It does not retain the item.
func (f *folder) message(item json.RawMessage) (*entry, error) {
	e := f.entry(jsonscan.Text(item, "id"))
	text := bytes.Clone(item)
	if e.anonymous = e.id == ""; e.anonymous {
		var err error
		if e.id, text, err = eventstore.Identify(item, func(mid string) bool { _, ok := f.anonymous[mid]; return ok }); err != nil {
			return nil, fmt.Errorf("overlay: %w", err)
		}
		if f.anonymous == nil {
			f.anonymous = map[string]struct{}{}
		}
		f.anonymous[e.id] = struct{}{}
		e.digest = eventstore.ContentDigest(item)
	}
	e.says(text, eventstore.TypeOf(jsonscan.Text(item, "type")))
	return e, nil
}

// textChannels returns the channels of values that may hold the text of a summary.
func textChannels(values json.RawMessage) (channels []eventstore.TextChannel) {
	for _, name := range eventstore.SummaryChannels {
		if start, end, ok := jsonscan.Member(values, name); ok {
			c := eventstore.TextChannel{Name: name}
			if end > start && values[start] == '"' {
				c.Text = jsonscan.Text(values, name)
			}
			channels = append(channels, c)
		}
	}
	return channels
}
