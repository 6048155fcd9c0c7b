package thread

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"understudy/id"
	"understudy/internal/fault"
)

const (
	// maxWaiting bounds the updates of one thread that wait in this process. Each holds an open request.
	maxWaiting = 1000
	// placeLapse is how long a place in a shared queue lasts after the last sign of life of the instance that holds it.
	placeLapse = 15 * time.Second
)

// SharedQueue is an optional ability of a Store that several instances work on: updates of a thread queue up across them, in the order in which
// they came. It makes updates fair and spares them from being computed twice. It does not protect anything: a place may lapse while its holder is
// still at work, so commits check what they are built on.
type SharedQueue interface {
	// Enqueue adds a place at the end of the queue of a thread. Unless Front extends it, it lapses after a time.
	Enqueue(ctx context.Context, t id.Thread, lapse time.Duration) (place int64, err error)
	// Front reports whether no other place is before this one, and has it lapse after the time again. fault.NotFound: it has lapsed and is gone.
	Front(ctx context.Context, t id.Thread, place int64, lapse time.Duration) (bool, error)
	// Dequeue returns a place up.
	Dequeue(ctx context.Context, t id.Thread, place int64) error
}

// turns lets updates of a thread go one after the other, in the order in which they came. The zero value is ready.
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
	if i < 0 { // the turn came at the same time: it is passed on
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

// turn waits for the turn of an update, in this process and, where instances share the storage, among them. leave must be called after it.
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

// place is one in a shared queue.
type place struct {
	queue  SharedQueue
	thread id.Thread
	number int64 // 0: none
}

// reach enters the queue and waits until it is at the front. Nothing announces that, so it looks: at short intervals, for an update takes
// milliseconds, and of each instance only one update of a thread waits here.
func (p *place) reach(ctx context.Context) error {
	const shortest, longest = 2 * time.Millisecond, 50 * time.Millisecond
	for wait := shortest; ; wait = min(2*wait, longest) {
		if p.number == 0 {
			number, err := p.queue.Enqueue(ctx, p.thread, placeLapse)
			if err != nil {
				return err
			}
			p.number = number
		}
		front, err := p.queue.Front(ctx, p.thread, p.number, placeLapse)
		switch {
		case fault.Is(err, fault.NotFound): // this instance slept for longer than a place lasts
			p.number = 0
			continue
		case err != nil || front:
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stay keeps the place until ctx ends. When it is lost all the same, the commit notices what others have done meanwhile.
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

// leave returns the place up, also when the client has gone. If that fails, it lapses.
func (p *place) leave(ctx context.Context) {
	if p.number == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeLapse)
	defer cancel()
	_ = p.queue.Dequeue(ctx, p.thread, p.number)
}
