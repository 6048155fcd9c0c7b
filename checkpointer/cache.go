package checkpointer

import (
	"hash/maphash"
	"slices"
	"sync"

	"understudy/internal/jsonplus"
)

// valueCache caches the JSON of stored values, by a digest of their bytes: a message that a hundred checkpoints repeat is
// converted once, and deleted rows need no invalidation. Lists are cached by element.
//
// Entries live in two generations. When the young one has its half of the memory, it becomes the old one, and the previous
// old one is dropped with all entries not used meanwhile. That is nearly least-recently-used, without an ordered list.
type valueCache struct {
	limit int
	seeds [2]maphash.Seed

	mu         sync.RWMutex
	young, old map[digest][]byte
	size       int // bytes in young
}

// digest has 128 bits under random seeds, which writers of values cannot know.
type digest [2]uint64

const (
	// leastKept is the size below which converting is as fast as a lookup.
	leastKept = 64
	// entryOverhead is the memory of an entry in addition to its bytes.
	entryOverhead = 96
)

func newValueCache(limit int) *valueCache {
	return &valueCache{
		limit: limit, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		young: map[digest][]byte{}, old: map[digest][]byte{},
	}
}

// append appends a stored value as JSON.
func (c *valueCache) append(dst []byte, typ string, data []byte) ([]byte, error) {
	if typ != jsonplus.TypeMsgpack || len(data) < leastKept {
		return jsonplus.AppendJSONBelow(dst, 1, typ, data)
	}
	if value, ok := jsonplus.DeltaSnapshot(data); ok {
		data = value
	}
	items, err := jsonplus.SplitArray(data)
	if err != nil || len(data) < leastKept*len(items) { // not a list, or one with items too small to cache
		return c.appendItems(dst, [][]byte{data}, false)
	}
	return c.appendItems(dst, items, true)
}

// appendList appends a list as JSON.
func (c *valueCache) appendList(dst []byte, items [][]byte) ([]byte, error) {
	size := 0
	for _, item := range items {
		size += len(item)
	}
	if size < leastKept*len(items) { // as a single entry
		whole := Blob{Items: items}
		return c.appendItems(dst, [][]byte{whole.Bytes()}, false)
	}
	return c.appendItems(dst, items, true)
}

type found struct {
	digest digest
	text   []byte // nil: not known
	aged   bool   // in the old generation
}

func (c *valueCache) appendItems(dst []byte, items [][]byte, list bool) ([]byte, error) {
	known := make([]found, len(items))
	for i, item := range items {
		if len(item) >= leastKept {
			known[i].digest = digest{maphash.Bytes(c.seeds[0], item), maphash.Bytes(c.seeds[1], item)}
		}
	}
	size := 2
	c.mu.RLock()
	for i, item := range items {
		if len(item) < leastKept {
			size += 2 * len(item)
			continue
		}
		k := &known[i]
		if k.text = c.young[k.digest]; k.text == nil {
			k.text = c.old[k.digest]
			k.aged = k.text != nil
		}
		size += max(len(k.text), len(item)) + 1
	}
	c.mu.RUnlock()

	start, below := len(dst), 1
	dst = slices.Grow(dst, size+2)
	if list {
		below = 2
		dst = append(dst, '[')
	}
	fresh := false
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		k := &known[i]
		if k.text != nil {
			dst = append(dst, k.text...)
			fresh = fresh || k.aged
			continue
		}
		at := len(dst)
		var err error
		if dst, err = jsonplus.AppendJSONBelow(dst, below, jsonplus.TypeMsgpack, item); err != nil {
			if !list {
				return dst[:start], err
			}
			dst = append(dst, "null"...) // it does not affect its siblings
		}
		if len(item) >= leastKept {
			k.text, k.aged, fresh = slices.Clone(dst[at:]), true, true
		}
	}
	if list {
		dst = append(dst, ']')
	}
	if fresh {
		c.keep(known)
	}
	return dst, nil
}

// keep adds entries to the young generation if they are not in it.
func (c *valueCache) keep(all []found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range all {
		size := len(f.text) + entryOverhead
		if !f.aged || size > c.limit/4 {
			continue
		}
		if _, ok := c.young[f.digest]; ok {
			continue
		}
		if c.size+size > c.limit/2 {
			c.young, c.old, c.size = map[digest][]byte{}, c.young, 0
		}
		c.young[f.digest] = f.text
		c.size += size
	}
}
