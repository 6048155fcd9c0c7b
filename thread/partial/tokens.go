package partial

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/internal/jsonscan"
)

const (
	// Limit bounds the text that Tokens keep of a run, in bytes. What comes after it is left out.
	Limit = 1 << 20
	// foldAt is from how many bytes on events are decoded instead of being kept.
	foldAt = 1 << 20
)

// Tokens are the answers that one attempt of a run has streamed and may not have saved. Use NewTokens. A nil *Tokens keeps nothing. All
// methods but Saved are for one goroutine.
type Tokens struct {
	limit, foldAt int
	observed      bool

	pending []event
	bytes   int    // of pending
	chunks  []byte // has the newest chunks of pending

	answers map[string]*answer
	order   []*answer
	size    int // text of answers
	pairs   jsonscan.Pairs
	step    int            // by the metadata of the last chunk
	steps   map[string]int // of messages whose metadata came in an event of its own; hidden for those of subgraphs

	saved atomic.Int64
}

// event is a `messages` event that has not been decoded. Of one with metadata, data is the message or chunk alone.
type event struct {
	name string
	data []byte
	step int // by its metadata
}

// hidden is the step of messages that are not at the root; unknown that of messages whose metadata does not name one.
const (
	hidden  = -2
	unknown = -1
)

// NewTokens returns empty Tokens.
func NewTokens() *Tokens { return newTokens(Limit, foldAt) }

// observedFoldAt is foldAt of Tokens of which many are kept at a time, as copies of events.
const observedFoldAt = 64 << 10

// NewObservedTokens returns empty Tokens for a run of another server, where no call of Saved says what has been saved. When they become too
// large, answers of a step count as saved as soon as the second step after it streams.
func NewObservedTokens() *Tokens {
	t := newTokens(Limit, observedFoldAt)
	t.observed = true
	return t
}

func newTokens(limit, foldAt int) *Tokens {
	t := &Tokens{limit: limit, foldAt: foldAt, answers: map[string]*answer{}, steps: map[string]int{}}
	t.saved.Store(unknown)
	return t
}

// Wants reports whether Add has a use for events of this name, namespace included.
func Wants(name string) bool {
	return strings.HasPrefix(name, "messages") && !strings.Contains(name, "|")
}

// Add keeps an event that was shown to readers. It may hold on to data, which must not change.
func (t *Tokens) Add(name string, data []byte) {
	if t == nil || !Wants(name) {
		return
	}
	e := event{name: name, data: data}
	if name == "messages" { // [chunk or message, metadata]
		chunk, metadata, again, ok := t.pairs.Split(data)
		if !ok {
			return
		}
		if !again {
			t.step = stepOf(gjson.ParseBytes(metadata))
		}
		e.data, e.step = t.copied(chunk), t.step
	}
	t.pending = append(t.pending, e)
	if t.bytes += len(e.data); t.bytes > t.foldAt {
		t.fold()
	}
}

// copied copies a chunk: its metadata, which it would hold on to, is several times as large.
func (t *Tokens) copied(chunk []byte) []byte {
	if len(t.chunks)+len(chunk) > cap(t.chunks) {
		t.chunks = make([]byte, 0, max(16<<10, len(chunk)))
	}
	at := len(t.chunks)
	t.chunks = append(t.chunks, chunk...)
	return t.chunks[at:len(t.chunks):len(t.chunks)]
}

// Decode decodes what was added, so that Messages and Unsaved need not.
func (t *Tokens) Decode() {
	if t != nil {
		t.fold()
	}
}

// Empty reports whether nothing was added.
func (t *Tokens) Empty() bool { return t == nil || len(t.pending) == 0 && len(t.order) == 0 }

// Saved notes that the root checkpoint of a step was committed: what that step and earlier ones streamed is in it, or was not meant to be.
// It may be called concurrently with the other methods.
func (t *Tokens) Saved(step int) {
	if t != nil {
		t.saved.Store(max(t.saved.Load(), int64(step)))
	}
}

// Reset forgets everything that was added: another attempt of the run begins.
func (t *Tokens) Reset() {
	if t != nil {
		saved := t.saved.Load()
		*t = Tokens{limit: t.limit, foldAt: t.foldAt, observed: t.observed, answers: map[string]*answer{}, steps: map[string]int{}}
		t.saved.Store(saved)
	}
}

// Message is an answer as far as it was streamed.
type Message struct {
	ID        string
	JSON      []byte
	Step      int  // of its task; -1 when it is not known
	Truncated bool // more was streamed than is kept
}

