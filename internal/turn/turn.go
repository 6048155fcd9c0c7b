// Package turn lets clients take turns at what takes long, so that one client does not make others wait for all that it asks for, and bounds how much waits.
package turn

import (
	"context"
	"sync"
)

// Lines has a line for each client that waits or is served. It is safe for concurrent use; do not copy it.
type Lines struct {
	Clients int   // that wait or are served at most
	Line    int   // requests of one client that wait or are served at most
	Each    int   // requests of one client that are served at once
	Full    error // of requests above these bounds

	mu    sync.Mutex
	lines map[string]*line
}

// line is the requests of one client.
type line struct {
	room chan struct{}
	n    int // requests in it, with those that are served
}

// Enter waits until it is the turn of a request of a client. Call leave afterwards. The error is Full, or the cause of the end of ctx.
func (l *Lines) Enter(ctx context.Context, client string) (leave func(), err error) {
	l.mu.Lock()
	if l.lines == nil {
		l.lines = map[string]*line{}
	}
	of := l.lines[client]
	switch {
	case of == nil && len(l.lines) >= l.Clients, of != nil && of.n >= l.Line:
		l.mu.Unlock()
		return nil, l.Full
	case of == nil:
		of = &line{room: make(chan struct{}, l.Each)}
		l.lines[client] = of
	}
	of.n++
	l.mu.Unlock()
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.n--; of.n == 0 {
			delete(l.lines, client)
		}
	}
	select {
	case of.room <- struct{}{}:
		return func() { <-of.room; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, context.Cause(ctx)
	}
}

// Len returns how many requests wait or are served.
func (l *Lines) Len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.lines {
		n += of.n
	}
	return n
}
