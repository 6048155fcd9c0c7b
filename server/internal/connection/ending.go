package connection

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"understudy/internal/fault"
)

// Ending is a listener whose connections report that the peer has closed them, and which end soon at a shutdown unless a request is being answered. fasthttp
// would wait for the first request of a connection until its own deadline.
type Ending struct {
	net.Listener

	// until is when reads for a next request end; nil: there is no shutdown. begun: also those for one that has begun to arrive.
	until atomic.Pointer[time.Time]
	begun atomic.Bool

	mu    sync.Mutex // guards conns
	conns map[*endingConn]struct{}
}

// NewEnding returns a listener that accepts from ln.
func NewEnding(ln net.Listener) *Ending {
	return &Ending{Listener: ln, conns: map[*endingConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *Ending) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &endingConn{Conn: accepted, listener: l}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

// Hurry ends connections on which no request arrives within a time; with begun also those on which one has begun to.
func (l *Ending) Hurry(within time.Duration, begun bool) {
	until := time.Now().Add(within)
	l.begun.Store(begun)
	l.until.Store(&until) // before the deadlines: SetReadDeadline looks after it has set one
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.waits() {
			_ = c.Conn.SetReadDeadline(until)
		}
	}
}

// endingConn records that a read reached EOF. fasthttp accepts a chunked body without its last chunk as complete.
type endingConn struct {
	net.Conn
	listener *Ending
	ended    atomic.Bool
	heard    atomic.Bool // something was read since the last answer
	answers  atomic.Bool // a handler is answering a request
	drops    atomic.Bool // Drop was called
}

// waits reports whether a shutdown need not wait for the connection.
func (c *endingConn) waits() bool {
	return !c.answers.Load() && (c.listener.begun.Load() || !c.heard.Load())
}

// Answering notes that a handler begins or ends to answer a request of a connection.
func Answering(c net.Conn, yes bool) {
	e, ok := c.(*endingConn)
	if !ok {
		return
	}
	if !yes {
		e.heard.Store(false)
	}
	e.answers.Store(yes)
}

// SetReadDeadline implements net.Conn.
func (c *endingConn) SetReadDeadline(t time.Time) error {
	err := c.Conn.SetReadDeadline(t)
	if until := c.listener.until.Load(); err == nil && until != nil && c.waits() && (t.IsZero() || t.After(*until)) {
		err = c.Conn.SetReadDeadline(*until)
	}
	return err
}

// Close implements net.Conn.
func (c *endingConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	if c.drops.Load() {
		_ = c.CloseWrite() // nothing else comes
		_ = c.Conn.SetReadDeadline(time.Now().Add(dropTime))
		_, _ = io.CopyN(io.Discard, c.Conn, dropBytes)
	}
	return c.Conn.Close()
}

// dropBytes and dropTime bound what Drop takes.
const (
	dropBytes = 256 << 10
	dropTime  = time.Second
)

// Drop lets the connection take what its client still sends before it closes. One that is closed while its client sends is reset, and the client may lose the answer.
func Drop(c net.Conn) {
	if e, ok := c.(*endingConn); ok {
		e.drops.Store(true)
	}
}

func (c *endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(true)
	}
	if errors.Is(err, io.EOF) {
		c.ended.Store(true)
	}
	return n, err
}

// SyscallConn makes the raw connection available to Watch.
func (c *endingConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errNoRaw
}

var errNoRaw = fault.New(fault.NotSupported, "the connection has no descriptor")

// CloseWrite ends what is sent on the connection.
func (c *endingConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// BrokeOff reports whether the client closed the connection in the middle of a request.
func BrokeOff(c net.Conn) bool {
	e, ok := c.(*endingConn)
	return ok && e.ended.Load()
}
