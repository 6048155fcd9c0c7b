package eventstore

import (
	"sync"
	"time"

	"understudy/id"
	"understudy/internal/loop"
)

// Offset is the position of a follower in the log of a thread. A follower keeps something outside of the database in step with the log:
// a file, an index. It has an offset for each thread and receives every event at least once, even across crashes; the event's thread
// and seq identify repeats.
type Offset struct {
	Thread  id.Thread
	Created time.Time // of the thread; in PutOffsets zero deletes the offset
	Seq     Seq       // of the last event processed
	// Position is additional data of the follower, such as the length of a file.
	Position int64
}

// maxChanges is how many changed threads are remembered individually.
const maxChanges = 10_000

// Changes collects, for one follower, the threads that changed since its last call of Take. It is safe for concurrent use.
type Changes struct {
	mu      sync.Mutex
	threads map[id.Thread]struct{}
	missed  bool
	wake    chan struct{} // capacity 1: changes are ready
}

// NewChanges makes a Changes.
func NewChanges() *Changes {
	return &Changes{threads: map[id.Thread]struct{}{}, wake: make(chan struct{}, 1)}
}

// Add adds changed threads. It does not block.
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
	loop.Poke(c.wake)
}

// Wake returns a channel that receives a value after threads were added.
func (c *Changes) Wake() <-chan struct{} { return c.wake }

// Take returns up to n changed threads, each once. missed reports that more have changed than are remembered: the follower must
// check all.
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
