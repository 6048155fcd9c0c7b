package overlay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"understudy/eventstore"
	"understudy/eventstore/judge"
	"understudy/id"
	"understudy/internal/cache"
)

// entry is an event of a transcript or list, decoded for showing. It is immutable.
type entry struct {
	key       int64  // the seq of its event; negative when there is none yet
	id        string // of the message; "" for a summary without a message
	anonymous bool
	system    bool         // a system message
	digest    judge.Digest // of the content, for messages without id
	text      []byte       // the message; nil for summaries
	stored    []byte       // the message as the checkpoint shows it, if different from text
	marker    *marker      // of summaries
	partial   id.Run       // the run that streamed the message without saving it; "" for others
}

// Methods of judge.Message.

func (e *entry) Key() int64                  { return e.key }
func (e *entry) MessageID() string           { return e.id }
func (e *entry) IsSummary() bool             { return e.marker != nil }
func (e *entry) IsSystem() bool              { return e.system }
func (e *entry) IsAnonymous() bool           { return e.anonymous }
func (e *entry) IsLost() bool                { return strings.HasPrefix(e.id, eventstore.UnreadablePrefix) }
func (e *entry) ContentDigest() judge.Digest { return e.digest }

// as returns the bytes of the message in the checkpoint.
func (e *entry) as() []byte {
	if e.stored != nil {
		return e.stored
	}
	return e.text
}

func (e *entry) size() int {
	n := 160 + len(e.text) + len(e.stored)
	if e.marker != nil {
		n += len(e.marker.system) + len(e.marker.bare)
	}
	return n
}

// contents are the loaded entries of one thread. Events never change and seqs are never reused, so they are valid until the thread
// is deleted. A reader that is active then fills contents that are no longer referenced.
type contents struct {
	log     int64 // eventstore.Transcript.Log; under memory.mu
	mu      sync.RWMutex
	entries []*entry // by seq
	bytes   int
}

// get returns the entries of lists, in order, and loads missing ones.
func (c *contents) get(ctx context.Context, events eventstore.Reader, t id.Thread, lists ...[]eventstore.Entry) ([][]*entry, error) {
	out, missing := c.known(lists)
	if len(missing) == 0 {
		return out, nil
	}
	slices.SortFunc(missing, func(a, b eventstore.Entry) int { return int(a.Seq - b.Seq) })
	missing = slices.Compact(missing)
	read := make([]*entry, 0, len(missing))
	seqs := make([]eventstore.Seq, 0, len(missing))
	var texts slab
	made := make([]entry, len(missing)) // kept and dropped together
	err := events.EachContent(ctx, t, eventstore.Ranges(missing), func(e *eventstore.Event) error {
		if len(read) == len(made) {
			return fmt.Errorf("event %d of thread %s was not requested", e.Seq, t)
		}
		out := &made[len(read)]
		read, seqs = append(read, out), append(seqs, e.Seq)
		return out.read(e, &texts)
	})
	if err != nil {
		return nil, err
	}
	c.keep(seqs, read)
	if out, missing = c.known(lists); len(missing) > 0 {
		return nil, fmt.Errorf("event %d of thread %s is missing", missing[0].Seq, t)
	}
	return out, nil
}

func (c *contents) known(lists [][]eventstore.Entry) (out [][]*entry, missing []eventstore.Entry) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out = make([][]*entry, len(lists))
	for i, l := range lists {
		out[i] = make([]*entry, len(l))
		for j, e := range l {
			if int(e.Seq) < len(c.entries) {
				out[i][j] = c.entries[e.Seq]
			}
			if out[i][j] == nil {
				missing = append(missing, e)
			}
		}
	}
	return out, missing
}

func (c *contents) keep(seqs []eventstore.Seq, read []*entry) {
	if len(seqs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := int(slices.Max(seqs)); last >= len(c.entries) {
		c.entries = append(c.entries, make([]*entry, last+1-len(c.entries))...)
	}
	for i, seq := range seqs {
		if c.entries[seq] == nil {
			c.entries[seq] = read[i]
			c.bytes += read[i].size()
		}
	}
}

func (c *contents) size() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes + 8*len(c.entries)
}

// slab holds copies that are kept together, in few allocations.
type slab []byte

const slabSize = 64 << 10

func (b *slab) clone(p []byte) []byte {
	switch {
	case p == nil:
		return nil
	case len(p) > slabSize/4:
		return bytes.Clone(p)
	case len(p) > cap(*b)-len(*b):
		*b = make([]byte, 0, min(slabSize, max(2*cap(*b), len(p)))) // a single message gets what it needs
	}
	n := len(*b)
	*b = append(*b, p...)
	return (*b)[n:len(*b):len(*b)]
}

// partialMark is what the metadata of a partial answer's event have.
var partialMark = []byte(`"partial":true`)

// read copies the needed parts of an event, whose bytes are valid only during the call.
func (e *entry) read(ev *eventstore.Event, texts *slab) error {
	*e = entry{key: int64(ev.Seq), id: ev.MessageID, anonymous: ev.Anonymous}
	if ev.Type == eventstore.TypeSummarize {
		m, err := readMarker(ev)
		if err != nil {
			return fmt.Errorf("summary %d of thread %s: %w", ev.Seq, ev.Thread, err)
		}
		e.marker, e.digest = m, m.ContentDigest()
		return nil
	}
	if bytes.Contains(ev.Metadata, partialMark) {
		e.partial = id.Run(strings.Clone(string(ev.Run)))
	}
	e.says(texts.clone(ev.Content), ev.Type)
	if ev.Anonymous {
		e.digest = eventstore.ContentDigest(e.as())
	}
	return nil
}

// says sets the text of a message whose event has, or will have, this type.
func (e *entry) says(text []byte, kind string) {
	e.text, e.system = text, kind == eventstore.TypeSystem
	if said, ok := unwrap(kind, text); ok {
		e.stored, e.text = text, said
	}
}

// memory holds the contents of the threads read last, within a limit.
type memory struct {
	mu       sync.Mutex // one at a time adds contents
	byThread *cache.Cache[id.Thread, *contents]
}

const (
	// DefaultCacheBytes limits the messages that an Overlay keeps in memory.
	DefaultCacheBytes = 64 << 20
	// threadOverhead is what a thread takes besides its messages.
	threadOverhead = 256
)

func newMemory(limit int) *memory {
	return &memory{byThread: cache.New[id.Thread, *contents](limit)}
}

// of returns the contents of a thread, empty if it was not read recently.
func (m *memory) of(t id.Thread) *contents {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.byThread.Get(t)
	if !ok {
		c = m.add(t, &contents{})
	}
	return c
}

// ofLog is of for a known log. c are the caller's contents. Another server may have deleted the thread, and a client created one with
// the same id. Contents of another log are then dropped.
func (m *memory) ofLog(t id.Thread, log int64, c *contents) *contents {
	if log == 0 {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.log == 0 {
		c.log = log
	}
	if c.log == log {
		return c
	}
	if known, ok := m.byThread.Get(t); ok && known != c && known.log == log {
		return known
	}
	return m.add(t, &contents{log: log})
}

func (m *memory) add(t id.Thread, c *contents) *contents {
	m.byThread.Put(t, c, threadOverhead)
	return c
}

// settle counts the bytes read of a thread, and drops threads until all fit.
func (m *memory) settle(t id.Thread, c *contents) {
	size := c.size()
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.byThread.Get(t); ok && known == c { // else it was dropped meanwhile
		m.byThread.Put(t, c, threadOverhead+size)
	}
}

func (m *memory) forget(t id.Thread) { m.byThread.Take(t) }
