package gate

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"understudy/internal/child"
)

// Kinds of frames; wire.py has the same. A frame is a kind, the number of a call or stream (four bytes, big endian), and the payload: JSON, or a piece of
// a body.
const (
	toCall, toCancel, toPing, toStop                             = 1, 2, 3, 4
	fromHello, fromResult, fromPong, fromLog, fromStopped        = 11, 12, 13, 14, 15
	bothOpen, bothHeaders, bothBody, bothEnd, bothAbort          = 21, 22, 23, 24, 25
	bothCredit, bothText, bothBinary, bothClose                  = 26, 27, 28, 29
	theirs                                                uint32 = 1 << 31 // numbers of the process's own streams begin here
)

const (
	frameHead = 5
	// piece is the size of a part of a body, window how many bytes of a stream may be on their way.
	piece, window = 64 << 10, 1 << 20
)

func parse(body []byte) (kind byte, number uint32, payload []byte, err error) {
	if len(body) < frameHead {
		return 0, 0, nil, errors.New("a frame is too short")
	}
	return body[0], binary.BigEndian.Uint32(body[1:]), body[frameHead:], nil
}

// outbox is what is to be written to a process. Pieces of bodies are limited by the window of their stream, the rest by the number of calls.
type outbox struct {
	ready chan struct{} // has room for one

	mu     sync.Mutex
	queue  []byte
	closed bool
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// frame queues one frame. It never blocks. A frame that is too large is an error.
func (o *outbox) frame(body func([]byte) []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	b, at := child.OpenFrame(o.queue)
	b, err := child.CloseFrame(body(b), at)
	o.queue = b
	if err != nil {
		return err
	}
	select {
	case o.ready <- struct{}{}:
	default:
	}
	return nil
}

func (o *outbox) send(kind byte, number uint32, payload []byte) error {
	return o.frame(func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32(append(b, kind), number), payload...)
	})
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed, o.queue = true, nil
		close(o.ready)
	}
}

// writeTo writes what is queued until close.
func (o *outbox) writeTo(conn net.Conn) {
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
			continue // the reader gets the error too
		}
		if cap(b) <= 1<<20 {
			spare = b
		}
	}
}
