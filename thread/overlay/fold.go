package overlay

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/internal/jsonscan"
)

// removeAll is the id of a remove message that stands for all messages.
const removeAll = "__remove_all__"

// fold gives what a person sees of values that are ahead of their checkpoint: its transcript, revised in place, without what a client
// removed, and with the new messages after it. shown and list are those of the checkpoint, items the messages of the values.
func fold(shown, list []*entry, items []json.RawMessage, ahead *Ahead) folded {
	f := newFolder(shown, list, items, ahead)
	if f == nil {
		return folded{shown: shown}
	}
	return f.result()
}

// newFolder does the work of fold; nil when items are the list.
func newFolder(shown, list []*entry, items []json.RawMessage, ahead *Ahead) *folder {
	known := 0 // how many of list stand unchanged at the beginning of items
	for known < len(list) && known < len(items) && stands(list[known], items[known]) {
		known++
	}
	if known == len(items) && known == len(list) {
		return nil
	}
	f := &folder{shown: shown, list: list, ahead: ahead, stays: map[*entry]bool{}, revised: map[*entry]*entry{}}
	f.now = append(make([]*entry, 0, len(items)), list[:known]...)
	for _, e := range list[:known] {
		f.stays[e] = true
	}
	f.match(items[known:], known)
	f.judge(known)
	return f
}

// stands reports whether an item is the message of an entry, unchanged. The words of a summary are not compared: they are not shown.
func stands(e *entry, item []byte) bool {
	if e.marker != nil {
		return e.id != "" && jsonscan.Text(item, "id") == e.id
	}
	return bytes.Equal(e.as(), item)
}

// folder is the work of fold.
type folder struct {
	shown, list []*entry
	ahead       *Ahead

	now     []*entry          // the messages of the values
	stays   map[*entry]bool   // entries of list that are in the values
	revised map[*entry]*entry // what replaces entries of shown
	fresh   []newItem
	removed map[*entry]bool
	marker  *entry // for what was condensed
	before  *entry // where the marker stands; nil: at the end
}

type newItem struct {
	entry   *entry // that it is in the list from now on
	message json.RawMessage
	id      string
	hidden  bool // a summary
	early   bool // before the first kept message
}

// match finds the items in the list and the transcript.
func (f *folder) match(items []json.RawMessage, known int) {
	byID := make(map[string]*entry, len(f.shown))
	for _, e := range f.shown {
		byID[e.id] = e
	}
	for _, e := range f.list {
		byID[e.id] = e
	}
	delete(byID, "")
	nameless := f.list[known:] // those without id keep their order
	early := known == 0
	for _, item := range items {
		mid := jsonscan.Text(item, "id")
		if mid == "" {
			i := slices.IndexFunc(nameless, func(e *entry) bool { return e.anonymous && sameButID(e.as(), item) })
			if i >= 0 {
				f.stays[nameless[i]] = true
				f.now = append(f.now, nameless[i])
				nameless, early = nameless[i+1:], false
				continue
			}
		}
		e := byID[mid]
		if e == nil {
			e = &entry{id: mid, anonymous: mid == "", text: item}
			f.fresh = append(f.fresh, newItem{entry: e, message: item, id: mid, hidden: summarizes(item), early: early})
			f.now = append(f.now, e)
			continue
		}
		f.stays[e] = true
		f.now = append(f.now, e)
		if e.marker == nil {
			early = early && jsonscan.Text(item, "type") == "system" // a leading one is no part of the conversation
			if !bytes.Equal(e.as(), item) {
				f.revised[e] = &entry{id: mid, text: item}
				f.now[len(f.now)-1] = f.revised[e]
			}
		}
	}
}

// sameButID compares a recorded message, which was given an id, with one that has none.
func sameButID(recorded, item []byte) bool {
	a, aEnd, ok := jsonscan.Member(recorded, "id")
	b, bEnd, has := jsonscan.Member(item, "id")
	if !ok || !has {
		return false
	}
	return bytes.Equal(recorded[:a], item[:b]) && bytes.Equal(recorded[aEnd:], item[bEnd:])
}

