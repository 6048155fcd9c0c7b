package server

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"

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

// ending is a listener whose connections report that the peer has closed them.
type ending struct{ net.Listener }

func (l ending) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{Conn: c}, nil
}

// endingConn records that a read reached EOF. fasthttp accepts a chunked body without its last chunk as complete.
type endingConn struct {
	net.Conn
	ended atomic.Bool
}

func (c *endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
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
