package child

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// Loopback is whether processes connect to a port of this machine, because they cannot inherit a socket. Tests set it too.
var Loopback = runtime.GOOS == "windows"

const (
	// strangerWithin is how long a connection to the port of a worker may take to send the secret.
	strangerWithin = 2 * time.Second
	// strangers is how many connections that have not sent it may wait.
	strangers = 16
)

// link is the server's side of the socket of one worker.
type link struct {
	ours   net.Conn // nil until connected
	theirs *os.File // the worker's end; nil with Loopback

	listener net.Listener // nil without Loopback
	where    *Address

	mu     sync.Mutex // guards ours and closed with Loopback
	closed bool
}

// Address is where a worker reaches the server. Any process of the machine can connect to the port, and after the end of the
// server listen on it: each side accepts only the other's secret. It is in the environment of the worker, which only its user can read.
type Address struct {
	Port   int    `json:"port"`
	Secret string `json:"secret"` // the worker's
	Answer string `json:"answer"` // the server's
}

func newLink() (*link, error) {
	if !Loopback {
		ours, theirs, err := socketpair()
		if err != nil {
			return nil, err
		}
		conn, err := net.FileConn(ours)
		ours.Close()
		if err != nil {
			theirs.Close()
			return nil, err
		}
		return &link{ours: conn, theirs: theirs}, nil
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return &link{listener: listener, where: &Address{Port: port, Secret: rand.Text(), Answer: rand.Text()}}, nil
}

// address is nil when the worker inherits its socket.
func (l *link) address() *Address { return l.where }

func (l *link) inherited() []*os.File {
	if l.theirs == nil {
		return nil
	}
	return []*os.File{l.theirs}
}

// started is called when the worker has what it inherits.
func (l *link) started() {
	if l.theirs != nil {
		l.theirs.Close()
	}
}

// connect returns the connection of the worker. It waits for it until expectNone or close.
func (l *link) connect() (net.Conn, error) {
	if l.listener == nil {
		return l.ours, nil
	}
	defer l.listener.Close() // no second one
	ctx, cancel := context.WithCancel(context.Background())
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel()
	found := make(chan net.Conn, 1)
	checks.Go(func() {
		defer close(found)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel() // strangers are not waited for
		room := make(chan struct{}, strangers)
		for {
			conn, err := l.listener.Accept()
			if err != nil {
				return
			}
			room <- struct{}{} // the others wait in the backlog
			waiting.Go(func() {
				defer func() { <-room }()
				if !l.where.knows(ctx, conn) || ctx.Err() != nil {
					conn.Close()
					return
				}
				cancel()
				l.listener.Close()
				found <- conn
			})
		}
	})
	conn, ok := <-found
	if !ok {
		return nil, net.ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.ours = conn
	_, err := io.WriteString(conn, l.where.Answer)
	return conn, err
}

// knows reports whether the other side sends the worker's secret in time.
func (a *Address) knows(ctx context.Context, conn net.Conn) bool {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	_ = conn.SetReadDeadline(time.Now().Add(strangerWithin)) // it can fail only with the connection
	said := make([]byte, len(a.Secret))
	_, err := io.ReadFull(conn, said)
	return err == nil && subtle.ConstantTimeCompare(said, []byte(a.Secret)) == 1 && stop() && conn.SetReadDeadline(time.Time{}) == nil
}

// expectNone ends connect: the worker has ended.
func (l *link) expectNone() {
	if l.listener != nil {
		l.listener.Close()
	}
}

func (l *link) close() {
	l.expectNone()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.ours != nil {
		l.ours.Close()
	}
	if l.theirs != nil {
		l.theirs.Close() // again, if it started
	}
}
