package eventstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// A talk is a random conversation: checkpoints as LangGraph would save them, each with what a person saw. That follows from the actions, not
// from comparing checkpoints. It is kept as simply as possible, and shares no code with the tested package.
type talk struct {
	r     *rand.Rand
	style style
	name  func(n int) string // of the n-th checkpoint
	steps []*moment
	count int
}

// style is how a graph condenses. A graph has one.
type style int

const (
	langchain   style = iota // SummarizationMiddleware: a human message that says so, in front; everything else before the cut goes
	handMade                 // RemoveMessage for each, a new message in front
	atTheEnd                 // the same, with the message at the end: indistinguishable from an ordinary one
	summaryText              // DeerFlow's: text in a channel
	howTo                    // LangGraph's how-to: the same under another name
	langmem                  // a system message in front, another each time
	runningText              // a leading system message whose text grows under one id
	trimmed                  // no summary at all
	numberOfStyles
)

// said is a message of the list. A summary holds the keys of what it stands for.
type said struct {
	message
	holds map[string]bool // nil: no summary
}

func (s said) key() string {
	if s.id == "" {
		return "nameless " + s.content // no two of a talk say the same
	}
	return s.id
}

// line is what a person sees: a message, or a marker.
type line struct{ key, text string }

// moment is a checkpoint of a talk.
type moment struct {
	id, parent, source, run string
	step                    int
	list                    []said
	shown                   []line
	version, textVersion    string
	text                    string // of the channel that textChannel names
	writes                  []message
	writesPath              string // "" for those of a command
	input, command          string // of the run, with its first checkpoint
	deleted                 []string
	// unstored: a client's removal is known only to the run. unknown: it is known only to the recording.
	unstored, unknown bool
}

func newTalk(seed uint64, ordered bool) *talk {
	r := rand.New(rand.NewPCG(seed, 7))
	t := &talk{r: r, style: style(r.IntN(int(numberOfStyles))), name: func(n int) string { return fmt.Sprintf("%08d", n) }}
	if !ordered {
		t.name = func(n int) string { return fmt.Sprintf("%08x-%d", rand.New(rand.NewPCG(seed, uint64(n))).Uint32(), n) }
	}
	return t
}

// next is a checkpoint after another that changes nothing yet.
func (t *talk) next(m *moment, source, run string) *moment {
	n := &moment{source: source, run: run, step: -1}
	if m != nil {
		n.parent, n.step = m.id, m.step+1
		n.list, n.shown = slices.Clone(m.list), slices.Clone(m.shown)
		n.version, n.text, n.textVersion, n.unstored, n.unknown = m.version, m.text, m.textVersion, m.unstored, m.unknown
	}
	return t.save(n)
}

func (t *talk) save(n *moment) *moment {
	n.id = t.name(len(t.steps))
	t.steps = append(t.steps, n)
	return n
}

func (t *talk) fresh(kind string) message {
	t.count++
	m := message{kind: kind, id: fmt.Sprint("m", t.count), content: fmt.Sprint("text ", t.count)}
	if kind != "system" && t.r.IntN(12) == 0 {
		m.id = ""
	}
	return m
}

func (m *moment) changed() { m.version = "v" + m.id }

func (m *moment) say(ms ...message) {
	m.changed()
	for _, one := range ms {
		m.list = append(m.list, said{message: one})
		m.shown = append(m.shown, line{m.list[len(m.list)-1].key(), one.content})
	}
}

// edit is what add_messages does with a message whose id a person has seen: in its place, and at the end if the model had forgotten it.
func (m *moment) edit(one message) {
	m.changed()
	for i := range m.shown {
		if m.shown[i].key == one.id {
			m.shown[i].text = one.content
		}
	}
	if i := slices.IndexFunc(m.list, func(s said) bool { return s.id == one.id }); i >= 0 {
		m.list[i].message = one
	} else {
		m.list = append(m.list, said{message: one})
	}
}

// remove takes away what a client named, what was condensed into it, and when nothing is left everything.
func (m *moment) remove(named ...said) {
	m.changed()
	gone, all := map[string]bool{}, len(named) == len(m.list)
	for _, s := range named {
		gone[s.key()] = true
		maps.Copy(gone, s.holds)
	}
	m.list = slices.DeleteFunc(m.list, func(s said) bool {
		return slices.ContainsFunc(named, func(n said) bool { return n.key() == s.key() })
	})
	m.shown = slices.DeleteFunc(m.shown, func(l line) bool { return (all || gone[l.key]) && !m.has(l.key) })
}

func (m *moment) has(key string) bool {
	return slices.ContainsFunc(m.list, func(s said) bool { return s.holds == nil && s.key() == key })
}

// condense takes the oldest messages from the model, not from the person.
func (t *talk) condense(m *moment) {
	front := 0 // system message and summary, which stay aside
	if t.style != langchain {
		for front < len(m.list) && (m.list[front].kind == "system" && front == 0 || m.list[front].holds != nil) {
			front++
		}
	}
	if len(m.list)-front < 4 {
		return
	}
	cut := front + 2 + t.r.IntN(len(m.list)-front-3)
	old, kept := slices.Clone(m.list[:cut]), slices.Clone(m.list[cut:])
	var head []said
	holds, count := map[string]bool{}, 0
	for i, s := range old {
		switch {
		case s.holds != nil:
			maps.Copy(holds, s.holds)
		case i < front:
			head = append(head, s) // the system message
		default:
			holds[s.key()], count = true, count+1
		}
	}
	text := fmt.Sprint("summary ", m.id)
	marker := line{"marker " + m.id, fmt.Sprintf("[%d: %s]", count, text)}
	holds[marker.key] = true
	s := said{message{id: "s" + m.id, content: text}, holds}
	switch t.style {
	case langchain:
		s.kind, s.source = "human", "summarization"
	case handMade:
		s.kind = []string{"human", "ai", "system"}[t.r.IntN(3)]
	case langmem:
		s.kind = "system"
	case runningText:
		s.kind, s.id = "system", "running"
	case summaryText, howTo:
		m.text, m.textVersion = text, "t"+m.id
	default:
		marker.text = fmt.Sprintf("[%d: ]", count)
	}
	m.changed()
	m.list = head
	if s.kind != "" {
		m.list = append(m.list, s)
	}
	m.list = append(m.list, kept...)
	// Before the first message that was kept after the last one that went.
	at := 0
	for i, l := range m.shown {
		if holds[l.key] && slices.ContainsFunc(old, func(s said) bool { return s.key() == l.key }) {
			at = i + 1
		}
	}
	for at < len(m.shown) && !m.has(m.shown[at].key) {
		at++
	}
	m.shown = slices.Insert(m.shown, at, marker)
	if t.style == atTheEnd {
		m.say(t.fresh("system"))
	}
}

