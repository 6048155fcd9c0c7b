package eventstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// append writes the events of the step: removals, then summaries, then messages in the order of the list.
func (s *step) append() error {
	if s.at = s.f.At; s.at.IsZero() {
		s.at = time.Now().UTC()
	}
	for _, add := range []func() error{s.addRemoved, s.addCondensed, s.addSummaries, s.addMessages} {
		if err := add(); err != nil {
			return err
		}
	}
	s.addUnreadable()
	if len(s.events) == 0 {
		return nil
	}
	if err := s.tx.AppendEvents(s.f.Thread, s.events); err != nil {
		return err
	}
	for i, it := range s.made {
		if it != nil {
			it.Seq = s.events[i].Seq
		}
	}
	return nil
}

// addEvent adds an event of the step. made is the entry that it makes, or nil; revises the one whose content it replaces, or nil.
func (s *step) addEvent(kind, category string, content []byte, made, revises *item) *Event {
	e := &Event{
		Run: s.f.Run, Type: kind, Category: category, Content: content, Metadata: s.metadataOf(revises), CreatedAt: s.at,
	}
	if revises != nil {
		e.First = revises.origin()
	}
	s.events, s.made = append(s.events, e), append(s.made, made)
	return e
}

func (s *step) addRemoved() error {
	ids := s.removedIDs()
	if len(ids) == 0 {
		return nil
	}
	content, err := json.Marshal(struct {
		IDs []string `json:"ids"`
	}{ids})
	if err != nil {
		return err
	}
	s.addEvent(TypeRemoved, CategoryTrace, content, nil, nil)
	return nil
}

// addCondensed adds the marker of messages that were condensed without a message in their place.
func (s *step) addCondensed() error {
	if s.Summary >= 0 || len(s.Condensed) == 0 {
		return nil
	}
	content, err := json.Marshal(s.summary("", nil))
	if err != nil {
		return err
	}
	s.marker = &item{Entry: Entry{Summary: true}}
	s.locate(s.addEvent(TypeSummarize, CategoryMiddleware, content, s.marker, nil))
	return nil
}

// addSummaries adds the messages that stand for others: new ones, which mark where messages were condensed, hidden ones, and those with a new text.
func (s *step) addSummaries() error {
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
		e := s.addEvent(TypeSummarize, CategoryMiddleware, content, it, revises)
		if marks {
			s.locate(e)
		}
		e.MessageID, e.Digest, e.Anonymous = it.id, sl.digest[:], it.anonymous
	}
	return nil
}

func (s *step) addMessages() error {
	for _, sl := range s.slots {
		if sl.it != nil {
			continue
		}
		message, it, err := s.newItem(sl)
		if err != nil {
			return err
		}
		e := s.addEvent(typeOf(sl.message.Type), CategoryMessage, message, it, sl.was)
		e.MessageID, e.Digest, e.Anonymous = it.id, sl.digest[:], it.anonymous
		if e.Type == TypeAI && s.f.Calls != nil {
			e.Metadata = s.f.Calls(it.id).describe(e.Metadata)
		}
	}
	return nil
}

// describe adds the call to the metadata of the message that it made.
func (c Call) describe(metadata json.RawMessage) json.RawMessage {
	if c.Number == 0 {
		return metadata
	}
	metadata = fmt.Appendf(metadata[:len(metadata)-1], `,"llm_call_index":%d`, c.Number)
	if c.Took > 0 {
		metadata = fmt.Appendf(metadata, `,"latency_ms":%d`, c.Took.Milliseconds())
	}
	return append(metadata, '}')
}

// addUnreadable adds an entry that says that the value cannot be read.
func (s *step) addUnreadable() {
	if s.unreadable == "" {
		return
	}
	var content []byte
	content, s.lost = s.lostItem()
	e := s.addEvent(TypeMessage, CategoryMessage, content, s.lost, nil)
	e.MessageID, e.Digest = s.lost.id, s.lost.digest[:]
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
