package auth

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"understudy/access"
	"understudy/internal/address"
	"understudy/internal/jsonobj"
)

const (
	// A source may fail failures times at once, and failuresPer more each second: people mistype, and a fleet of clients behind one address may hold a
	// key that was revoked.
	failures    = 60
	failuresPer = 1
	maxSources  = 10_000
)

// throttle refuses to look at credentials of sources that sent many wrong ones. Its zero value works. Private and loopback addresses are not counted:
// mostly they are of a proxy, behind which one client would hold up all others.
type throttle struct {
	some atomic.Bool // there was a source: until then a request costs nothing
	mu   sync.Mutex
	of   map[netip.Addr]*rate.Limiter
}

// source is the network of a peer: an address, as address.Customer has it. It is not valid for peers that are not counted.
func source(client string) netip.Addr {
	host, _, err := net.SplitHostPort(client)
	if err != nil {
		host = client
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	if a = a.Unmap(); a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() {
		return netip.Addr{}
	}
	return address.Customer(a)
}

// refuse returns how long a client has to wait; 0 when its credentials are looked at.
func (t *throttle) refuse(client string, now func() time.Time) time.Duration {
	if !t.some.Load() {
		return 0
	}
	from := source(client)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of[from]
	if l == nil {
		return 0
	}
	tokens := l.TokensAt(now())
	if tokens >= 1 {
		return 0
	}
	return time.Duration((1-tokens)/failuresPer*float64(time.Second)) + time.Millisecond
}

// failed counts wrong credentials of a client.
func (t *throttle) failed(client string, now time.Time) {
	from := source(client)
	if !from.IsValid() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.some.Store(true)
	l := t.of[from]
	if l == nil {
		if t.of == nil {
			t.of = map[netip.Addr]*rate.Limiter{}
		}
		if len(t.of) >= maxSources {
			t.clean(now)
		}
		l = rate.NewLimiter(failuresPer, failures)
		t.of[from] = l
	}
	l.AllowN(now, 1)
}

// clean forgets sources that may fail as often as new ones. If most of them may not, it forgets all: an attack from that many is not stopped here.
func (t *throttle) clean(now time.Time) {
	for from, l := range t.of {
		if l.TokensAt(now) >= failures {
			delete(t.of, from)
		}
	}
	if len(t.of) > maxSources/2 {
		clear(t.of)
	}
}

// errThrottled is the answer to a source that has to wait.
func errThrottled(wait time.Duration) *access.Refusal {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &access.Refusal{
		Status: http.StatusTooManyRequests, Detail: jsonobj.Quote("Too many wrong credentials from this address; try again in a moment"), Header: http.Header{"Retry-After": {strconv.Itoa(seconds)}},
		Audit: "too many wrong credentials from this address",
	}
}
