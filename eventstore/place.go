package eventstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// append writes the events of the step: removals, then summaries, then messages in the order of the list.
func (s *step) append() error {
	at := s.f.At
	if at.IsZero() {
		at = time.Now().UTC()
	}
	event := func(kind, category string, content []byte, revises *item) *Event {
		e := &Event{
			Run: s.f.Run, Type: kind, Category: category, Content: content, Metadata: s.metadataOf(revises), CreatedAt: at,
		}
		if revises != nil {
			e.First = revises.origin()
		}
		s.events = append(s.events, e)
		return e
	}
	var made []*item // in the order of events; nil for events without an entry
	if ids := s.removedIDs(); len(ids) > 0 {
		content, err := json.Marshal(struct {
			IDs []string `json:"ids"`
		}{ids})
		if err != nil {
			return err
		}
		event(TypeRemoved, CategoryTrace, content, nil)
		made = append(made, nil)
	}

	if s.Summary < 0 && len(s.Condensed) > 0 {
		content, err := json.Marshal(s.summary("", nil))
		if err != nil {
			return err
		}
		s.locate(event(TypeSummarize, CategoryMiddleware, content, nil))
		s.marker = &item{Entry: Entry{Summary: true}}
		made = append(made, s.marker)
	}
	for i, sl := range s.slots {
		summary := s.Hidden != nil && s.Hidden[i] || sl.was != nil && sl.was.Summary
		if !summary || sl.it != nil {
			continue
		}
		message, it, err := s.newItem(sl)
		if err != nil {
			return err
		}
		it.Summary, it.system = true, false
		marks := s.Summarizes(i)
		var c Summary
		revises := sl.was
		switch {
		case marks:
			c = s.summary(it.id, message)
			s.marker, revises = it, nil
			it.first = 0
		case sl.was != nil:
			if c, err = s.revisedSummary(sl.was, message); err != nil {
				return err
			}
		default:
			c = HiddenSummary(it.id, message)
		}
		if it.anonymous {
			c.SetDigest(message)
		}
		content, err := json.Marshal(c)
		if err != nil {
			return err
		}
		e := event(TypeSummarize, CategoryMiddleware, content, revises)
		if marks {
			s.locate(e)
		}
		e.MessageID, e.Digest, e.Anonymous = it.id, sl.digest[:], it.anonymous
		made = append(made, it)
	}
	for _, sl := range s.slots {
		if sl.it != nil {
			continue
		}
		message, it, err := s.newItem(sl)
		if err != nil {
			return err
		}
		kind := typeOf(sl.message.Type)
		e := event(kind, CategoryMessage, message, sl.was)
		e.MessageID, e.Digest, e.Anonymous = it.id, sl.digest[:], it.anonymous
		made = append(made, it)
	}
	if s.unreadable != "" {
		var content []byte
		content, s.lost = s.lostItem()
		e := event(TypeMessage, CategoryMessage, content, nil)
		e.MessageID, e.Digest = s.lost.id, s.lost.digest[:]
		made = append(made, s.lost)
	}
	if len(s.events) == 0 {
		return nil
	}
	if err := s.tx.AppendEvents(s.f.Thread, s.events); err != nil {
		return err
	}
	for i, it := range made {
		if it != nil {
			it.Seq = s.events[i].Seq
		}
	}
	return nil
}

// newItem returns the item of a new or revised message, and the message as JSON.
func (s *step) newItem(sl *slot) (message []byte, it *item, err error) {
	message = sl.text
	it = &item{
		id: sl.message.ID, hash: sl.hash, digest: sl.digest,
		system: typeOf(sl.message.Type) == TypeSystem, anonymous: sl.message.ID == "",
	}
	if sl.was != nil {
		it.first = sl.was.origin()
	}
	if it.anonymous {
		it.id, message, err = Identify(message, func(mid string) bool { _, ok := s.old.ids[mid]; return ok })
		if err != nil {
			return nil, nil, err
		}
		s.old.ids[it.id] = struct{}{}
		s.nameless = append(s.nameless, it)
	}
	sl.it = it
	return message, it, nil
}

// removedIDs returns the ids removed from the transcript or the list, in the order in which they were shown.
func (s *step) removedIDs() []string {
	if len(s.Removed) == 0 {
		return nil
	}
	var ids []string
	listed := map[Seq]bool{}
	for _, items := range [][]*item{s.old.shown, s.old.list} {
		for _, it := range items {
			if s.Removed[it.Key()] != nil && !listed[it.Seq] && it.id != "" {
				listed[it.Seq] = true
				ids = append(ids, it.id)
			}
		}
	}
	return ids
}

// summary returns the content of the event of a condensing step. mid and message are those of the summary, if it is a
// message.
func (s *step) summary(mid string, message []byte) Summary {
	before := ""
	if s.parent != nil {
		before = s.parent.Summary
	}
	return SummaryOf(&s.Step, s.Verdict, mid, message, s.f.Words, ChangedText(before, s.f.Channels))
}

// revisedSummary returns the content of the event of a summary that has a new text for the same messages.
func (s *step) revisedSummary(was *item, message []byte) (Summary, error) {
	content, err := s.tx.Content(s.f.Thread, was.Seq)
	if err != nil {
		return Summary{}, err
	}
	c, err := ParseSummary(content)
	return c.Revised(message), err
}

// place returns the state after the step. It takes over the index of the old state.
func (s *step) place() *state {
	next := &state{index: s.old.index, ids: s.old.ids, anonymous: append(slices.Clip(s.old.anonymous), s.nameless...)}
	s.old.index, s.old.ids = nil, nil

	next.list = append(make([]*item, 0, s.Prefix+len(s.slots)), s.old.list[:s.Prefix]...)
	for _, sl := range s.slots {
		next.list = append(next.list, sl.it)
	}
	next.shown = s.Order(s.Verdict, next.list[s.Prefix:], s.marker)
	if s.lost != nil {
		next.shown = append(slices.Clip(next.shown), s.lost)
		next.index[s.lost.id] = s.lost
	}

	for _, it := range s.Removed {
		if k := next.index[it.id]; k != nil && k.Seq == it.Seq {
			delete(next.index, it.id)
		}
	}
	for _, it := range s.Gone {
		if it.Summary && !s.Marked(it.id) {
			delete(next.index, it.id) // merged into another, and had no marker
		}
	}
	for _, sl := range s.slots {
		next.index[sl.it.id] = sl.it
	}
	return next
}

// locate stores in the event of a marker which entry it follows, by the seq of that entry's first event. The marker's own seq does
// not determine its position, because it is higher. Seqs of this step are not known yet, so locate uses the transcript of the
// parent.
func (s *step) locate(e *Event) {
	after := Seq(0)
	if before := s.Before(s.Verdict); before != nil {
		after = before.origin()
	}
	e.Metadata = fmt.Appendf(e.Metadata[:len(e.Metadata)-1], `,"after_seq":%d}`, after)
}

// changed reports whether the stored form of next differs from that of the old state.
func (s *step) changed(next *state) bool {
	same := func(a, b *item) bool { return a.Entry == b.Entry }
	return len(s.events) > 0 || !slices.EqualFunc(s.old.shown, next.shown, same) || !slices.EqualFunc(s.old.list, next.list, same)
}
