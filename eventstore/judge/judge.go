// Package judge is the rule that decides what became of the messages of a conversation between one state and the next: which are the
// same, which were condensed, which were removed, which new one is a summary, and in what order a person sees all of them.
//
// It is pure: what is known goes in, a verdict comes out. Recording (package eventstore) applies it to checkpoints, and the overlay
// (package thread/overlay) to values that are shown before their checkpoint is recorded. So a conversation looks the same live and after
// a reload. It knows no storage and no encoding, and never decides by names of nodes or classes.
package judge

import "slices"

// Digest identifies the content of a message.
type Digest = [16]byte

// Message is a message that is known: it is in a transcript, in the list of a state, or in both. Implementations are pointers; the zero
// value stands for no message.
type Message interface {
	comparable
	// Key identifies the message. It is the same in the transcript and in the list, and another for each revision.
	Key() int64
	// MessageID is its id; "" for the marker of a summary that is no message.
	MessageID() string
	// IsSummary reports whether it is a summary: in a list the message, in a transcript its marker.
	IsSummary() bool
	// IsSystem reports whether it is a system message.
	IsSystem() bool
	// IsAnonymous reports whether the graph gave it no id.
	IsAnonymous() bool
	// IsLost reports whether it stands for a whole list that could not be read.
	IsLost() bool
	// ContentDigest identifies the content of a message without id.
	ContentDigest() Digest
}

// Next is a message of the list after the step.
type Next[T Message] struct {
	Was      T    // the message that it was before; zero: it is new
	Revised  bool // its content is not that of Was
	Declared bool // it declares itself a summary
	Speech   bool // a human, ai or system message: it can be a summary by its place
}

func (n *Next[T]) isNew() bool {
	var none T
	return n.Was == none
}

// Step is what is known of a step: a transcript, the list of messages it belongs to, and the list that followed.
type Step[T Message] struct {
	Shown, List []T       // before; a message that is in both has the same key
	Prefix      int       // how many messages of List begin the next one, unchanged
	Next        []Next[T] // the messages after them
	Gone        []T       // messages of List that are not in the next one, in order
	// Client reports whether a client removed a message with this step; nil: none. It is called for messages of Gone.
	Client func(mid string) bool
	// Deleted are condensed messages that a client deleted with this step. The list does not have them.
	Deleted []string
	// Unread: the next list could not be read; it is taken to be that of before.
	Unread bool
}

// Verdict says what became of the messages of a step.
type Verdict[T Message] struct {
	Condensed []T         // in the order of the list
	Removed   map[int64]T // by key; also messages of the transcript that went with others
	Hidden    []bool      // of Step.Next: a new message that is a summary; nil: none is
	Summary   int         // of Step.Next: the summary of what was condensed; -1: it is no message
}

// Summarizes reports whether the i-th message of Step.Next is the summary that stands for what was condensed.
func (v *Verdict[T]) Summarizes(i int) bool { return i == v.Summary && len(v.Condensed) > 0 }

func (v *Verdict[T]) hide(i, of int) {
	if v.Hidden == nil {
		v.Hidden = make([]bool, of)
	}
	v.Hidden[i] = true
}

func (v *Verdict[T]) remove(m T) {
	if v.Removed == nil {
		v.Removed = map[int64]T{}
	}
	v.Removed[m.Key()] = m
}

func (v *Verdict[T]) condense(messages []T) {
	for _, m := range messages {
		if !m.IsSummary() {
			v.Condensed = append(v.Condensed, m)
		}
	}
}

// Calls reports whether what a run was called with can have removed messages in a step. It counts once, when the first step of the run
// applies it: later steps of the run act for themselves. parentRun and parentSource are those of the checkpoint before.
func Calls(run, parentRun, parentSource string) bool {
	return run == "" || run != parentRun || parentSource == "input"
}

// Judge decides in this order: removed by a client; condensed by a summary that declares itself; condensed by shape; what is left was
// removed. A summary that declares itself under the id of another message is new in Next afterwards, and that message is one of Gone.
func (s *Step[T]) Judge() *Verdict[T] {
	v := &Verdict[T]{Summary: -1}
	s.split()
	for i := range s.Next {
		if n := &s.Next[i]; n.isNew() && n.Declared {
			v.hide(i, len(s.Next))
			if v.Summary < 0 {
				v.Summary = i
			}
		}
	}
	var rest []T
	for _, m := range s.Gone {
		if s.Client != nil && s.Client(m.MessageID()) {
			v.remove(m)
		} else {
			rest = append(rest, m)
		}
	}
	switch {
	case len(rest) == 0:
	case v.Summary >= 0:
		v.condense(rest)
	case s.oldestWent(v):
		s.summaryByShape(v)
		v.condense(rest)
	default:
		for _, m := range rest {
			v.remove(m)
		}
	}
	s.takeAlong(v)
	if !s.Unread {
		s.find(v)
	}
	if len(s.Deleted) > 0 {
		listed, deleted := s.listed(), make(map[string]bool, len(s.Deleted))
		for _, mid := range s.Deleted {
			deleted[mid] = true
		}
		for _, m := range s.Shown {
			if !m.IsSummary() && !listed[m.Key()] && deleted[m.MessageID()] {
				v.remove(m)
			}
		}
	}
	return v
}

// takes reports whether a message may be a summary that took the id of another one.
func (n *Next[T]) takes() bool { return n.Declared && n.Revised && !n.Was.IsSummary() }

