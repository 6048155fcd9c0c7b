package pregel

import (
	"encoding/hex"
	"time"

	"github.com/zeebo/xxh3"

	"understudy/internal/cache"
)

// Cache stores the writes of nodes with a CachePolicy. Implementations are safe for concurrent use.
type Cache interface {
	// Get returns the writes that Set stored under a key; false when there are none, or they have expired.
	Get(key string) ([]CachedWrite, bool)
	// Set stores writes for ttl; 0 means until they are evicted.
	Set(key string, writes []CachedWrite, ttl time.Duration)
}

// CachedWrite is a write as a checkpoint holds it.
type CachedWrite struct {
	Channel string
	Data    []byte // msgpack
}

// MemoryCache keeps the entries that were used lately, up to a maximum number.
type MemoryCache struct {
	entries *cache.Cache[string, cacheEntry]
}

type cacheEntry struct {
	writes  []CachedWrite
	expires time.Time // zero: never
}

// NewMemoryCache returns a cache of at most this many entries.
func NewMemoryCache(most int) *MemoryCache {
	return &MemoryCache{cache.New[string, cacheEntry](max(most, 1))}
}

// Get implements Cache.
func (c *MemoryCache) Get(key string) ([]CachedWrite, bool) {
	e, ok := c.entries.Get(key)
	if ok && !e.expires.IsZero() && time.Now().After(e.expires) {
		return nil, false
	}
	return e.writes, ok
}

// Set implements Cache.
func (c *MemoryCache) Set(key string, writes []CachedWrite, ttl time.Duration) {
	e := cacheEntry{writes: writes}
	if ttl > 0 {
		e.expires = time.Now().Add(ttl)
	}
	c.entries.Put(key, e, 1)
}

func (t *task) cachePolicy() *CachePolicy {
	if t.call != nil {
		return t.call.fn.cache
	}
	return t.node.cache
}

// cacheKey returns the cache key of a task; "" when its writes are not cached.
func (l *loop) cacheKey(t *task) string {
	p := t.cachePolicy()
	if p == nil || l.g.cache == nil {
		return ""
	}
	in := t.input.JSON()
	if t.call != nil {
		in = t.call.input.JSON()
	}
	key := string(in)
	if p.Key != nil {
		key = p.Key(in)
	}
	sum := xxh3.HashString128(key).Bytes()
	return l.g.name + "\x00" + t.name + "\x00" + hex.EncodeToString(sum[:])
}

// fromCache restores the writes of a task from the cache, and reports whether there were any.
func (l *loop) fromCache(t *task) bool {
	key := l.cacheKey(t)
	if key == "" {
		return false
	}
	kept, ok := l.g.cache.Get(key)
	if !ok {
		return false
	}
	for _, w := range kept {
		t.writes = append(t.writes, write{w.Channel, fromPack(w.Data)})
	}
	return len(t.writes) > 0
}

// toCache stores the writes of a finished task.
func (l *loop) toCache(t *task) {
	key := l.cacheKey(t)
	if key == "" {
		return
	}
	kept := make([]CachedWrite, 0, len(t.writes))
	for _, w := range t.writes {
		data, err := w.v.packed()
		if err != nil {
			return
		}
		kept = append(kept, CachedWrite{w.channel, data})
	}
	l.g.cache.Set(key, kept, t.cachePolicy().TTL)
}
