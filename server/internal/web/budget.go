package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"understudy/internal/limits"
)

// Budget limits the use of a resource.
type Budget struct {
	mu      sync.Mutex
	Limit   int64
	used    int64
	waiting []*claim // first come, first served
}

// claim waits until so much is available.
type claim struct {
	n       int64
	granted chan struct{}
}

// fits reports whether n is available. More than everything is available while nothing is used.
func (b *Budget) fits(n int64) bool { return b.used == 0 || b.used+n <= b.Limit }

// Take takes n if that much is available.
func (b *Budget) Take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || !b.fits(n) {
		return false
	}
	b.used += n
	return true
}

// Has reports whether n is available.
func (b *Budget) Has(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.fits(n)
}

// Hold takes n in any case.
func (b *Budget) Hold(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

// Wait takes n as soon as that much is available.
func (b *Budget) Wait(ctx context.Context, n int64) error {
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

// Give returns n, to those who wait first.
func (b *Budget) Give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grant()
}

// grant assigns what is available to those who wait.
func (b *Budget) grant() {
	for len(b.waiting) > 0 && b.fits(b.waiting[0].n) {
		b.used += b.waiting[0].n
		close(b.waiting[0].granted)
		b.waiting = b.waiting[1:]
	}
}

// scarce reports that others wait, or that more is used than there should be.
func (b *Budget) scarce() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0 || b.used > b.Limit
}

// InUse returns how much is taken.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// AnswerMemory is the memory of a long answer. It implements thread.Memory for the services that create the elements.
type AnswerMemory struct {
	*Budget
	patience time.Duration // 0: do not wait
}

// Wait is Budget.Wait, which waits no longer than a client may go without reading.
func (r *AnswerMemory) Wait(ctx context.Context, n int64) error {
	if r.patience == 0 {
		if !r.Take(n) {
			return limits.ErrReads
		}
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.patience, limits.ErrReads)
	defer cancel()
	return r.Budget.Wait(ctx, n)
}
