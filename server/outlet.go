package server

import (
	"errors"
	"net"
	"time"
)

// outlet is a connection to which a stream is written.
type outlet struct {
	s     *Server
	conn  net.Conn
	until time.Time // deadline of writes
}

// enlist makes a shutdown hurry the writes of an outlet.
func (o *outlet) enlist() {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	o.s.opened[o] = struct{}{}
}

// delist is the end of enlist; without it, it does nothing.
func (o *outlet) delist() {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	delete(o.s.opened, o)
}

// writeAll writes b, however slowly the client reads: only a client that reads nothing for WriteTimeout is dropped. Once
// streams must end the limit is hurryTime.
func (o *outlet) writeAll(b []byte) error {
	for {
		// Moving a deadline costs as much as a small write, so it is moved only when it is too early.
		patience := o.s.opts.WriteTimeout
		if until := time.Now().Add(patience + patience/8); until.Sub(o.until) > patience/8 {
			o.until = until
			if err := o.conn.SetWriteDeadline(until); err != nil {
				return errLeft
			}
		}
		if o.s.hurrying.Load() { // checked after moving the deadline, as hurry may have set one before
			if err := o.conn.SetWriteDeadline(time.Now().Add(hurryTime)); err != nil {
				return errLeft
			}
		}
		n, err := o.conn.Write(b)
		if err == nil {
			return nil
		}
		var timeout net.Error
		switch {
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return errLeft
		case n == 0, o.s.hurrying.Load():
			return errStuck
		}
		b = b[n:]
	}
}
