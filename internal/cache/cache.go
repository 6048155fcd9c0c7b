// Package cache holds values in memory, within a limit of their weight.
package cache

import (
	"sync"
	"sync/atomic"
)

// Cache maps keys to values up to a total weight. It is safe for concurrent use; readers do not wait for each other.
//
// It evicts by SIEVE (Zhang and others, NSDI 2024): a hand moves from the oldest value to the newest and evicts the first one that was not
// read since it passed last. That finds what is used again as well as a list in order of use, and a read moves nothing.
type Cache[K comparable, V any] struct {
	limit int

	mu      sync.RWMutex
	entries map[K]*entry[K, V]
	weight  int
	// end is before the oldest entry and after the newest one: a ring of next, from old to new. hand is the entry to be judged next, or end.
	end, hand *entry[K, V]
}

type entry[K comparable, V any] struct {
	key        K
	value      V
	weight     int
	read       atomic.Bool // since the hand passed
	prev, next *entry[K, V]
}

// New returns a Cache. limit is in units of the weights that Put gets.
func New[K comparable, V any](limit int) *Cache[K, V] {
	end := &entry[K, V]{}
	end.prev, end.next = end, end
	return &Cache[K, V]{limit: limit, entries: map[K]*entry[K, V]{}, end: end, hand: end}
}

// Get returns a value; false when it is not there.
func (c *Cache[K, V]) Get(k K) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.get(k)
}

// GetAll calls found for each key that is there, with its index, under one lock. found must not use the cache.
func (c *Cache[K, V]) GetAll(keys []K, found func(i int, value V)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i, k := range keys {
		if v, ok := c.get(k); ok {
			found(i, v)
		}
	}
}

func (c *Cache[K, V]) get(k K) (value V, ok bool) {
	e := c.entries[k]
	if e == nil {
		return value, false
	}
	if !e.read.Load() { // a store would take the line from other cores each time
		e.read.Store(true)
	}
	return e.value, true
}

// Put stores a value in place of the one before, and evicts others until all fit. A value of more than half the limit is not stored: it would
// evict too many others.
func (c *Cache[K, V]) Put(k K, v V, weight int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		c.remove(e)
	}
	if weight > max(c.limit/2, 1) {
		return
	}
	for c.weight+weight > c.limit && len(c.entries) > 0 {
		c.evict()
	}
	e := &entry[K, V]{key: k, value: v, weight: weight, prev: c.end.prev, next: c.end}
	e.prev.next, e.next.prev = e, e
	c.entries[k] = e
	c.weight += weight
}

// Take removes a value and returns it; false when it is not there.
func (c *Cache[K, V]) Take(k K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[k]
	if e == nil {
		return value, false
	}
	c.remove(e)
	return e.value, true
}

// DeleteFunc removes the values for whose keys del returns true. It looks at all of them.
func (c *Cache[K, V]) DeleteFunc(del func(k K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if del(k) {
			c.remove(e)
		}
	}
}

// Weight returns the weight of all values.
func (c *Cache[K, V]) Weight() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.weight
}

func (c *Cache[K, V]) evict() {
	for {
		if c.hand == c.end {
			c.hand = c.end.next
		}
		e := c.hand
		if !e.read.Swap(false) {
			c.remove(e)
			return
		}
		c.hand = e.next
	}
}

func (c *Cache[K, V]) remove(e *entry[K, V]) {
	if c.hand == e {
		c.hand = e.next
	}
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.entries, e.key)
	c.weight -= e.weight
}
