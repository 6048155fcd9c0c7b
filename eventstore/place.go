package eventstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// append writes the events of the step: what was removed, then summaries, then messages in the order of the list.
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
	var made []*item // in the order of events; nil for those that stand nowhere
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

	if s.summary == nil && len(s.condensed) > 0 {
		content, err := s.summaryContent("", nil)
		if err != nil {
			return err
		}
		s.locate(event(TypeSummarize, CategoryMiddleware, content, nil))
		s.marker = &item{Entry: Entry{Summary: true}}
		made = append(made, s.marker)
	}
	for _, sl := range s.slots {
		summary := sl.hidden || sl.was != nil && sl.was.Summary
		if !summary || sl.it != nil {
			continue
		}
		message, it, err := s.newItem(sl)
		if err != nil {
			return err
		}
		it.Summary, it.system = true, false
		marks := sl == s.summary && len(s.condensed) > 0
		var content []byte
		revises := sl.was
		switch {
		case marks:
			content, err = s.summaryContent(it.id, message)
			s.marker, revises = it, nil
			it.first = 0
		case sl.was != nil:
			content, err = s.revisedSummary(sl.was, message)
		default:
			content, err = json.Marshal(Summary{ID: markerID(it.id, ""), Summary: textOf(message), IDs: []string{}})
		}
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

// newItem makes the item of a message that is new or revised, and gives the message as JSON.
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
		digest, err := anonymousDigest(message)
		if err != nil {
			return nil, nil, fmt.Errorf("message without id: %w", err)
		}
		it.id = anonymousID(digest, func(mid string) bool { _, ok := s.old.ids[mid]; return ok })
		s.old.ids[it.id] = struct{}{}
		s.nameless = append(s.nameless, it)
		message = withID(message, it.id)
	}
	sl.it = it
	return message, it, nil
}

// removedIDs gives the ids of what leaves the transcript or the list by removal, in the order in which it was shown.
func (s *step) removedIDs() []string {
	if len(s.removed) == 0 {
		return nil
	}
	var ids []string
	listed := map[Seq]bool{}
	for _, items := range [][]*item{s.old.shown, s.old.list} {
		for _, it := range items {
			if s.removed[it.Seq] != nil && !listed[it.Seq] && it.id != "" {
				listed[it.Seq] = true
				ids = append(ids, it.id)
			}
		}
	}
	return ids
}

// summaryContent is the content of the event of a condensing step. mid and message are those of the summary, if it is a message.
func (s *step) summaryContent(mid string, message []byte) ([]byte, error) {
	c := Summary{ReplacedCount: len(s.condensed), Summary: s.summaryText(message), IDs: make([]string, len(s.condensed))}
	for i, it := range s.condensed {
		c.IDs[i] = it.id
	}
	if mid != "" && s.marked(mid) {
		mid = "" // a summary that goes on under its id has a marker of this name already
	}
	c.ID = markerID(mid, c.IDs[len(c.IDs)-1])
	return json.Marshal(c)
}

// marked reports whether the transcript has a marker of the summary of this id.
func (s *step) marked(mid string) bool {
	return slices.ContainsFunc(s.old.shown, func(it *item) bool { return it.Summary && it.id == mid })
}

// revisedSummary is the content of the event of a summary that says something else and stands for the same messages.
func (s *step) revisedSummary(was *item, message []byte) ([]byte, error) {
	content, err := s.tx.Content(s.f.Thread, was.Seq)
	if err != nil {
		return nil, err
	}
	var c Summary
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, fmt.Errorf("summary %s: %w", was.id, err)
	}
	c.Summary = textOf(message)
	return json.Marshal(c)
}

// place gives the state after the step. It takes the index of the old one.
func (s *step) place() *state {
	next := &state{index: s.old.index, ids: s.old.ids, anonymous: append(slices.Clip(s.old.anonymous), s.nameless...)}
	s.old.index, s.old.ids = nil, nil

	next.list = append(make([]*item, 0, s.prefix+len(s.slots)), s.old.list[:s.prefix]...)
	for _, sl := range s.slots {
		next.list = append(next.list, sl.it)
	}
	next.shown = s.insertNew(s.insertMarker(s.stayed(), next.list))
	if s.lost != nil {
		next.shown = append(slices.Clip(next.shown), s.lost)
		next.index[s.lost.id] = s.lost
	}

	for _, it := range s.removed {
		if k := next.index[it.id]; k != nil && k.Seq == it.Seq {
			delete(next.index, it.id)
		}
	}
	for _, it := range s.gone {
		if it.Summary && !s.marked(it.id) {
			delete(next.index, it.id) // folded into another, and it had no marker
		}
	}
	for _, sl := range s.slots {
		next.index[sl.it.id] = sl.it
	}
	return next
}

