package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// Listen returns ln with TLS. The handshake happens at the first read, so that it does not hold up other connections. A client that speaks
// plain HTTP gets a readable answer.
func (c *Certificates) Listen(ln net.Listener) net.Listener { return &listener{ln, c} }

type listener struct {
	net.Listener
	certs *Certificates
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: tls.Server(raw, l.certs.current.Load().config), certs: l.certs}, nil
}

// conn shakes hands at the first read.
type conn struct {
	*tls.Conn
	certs *Certificates
	begun bool // used by the goroutine that reads
}

const notTLS = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"This port has TLS, and the client speaks plain HTTP: use https:// in place of http://.\n"

// methods are the beginnings of plain HTTP, as long as the header of a TLS record.
var methods = []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE", "TRACE"}

// Read is net.Conn.Read.
func (c *conn) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if err := c.Handshake(); err != nil {
			return 0, c.refuse(err)
		}
	}
	return c.Conn.Read(p)
}

// refuse answers what can be answered, and returns the error for the reader.
func (c *conn) refuse(err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && slices.Contains(methods, string(record.RecordHeader[:])) {
		_ = record.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(record.Conn, notTLS) // a client that left needs no answer
		_ = record.Conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, record.Conn, 64<<10) // what is left unread would reset the connection, and the answer with it
		c.report("a client speaks plain HTTP to this port, which has TLS", err, "write https:// in place of http:// in its URL")
		return io.EOF
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case err.Error() == "tls: client didn't provide a certificate", errors.As(err, &invalid), errors.As(err, &unknown):
		c.report("a client without a valid certificate was refused", err, "give it one that the certificates of --tls-client-ca have signed, for client authentication")
	default:
		c.certs.opts.Log.Debug("TLS handshake failed", "client", c.RemoteAddr().String(), "error", err)
	}
	return io.EOF
}

// reportEvery is the interval between lines about refused clients.
const reportEvery = time.Minute

func (c *conn) report(what string, err error, fix string) {
	now, said := c.certs.opts.Now().UnixNano(), c.certs.refused.Load()
	if said != 0 && now-said < int64(reportEvery) || !c.certs.refused.CompareAndSwap(said, now) {
		return
	}
	c.certs.opts.Log.Warn(what, "client", c.RemoteAddr().String(), "error", err, "fix", fix)
}

// SyscallConn makes the raw connection available, to see that its peer has left.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.NetConn().(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
