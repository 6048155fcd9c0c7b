package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"understudy/internal/fault"
)

// budget limits the use of a resource.
type budget struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	waiting []*claim // first come, first served
}

// claim waits until so much is available.
type claim struct {
	n       int64
	granted chan struct{}
}

// fits reports whether n is available. More than everything is available while nothing is used.
func (b *budget) fits(n int64) bool { return b.used == 0 || b.used+n <= b.limit }

// take takes n if that much is available.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.fits(n) {
		return false
	}
	b.used += n
	return true
}

// has reports whether n is available.
func (b *budget) has(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.fits(n)
}

// hold takes n in any case.
func (b *budget) hold(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

// wait takes n as soon as that much is available.
func (b *budget) wait(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.fits(n) {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	select {
	case <-c.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.used -= n // granted meanwhile
	}
	b.grant()
	return context.Cause(ctx)
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// grant assigns what is available to those who wait.
func (b *budget) grant() {
	for len(b.waiting) > 0 && b.fits(b.waiting[0].n) {
		b.used += b.waiting[0].n
		close(b.waiting[0].granted)
		b.waiting = b.waiting[1:]
	}
}

// scarce reports that others wait, or that more is used than there should be.
func (b *budget) scarce() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0 || b.used > b.limit
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

var errManyReads = fault.New(fault.Unavailable, "Too much is being read at the moment, try again")

// reads is the memory of a long answer, as the services that create its elements use it.
type reads struct {
	*budget
	patience time.Duration // 0: do not wait
}

// Take is thread.Room.Take.
func (r *reads) Take(n int64) bool { return r.take(n) }

// Hold is thread.Room.Hold.
func (r *reads) Hold(n int64) { r.hold(n) }

// Give is thread.Room.Give.
func (r *reads) Give(n int64) { r.give(n) }

// Wait is thread.Room.Wait. It waits no longer than a client may go without reading.
func (r *reads) Wait(ctx context.Context, n int64) error {
	if r.patience == 0 {
		if !r.take(n) {
			return errManyReads
		}
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.patience, errManyReads)
	defer cancel()
	return r.wait(ctx, n)
}