// judge decides what became of the messages that are not in the values, as eventstore does when it records them.
func (f *folder) judge(known int) {
	var gone []*entry
	for _, e := range f.list[known:] {
		if !f.stays[e] {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return
	}
	f.removed = map[*entry]bool{}
	rest := gone
	if by := f.ahead.ByClient; by != nil {
		rest = nil
		for _, e := range gone {
			if by(removeAll) || by(e.id) {
				f.removed[e] = true
			} else {
				rest = append(rest, e)
			}
		}
	}
	summary := slices.IndexFunc(f.fresh, func(n newItem) bool { return n.hidden })
	switch {
	case len(rest) == 0:
	case summary >= 0:
		f.condense(rest, &f.fresh[summary])
	case f.oldestWent():
		var found *newItem
		for i := range f.fresh {
			n := &f.fresh[i]
			if kind := jsonscan.Text(n.message, "type"); n.early && (kind == "human" || kind == "system" || kind == "ai") {
				if found != nil {
					found = nil
					break
				}
				found = n
			}
		}
		f.condense(rest, found)
	default:
		for _, e := range rest {
			f.removed[e] = true
		}
	}
	lost := len(f.removed) == len(f.list) // a reset takes along what had been condensed
	for e := range f.removed {
		lost = lost || e.marker != nil // and so does the end of a summary
	}
	if lost {
		for _, e := range f.shown {
			if !f.stays[e] {
				f.removed[e] = true
			}
		}
	}
}

// oldestWent reports whether the oldest messages left and newer ones stayed, a leading system message and summaries aside.
func (f *folder) oldestWent() bool {
	went := false
	for i, e := range f.list {
		switch {
		case e.marker != nil || f.removed[e]:
		case i == 0 && jsonscan.Text(e.text, "type") == "system":
		case !f.stays[e]:
			went = true
		default:
			return went
		}
	}
	return false
}

// condense makes the marker of a summarization that is not recorded yet. It has the id that the recorded one will have.
func (f *folder) condense(entries []*entry, summary *newItem) {
	s := eventstore.Summary{}
	for _, e := range entries {
		if e.marker == nil {
			s.IDs = append(s.IDs, e.id)
		}
	}
	if summary != nil {
		summary.hidden = true
	}
	if len(s.IDs) == 0 {
		return
	}
	s.ReplacedCount = len(s.IDs)
	if summary != nil && summary.id != "" {
		s.ID = markerPrefix + summary.id
		s.Summary = gjson.GetBytes(summary.message, "content").String()
	} else {
		s.ID = markerPrefix + uuid.NewSHA1(uuid.NameSpaceOID, []byte(s.IDs[len(s.IDs)-1])).String()
	}
	f.marker = &entry{marker: newMarker(s, f.ahead.Run)}
	if summary != nil {
		f.marker.id = summary.id
		f.now[slices.Index(f.now, summary.entry)] = f.marker
	}
	last := -1
	for i, e := range f.shown {
		if slices.Contains(entries, e) {
			last = i
		}
	}
	for _, e := range f.shown[last+1:] {
		if e.marker == nil && f.stays[e] {
			f.before = e
			break
		}
	}
}

func (f *folder) result() folded {
	out := folded{changed: true, shown: make([]*entry, 0, len(f.shown)+1)}
	for _, e := range f.shown {
		if f.marker != nil && e == f.before {
			out.shown = append(out.shown, f.marker)
		}
		if f.removed[e] {
			continue
		}
		if now := f.revised[e]; now != nil {
			e = now
		}
		out.shown = append(out.shown, e)
	}
	if f.marker != nil && f.before == nil {
		out.shown = append(out.shown, f.marker)
	}
	for _, n := range f.fresh {
		if !n.hidden {
			out.extra = append(out.extra, n.message)
		}
	}
	return out
}

// removedByTasks gives the ids that finished tasks of a snapshot removed.
func removedByTasks(s *checkpointer.Snapshot) map[string]bool {
	ids := map[string]bool{}
	for _, t := range s.Tasks {
		if bytes.Contains(t.Result, []byte(`"remove"`)) {
			removals(ids, gjson.ParseBytes(t.Result), 0)
		}
	}
	return ids
}

// Removals gives the ids of remove messages wherever they are in JSON: as messages, in the constructor form of LangChain's
// serialisation, alone or in lists.
func Removals(in ...json.RawMessage) map[string]bool {
	ids := map[string]bool{}
	for _, one := range in {
		if bytes.Contains(one, []byte("remove")) || bytes.Contains(one, []byte("RemoveMessage")) {
			removals(ids, gjson.ParseBytes(one), 0)
		}
	}
	return ids
}

func removals(into map[string]bool, v gjson.Result, depth int) {
	if depth > 32 || !v.IsObject() && !v.IsArray() {
		return
	}
	if v.IsObject() {
		if mid, ok := removal([]byte(v.Raw)); ok {
			into[mid] = true
			return
		}
	}
	v.ForEach(func(_, e gjson.Result) bool {
		removals(into, e, depth+1)
		return true
	})
}

// removal gives the id that a message removes; ok is false when it is no remove message.
func removal(message []byte) (mid string, ok bool) {
	if jsonscan.Text(message, "type") == "constructor" {
		if !strings.HasSuffix(gjson.GetBytes(message, "id.@reverse.0").String(), "RemoveMessage") {
			return "", false
		}
		return jsonscan.Text(jsonscan.Raw(message, "kwargs"), "id"), true
	}
	if jsonscan.Text(message, "type") != "remove" && jsonscan.Text(message, "role") != "remove" {
		return "", false
	}
	return jsonscan.Text(message, "id"), true
}