// Messages returns the answers of steps after the given one, in the order in which they began. Those that say nothing are left out.
func (t *Tokens) Messages(after int) []Message {
	if t == nil {
		return nil
	}
	t.fold()
	var out []Message
	left := t.limit
	for _, a := range t.order {
		if a.step != unknown && a.step <= after {
			continue
		}
		m, ok := a.message()
		if !ok {
			continue
		}
		truncated := a.truncated
		if textSize(&m) > left { // sent as a whole
			if left == 0 {
				break
			}
			cut(&m, left)
			truncated = true
		}
		left -= textSize(&m)
		out = append(out, Message{ID: a.id, JSON: m.AppendJSON(nil), Step: a.step, Truncated: truncated})
	}
	return out
}

// Unsaved returns the answers that a run did not save whose last checkpoint is of the given step, to be shown with that checkpoint.
// questioned: the checkpoint's list of messages has the run's input. Else answers count only of the step that adds it.
func (t *Tokens) Unsaved(step int, questioned bool) []Message {
	messages := t.Messages(step)
	if !questioned {
		messages = slices.DeleteFunc(messages, func(m Message) bool { return m.Step > step+1 })
	}
	return messages
}

// Size is about how many bytes the Tokens hold on to.
func (t *Tokens) Size() int {
	if t == nil {
		return 0
	}
	return t.bytes + t.size + 256*len(t.order)
}

// fold decodes what is pending, and drops what is saved.
func (t *Tokens) fold() {
	saved := int(t.saved.Load())
	t.forget(saved + 1)
	for i, e := range t.pending {
		switch e.name {
		case "messages":
			t.part(e.data, e.step, saved)
		case "messages/metadata": // {id: {"metadata": …}}
			gjson.ParseBytes(e.data).ForEach(func(mid, v gjson.Result) bool {
				t.steps[mid.String()] = stepOf(v.Get("metadata"))
				return true
			})
		case "messages/partial", "messages/complete": // [the message so far]
			if items, ok := jsonscan.Elements(e.data); ok && len(items) == 1 {
				t.whole(items[0], e.name == "messages/partial", saved)
			}
		}
		t.pending[i] = event{}
	}
	t.pending, t.bytes, t.chunks = t.pending[:0], 0, nil
}

// forget drops the answers of steps before the given one.
func (t *Tokens) forget(before int) {
	kept := t.order[:0]
	for _, a := range t.order {
		if a.step != unknown && a.step < before {
			t.size -= a.size
			delete(t.answers, a.id)
		} else {
			kept = append(kept, a)
		}
	}
	clear(t.order[len(kept):])
	t.order = kept
}

func stepOf(metadata gjson.Result) int {
	if strings.Contains(metadata.Get("langgraph_checkpoint_ns").String(), "|") {
		return hidden
	}
	if step := metadata.Get("langgraph_step"); step.Type == gjson.Number {
		return int(step.Int())
	}
	return unknown
}

// answer returns the answer of an id, which begins when it is new; nil when nothing is kept of it. step is called for new ones.
func (t *Tokens) answer(mid string, saved int, step func() int) *answer {
	a := t.answers[mid]
	if a != nil || mid == "" {
		return a
	}
	if t.size >= t.limit && t.observed {
		t.forget(step() - 1)
	}
	if t.size >= t.limit { // messages that are sent as a whole are not bounded one by one
		return nil
	}
	s := step()
	if s == hidden || s != unknown && s <= saved {
		return nil
	}
	a = &answer{id: mid, step: s}
	t.answers[mid] = a
	t.order = append(t.order, a)
	return a
}

// part adds a chunk of a step, or a message that comes as a whole.
func (t *Tokens) part(raw []byte, step, saved int) {
	m, ok := message.Read(raw)
	if !ok || m.Type != message.TypeAIChunk && m.Type != message.TypeAI {
		return
	}
	a := t.answer(m.ID, saved, func() int { return step })
	if a == nil {
		return
	}
	if m.Type == message.TypeAI {
		t.size -= a.size
		a.set(m, true)
		t.size += a.size
		return
	}
	size := textSize(&m)
	if a.truncated || size > 0 && t.size+size > t.limit {
		a.truncated = true // a text with a hole would be another one
		return
	}
	t.size += size
	a.size += size
	a.add(m)
}

// whole puts a message in place of what was known of it.
func (t *Tokens) whole(raw []byte, partial bool, saved int) {
	mid := jsonscan.Text(raw, "id")
	a := t.answer(mid, saved, func() int {
		if step, ok := t.steps[mid]; ok {
			return step
		}
		return unknown
	})
	if a == nil {
		return
	}
	t.size -= a.size
	a.later(raw, !partial)
	t.size += a.size
}
