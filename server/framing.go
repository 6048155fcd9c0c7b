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

// refuseFraming keeps fasthttp from waiting for the body of a request that enter refuses.
func refuseFraming(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if !framed(h) {
		h.SetContentLength(0)
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// framed reports whether the head of a request defines its length in a single, unambiguous way. fasthttp also accepts
// ambiguous ones.
func framed(h *fasthttp.RequestHeader) bool {
	if !framing.Target(h.RequestURI()) {
		return false
	}
	_, ok := framing.Parse(h.RawHeaders())
	return ok
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

// brokeOff reports whether the client closed the connection in the middle of a request.
func brokeOff(c net.Conn) bool {
	e, ok := c.(*endingConn)
	return ok && e.ended.Load()
}