// some returns messages of the list that have an id, for a client to name.
func (t *talk) some(m *moment) (named []said) {
	for _, s := range m.list {
		if s.id != "" && t.r.IntN(4) == 0 {
			named = append(named, s)
		}
	}
	return named
}

func removes(named []said) (ms []message, text string) {
	for i, s := range named {
		if i > 0 {
			text += ","
		}
		ms = append(ms, remove(s.id))
		text += fmt.Sprintf(`{"type":"remove","id":%q}`, s.id)
	}
	return ms, text
}

// turn is a run: the input, perhaps a condensing step, an answer with its tools.
func (t *talk) turn(m *moment) *moment {
	run := fmt.Sprint("run", len(t.steps))
	asked := t.fresh("human")
	var named []said
	if m != nil && t.r.IntN(6) == 0 {
		named = t.some(m)
	}
	writes, text := removes(named)
	if m != nil && t.r.IntN(10) == 0 { // durability "exit": one checkpoint, and nothing of how it came about
		n := t.next(m, "loop", run)
		n.input, n.unstored = `{"messages":[`+text+`]}`, n.unstored || len(named) > 0
		if len(named) > 0 {
			n.remove(named...)
		}
		n.say(asked, t.fresh("ai"))
		return n
	}
	n := t.next(m, "input", run)
	n.input = `{"messages":[` + text + `]}`
	n = t.next(n, "loop", run)
	n.writes, n.writesPath = append(writes, asked), "~__pregel_pull, __start__"
	if len(named) > 0 {
		n.remove(named...)
	}
	if n.step < 2 && t.r.IntN(2) == 0 {
		n.say(t.fresh("system"))
	}
	n.say(asked)
	if t.r.IntN(2) == 0 {
		n = t.next(n, "loop", run)
		t.condense(n)
	}
	for range t.r.IntN(3) {
		n = t.next(n, "loop", run)
		n.say(t.fresh("ai"))
		n = t.next(n, "loop", run)
		n.say(t.fresh("tool"), t.fresh("tool"))
	}
	n = t.next(n, "loop", run)
	n.say(t.fresh("ai"))
	return n
}

// act does one thing after a checkpoint.
func (t *talk) act(m *moment) *moment {
	named := t.some(m)
	switch k := t.r.IntN(16); {
	case k == 0 && len(named) > 0: // update_state with RemoveMessage
		n := t.next(m, "update", "")
		n.remove(named...)
		return n
	case k == 1 && len(named) > 0: // command.update: writes of the null task on the checkpoint, applied by the run's first step
		n := t.next(m, "loop", fmt.Sprint("run", len(t.steps)))
		writes, text := removes(named)
		n.writes, n.command = writes, `{"update":{"messages":[`+text+`]}}`
		n.remove(named...)
		n.say(t.fresh("ai"))
		return n
	case k == 2 && len(m.list) > 0: // an edit
		if s := m.list[t.r.IntN(len(m.list))]; s.id != "" && s.holds == nil {
			s.content += " edited"
			n := t.next(m, "update", "")
			n.edit(s.message)
			return n
		}
	case k == 3 && t.r.IntN(4) == 0: // a reset
		n := t.next(m, "update", "")
		n.remove(n.list...)
		return n
	case k == 4 && t.r.IntN(3) == 0: // a client deletes what the model has forgotten
		var ids []string
		for _, l := range m.shown {
			if l.key[0] == 'm' && l.key[1] != 'a' && !m.has(l.key) && t.r.IntN(3) == 0 {
				ids = append(ids, l.key)
			}
		}
		if len(ids) > 0 {
			n := t.next(m, "update", "")
			n.deleted, n.unknown = ids, true
			n.shown = slices.DeleteFunc(n.shown, func(l line) bool { return slices.Contains(ids, l.key) })
			return n
		}
	}
	return t.turn(m)
}

// play makes at least n checkpoints: mostly one after the other, with time travel, and sibling copies of checkpoints.
func (t *talk) play(n int, copies bool) {
	m := t.turn(nil)
	for len(t.steps) < n {
		if t.r.IntN(8) == 0 {
			m = t.steps[t.r.IntN(len(t.steps))]
		}
		// A copy cannot be distinguished from others of its version, so a copy of a checkpoint with deleted condensed messages shows them
		// again: such talks have no copies.
		if m.parent != "" && copies && !t.hides() && t.r.IntN(12) == 0 {
			twin := *m
			twin.source, twin.run, twin.writes, twin.input, twin.command, twin.deleted = "fork", "", nil, "", "", nil
			twin.list, twin.shown = slices.Clone(m.list), slices.Clone(m.shown)
			m = t.save(&twin)
		}
		m = t.act(m)
	}
}
