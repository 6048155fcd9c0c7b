package auth

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"understudy/internal/fault"
)

const (
	maxLookups = 500    // IDs of one question
	maxWaiting = 20_000 // requests that wait for the next questions; more are refused
	lookupTime = 5 * time.Second
)

// lookups reads credentials, all that requests wait for with one question at a time. So made-up ones, of which anyone can send any number, from any number of
// addresses, take one connection of the database at most, and one that exists waits for two questions, however many others were made up.
type lookups[T any] struct {
	// read returns those that exist, in any order, and idOf the ID of one; problem says that it cannot read.
	read    func(ctx context.Context, ids []string) ([]*T, error)
	idOf    func(*T) string
	problem string

	mu      sync.Mutex
	asking  bool
	waiting []*lookup[T] // for the next question, the first come first
}

// lookup is a request that waits. Its fields are of lookups.mu until done is closed.
type lookup[T any] struct {
	id   string
	lead chan struct{} // closed: ask the next question
	led  bool          // lead is closed
	gone bool          // the request has ended
	done chan struct{}
	row  *T // nil: there is none
	err  error
}

var errManyLookups = fault.New(fault.Unavailable, "Too many credentials are being checked; try again in a moment")

// find returns the row with an ID; nil when there is none. It is not changed by others. The error is a fault.
func (l *lookups[T]) find(ctx context.Context, id string) (*T, error) {
	w := &lookup[T]{id: id, lead: make(chan struct{}), done: make(chan struct{})}
	l.mu.Lock()
	if len(l.waiting) >= maxWaiting {
		l.mu.Unlock()
		return nil, errManyLookups
	}
	l.waiting = append(l.waiting, w)
	if !l.asking {
		l.asking, w.led = true, true
		close(w.lead)
	}
	l.mu.Unlock()
	select {
	case <-w.done:
	case <-w.lead:
		l.ask(ctx)
		<-w.done // it is the first of those that wait
	case <-ctx.Done():
		l.mu.Lock()
		w.gone = true
		led := w.led
		l.mu.Unlock()
		if led {
			l.ask(ctx)
		}
		return nil, context.Cause(ctx)
	}
	return w.row, w.err
}

// ask asks one question, and lets another request that waits ask the next one.
func (l *lookups[T]) ask(ctx context.Context) {
	l.mu.Lock()
	n := min(len(l.waiting), maxLookups)
	batch := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	l.mu.Unlock()
	ids := make([]string, 0, n)
	for _, w := range batch {
		ids = append(ids, w.id)
	}
	slices.Sort(ids)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime) // it is the question of others too
	rows, err := l.read(ctx, slices.Compact(ids))
	cancel()
	if err != nil {
		problem := l.problem
		if known := (*fault.Error)(nil); errors.As(err, &known) && known.Kind == fault.Unavailable {
			problem += ": " + known.Message
		}
		err = fault.Wrap(fault.Unavailable, problem, err)
	}
	found := make(map[string]*T, len(rows))
	for _, row := range rows {
		found[l.idOf(row)] = row
	}
	for _, w := range batch {
		if row := found[w.id]; row != nil {
			own := *row
			w.row = &own
		}
		w.err = err
		close(w.done)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 {
		if next := l.waiting[0]; !next.gone {
			next.led = true
			close(next.lead)
			return
		}
		l.waiting = l.waiting[1:]
	}
	l.asking, l.waiting = false, nil
}
