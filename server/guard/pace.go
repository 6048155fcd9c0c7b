package guard

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"understudy/access"
	"understudy/internal/jsonobj"
)

// maxPaced is how many identities are kept that may not create all their runs now.
const maxPaced = 10_000

// Pace limits how many runs each identity creates: so many at once, and as many again over a minute. It counts those of one server. Its zero value limits nothing.
type Pace struct {
	// PerMinute is the number; 0: any.
	PerMinute int
	Now       func() time.Time // nil: time.Now

	mu     sync.Mutex
	of     map[string]*rate.Limiter
	forget int // when that many are kept, those that are full again are forgotten
}

// take counts n runs of an identity, all or none. The error says when they may be tried again.
func (p *Pace) take(identity string, n int) error {
	now := time.Now
	if p.Now != nil {
		now = p.Now
	}
	return p.takeAt(identity, n, now())
}

func (p *Pace) takeAt(identity string, n int, now time.Time) error {
	if p.PerMinute == 0 || n == 0 {
		return nil
	}
	if n > p.PerMinute {
		return tooMany("Too many runs in one request: at most "+strconv.Itoa(p.PerMinute)+" in a minute", time.Minute)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of[identity]
	if l == nil {
		if p.of == nil {
			p.of, p.forget = map[string]*rate.Limiter{}, maxPaced
		}
		if len(p.of) >= p.forget {
			p.clean(now)
		}
		l = rate.NewLimiter(rate.Every(time.Minute/time.Duration(p.PerMinute)), p.PerMinute)
		p.of[identity] = l
	}
	r := l.ReserveN(now, n)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	r.CancelAt(now)
	return tooMany("Too many runs: at most "+strconv.Itoa(p.PerMinute)+" in a minute", wait)
}

// clean forgets identities that may create all their runs: nothing is lost with them.
func (p *Pace) clean(now time.Time) {
	for identity, l := range p.of {
		if l.TokensAt(now) >= float64(p.PerMinute) {
			delete(p.of, identity)
		}
	}
	p.forget = max(maxPaced, 2*len(p.of)) // so that cleaning takes constant time for each
}

func tooMany(text string, wait time.Duration) *access.Refusal {
	seconds := int((wait + time.Second - 1) / time.Second)
	return &access.Refusal{Status: http.StatusTooManyRequests, Detail: jsonobj.Quote(text), Header: http.Header{"Retry-After": {strconv.Itoa(seconds)}}}
}
