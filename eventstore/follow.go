package eventstore

import (
	"sync"
	"time"

	"understudy/id"
)

// Offset says how far a follower of the log has come with a thread. A follower keeps something outside of the database in step with the
// log: a file, an index. It has an offset of its own for each thread, so it is told of every event at least once, however it ends; the
// event's thread and seq say whether it was told before.
type Offset struct {
	Thread  id.Thread
	Created time.Time // of the thread, when it began; zero in PutOffsets: the follower has let go of the thread
	Seq     Seq       // of the last event that was dealt with
	// Position is whatever else the follower notes: a length of a file.
	Position int64
}

// maxChanges is how many threads are remembered one by one.
const maxChanges = 10_000

// Changes tells one follower which threads have changed since it asked last. It is safe for concurrent use.
type Changes struct {
	mu      sync.Mutex
	threads map[id.Thread]struct{}
	missed  bool
	wake    chan struct{} // capacity 1: there is something to take
}

// NewChanges makes a Changes.
func NewChanges() *Changes {
	return &Changes{threads: map[id.Thread]struct{}{}, wake: make(chan struct{}, 1)}
}

// Add notes threads. It does not block.
func (c *Changes) Add(threads []id.Thread) {
	c.mu.Lock()
	for _, t := range threads {
		c.threads[t] = struct{}{}
	}
	if len(c.threads) > maxChanges {
		clear(c.threads)
		c.missed = true
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // somebody did already
	}
}

// Wake returns a value after something was added.
func (c *Changes) Wake() <-chan struct{} { return c.wake }

// Take returns up to n threads that changed, each once. missed: more have changed than are remembered, so all must be looked at.
func (c *Changes) Take(n int) (threads []id.Thread, missed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	missed, c.missed = c.missed, false
	for t := range c.threads {
		if len(threads) == n {
			break
		}
		threads = append(threads, t)
		delete(c.threads, t)
	}
	return threads, missed
}
