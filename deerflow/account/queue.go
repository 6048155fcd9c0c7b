package account

import (
	"context"
	"runtime"
	"sync"

	"understudy/internal/fault"
)

// queue decides when hashes of passwords are computed, each a quarter of a second of a core: sign-ins must not starve the rest of the server, and one
// client not those of others. A client is a network, or a user who is signed in. Each has one hash computed at a time: however much one sends,
// others wait for one hash of it.
type queue struct {
	slots chan struct{} // the hashes that are computed at once

	mu      sync.Mutex
	lines   map[string]*line // of clients that wait or are served
	guesses map[string]int   // guesses at accounts that are being made, by e-mail address
}

// line is the requests of one client.
type line struct {
	turn chan struct{}
	n    int // requests in it, with the one that is served
}

// Limits of a queue; requests above them are refused.
const (
	maxClients = 100
	maxLine    = 10
)

// hashes is the queue of the process.
var hashes = newQueue(max(1, min(2, runtime.GOMAXPROCS(0)/2)))

func newQueue(slots int) *queue {
	return &queue{slots: make(chan struct{}, slots), lines: map[string]*line{}, guesses: map[string]int{}}
}

var errQueue = fault.New(fault.Unavailable, "Too many passwords are being checked; try again in a moment")

// enter waits until no other request of a client is served. Call leave afterwards.
func (q *queue) enter(ctx context.Context, client string) (leave func(), err error) {
	q.mu.Lock()
	l := q.lines[client]
	switch {
	case l == nil && len(q.lines) >= maxClients, l != nil && l.n >= maxLine:
		q.mu.Unlock()
		return nil, errQueue
	case l == nil:
		l = &line{turn: make(chan struct{}, 1)}
		q.lines[client] = l
	}
	l.n++
	q.mu.Unlock()
	gone := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if l.n--; l.n == 0 {
			delete(q.lines, client)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, context.Cause(ctx)
	}
}

// compute calls fn, which computes a hash and does nothing else, when a slot is free. Call it between enter and leave.
func (q *queue) compute(ctx context.Context, fn func()) error {
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
		fn()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// guess returns how many guesses at an account other clients are making, and counts one more until done is called.
func (q *queue) guess(email string) (others int, done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	others = q.guesses[email]
	q.guesses[email]++
	return others, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.guesses[email]--; q.guesses[email] == 0 {
			delete(q.guesses, email)
		}
	}
}
