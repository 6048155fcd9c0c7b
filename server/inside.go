package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/gate"
	"understudy/server/internal/web"
)

// inside is where a request comes from that the process makes itself: the address of the peer of its connection, which a client cannot have.
type inside struct {
	gate.Passage
	outer *outer // of a request that passed the middleware of the application; nil: the application made it
}

// outer is the client's request behind one that passed the middleware of the application.
type outer struct {
	request        *web.Request
	actor          *access.Actor // nil: not authenticated yet
	client, scheme string
	accepted       atomic.Pointer[access.Request] // by a guarded route of the application; nil: none was
	found          atomic.Pointer[access.Actor]   // by the API; nil: it has not authenticated the request
}

// Authenticated returns who the API found to have sent the request; nil: it has not looked, or let the request pass without a user.
func (o *outer) Authenticated() *access.Actor { return o.found.Load() }

// Accepted notes whose credentials a guarded route of the application has accepted.
func (o *outer) Accepted(r *access.Request) { o.accepted.Store(r) }

// Network and String implement net.Addr.
func (*inside) Network() string  { return "inside" }
func (i *inside) String() string { return "127.0.0.1:0" }

// actor is who makes the request; nil: its credentials say.
func (i *inside) actor() *access.Actor {
	switch {
	case i.outer != nil:
		return i.outer.actor
	case i.Actor != nil:
		return i.Actor
	}
	return access.System
}

// insideOf returns where a request comes from; nil: from a client.
func insideOf(c *fiber.Ctx) *inside {
	i, _ := c.Context().RemoteAddr().(*inside)
	return i
}

// Inside answers a request that an application makes to its own server. It works while Serve does. Close the body of the response.
func (s *Server) Inside(r *http.Request, as gate.Passage) (*http.Response, error) {
	i := &inside{Passage: as}
	i.outer, _ = as.Outer.(*outer)
	t := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ReadBufferSize: 32 << 10,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.doors.dial(ctx, i) },
	}
	u := *r.URL
	u.Scheme, u.Host = "http", "inside"
	r.URL = &u
	return t.RoundTrip(r)
}

// doors are connections from inside, which Serve accepts like those of clients.
type doors struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newDoors() *doors { return &doors{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (d *doors) dial(ctx context.Context, i *inside) (net.Conn, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	select {
	case d.conns <- &insideConn{Conn: theirs, from: i}:
		return ours, nil
	case <-d.closed:
		err = ErrShutdown
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, ours.Close(), theirs.Close())
}

func (d *doors) close() { d.once.Do(func() { close(d.closed) }) }

// insideConn is the server's end of a connection from inside.
type insideConn struct {
	net.Conn
	from *inside
}

func (c *insideConn) RemoteAddr() net.Addr { return c.from }

// SyscallConn makes the raw connection available to connection.Watch.
func (c *insideConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// both accepts from a listener and from inside.
type both struct {
	net.Listener
	doors    *doors
	accepted chan accepted
	ended    chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

// withDoors returns a listener that accepts from ln, and from inside. Its Close ends the goroutine that accepts from ln.
func withDoors(ln net.Listener, d *doors) *both {
	b := &both{Listener: ln, doors: d, accepted: make(chan accepted), ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		for {
			conn, err := ln.Accept()
			select {
			case b.accepted <- accepted{conn, err}:
			case <-d.closed:
				if err == nil {
					conn.Close()
				}
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return b
}

func (b *both) Accept() (net.Conn, error) {
	select {
	case a := <-b.accepted:
		return a.conn, a.err
	case conn := <-b.doors.conns:
		return conn, nil
	case <-b.doors.closed:
		return nil, net.ErrClosed
	}
}

func (b *both) Close() error {
	b.doors.close()
	err := b.Listener.Close()
	<-b.ended
	return err
}
