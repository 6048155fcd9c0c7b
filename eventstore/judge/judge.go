// Package judge compares the messages of two successive states of a conversation. It decides which are the same, which were condensed,
// which were removed, which new one is a summary, and in what order a person sees all of them.
//
// It is pure: the verdict depends only on its arguments. Recording (package eventstore) applies it to checkpoints, and the overlay
// (package eventstore/overlay) to values that are shown before their checkpoint is recorded. So a conversation looks the same live and after
// a reload. It does not depend on storage or encoding, and never decides by names of nodes or classes.
package judge

import "slices"

// Digest identifies the content of a message.
type Digest = [16]byte

// Message is a known message: it is in a transcript, in the list of a state, or in both. Implementations are pointers; the zero value
// means no message.
type Message interface {
	comparable
	// Key identifies the message. It is equal in the transcript and in the list, and differs for each revision.
	Key() int64
	// MessageID returns its id; "" for the marker of a summary that is not a message.
	MessageID() string
	// IsSummary reports whether it is a summary: its message in a list, its marker in a transcript.
	IsSummary() bool
	// IsSystem reports whether it is a system message.
	IsSystem() bool
	// IsAnonymous reports whether the graph gave it no id.
	IsAnonymous() bool
	// IsLost reports whether it stands for a whole unreadable list.
	IsLost() bool
	// ContentDigest returns the digest of the content of a message without id.
	ContentDigest() Digest
}

// Next is a message of the list after the step.
type Next[T Message] struct {
	Was      T    // the message before the step; zero: it is new
	Revised  bool // its content differs from that of Was
	Declared bool // it declares itself a summary
	Speech   bool // a human, ai or system message, so its position can make it a summary
}

func (n *Next[T]) isNew() bool {
	var none T
	return n.Was == none
}

// Step is the input of a judgement: a transcript, the list of messages it belongs to, and the next list.
type Step[T Message] struct {
	Shown, List []T       // before; a message that is in both has the same key
	Prefix      int       // length of the common unchanged beginning of both lists
	Next        []Next[T] // the messages after them
	Gone        []T       // messages of List that are not in the next one, in order
	// Client reports whether a client removed a message in this step; nil: none did. It is called for messages of Gone.
	Client func(mid string) bool
	// Deleted are condensed messages that a client deleted with this step. The list does not have them.
	Deleted []string
	// Unread reports that the next list could not be read; it is assumed to be unchanged.
	Unread bool
}

// Verdict is the result for the messages of a step.
type Verdict[T Message] struct {
	Condensed []T         // in the order of the list
	Removed   map[int64]T // by key, including messages of the transcript removed together with others
	Hidden    []bool      // index of Step.Next: new messages that are summaries; nil: none
	Summary   int         // index in Step.Next of the summary; -1: it is not a message
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

// Calls reports whether the input of a run can have removed messages in a step. The first step of the run applies the input; later
// steps do not. parentRun and parentSource are those of the previous checkpoint.
func Calls(run, parentRun, parentSource string) bool {
	return run == "" || run != parentRun || parentSource == "input"
}

// Judge decides in this order: removed by a client; condensed by a summary that declares itself; condensed by shape; all others were
// removed. A declared summary that took the id of another message becomes new in Next, and that message is added to Gone.
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

// Loses reports whether a message left the list in this step, or its id was taken. Only then the client's actions matter.
func (s *Step[T]) Loses() bool {
	return len(s.Gone) > 0 || slices.ContainsFunc(s.Next, func(n Next[T]) bool { return n.takes() })
}

// split separates declared summaries from messages whose ids they took: those messages were removed, not edited. Only a client edits.
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

// aside counts the leading messages that are not part of the conversation: a system message, and summaries of earlier
// messages.
func aside[T Message](list []T) int {
	n, system := 0, false
	for n < len(list) && (list[n].IsSummary() || list[n].IsSystem() && !system) {
		system = system || !list[n].IsSummary()
		n++
	}
	return n
}

// oldestWent reports whether the oldest message of the list left it and a newer one stayed. A summary among the removed ones is as old
// as the messages it stands for.
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
			return went // the first that stayed: was an older one removed?
		}
	}
	return false
}

// summaryByShape finds the summary of a condensing step that does not declare it: the only new message before the first kept one whose
// type allows it, or an existing summary whose content changed.
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

// takeAlong removes from the transcript the messages condensed into a removed summary, and all messages when nothing is left of the
// list, which is a reset.
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
	// Messages condensed into the newest summaries, directly or through older ones, are before their marker, and after the marker of an
	// older summary that the model still has.
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
		if !stays[m.Key()] && !listed[m.Key()] { // a client may write its own list, including condensed messages
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

// find removes the entry at the end of the transcript that stands for unreadable lists, now that one can be read, unless messages were
// condensed that those lists may have held.
func (s *Step[T]) find(v *Verdict[T]) {
	for i := len(s.Shown) - 1; i >= 0 && s.Shown[i].IsLost() && len(v.Condensed) == 0; i-- {
		v.remove(s.Shown[i])
	}
}

// Marked reports whether the transcript has the marker of the summary with this id.
func (s *Step[T]) Marked(mid string) bool {
	return slices.ContainsFunc(s.Shown, func(m T) bool { return m.IsSummary() && m.MessageID() == mid })
}
