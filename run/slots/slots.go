// Package slots has the places in which a server executes runs: so many at once in all, so many of single graphs, and a suspect (a run that may kill its
// server) alone.
package slots

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ReserveWait is how long a new run may wait for a slot without being written.
const ReserveWait = 250 * time.Millisecond

// Slots hands out the places. The next slot that becomes free goes to the first that came: runs of the queue, then new runs that wait in ReserveSoon, then
// other new ones. All methods are safe for concurrent use.
type Slots struct {
	most int    // of New; 0: none, other servers execute runs
	wake func() // called when something may be claimed from the queue that could not before

	waiting  atomic.Bool  // runs may be waiting in the queue
	arrivals atomic.Int64 // of runs in the queue, so far

	mu      sync.Mutex
	free    int
	owed    int             // kept for runs of the queue, until the scheduler has looked
	waiters []chan struct{} // closed when the slot is theirs; oldest first
	places  map[string]int  // left, of the graphs that have a limit
	line    []*Turn         // of suspects, which are executed one after the other
	closed  bool
	idle    chan struct{} // closed when no slot is taken and none can be any more
}

// New returns free slots. limits are numbers of places by graph, 0 for none; other graphs share the slots alone. wake must not block.
func New(slots int, limits map[string]int, wake func()) *Slots {
	return &Slots{most: max(0, slots), free: max(0, slots), places: maps.Clone(limits), wake: wake, idle: make(chan struct{})}
}

// Len returns how many slots there are.
func (s *Slots) Len() int { return s.most }

// Close lets nothing begin any more.
func (s *Slots) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.rest()
	}
}

// Idle is closed after Close when all slots that were taken, or only reserved, have been given back.
func (s *Slots) Idle() <-chan struct{} { return s.idle }

// rest closes idle when it is time. s.mu is held, and closed was set or a slot given back.
func (s *Slots) rest() {
	if s.closed && s.free+s.owed == s.most {
		close(s.idle)
	}
}

// Arrived notes that a run of the queue may want a free slot.
func (s *Slots) Arrived() {
	s.arrivals.Add(1)
	s.waiting.Store(true)
}

// Arrivals returns how often Arrived was called, for Empty.
func (s *Slots) Arrivals() int64 { return s.arrivals.Load() }

// Empty notes that nothing of the queue waited for a slot when Arrivals was asked.
func (s *Slots) Empty(arrivals int64) {
	s.waiting.Store(false)
	if s.arrivals.Load() != arrivals {
		s.waiting.Store(true)
	}
}

// Reserve takes up to n free slots for new runs, and returns how many it took.
func (s *Slots) Reserve(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayStart() || len(s.waiters) > 0 {
		return 0
	}
	n = min(n, s.free)
	s.free -= n
	return n
}

// mayStart reports whether runs may begin. A suspect is executed alone: what begins next to it might die with it. s.mu is held.
func (s *Slots) mayStart() bool { return !s.closed && len(s.line) == 0 }

// ReserveSoon takes a slot for a new run, for which it waits up to ReserveWait behind those that came before it.
func (s *Slots) ReserveSoon(ctx context.Context) bool {
	s.mu.Lock()
	switch {
	case s.most == 0 || !s.mayStart():
		s.mu.Unlock()
		return false
	case s.free > 0 && len(s.waiters) == 0:
		s.free--
		s.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	s.waiters = append(s.waiters, granted)
	s.mu.Unlock()
	timer := time.NewTimer(ReserveWait)
	defer timer.Stop()
	select {
	case <-granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.waiters, granted); at >= 0 {
		s.waiters = slices.Delete(s.waiters, at, at+1)
		return false
	}
	return true // granted meanwhile
}

// ReserveQueued takes up to n slots for runs of the queue, and returns how many it took.
func (s *Slots) ReserveQueued(n int) int {
	s.waiting.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayStart() {
		return 0
	}
	owed := min(n, s.owed)
	s.owed -= owed
	free := min(n-owed, s.free)
	s.free -= free
	return owed + free
}

// Unowe returns the slots that were kept for the queue to new runs: the scheduler has found nothing more to begin.
func (s *Slots) Unowe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += s.owed
	s.owed = 0
	s.grant()
}

// Release returns slots that were reserved and not used.
func (s *Slots) Release(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.giveBack(n)
	s.mu.Unlock()
	s.wakeQueue()
}

// Done returns the slot and the place of a run of a graph that was executed: at once, so that the slot does not go to a younger run of another graph.
func (s *Slots) Done(graph string) {
	s.mu.Lock()
	s.giveBack(1)
	wasFull := s.leave(graph)
	s.mu.Unlock()
	if wasFull {
		s.wake()
	} else {
		s.wakeQueue()
	}
}

// wakeQueue wakes the scheduler if there may be runs that wait: mostly there are none, and looking costs a query.
func (s *Slots) wakeQueue() {
	if s.waiting.Load() {
		s.wake()
	}
}

// giveBack adds free slots. s.mu is held.
func (s *Slots) giveBack(n int) {
	if s.waiting.Load() {
		s.owed += n
	} else {
		s.free += n
		s.grant()
	}
	s.rest()
}

// grant assigns free slots to those that wait. s.mu is held.
func (s *Slots) grant() {
	for s.free > 0 && len(s.waiters) > 0 && s.mayStart() {
		close(s.waiters[0])
		s.waiters = s.waiters[1:]
		s.free--
	}
}

// Full returns the graphs with a limit of which no run may begin now, unsorted.
func (s *Slots) Full() (graphs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for graph, places := range s.places {
		if places <= 0 {
			graphs = append(graphs, graph)
		}
	}
	return graphs
}

// Enter takes a place among the runs of a graph, and reports whether there was one.
func (s *Slots) Enter(graph string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	places, limited := s.places[graph]
	if !limited {
		return true
	}
	if places <= 0 {
		return false
	}
	s.places[graph] = places - 1
	return true
}

// Leave returns a place that was not used, and reports whether the graph was full: runs of it may wait in the queue.
func (s *Slots) Leave(graph string) (wasFull bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leave(graph)
}

// leave is Leave with s.mu held.
func (s *Slots) leave(graph string) (wasFull bool) {
	places, limited := s.places[graph]
	if limited {
		s.places[graph] = places + 1
	}
	return limited && places == 0
}

// Turn is the place of a suspect in the line.
type Turn struct {
	slots *Slots
	first chan struct{}
}

// LineUp adds a suspect to the line. Nothing begins until it has left.
func (s *Slots) LineUp() *Turn {
	t := &Turn{slots: s, first: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, t)
	if len(s.line) == 1 {
		close(t.first)
	}
	return t
}

// First is closed when it is the suspect's turn.
func (t *Turn) First() <-chan struct{} { return t.first }

// Leave lets the next suspect have its turn, or the queue continue. It may be called again, and on nil.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	s := t.slots
	s.mu.Lock()
	at := slices.Index(s.line, t)
	if at >= 0 {
		s.line = slices.Delete(s.line, at, at+1)
	}
	if at == 0 && len(s.line) > 0 {
		close(s.line[0].first)
	}
	s.grant()
	s.mu.Unlock()
	if at >= 0 {
		s.wakeQueue()
	}
}
