// Package talktest makes up conversations for tests: states of a list of messages, one after the other, as a graph with any summarizer
// and clients of any habit leave them. What makes one fail is made smaller, and printed as words.
package talktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Message is a message of a list.
type Message struct {
	Kind     string // human, ai, tool, system
	ID       string // "": it has none
	Content  string
	Declared bool // additional_kwargs.lc_source is "summarization"
}

// String returns h1, S2 for a declared summary, h for one without id; a content that does not follow from the id stands behind an equals sign.
func (m Message) String() string {
	word := m.ID
	if m.ID == "" {
		word = m.Kind[:1] + "?"
	}
	if m.Content != "text of "+m.ID {
		word += fmt.Sprintf("=%q", m.Content)
	}
	if m.Declared {
		word += "!"
	}
	return word
}

// Step is a checkpoint.
type Step struct {
	Parent int    // index of another, -1: none
	Source string // input, loop, update
	Run    string // "" of updates
	List   []Message
	Text   string // of the channel summary_text; "" : the checkpoint does not have it
	// Removed are ids that the run's input removes, or "__remove_all__"; of its first step. With Command its command does.
	Removed []string
	Command bool
}

// Talk is a conversation: steps after their parents.
type Talk []Step

// String returns one line for each step.
func (t Talk) String() string {
	var b strings.Builder
	for i, s := range t {
		fmt.Fprintf(&b, "%2d after %2d %-6s %-4s", i, s.Parent, s.Source, s.Run)
		if len(s.Removed) > 0 {
			fmt.Fprintf(&b, " removes %v (command: %t)", s.Removed, s.Command)
		}
		if s.Text != "" {
			fmt.Fprintf(&b, " text %q", s.Text)
		}
		fmt.Fprintf(&b, " %v\n", s.List)
	}
	return b.String()
}

// Choice returns a number from 0 to n-1.
type Choice func(n int) int

// Random chooses at random.
func Random(seed uint64) Choice { return rand.New(rand.NewPCG(seed, 17)).IntN }

// Bytes chooses as bytes say, for fuzzing; behind their end always 0.
func Bytes(b []byte) Choice {
	return func(n int) int {
		if len(b) == 0 {
			return 0
		}
		c := int(b[0])
		b = b[1:]
		return c % n
	}
}

type maker struct {
	pick  Choice
	talk  Talk
	n     int // for ids
	seen  []Message
	taken map[int]bool // steps on which a command has left something
}

// New makes a conversation of at least so many steps.
func New(pick Choice, steps int) Talk {
	m := &maker{pick: pick, taken: map[int]bool{}}
	for len(m.talk) < steps {
		m.turn()
	}
	return m.talk
}

func (m *maker) chance(of int) bool { return m.pick(of) == of-1 }

func (m *maker) step(s Step) int {
	s.List = slices.Clone(s.List)
	m.talk = append(m.talk, s)
	return len(m.talk) - 1
}

// turn is a run, or an update of the state, mostly after the newest step.
func (m *maker) turn() {
	at := len(m.talk) - 1
	if at > 0 && m.chance(6) { // regenerated, or edited before
		at = m.pick(len(m.talk))
	}
	var s Step
	if at >= 0 {
		s = m.talk[at]
	}
	s.Parent, s.Removed, s.Command = at, nil, false
	if at >= 0 && m.chance(5) {
		s.Source, s.Run = "update", ""
		s.List = m.changed(s)
		m.step(s)
		return
	}
	m.n++
	s.Run = fmt.Sprint("run", m.n)
	if at >= 0 && m.chance(4) {
		s.Removed = m.some(s.List)
		if s.Command = m.chance(2); s.Command && m.taken[at] {
			return // what another run's command left there would count too
		}
		m.taken[at] = m.taken[at] || s.Command && len(s.Removed) > 0
	}
	if !s.Command {
		s.Source = "input"
		removed := s.Removed
		s.Removed = nil
		s.Parent = m.step(s)
		s.Removed = removed
	}
	s.Source = "loop"
	if slices.Contains(s.Removed, "__remove_all__") {
		s.List = nil
	}
	s.List = slices.DeleteFunc(slices.Clone(s.List), func(x Message) bool { return slices.Contains(s.Removed, x.ID) })
	if len(s.List) > 4 && m.chance(4) {
		s.List = m.condensed(&s)
	}
	s.List = append(s.List, m.fresh("human"))
	s.Parent = m.step(s)
	s.Removed = nil
	for range m.pick(4) {
		switch m.pick(4) {
		case 0:
			s.List = append(slices.Clone(s.List), m.fresh("ai"), m.fresh("tool"))
		case 1, 2:
			s.List = m.condensed(&s)
		default:
			s.List = m.changed(s)
		}
		if m.chance(2) {
			s.List = append(slices.Clone(s.List), m.fresh("ai"))
		}
		s.Parent = m.step(s)
	}
}

var kinds = [...]string{"human", "ai", "tool", "system"}

