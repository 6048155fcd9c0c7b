package pregel

import (
	"bytes"
	"sync"

	"github.com/zeebo/xxh3"
)

// knownValues caches decoded items of stored lists, by their bytes. A thread's messages are read again in each of its runs, and need
// not be decoded again. When the cache is full, its older half is evicted.
type knownValues struct {
	mu         sync.Mutex
	young, old map[xxh3.Uint128]*value
	size, most int
}

const (
	// mostKnown is the size of the cached items in bytes. Decoded they take several times as much.
	mostKnown = 8 << 20
	// leastKnown is the size below which decoding is as fast as a lookup.
	leastKnown = 64
)

var known = newKnownValues(mostKnown)

func newKnownValues(most int) *knownValues {
	return &knownValues{young: map[xxh3.Uint128]*value{}, most: most}
}

// of returns the values of items.
func (k *knownValues) of(items [][]byte) []*value {
	out := make([]*value, len(items))
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, item := range items {
		if len(item) < leastKnown || len(item) > k.most/8 {
			out[i] = fromPack(item)
			continue
		}
		key := xxh3.Hash128(item)
		v := k.young[key]
		if v == nil {
			if v = k.old[key]; v != nil {
				k.add(key, v, len(item))
			}
		}
		if v == nil || !bytes.Equal(*v.pack.Load(), item) {
			v = fromPack(bytes.Clone(item)) // cloned, so that it does not retain the whole list
			k.add(key, v, len(item))
		}
		out[i] = v
	}
	return out
}

func (k *knownValues) add(key xxh3.Uint128, v *value, size int) {
	if k.size += size; k.size > k.most/2 {
		k.young, k.old, k.size = map[xxh3.Uint128]*value{}, k.young, size
	}
	k.young[key] = v
}
