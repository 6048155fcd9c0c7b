package account

import (
	"context"
	"runtime"
	"sync"

	"understudy/internal/fault"
	"understudy/internal/turn"
)

// queue decides when hashes of passwords are computed, each a quarter of a second of a core: sign-ins must not starve the rest of the server, and one
// client not those of others. A client is a network, or a user who is signed in. Each has one hash computed at a time: however much one sends,
// others wait for one hash of it.
type queue struct {
	slots chan struct{} // the hashes that are computed at once

	turns turn.Lines

	mu      sync.Mutex
	guesses map[string]int // guesses at accounts that are being made, by e-mail address
}

// Limits of a queue; requests above them are refused.
const (
	maxClients = 100
	maxLine    = 10
)

// hashes is the queue of the process.
var hashes = newQueue(max(1, min(2, runtime.GOMAXPROCS(0)/2)))

func newQueue(slots int) *queue {
	return &queue{slots: make(chan struct{}, slots), turns: turn.Lines{Clients: maxClients, Line: maxLine, Each: 1, Full: errQueue}, guesses: map[string]int{}}
}

var errQueue = fault.New(fault.Unavailable, "Too many passwords are being checked; try again in a moment")

// enter waits until no other request of a client is served. Call leave afterwards.
func (q *queue) enter(ctx context.Context, client string) (leave func(), err error) {
	return q.turns.Enter(ctx, client)
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
