package server

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"
)

// passing are errors of Accept that are temporary: too few files or too little memory now, or a client that left before its connection
// was accepted.
var passing = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.EINTR,
}

// patient is a listener that retries temporary errors. fasthttp ends its server at the first.
type patient struct {
	net.Listener
	log    *slog.Logger
	once   sync.Once
	closed chan struct{}
}

func newPatient(ln net.Listener, log *slog.Logger) *patient {
	return &patient{Listener: ln, log: log, closed: make(chan struct{})}
}

const (
	firstPause = 5 * time.Millisecond // doubled each time
	lastPause  = time.Second
	// sayEvery is the interval between log lines for the same error.
	sayEvery = 5 * time.Second
)

func (p *patient) Accept() (net.Conn, error) {
	var said time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		c, err := p.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		if now := time.Now(); now.Sub(said) > sayEvery {
			said = now
			p.log.Error("cannot accept connections; retrying. If too many files are open, raise the limit (ulimit -n)", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
}

func passes(err error) bool {
	for _, e := range passing {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *patient) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}
