package connection

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Causes of the end of an answer.
var (
	ErrLeft  = errors.New("the client has left")
	ErrStuck = errors.New("the client stopped reading")
)

// HurryTime is the time limit for a write to a stream once streams must end, and for the next request of a connection to begin.
const HurryTime = time.Second

// Outlets are the open streams of a server. WriteTimeout must be set before the first is opened.
type Outlets struct {
	WriteTimeout time.Duration // a client that reads nothing for so long is dropped

	hurrying atomic.Bool // streams must end
	mu       sync.Mutex
	opened   map[*Outlet]struct{}
}

// Hurry shortens the deadlines of writes to clients that do not read, or read slowly, from now on.
func (all *Outlets) Hurry() {
	all.hurrying.Store(true) // before the deadlines: until then WriteAll may move them
	all.mu.Lock()
	defer all.mu.Unlock()
	for o := range all.opened {
		_ = o.Conn.SetWriteDeadline(time.Now().Add(HurryTime))
	}
}

// Outlet is a connection to which a stream is written. One goroutine writes at a time.
type Outlet struct {
	Conn  net.Conn
	all   *Outlets
	until time.Time // deadline of writes
}

// Of returns the outlet of a connection.
func (all *Outlets) Of(c net.Conn) Outlet { return Outlet{Conn: c, all: all} }

// Enlist makes Hurry shorten writes that have begun. Delist is its end.
func (o *Outlet) Enlist() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	if o.all.opened == nil {
		o.all.opened = map[*Outlet]struct{}{}
	}
	o.all.opened[o] = struct{}{}
}

// Delist is the end of Enlist; without it, it does nothing.
func (o *Outlet) Delist() {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	delete(o.all.opened, o)
}

// WriteAll writes b, however slowly the client reads: only a client that reads nothing for WriteTimeout is dropped. After Hurry the limit is HurryTime.
// The error is ErrLeft or ErrStuck.
func (o *Outlet) WriteAll(b []byte) error {
	for {
		// Moving a deadline costs as much as a small write, so it is moved only when it is too early.
		patience := o.all.WriteTimeout
		if until := time.Now().Add(patience + patience/8); until.Sub(o.until) > patience/8 {
			o.until = until
			if err := o.Conn.SetWriteDeadline(until); err != nil {
				return ErrLeft
			}
		}
		if o.all.hurrying.Load() { // checked after moving the deadline, as Hurry may have set one before
			if err := o.Conn.SetWriteDeadline(time.Now().Add(HurryTime)); err != nil {
				return ErrLeft
			}
		}
		n, err := o.Conn.Write(b)
		if err == nil {
			return nil
		}
		var timeout net.Error
		switch {
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return ErrLeft
		case n == 0, o.all.hurrying.Load():
			return ErrStuck
		}
		b = b[n:]
	}
}
