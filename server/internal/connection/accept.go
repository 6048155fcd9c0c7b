package connection

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"understudy/internal/filelimit"
	"understudy/internal/loop"
)

// passing are errors of Accept that are temporary: too few files or too little memory now, or a client that left before its connection
// was accepted.
var passing = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.EINTR,
}

// Patient is a listener that retries temporary errors, because fasthttp ends its server at the first one. It also keeps some of the files that the process
// may open for other uses than clients: a connection that would take one of those is held until others are closed, and later ones wait in the backlog.
type Patient struct {
	net.Listener
	log         *slog.Logger
	most, limit int // open files: most with which clients are served, and the limit of the system; 0: none
	once        sync.Once
	closed      chan struct{}

	// Used by the goroutine that accepts.
	crowded bool      // some descriptors may have numbers from most on
	said    time.Time // when the log said that connections wait
}

// NewPatient returns a listener that accepts from ln. It logs why connections have to wait.
func NewPatient(ln net.Listener, log *slog.Logger) *Patient {
	p := &Patient{Listener: ln, log: log, closed: make(chan struct{})}
	if limit := filelimit.Limit(); limit > 0 {
		p.limit, p.most = int(limit), int(limit-min(limit, filelimit.Reserve(limit))) //nolint:gosec // below 2^31
	}
	return p
}

const (
	firstPause = 5 * time.Millisecond // doubled each time
	lastPause  = time.Second
	// sayEvery is the interval between log lines for the same error.
	sayEvery = 5 * time.Second
	// While a connection is held: the longest time between looks whether it must be, and the time between log lines.
	lastLook  = 100 * time.Millisecond
	waitEvery = time.Minute
)

// Accept implements net.Listener. The error is net.ErrClosed, or one that does not pass.
func (p *Patient) Accept() (net.Conn, error) {
	var said time.Time
	for pause := loop.NewBackoff(firstPause, lastPause); ; {
		c, err := p.Listener.Accept()
		if err == nil {
			if err := p.admit(c); err != nil {
				c.Close()
				return nil, err
			}
			return c, nil
		}
		if !passes(err) {
			return nil, err
		}
		if now := time.Now(); now.Sub(said) > sayEvery {
			said = now
			p.log.Error("cannot accept connections; retrying. If too many files are open, raise the limit (ulimit -n)", "error", err)
		}
		select {
		case <-time.After(pause.Next()):
		case <-p.closed:
			return nil, net.ErrClosed
		}
	}
}

// admit waits until there are enough free files next to a connection. The error is net.ErrClosed.
func (p *Patient) admit(c net.Conn) error {
	if p.limit == 0 {
		return nil
	}
	fd := descriptor(c)
	if fd < 0 || fd < p.most && !p.crowded {
		return nil
	}
	for pause := loop.NewBackoff(firstPause, lastLook); ; {
		var tooMany bool
		if tooMany, p.crowded = crowding(fd, p.most, p.limit); !tooMany {
			return nil
		}
		if now := time.Now(); now.Sub(p.said) > waitEvery {
			p.said = now
			p.log.Error("connections wait: as many files are open as clients may use, of which each takes one; the rest is kept for workers and databases",
				"limit", p.limit, "kept_for_others", p.limit-p.most, "fix", filelimit.Fix)
		}
		select {
		case <-time.After(pause.Next()):
		case <-p.closed:
			return net.ErrClosed
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

// Close implements net.Listener.
func (p *Patient) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Listener.Close()
}