func (m *maker) fresh(kind string) Message {
	m.n++
	x := Message{Kind: kind, ID: fmt.Sprint(kind[:1], m.n)}
	x.Content = "text of " + x.ID
	if m.chance(8) {
		x.ID, x.Content = "", [...]string{"yes", "no"}[m.pick(2)] // others may say the same
	}
	m.seen = append(m.seen, x)
	return x
}

// some returns ids of a list, or what stands for all.
func (m *maker) some(list []Message) (ids []string) {
	if m.chance(5) {
		return []string{"__remove_all__"}
	}
	for _, x := range list {
		if x.ID != "" && m.chance(3) {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

// condensed is what a summarizer makes of a list.
func (m *maker) condensed(s *Step) []Message {
	list := s.List
	if len(list) == 0 {
		return list
	}
	front := 0 // what stays in front
	for front < len(list) && front < 2 && m.chance(2) && (list[front].Kind == "system" || list[front].Declared) {
		front++
	}
	cut := front + m.pick(len(list)-front+1)
	head, kept := slices.Clone(list[:front]), slices.Clone(list[cut:])
	var sum []Message
	switch m.pick(8) {
	case 0, 1, 2:
		sum = []Message{m.fresh("human")}
		sum[0].Declared = true
		if m.chance(3) {
			sum[0].ID, head = m.takenID(head, list[front:cut], sum[0].ID)
		}
	case 3:
		sum = []Message{m.fresh(kinds[m.pick(4)])}
	case 4: // keeps its id
		m.n++
		sum = []Message{{Kind: "system", ID: "running", Content: fmt.Sprint("so far ", m.n)}}
		running := func(x Message) bool { return x.ID == "running" }
		head, kept = slices.DeleteFunc(head, running), slices.DeleteFunc(kept, running)
	case 5:
		m.n++
		s.Text = fmt.Sprint("words ", m.n)
	case 6:
		sum = []Message{m.fresh("human"), m.fresh("ai")}
	}
	switch m.pick(5) {
	case 0:
		return slices.Concat(head, kept, sum)
	case 1:
		return slices.Concat(sum, head, kept)
	default:
		return slices.Concat(head, sum, kept)
	}
}

// takenID sets the id of a summary to that of a message that it replaces: the oldest, the newest, or a system message that stayed in front before; its own
// when there is none.
func (m *maker) takenID(head, gone []Message, own string) (string, []Message) {
	of := Message{ID: own}
	switch n := m.pick(3); {
	case n == 0 && len(gone) > 0:
		of = gone[0]
	case n == 1 && len(gone) > 0:
		of = gone[len(gone)-1]
	case n == 2 && len(head) > 0:
		of, head = head[0], head[1:]
	}
	if of.ID == "" {
		return own, head
	}
	return of.ID, head
}

// changed is a list after anything else that a client or a node may do.
func (m *maker) changed(s Step) []Message {
	list := slices.Clone(s.List)
	if len(list) == 0 {
		return append(list, m.fresh(kinds[m.pick(4)]))
	}
	at := m.pick(len(list))
	switch m.pick(9) {
	case 0:
		return slices.Delete(list, at, at+1)
	case 1:
		return list[:at]
	case 2:
		return list[at:]
	case 3:
		m.n++
		list[at].Content = fmt.Sprint("edited ", m.n)
	case 4:
		return slices.Insert(list, at, m.fresh(kinds[m.pick(4)]))
	case 5: // anything that was said before
		x := m.seen[m.pick(len(m.seen))]
		list = slices.DeleteFunc(list, func(y Message) bool { return x.ID != "" && y.ID == x.ID })
		return append(list, x)
	case 6:
		return slices.Insert(list, 0, m.fresh("system"))
	case 7:
		return append(list[:0], m.fresh("human"))
	default:
		return slices.DeleteFunc(list, func(Message) bool { return m.chance(3) })
	}
	return list
}

// Shrink returns a smaller conversation that fails too.
func (t Talk) Shrink(fails func(Talk) bool) Talk {
	for smaller := true; smaller; {
		smaller = false
		for i := len(t) - 1; i >= 0; i-- {
			if c := t.without(i); fails(c) {
				t, smaller = c, true
			}
		}
		ids := map[Message]bool{}
		for _, s := range t {
			for _, x := range s.List {
				ids[x] = true
			}
		}
		for x := range ids {
			c := slices.Clone(t)
			for i := range c {
				c[i].List = slices.DeleteFunc(slices.Clone(c[i].List), func(y Message) bool { return y.ID == x.ID && y.Content == x.Content })
			}
			if fails(c) {
				t, smaller = c, true
			}
		}
	}
	return t
}

// without leaves a step out; those after it follow its parent.
func (t Talk) without(i int) Talk {
	var out Talk
	for j, s := range t {
		if j == i {
			continue
		}
		if s.Parent == i {
			s.Parent = t[i].Parent
			if len(s.Removed) == 0 && s.Run == t[i].Run {
				s.Removed, s.Command = t[i].Removed, t[i].Command
			}
		}
		if s.Parent > i {
			s.Parent--
		}
		out = append(out, s)
	}
	return out
}
