package run

import (
	"context"
	"time"
)

// Queue is how the queue of all instances stands. Each number is counted up to queueBound.
type Queue struct {
	Pending, Running int
	// Due are those of Pending that wait for nothing but a job: their time has come, and nothing runs on their thread.
	Due int
	// First and Middle are when the first and the middle one of the pending runs is or was due, FirstDue the first of Due; zero: there is none.
	First, Middle, FirstDue time.Time
}

// queueBound is up to where runs are counted: the count is asked for every few seconds, and a longer queue is long enough.
const queueBound = 100_000

// Load tells how many runs this instance executes, at most and now.
func (s *Service) Load() (most, used int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots.Len(), len(s.active)
}

// Queue tells how the queue stands.
func (s *Service) Queue(ctx context.Context) (Queue, error) {
	return s.Store.Queue(ctx, s.Now(), queueBound)
}
