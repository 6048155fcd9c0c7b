package eventstore

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonplus"
)

// judge decides what became of the messages that left the list, and which new ones are summaries. The order of its questions is
// that of the design: by a client, by a summarizer that says so, by shape; what is left was removed. It never asks for names of
// nodes or classes.
func (s *step) judge() error {
	s.removed = map[Seq]*item{}
	for _, sl := range s.slots {
		if sl.was == nil && sl.message.LCSource == lcSummarization {
			sl.hidden = true
			if s.summary == nil {
				s.summary = sl
			}
		}
	}
	rest, err := s.byClient(s.gone)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		switch {
		case s.summary != nil:
			s.condense(rest)
		case s.oldestWent():
			s.summary = s.summaryByShape()
			s.condense(rest)
		default:
			s.remove(rest)
		}
	}
	// Nothing is left of what there was: a reset takes along what had been condensed before.
	if len(s.removed) > 0 && len(s.removed) == len(s.old.list) {
		s.reset = true
	}
	s.alongWithSummaries()
	if s.compared {
		s.finds()
	}
	for _, mid := range s.f.Deleted {
		if it := s.old.index[mid]; it != nil && !it.Summary && !s.inList(it) {
			s.removed[it.Seq] = it
		}
	}
	return nil
}

func (s *step) remove(items []*item) {
	for _, it := range items {
		s.removed[it.Seq] = it
	}
}

func (s *step) condense(items []*item) {
	for _, it := range items {
		if !it.Summary {
			s.condensed = append(s.condensed, it)
		}
	}
}

// byClient removes those of gone that a client removed, and gives the others.
func (s *step) byClient(gone []*item) (rest []*item, err error) {
	if len(gone) == 0 {
		return nil, nil
	}
	if s.f.Source == "update" || s.f.Source == "fork" {
		s.remove(gone)
		return nil, nil
	}
	// What a run was called with counts once: when its first step applies it. Later steps of the run act for themselves, and writes that
	// a command left on their parent are those of another run that began there.
	if s.f.Run != "" && s.parent != nil && s.parent.Run == s.f.Run && s.parent.Source != "input" {
		return gone, nil
	}
	names := map[string]bool{}
	if s.f.Parent != "" {
		writes, err := s.tx.ClientWrites(s.f.Thread, s.f.Parent, s.f.channel())
		if err != nil {
			return nil, err
		}
		for _, w := range writes {
			// What cannot be read names nobody.
			if text, err := jsonplus.AppendJSON(nil, w.Type, w.Data); err == nil {
				named(names, gjson.ParseBytes(text), 0)
			}
		}
	}
	if s.f.Run != "" {
		input, command, err := s.tx.RunInput(s.f.Run)
		if err != nil {
			return nil, err
		}
		named(names, gjson.ParseBytes(input), 0)
		named(names, gjson.GetBytes(command, "update"), 0)
	}
	for _, it := range gone {
		if names[removeAll] || names[it.id] {
			s.removed[it.Seq] = it
		} else {
			rest = append(rest, it)
		}
	}
	return rest, nil
}

// aside counts the leading items that are no part of the conversation: a system message, and summaries of what went before.
func aside(list []*item) int {
	n, system := 0, false
	for n < len(list) && (list[n].Summary || list[n].system && !system) {
		system = system || !list[n].Summary
		n++
	}
	return n
}

// oldestWent reports whether the oldest message of the list left it and a newer one stayed. A summary among those that went is as
// old as what it stands for.
func (s *step) oldestWent() bool {
	asides := aside(s.old.list)
	if s.prefix > asides {
		return false
	}
	left := make(map[Seq]bool, len(s.gone))
	for _, it := range s.gone {
		if s.removed[it.Seq] == nil {
			left[it.Seq] = true
		}
	}
	went := false
	for i, it := range s.old.list {
		switch {
		case left[it.Seq]:
			went = went || i >= asides || it.Summary
		case s.removed[it.Seq] != nil || it.Summary:
		case it.system && i < asides:
		default:
			return went // the first that stayed: was something older taken?
		}
	}
	return false
}

// summaryByShape gives the slot of the summary of a condensing step that does not name it: the only new message of a kind that can be
// one before the first kept message, or a summary that was there before and now says something else.
func (s *step) summaryByShape() *slot {
	asides := map[Seq]bool{}
	for _, it := range s.old.list[:aside(s.old.list)] {
		asides[it.Seq] = true
	}
	var found []*slot
	for _, sl := range s.slots {
		if sl.was != nil && !asides[sl.was.Seq] && !sl.was.Summary {
			break
		}
		switch {
		case sl.was == nil && slices.Contains([]string{TypeHuman, TypeAI, TypeSystem}, typeOf(sl.message.Type)):
			found = append(found, sl)
		case sl.was != nil && sl.was.Summary && sl.revised:
			return sl
		}
	}
	if len(found) != 1 {
		return nil
	}
	found[0].hidden = true
	return found[0]
}

// alongWithSummaries removes from the transcript what had been condensed into a summary that was removed, and after a reset all of it.
func (s *step) alongWithSummaries() {
	gone := map[Seq]bool{} // summaries that were removed
	for seq, it := range s.removed {
		if it.Summary {
			gone[seq] = true
		}
	}
	if len(gone) == 0 && !s.reset {
		return
	}
	stays := map[Seq]bool{} // in the old list and not removed
	for _, it := range s.old.list {
		if s.removed[it.Seq] == nil {
			stays[it.Seq] = true
		}
	}
	// What was condensed into the newest summaries, and through them into older ones, stands before their marker, and after the
	// marker of an older summary that the model still has.
	last := -1
	for i, it := range s.old.shown {
		if s.reset || gone[it.Seq] {
			last = i
		}
	}
	if !s.reset && !slices.ContainsFunc(s.old.list, func(it *item) bool { return it.Summary && stays[it.Seq] }) {
		last = len(s.old.shown) - 1
	}
	first := last + 1
	for first > 0 && !(s.old.shown[first-1].Summary && stays[s.old.shown[first-1].Seq]) {
		first--
	}
	for _, it := range s.old.shown[first : last+1] {
		if !stays[it.Seq] && !s.inList(it) { // a client may write a list of its own, with what had been condensed
			s.removed[it.Seq] = it
		}
	}
}

// inList reports whether an item is in the new list.
func (s *step) inList(it *item) bool {
	for _, k := range s.old.list[:s.prefix] {
		if k.Seq == it.Seq {
			return true
		}
	}
	return slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.was != nil && sl.was.Seq == it.Seq })
}

// summaryText gives the words of a summary: those of the custom event, of its message, or of the channel that changed.
func (s *step) summaryText(message []byte) string {
	if s.f.Words != "" {
		return s.f.Words
	}
	if message != nil {
		return textOf(message)
	}
	for _, c := range s.f.Channels {
		if c.Text != "" && (s.parent == nil || !hasVersion(s.parent.Summary, c)) {
			return c.Text
		}
	}
	return ""
}

func hasVersion(versions string, c TextChannel) bool {
	return strings.Contains("\n"+versions, "\n"+c.Name+"="+c.Version+"\n")
}
