package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"time"

	"understudy/access"
	"understudy/internal/cache"
)

// Remembering keeps what authenticate returned (auth.cache). The zero value keeps nothing.
type Remembering struct {
	// Headers are canonical names of request headers. Requests whose values are all equal are sent by the same user.
	Headers []string
	TTL     time.Duration
	Max     int // users
}

// remembered are the users of one process: another version of the handlers, or a process that was started again, asks anew.
type remembered struct {
	o     Remembering
	now   func() time.Time
	users *cache.Cache[[sha256.Size]byte, rememberedUser]
}

type rememberedUser struct {
	actor *access.Actor
	by    *process
	until time.Time
}

func newRemembered(o Remembering) *remembered {
	if len(o.Headers) == 0 {
		return nil
	}
	return &remembered{o: o, now: time.Now, users: cache.New[[sha256.Size]byte, rememberedUser](o.Max)}
}

// key is the name of who sends a request; false: it has none of the headers, and is not remembered.
func (r *remembered) key(h http.Header) (key [sha256.Size]byte, ok bool) {
	sum, number := sha256.New(), make([]byte, 8)
	count := func(n int) {
		binary.LittleEndian.PutUint64(number, uint64(n))
		sum.Write(number)
	}
	for _, name := range r.o.Headers {
		values := h[name]
		ok = ok || len(values) > 0
		count(len(values))
		for _, v := range values {
			count(len(v))
			sum.Write([]byte(v))
		}
	}
	sum.Sum(key[:0])
	return key, ok
}

// find returns who sent a request, if that was found out by the process a moment ago.
func (r *remembered) find(h http.Header, by *process) *access.Actor {
	if r == nil || by == nil {
		return nil
	}
	key, ok := r.key(h)
	if !ok {
		return nil
	}
	u, ok := r.users.Get(key)
	if !ok || u.by != by || !r.now().Before(u.until) {
		return nil
	}
	return u.actor
}

// put notes who sent a request.
func (r *remembered) put(h http.Header, by *process, actor *access.Actor) {
	if r == nil {
		return
	}
	if key, ok := r.key(h); ok {
		r.users.Put(key, rememberedUser{actor, by, r.now().Add(r.o.TTL)}, 1)
	}
}
