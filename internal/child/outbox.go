package child

import (
	"net"
	"sync"

	"understudy/internal/loop"
)

// maxSpare is how large a buffer may be that is kept for the next frames, in bytes.
const maxSpare = 1 << 20

// Outbox is what is to be written to a process, in frames. It has no bound of its own: the calls and streams that fill it have. Create it with NewOutbox.
// Its methods are safe for concurrent use.
type Outbox struct {
	ready chan struct{} // has room for one

	mu     sync.Mutex
	queue  []byte
	closed bool
}

// NewOutbox returns an empty Outbox.
func NewOutbox() *Outbox { return &Outbox{ready: make(chan struct{}, 1)} }

// Add queues the frame whose body encode appends. It never blocks; after Close it does nothing. A frame that is larger than MaxFrame is an error.
func (o *Outbox) Add(encode func([]byte) []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	b, at := openFrame(o.queue)
	b, err := closeFrame(encode(b), at)
	o.queue = b
	if err != nil {
		return err
	}
	loop.Poke(o.ready)
	return nil
}

// Close drops what is queued, and ends WriteTo.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed, o.queue = true, nil
		close(o.ready)
	}
}

// WriteTo writes what is queued until Close. When the connection is broken it discards the rest: its reader gets the error too.
func (o *Outbox) WriteTo(conn net.Conn) {
	var spare []byte
	for range o.ready {
		o.mu.Lock()
		b := o.queue
		o.queue, spare = spare[:0], nil
		o.mu.Unlock()
		if len(b) == 0 {
			continue
		}
		if _, err := conn.Write(b); err != nil {
			continue
		}
		if cap(b) <= maxSpare {
			spare = b
		}
	}
}