// Loses reports whether a message left the list with this step, or its id was taken: only then it matters what a client did.
func (s *Step[T]) Loses() bool {
	return len(s.Gone) > 0 || slices.ContainsFunc(s.Next, func(n Next[T]) bool { return n.takes() })
}

// split tells summaries that declare themselves from messages whose ids they took: those were not edited but removed. A client edits.
func (s *Step[T]) split() {
	var none T
	taken := map[int64]bool{}
	for i := range s.Next {
		n := &s.Next[i]
		if !n.takes() || s.Client != nil && s.Client(n.Was.MessageID()) {
			continue
		}
		taken[n.Was.Key()] = true
		n.Was, n.Revised = none, false
	}
	if len(taken) == 0 {
		return
	}
	for _, m := range s.Gone {
		taken[m.Key()] = true
	}
	s.Gone = nil
	for _, m := range s.List[s.Prefix:] {
		if taken[m.Key()] {
			s.Gone = append(s.Gone, m)
		}
	}
}

// aside counts the leading messages that are no part of the conversation: a system message, and summaries of what went before.
func aside[T Message](list []T) int {
	n, system := 0, false
	for n < len(list) && (list[n].IsSummary() || list[n].IsSystem() && !system) {
		system = system || !list[n].IsSummary()
		n++
	}
	return n
}

// oldestWent reports whether the oldest message of the list left it and a newer one stayed. A summary among those that went is as old as
// what it stands for.
func (s *Step[T]) oldestWent(v *Verdict[T]) bool {
	asides := aside(s.List)
	if s.Prefix > asides {
		return false
	}
	left := make(map[int64]bool, len(s.Gone))
	for _, m := range s.Gone {
		if _, removed := v.Removed[m.Key()]; !removed {
			left[m.Key()] = true
		}
	}
	went := false
	for i, m := range s.List {
		_, removed := v.Removed[m.Key()]
		switch {
		case left[m.Key()]:
			went = went || i >= asides || m.IsSummary()
		case removed || m.IsSummary():
		case m.IsSystem() && i < asides:
		default:
			return went // the first that stayed: was something older taken?
		}
	}
	return false
}

// summaryByShape finds the summary of a condensing step that does not declare it: the only new message of a kind that can be one before
// the first kept message, or a summary that was there before and has another content now.
func (s *Step[T]) summaryByShape(v *Verdict[T]) {
	asides := make(map[int64]bool, 2)
	for _, m := range s.List[:aside(s.List)] {
		asides[m.Key()] = true
	}
	found, n := -1, 0
	for i := range s.Next {
		x := &s.Next[i]
		if !x.isNew() && !asides[x.Was.Key()] && !x.Was.IsSummary() {
			break
		}
		switch {
		case x.isNew() && x.Speech:
			found = i
			n++
		case !x.isNew() && x.Was.IsSummary() && x.Revised:
			v.Summary = i
			return
		}
	}
	if n == 1 {
		v.Summary = found
		v.hide(found, len(s.Next))
	}
}

// takeAlong removes from the transcript what had been condensed into a summary that was removed, and all of it when nothing is left of
// the list: that is a reset.
func (s *Step[T]) takeAlong(v *Verdict[T]) {
	if len(v.Removed) == 0 {
		return
	}
	reset := len(v.Removed) == len(s.List)
	ended := map[int64]bool{} // summaries that were removed
	for key, m := range v.Removed {
		if m.IsSummary() {
			ended[key] = true
		}
	}
	if len(ended) == 0 && !reset {
		return
	}
	stays := make(map[int64]bool, len(s.List))
	summaries := false // one of them stays
	for _, m := range s.List {
		if _, removed := v.Removed[m.Key()]; !removed {
			stays[m.Key()] = true
			summaries = summaries || m.IsSummary()
		}
	}
	// What was condensed into the newest summaries, and through them into older ones, stands before their marker, and after the marker of
	// an older summary that the model still has.
	last := -1
	for i, m := range s.Shown {
		if reset || ended[m.Key()] {
			last = i
		}
	}
	if !reset && !summaries {
		last = len(s.Shown) - 1
	}
	first := last + 1
	for first > 0 && !(s.Shown[first-1].IsSummary() && stays[s.Shown[first-1].Key()]) {
		first--
	}
	listed := s.listed()
	for _, m := range s.Shown[first : last+1] {
		if !stays[m.Key()] && !listed[m.Key()] { // a client may write a list of its own, with what had been condensed
			v.remove(m)
		}
	}
}

// listed returns the keys of known messages that are in the next list.
func (s *Step[T]) listed() map[int64]bool {
	keys := make(map[int64]bool, s.Prefix+len(s.Next))
	for _, m := range s.List[:s.Prefix] {
		keys[m.Key()] = true
	}
	for i := range s.Next {
		if !s.Next[i].isNew() {
			keys[s.Next[i].Was.Key()] = true
		}
	}
	return keys
}

// find removes what stands at the end of the transcript for lists that could not be read, now that one can, unless something was condensed
// that they may have held.
func (s *Step[T]) find(v *Verdict[T]) {
	for i := len(s.Shown) - 1; i >= 0 && s.Shown[i].IsLost() && len(v.Condensed) == 0; i-- {
		v.remove(s.Shown[i])
	}
}

// Marked reports whether the transcript has a marker of the summary of this id.
func (s *Step[T]) Marked(mid string) bool {
	return slices.ContainsFunc(s.Shown, func(m T) bool { return m.IsSummary() && m.MessageID() == mid })
}
