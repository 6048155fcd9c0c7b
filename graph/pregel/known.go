package pregel

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"understudy/internal/cache"
)

// knownValues caches decoded items of stored lists, by their bytes. A thread's messages are read again in each of its runs, and need
// not be decoded again.
type knownValues struct {
	values *cache.Cache[xxh3.Uint128, *value]
}

const (
	// mostKnown is the size of the cached items in bytes. Decoded they take several times as much.
	mostKnown = 8 << 20
	// leastKnown is the size below which decoding is as fast as a lookup.
	leastKnown = 64
)

var known = newKnownValues(mostKnown)

func newKnownValues(most int) knownValues {
	return knownValues{cache.New[xxh3.Uint128, *value](most)}
}

// of returns the values of items.
func (k knownValues) of(items [][]byte) []*value {
	out := make([]*value, len(items))
	for i, item := range items {
		if len(item) < leastKnown || len(item) > mostKnown/8 {
			out[i] = fromPack(item)
			continue
		}
		key := xxh3.Hash128(item)
		v, ok := k.values.Get(key)
		if !ok || !bytes.Equal(*v.pack.Load(), item) {
			v = fromPack(bytes.Clone(item)) // cloned, so that it does not retain the whole list
			k.values.Put(key, v, len(item))
		}
		out[i] = v
	}
	return out
}
