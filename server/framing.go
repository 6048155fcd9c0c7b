package server

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/valyala/fasthttp"

	"understudy/internal/fault"
	"understudy/internal/framing"
)

// errFraming is the answer to a request whose beginning or end different servers would see in different places. Behind a proxy that sees
// another than this server, one client could put words into the mouth of the next.
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

// framed reports whether the head of a request says in one way only what is in it. fasthttp is generous with odd ones.
func framed(h *fasthttp.RequestHeader) bool {
	if !framing.Target(h.RequestURI()) {
		return false
	}
	_, ok := framing.Parse(h.RawHeaders())
	return ok
}

// ending is a listener whose connections tell that the other side has ended them.
type ending struct{ net.Listener }

func (l ending) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{Conn: c}, nil
}

// endingConn notes that a reader met the end. fasthttp takes a body in chunks that ends before its last one for a whole body.
type endingConn struct {
	net.Conn
	ended atomic.Bool
}

func (c *endingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		c.ended.Store(true)
	}
	return n, err
}

// SyscallConn lets watch see the end of connections.
func (c *endingConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errNoRaw
}

var errNoRaw = fault.New(fault.NotSupported, "the connection has no descriptor")

// brokeOff reports whether the client ended the connection where a reader wanted more.
func brokeOff(c net.Conn) bool {
	e, ok := c.(*endingConn)
	return ok && e.ended.Load()
}
