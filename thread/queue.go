package thread

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
)

const (
	// maxWaiting is the maximum number of updates of one thread that wait in this process. Each holds an open request.
	maxWaiting = 1000
	// placeLapse is how long a place in a shared queue lasts without being renewed by its server.
	placeLapse = 15 * time.Second
)

// SharedQueue is an optional ability of a Store shared by several servers: updates of a thread queue up across them, in order of arrival. It
// makes updates fair and avoids computing them twice. It is not a lock: a place may lapse while its holder is still working, so commits check
// that their base is unchanged.
type SharedQueue interface {
	// Enqueue adds a place at the end of the queue of a thread. It lapses after a time unless Front extends it.
	Enqueue(ctx context.Context, t id.Thread, lapse time.Duration) (place int64, err error)
	// Front reports whether the place is the first, and extends it. fault.NotFound: it has lapsed.
	Front(ctx context.Context, t id.Thread, place int64, lapse time.Duration) (bool, error)
	// Dequeue removes a place.
	Dequeue(ctx context.Context, t id.Thread, place int64) error
}

// turns serializes updates of a thread, in order of arrival. The zero value is ready.
type turns struct {
	mu      sync.Mutex
	waiting map[id.Thread][]chan struct{} // an entry without channels: a turn is taken, without waiters
}

// take waits for the turn of the caller.
func (q *turns) take(ctx context.Context, t id.Thread) error {
	q.mu.Lock()
	line, busy := q.waiting[t]
	if !busy {
		if q.waiting == nil {
			q.waiting = map[id.Thread][]chan struct{}{}
		}
		q.waiting[t] = nil
		q.mu.Unlock()
		return nil
	}
	if len(line) >= maxWaiting {
		q.mu.Unlock()
		return fault.Newf(fault.Unavailable, "Thread %s has %d state updates waiting. Try again later.", t, len(line))
	}
	mine := make(chan struct{})
	q.waiting[t] = append(line, mine)
	q.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting[t], mine)
	if i >= 0 {
		q.waiting[t] = slices.Delete(q.waiting[t], i, i+1)
	}
	q.mu.Unlock()
	if i < 0 { // the turn arrived at the same time: pass it on
		q.leave(t)
	}
	return context.Cause(ctx)
}

// leave passes the turn to the longest waiter.
func (q *turns) leave(t id.Thread) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.waiting[t]
	if len(line) == 0 {
		delete(q.waiting, t)
		return
	}
	close(line[0])
	q.waiting[t] = slices.Delete(line, 0, 1)
}

// turn waits for the turn of an update, in this process and, if servers share the storage, among them. The caller must call leave.
func (s *Service) turn(ctx context.Context, t id.Thread) (leave func(), err error) {
	if err := s.turns.take(ctx, t); err != nil {
		return nil, err
	}
	shared, ok := s.Store.(SharedQueue)
	if !ok {
		return func() { s.turns.leave(t) }, nil
	}
	p := &place{queue: shared, thread: t}
	if err := p.reach(ctx); err != nil {
		p.leave(ctx)
		s.turns.leave(t)
		return nil, fmt.Errorf("wait for other updates of thread %s: %w", t, err)
	}
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.stay(alive)
	}()
	return func() {
		stop()
		<-done
		p.leave(ctx)
		s.turns.leave(t)
	}, nil
}

// place is a place in a shared queue.
type place struct {
	queue  SharedQueue
	thread id.Thread
	number int64 // 0: none
}

// reach enters the queue and waits until it is at the front. It polls, because nothing announces that: at short intervals, since an
// update takes milliseconds and each server has at most one update of a thread waiting here.
func (p *place) reach(ctx context.Context) error {
	const shortest, longest = 2 * time.Millisecond, 50 * time.Millisecond
	for wait := loop.NewBackoff(shortest, longest); ; {
		if p.number == 0 {
			number, err := p.queue.Enqueue(ctx, p.thread, placeLapse)
			if err != nil {
				return err
			}
			p.number = number
		}
		front, err := p.queue.Front(ctx, p.thread, p.number, placeLapse)
		switch {
		case fault.Is(err, fault.NotFound): // this server was suspended for longer than placeLapse
			p.number = 0
			continue
		case err != nil || front:
			return err
		}
		if !wait.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}

// stay renews the place until ctx ends. If it is lost nevertheless, the commit detects changes by others.
func (p *place) stay(ctx context.Context) {
	beat := time.NewTicker(placeLapse / 3)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			_, _ = p.queue.Front(ctx, p.thread, p.number, placeLapse)
		}
	}
}

// leave removes the place, even if the client has left. If that fails, it lapses.
func (p *place) leave(ctx context.Context) {
	if p.number == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeLapse)
	defer cancel()
	_ = p.queue.Dequeue(ctx, p.thread, p.number)
}
