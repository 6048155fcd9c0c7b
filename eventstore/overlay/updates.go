package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"understudy/eventstore"
	"understudy/eventstore/judge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// Update shows a root `updates` event, {node: {key: messages, …}, …} or with a list of updates of a node, of a step that follows a
// checkpoint. If the step condenses, only messages that are new to a person remain: removals, the summary and messages seen before are
// left out. The members stay, with empty lists if needed. Otherwise the event is returned unchanged. applied reports that the checkpoint
// already has the result of the event, so the step may precede it, and the caller must try its parent.
func (r *Reading) Update(ctx context.Context, at id.Checkpoint, update json.RawMessage) (shown json.RawMessage, applied bool, err error) {
	if !r.look.Updates || !graph.MayCondense(update) {
		return update, false, nil
	}
	p := &point{}
	tr, err := r.transcript(ctx, at)
	if err == nil && tr != nil {
		p, err = r.point(ctx, tr)
	}
	if err != nil {
		return update, false, err
	}
	shown, applied = p.update(update, r.look.Key)
	return shown, applied, nil
}

// Update shows a root `updates` event of the step after the values shown last, as Reading.Update does.
func (f *Follow) Update(update json.RawMessage) (json.RawMessage, error) {
	if !f.look.Updates || !graph.MayCondense(update) {
		return update, nil
	}
	if err := f.catchUp(); err != nil {
		return update, err
	}
	shown, _ := f.at.update(update, f.look.Key)
	return shown, nil
}

// update shows a root `updates` event of the step that follows a point.
func (p *point) update(update json.RawMessage, key string) (shown json.RawMessage, applied bool) {
	u := updater{point: p, byID: make(map[string]*entry, len(p.shown)), at: make(map[string]int, len(p.list))}
	for _, list := range [...][]*entry{p.shown, p.list} {
		for _, e := range list {
			u.byID[e.id] = e
		}
	}
	delete(u.byID, "")
	for _, e := range p.list {
		u.add(written{Next: judge.Next[*entry]{Was: e}})
	}
	u.read(update, key)
	if !u.condenses() {
		return update, len(u.lists) > 0 && u.changesNothing()
	}
	out, end := make(json.RawMessage, 0, len(update)), 0
	for _, l := range u.lists {
		out = append(append(out, update[end:l.start]...), l.shown(update)...)
		end = l.end
	}
	return append(out, update[end:]...), false
}

// changesNothing reports whether the update leaves the list unchanged.
func (u *updater) changesNothing() bool {
	return slices.EqualFunc(u.next, u.list, func(w written, e *entry) bool { return w.Was == e && (!w.touched || !u.lists[w.list].news[w.item]) })
}

// updater applies the messages of an update to a list, as LangGraph's add_messages does.
type updater struct {
	*point
	byID  map[string]*entry // what was shown or in the list before
	lists []messageList
	next  []written
	at    map[string]int // index in next by id
}

// messageList is a list of messages in an update.
type messageList struct {
	start, end int // in the update
	items      []json.RawMessage
	news       []bool // those that a person has not seen
}

// written is a message of the list after an update.
type written struct {
	judge.Next[*entry]
	touched    bool // the update contains it, with this id and at this place
	id         string
	list, item int // of updater.lists, and of its items
}

// read finds the lists of messages in an update and applies them in order.
func (u *updater) read(update json.RawMessage, key string) {
	jsonscan.Each(update, func(_ []byte, start, end int) bool {
		if start == end || update[start] != '[' {
			u.readOne(update, start, end, key)
			return true
		}
		items, _ := jsonscan.Elements(update[start:end])
		at := start + 1
		for _, one := range items { // updates of one node
			at = jsonscan.Blank(update, at)
			u.readOne(update, at, at+len(one), key)
			at = jsonscan.Blank(update, at+len(one)) + 1
		}
		return true
	})
}

func (u *updater) readOne(update json.RawMessage, start, end int, key string) {
	from, to, ok := jsonscan.Member(update[start:end], key)
	if !ok {
		return
	}
	l := messageList{start: start + from, end: start + to}
	messages := update[l.start:l.end]
	if messages[0] == '{' { // a single one instead of a list
		l.items = []json.RawMessage{messages}
	} else if l.items, ok = jsonscan.Elements(messages); !ok {
		return
	}
	l.news = make([]bool, len(l.items))
	u.lists = append(u.lists, l)
	u.apply(len(u.lists) - 1)
}

// apply applies one update to the list.
func (u *updater) apply(n int) {
	l := &u.lists[n]
	gone := map[string]bool{}
	for i, m := range l.items {
		if mid, ok := removal(m); ok {
			if mid == removeAll {
				u.next = nil
				clear(u.at)
				clear(gone)
			}
			gone[mid] = true
			continue
		}
		w := written{id: jsonscan.Text(m, "id"), list: n, item: i, touched: true}
		w.Speech = true // short forms of messages are speech
		if shown, ok := eventstore.ShownMessage(m); ok {
			w.Declared, w.Speech = shown.LCSource == lcSummarization, eventstore.CanSummarize(shown.Type)
		}
		if w.id != "" {
			delete(gone, w.id)
			w.Was = u.byID[w.id]
			w.Revised = w.Was != nil && !w.Was.stands(m)
		}
		l.news[i] = w.Was == nil || w.Revised && w.Was.marker == nil && !saysTheSame(w.Was.as(), m)
		if at, ok := u.at[w.id]; ok && w.id != "" {
			u.next[at] = w
		} else {
			u.add(w)
		}
	}
	if len(gone) == 0 {
		return
	}
	all := u.next
	u.next = nil
	clear(u.at)
	for _, w := range all {
		if !gone[w.name()] {
			u.add(w)
		}
	}
}

// saysTheSame reports whether a message that a node sends again looks to a person like the recorded one. Nodes may omit members, or add
// some.
func saysTheSame(recorded, sent []byte) bool {
	for _, key := range [...]string{"type", "content", "tool_calls"} {
		if !bytes.Equal(jsonscan.Raw(recorded, key), jsonscan.Raw(sent, key)) {
			return false
		}
	}
	return true
}

func (u *updater) add(w written) {
	u.at[w.name()] = len(u.next)
	u.next = append(u.next, w)
}

// name returns the id of a message.
func (w *written) name() string {
	if w.touched {
		return w.id
	}
	return w.Was.id
}

// condenses reports whether the step condenses. Messages of the update that are summaries are not news then.
func (u *updater) condenses() bool {
	step := judge.Step[*entry]{Shown: u.point.shown, List: u.list}
	stays := make(map[int64]bool, len(u.next))
	for i := range u.next {
		step.Next = append(step.Next, u.next[i].Next)
		if was := u.next[i].Was; was != nil {
			stays[was.key] = true
		}
	}
	for _, e := range u.list {
		if !stays[e.key] {
			step.Gone = append(step.Gone, e)
		}
	}
	v := step.Judge()
	for i := range v.Hidden {
		if w := &u.next[i]; v.Hidden[i] && w.touched {
			u.lists[w.list].news[w.item] = false
		}
	}
	return len(v.Condensed) > 0 || v.Hidden != nil
}

// shown returns a list with only its new messages; the bytes of the update if all are new.
func (l *messageList) shown(update []byte) []byte {
	var news []json.RawMessage
	for i, m := range l.items {
		if l.news[i] {
			news = append(news, m)
		}
	}
	if len(news) == len(l.items) {
		return update[l.start:l.end]
	}
	return jsonscan.Join(news)
}
