package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"understudy/access"
	"understudy/internal/fault"
)

const (
	// gatherFor is how long equal failures are counted before they are logged as one line.
	gatherFor = 5 * time.Second
	// mostFailures bounds the kinds of failures that are counted at a time. Further ones are logged each.
	mostFailures = 1000
)

// Failures logs why requests fail that are not to blame: the first of equal ones at once, those of the next seconds as one line with their number. While a disk is full
// or a database is away every request fails for the same reason, and a line for each would hide the others. The zero value with a Log works. It is safe for concurrent use.
type Failures struct {
	Log *slog.Logger

	mu   sync.Mutex
	more map[failure]*repeats
}

// failure is what equal failures have in common.
type failure struct{ what, method, route, text string }

// repeats are failures like one that was logged.
type repeats struct {
	n     int
	last  string // ID of the last request
	err   error  // its error
	timer *time.Timer
}

// Add logs the failure of a request, or counts it.
func (f *Failures) Add(what string, r *Request, err error) {
	text, passing := passes(err)
	if !passing {
		f.write(what, r.Route, r.ID, err, "method", r.method)
		return
	}
	key := failure{what, r.method, r.Route, text}
	f.mu.Lock()
	known := f.more[key]
	switch {
	case known != nil:
		known.n++
		known.last, known.err = r.ID, err
	case len(f.more) < mostFailures:
		if f.more == nil {
			f.more = map[failure]*repeats{}
		}
		f.more[key] = &repeats{timer: time.AfterFunc(gatherFor, func() { f.sum(key) })}
	}
	f.mu.Unlock()
	if known == nil {
		f.write(what, r.Route, r.ID, err, "method", r.method)
	}
}

// passes reports whether many requests fail alike until something else works again, and returns what they have in common.
func passes(err error) (text string, yes bool) {
	var r *access.Refusal
	if errors.As(err, &r) {
		return r.Text(), r.Status == http.StatusServiceUnavailable
	}
	if isFull(err) {
		return textFull, true
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message, f.Kind == fault.Unavailable || f.Kind == fault.Upstream
	}
	return "", false
}

// sum logs what was counted. While there is more, it continues to count.
func (f *Failures) sum(key failure) {
	f.mu.Lock()
	known := f.more[key]
	if known == nil { // flushed
		f.mu.Unlock()
		return
	}
	was := *known
	if was.n == 0 {
		delete(f.more, key)
	} else {
		known.n = 0
		known.timer.Reset(gatherFor)
	}
	f.mu.Unlock()
	f.repeated(key, was)
}

// Flush logs what was counted so far, and counts no longer.
func (f *Failures) Flush() {
	f.mu.Lock()
	all := f.more
	f.more = nil
	f.mu.Unlock()
	for key, known := range all {
		known.timer.Stop()
		f.repeated(key, *known)
	}
}

func (f *Failures) repeated(key failure, was repeats) {
	if was.n > 0 {
		f.write(key.what, key.route, was.last, was.err, "method", key.method, "repeated", was.n)
	}
}

func (f *Failures) write(what, route, id string, err error, more ...any) {
	f.Log.ErrorContext(context.Background(), what, append([]any{"request_id", id, "route", route, "error", err}, more...)...)
}
