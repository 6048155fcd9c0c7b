package connection

import "sync"

// Crowd counts goroutines that nothing else waits for. The zero value is ready.
type Crowd struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when closed and empty
}

// Enter counts a goroutine; false: there is no time for it any more.
func (c *Crowd) Enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.inside++
	}
	return !c.closed
}

// Leave is the end of Enter.
func (c *Crowd) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside--; c.closed && c.inside == 0 {
		close(c.empty)
	}
}

// Close refuses further goroutines and waits until it is empty.
func (c *Crowd) Close() {
	c.mu.Lock()
	c.closed, c.empty = true, make(chan struct{})
	if c.inside == 0 {
		close(c.empty)
	}
	c.mu.Unlock()
	<-c.empty
}
