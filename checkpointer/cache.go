package checkpointer

import (
	"hash/maphash"
	"slices"

	"understudy/internal/cache"
	"understudy/internal/jsonplus"
)

// valueCache caches the JSON of stored values, by a digest of their bytes: a message that a hundred checkpoints repeat is
// converted once, and deleted rows need no invalidation. Lists are cached by element.
type valueCache struct {
	seeds [2]maphash.Seed
	texts *cache.Cache[digest, []byte]
}

// digest has 128 bits under random seeds, which writers of values cannot know.
type digest [2]uint64

const (
	// leastKept is the size below which converting is as fast as a lookup.
	leastKept = 64
	// entryOverhead is the memory of an entry in addition to its bytes.
	entryOverhead = 160
)

func newValueCache(limit int) *valueCache {
	return &valueCache{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, texts: cache.New[digest, []byte](limit),
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

func (c *valueCache) appendItems(dst []byte, items [][]byte, list bool) ([]byte, error) {
	digests := make([]digest, len(items)) // zero for items that are too small to be kept
	texts := make([][]byte, len(items))   // nil: not known
	size := 2
	for i, item := range items {
		if len(item) < leastKept {
			size += 2 * len(item)
			continue
		}
		digests[i] = digest{maphash.Bytes(c.seeds[0], item), maphash.Bytes(c.seeds[1], item)}
		size += len(item) + 1
	}
	c.texts.GetAll(digests, func(i int, text []byte) {
		texts[i] = text
		size += max(0, len(text)-len(items[i]))
	})

	start, below := len(dst), 1
	dst = slices.Grow(dst, size+2)
	if list {
		below = 2
		dst = append(dst, '[')
	}
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if texts[i] != nil {
			dst = append(dst, texts[i]...)
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
			c.texts.Put(digests[i], slices.Clone(dst[at:]), len(dst)-at+entryOverhead)
		}
	}
	if list {
		dst = append(dst, ']')
	}
	return dst, nil
}
