package eventstore

import (
	"crypto/sha256"
	"hash/maphash"
	"slices"
	"strings"

	"understudy/eventstore/judge"
	"understudy/id"
	"understudy/internal/cache"
)

// item is a message or marker in a transcript or a list, with the facts of its events. Items are shared by states and
// immutable.
type item struct {
	Entry
	first     Seq // as Event.First
	id        string
	system    bool // a system message
	anonymous bool
	digest    [16]byte // of the message as stored
	// hash is a fast digest, valid within this process; 0 when unknown.
	hash uint64
}

// Methods of judge.Message.

func (it *item) Key() int64                  { return int64(it.Seq) }
func (it *item) MessageID() string           { return it.id }
func (it *item) IsSummary() bool             { return it.Summary }
func (it *item) IsSystem() bool              { return it.system }
func (it *item) IsAnonymous() bool           { return it.anonymous }
func (it *item) IsLost() bool                { return strings.HasPrefix(it.id, UnreadablePrefix) }
func (it *item) ContentDigest() judge.Digest { return it.digest }

// origin returns the seq of the first event of the message.
func (it *item) origin() Seq {
	if it.first != 0 {
		return it.first
	}
	return it.Seq
}

var hashSeed = maphash.MakeSeed()

func quickHash(b []byte) uint64 { return max(maphash.Bytes(hashSeed, b), 1) }

func digestOf(b []byte) (d [16]byte) {
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}

// state is the transcript and the list of a node, decoded. The goroutine that took it from the cache owns it.
type state struct {
	node  Node // without Data
	shown []*item
	list  []*item
	// anonymous holds all messages without id in the lineage, including removed ones: the same text twice is two messages.
	anonymous []*item
	ids       map[string]struct{} // of anonymous
	// index finds items of shown and list by message id. It moves from parent to child, so that it is built once per
	// thread and not once per step; nil when a child has it.
	index map[string]*item
}

func (s *state) lists() lists {
	return lists{transcript: entriesOf(s.shown), list: entriesOf(s.list), anonymous: entriesOf(s.anonymous)}
}

func entriesOf(items []*item) []Entry {
	if len(items) == 0 {
		return nil
	}
	es := make([]Entry, len(items))
	for i, it := range items {
		es[i] = it.Entry
	}
	return es
}

func (s *state) buildIndex() {
	s.index = make(map[string]*item, len(s.shown)+8)
	for _, it := range s.shown {
		s.index[it.id] = it
	}
	for _, it := range s.list {
		s.index[it.id] = it
	}
	delete(s.index, "") // markers of summaries without a message
	s.ids = make(map[string]struct{}, len(s.anonymous))
	for _, it := range s.anonymous {
		s.ids[it.id] = struct{}{}
	}
}

// weight returns the approximate memory of the state in bytes.
func (s *state) weight() int { return 512 + 250*max(len(s.shown), len(s.list)) }

// loadState reads the state of a row from its nodes.
func loadState(tx Tx, t id.Thread, row *Row) (*state, error) {
	nodes, err := tx.Nodes(t, row.Node)
	if err != nil {
		return nil, err
	}
	l, err := decodeNodes(nodes)
	if err != nil {
		return nil, err
	}
	s := &state{node: nodes[len(nodes)-1]}
	s.node.Data = nil
	all := slices.Concat(l.transcript, l.list, l.anonymous)
	slices.SortFunc(all, func(a, b Entry) int { return int(a.Seq - b.Seq) })
	all = slices.Compact(all)
	heads, err := tx.Heads(t, Ranges(all))
	if err != nil {
		return nil, err
	}
	items := make(map[Seq]*item, len(heads))
	for _, h := range heads {
		it := &item{
			Entry: Entry{Seq: h.Seq, Summary: h.Type == TypeSummarize}, first: h.First,
			id: h.MessageID, system: h.Type == TypeSystem, anonymous: h.Anonymous,
		}
		copy(it.digest[:], h.Digest)
		items[h.Seq] = it
	}
	for _, part := range []struct {
		to   *[]*item
		from []Entry
	}{{&s.shown, l.transcript}, {&s.list, l.list}, {&s.anonymous, l.anonymous}} {
		*part.to = make([]*item, 0, len(part.from)+1)
		for _, e := range part.from {
			it := items[e.Seq]
			if it == nil {
				return nil, errNode
			}
			*part.to = append(*part.to, it)
		}
	}
	return s, nil
}

// Cache holds the states that were used lately, within a memory limit. It is safe for concurrent use.
//
// A state may remain after its transaction was rolled back. It is then never found, because no stored row has the stamp of its
// node.
type Cache struct{ states *cache.Cache[nodeKey, *state] }

// cacheBytes is the memory limit of a Cache: some hundred threads of some hundred messages.
const cacheBytes = 64 << 20

type nodeKey struct {
	thread id.Thread
	node   int64
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{cache.New[nodeKey, *state](cacheBytes)} }

// take returns a state, now owned by the caller, or nil.
func (c *Cache) take(t id.Thread, row *Row) *state {
	if s, ok := c.states.Take(nodeKey{t, row.Node}); ok && s.node.Stamp == row.Stamp {
		return s
	}
	return nil
}

// put stores a state, which the cache then owns.
func (c *Cache) put(t id.Thread, s *state) { c.states.Put(nodeKey{t, s.node.ID}, s, s.weight()) }
