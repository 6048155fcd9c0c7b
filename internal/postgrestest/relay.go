package postgrestest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Relay is between a client and its database, and can fall silent as a host that vanishes does: it accepts connections, nothing comes through, and
// nothing is closed.
type Relay struct {
	net.Listener
	to   string
	mu   sync.Mutex
	open chan struct{} // closed: everything comes through
}

// NewRelay starts a relay to a database, and returns the address through it.
func NewRelay(t testing.TB, address string) (_ *Relay, through string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Listener: ln, to: u.Host, open: make(chan struct{})}
	r.Forward()
	u.Host = ln.Addr().String()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := r.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				t.Error(err)
				from.Close()
				continue
			}
			running.Go(func() { r.pass(from, to) })
			running.Go(func() { r.pass(to, from) })
		}
	})
	t.Cleanup(func() {
		r.Forward()
		ln.Close()
		running.Wait()
	})
	return r, u.String()
}

func (r *Relay) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		open := r.open
		r.mu.Unlock()
		<-open
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Silence lets nothing through until Forward.
func (r *Relay) Silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// Forward lets everything through, also what came during the silence.
func (r *Relay) Forward() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}