// stayed gives the old transcript without what was removed, revised messages in the place of what they revise.
func (s *step) stayed() []*item {
	revised := map[Seq]*item{}
	for _, sl := range s.slots {
		if sl.revised && sl.it != s.marker {
			revised[sl.was.Seq] = sl.it
		}
	}
	if len(revised) == 0 && len(s.removed) == 0 {
		return s.old.shown
	}
	shown := make([]*item, 0, len(s.old.shown))
	for _, it := range s.old.shown {
		if s.removed[it.Seq] != nil {
			continue
		}
		if now := revised[it.Seq]; now != nil {
			it = now
		}
		shown = append(shown, it)
	}
	return shown
}

// insertMarker puts the marker before the first kept message after the last condensed one.
func (s *step) insertMarker(shown, list []*item) []*item {
	if s.marker == nil {
		return shown
	}
	condensed, kept := make(map[Seq]bool, len(s.condensed)), make(map[Seq]bool, len(list))
	for _, it := range s.condensed {
		condensed[it.Seq] = true
	}
	for _, it := range list {
		kept[it.Seq] = true
	}
	last := -1
	for i, it := range shown {
		if condensed[it.Seq] {
			last = i
		}
	}
	at := last + 1
	for at < len(shown) && (shown[at].Summary || !kept[shown[at].Seq]) {
		at++
	}
	return slices.Insert(slices.Clip(shown), at, s.marker)
}

// locate notes with the event of a marker which message it stands behind, by the seq of its first event. The marker's own seq does not
// say so, for it comes later. Seqs of this step are not known yet, so the transcript of the parent is looked at.
func (s *step) locate(e *Event) {
	kept := make(map[Seq]bool, len(s.old.list))
	for _, it := range s.old.list[:s.prefix] {
		kept[it.Seq] = true
	}
	for _, sl := range s.slots {
		if sl.was != nil {
			kept[sl.was.Seq] = true
		}
	}
	condensed := make(map[Seq]bool, len(s.condensed))
	for _, it := range s.condensed {
		condensed[it.Seq] = true
	}
	last := -1
	for i, it := range s.old.shown {
		if condensed[it.Seq] {
			last = i
		}
	}
	after := Seq(0)
	for i, it := range s.old.shown {
		if i > last && !it.Summary && kept[it.Seq] {
			break
		}
		if !it.Summary && s.removed[it.Seq] == nil {
			after = it.origin()
		}
	}
	e.Metadata = fmt.Appendf(e.Metadata[:len(e.Metadata)-1], `,"after_seq":%d}`, after)
}

// insertNew puts each new message after the furthest of its predecessors in the list, or at the end if nothing known follows it
// there: what was condensed comes before what is said now.
func (s *step) insertNew(shown []*item) []*item {
	isNew := func(sl *slot) bool { return sl.was == nil && !sl.it.Summary }
	last := len(s.slots) // the slots from here on are new
	for last > 0 && isNew(s.slots[last-1]) {
		last--
	}
	if slices.ContainsFunc(s.slots[:last], isNew) {
		shown = s.insertBetween(shown, s.slots[:last], isNew)
	}
	shown = slices.Clip(shown)
	for _, sl := range s.slots[last:] {
		shown = append(shown, sl.it)
	}
	return shown
}

func (s *step) insertBetween(shown []*item, slots []*slot, isNew func(*slot) bool) []*item {
	where := make(map[Seq]int, len(shown))
	for i, it := range shown {
		where[it.Seq] = i
	}
	furthest := -1
	reach := func(it *item) {
		if i, ok := where[it.Seq]; ok {
			furthest = max(furthest, i)
		}
	}
	for _, it := range s.old.list[:s.prefix] {
		reach(it)
	}
	after := map[int][]*item{}
	for _, sl := range slots {
		if isNew(sl) {
			after[furthest] = append(after[furthest], sl.it)
		} else {
			reach(sl.it)
		}
	}
	out := append(make([]*item, 0, len(shown)+len(slots)), after[-1]...)
	for i, it := range shown {
		out = append(append(out, it), after[i]...)
	}
	return out
}

// changed reports whether next differs from the old state in what is stored of it.
func (s *step) changed(next *state) bool {
	same := func(a, b *item) bool { return a.Entry == b.Entry }
	return len(s.events) > 0 || !slices.EqualFunc(s.old.shown, next.shown, same) || !slices.EqualFunc(s.old.list, next.list, same)
}
