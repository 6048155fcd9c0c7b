package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"understudy/internal/fault"
	"understudy/internal/framing"
)

// errFraming is the answer to a request whose boundaries different servers may see in different places. Behind a proxy that disagrees
// with this server, a client could smuggle a request into another client's connection.
var errFraming = fault.New(fault.Invalid, "Invalid HTTP request received.")

// errBroken is the answer to a body that ends before its last chunk.
var errBroken = fault.New(fault.Invalid, "The request body broke off")

// framed returns what the head of a request says of its body. ok reports whether it defines its length in a single, unambiguous way. fasthttp
// also accepts ambiguous ones.
func framed(h *fasthttp.RequestHeader) (head framing.Head, ok bool) {
	if !framing.Target(h.RequestURI()) {
		return head, false
	}
	return framing.Parse(h.RawHeaders())
}

// ending is a listener whose connections report that the peer has closed them, and which end soon at a shutdown unless a request is being answered. fasthttp
// would wait for the first request of a connection until its own deadline.
type ending struct {
	net.Listener

	// until is when reads for a next request end; nil: there is no shutdown. begun: also those for one that has begun to arrive.
	until atomic.Pointer[time.Time]
	begun atomic.Bool

	mu    sync.Mutex // guards conns
	conns map[*endingConn]struct{}
}

func newEnding(ln net.Listener) *ending {
	return &ending{Listener: ln, conns: map[*endingConn]struct{}{}}
}

func (l *ending) Accept() (net.Conn, error) {
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

// hurry ends connections on which no request arrives within a time; with begun also those on which one has begun to.
func (l *ending) hurry(within time.Duration, begun bool) {
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
	listener *ending
	ended    atomic.Bool
	heard    atomic.Bool // something was read since the last answer
	answers  atomic.Bool // a handler is answering a request
}

// waits reports whether a shutdown need not wait for the connection.
func (c *endingConn) waits() bool {
	return !c.answers.Load() && (c.listener.begun.Load() || !c.heard.Load())
}

// answering notes that a handler begins or ends to answer a request of a connection.
func answering(c net.Conn, yes bool) {
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
	return c.Conn.Close()
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

// SyscallConn makes the raw connection available to watch.
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

// brokeOff reports whether the client closed the connection in the middle of a request.
func brokeOff(c net.Conn) bool {
	e, ok := c.(*endingConn)
	return ok && e.ended.Load()
}
