package framing

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// RefuseTLS returns ln with connections that end when the client begins a TLS handshake. An HTTP server would wait for the end of a request head in it, and the
// client for an answer, in silence. The answer in plain text is what TLS libraries recognize as an HTTP server. The log has the fix, at most once a minute.
func RefuseTLS(ln net.Listener, log *slog.Logger) net.Listener {
	return &plainListener{Listener: ln, log: log}
}

type plainListener struct {
	net.Listener
	log  *slog.Logger
	said atomic.Int64 // when the log said it, in Unix nanoseconds
}

// sayTLSEvery is the interval between log lines.
const sayTLSEvery = time.Minute

func (l *plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: c, listener: l}, nil
}

// say logs that a client speaks TLS.
func (l *plainListener) say(client net.Addr) {
	now, said := time.Now().UnixNano(), l.said.Load()
	if said != 0 && now-said < int64(sayTLSEvery) || !l.said.CompareAndSwap(said, now) {
		return
	}
	l.log.Warn("a client speaks TLS to this port, which has plain HTTP; its connection was closed", "client", client.String(),
		"fix", "write http:// in place of https:// in its URL, or put a proxy with TLS in front")
}

type plainConn struct {
	net.Conn
	listener *plainListener
	begun    bool // something was read. Used by the goroutine that reads.
}

const (
	handshake = 0x16 // the first byte of a TLS connection; no HTTP request begins with it
	notTLS    = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
		"This port has plain HTTP, and the client speaks TLS: use http:// in place of https://.\n"
)

// Read is net.Conn.Read.
func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 || c.begun {
		return n, err
	}
	c.begun = true
	if p[0] != handshake {
		return n, err
	}
	c.listener.say(c.RemoteAddr())
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c.Conn, notTLS) // a client that left needs no answer
	return 0, io.EOF
}

// SyscallConn makes the raw connection available to watch.
func (c *plainConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite ends what is sent on the connection.
func (c *plainConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
