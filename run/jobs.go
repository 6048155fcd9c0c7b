package run

import (
	"context"
	"slices"
	"time"
)

// jobs are the places of this server to execute runs in. The next that becomes free goes to the first that came: runs of the queue, then those that wait
// without having been written, then new ones. Guarded by Service.mu.
type jobs struct {
	free    int
	owed    int             // kept for runs of the queue, until the scheduler has looked
	waiters []chan struct{} // closed when the job is theirs; oldest first
}

// briefWait is how long a run may wait without being written.
const briefWait = 250 * time.Millisecond

// reserve takes up to n free jobs for new runs.
func (s *Service) reserve(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayStart() || len(s.jobs.waiters) > 0 {
		return 0
	}
	n = min(n, s.jobs.free)
	s.jobs.free -= n
	return n
}

// mayStart reports whether runs may begin. A suspect is executed alone: what begins beside it might die with it.
func (s *Service) mayStart() bool { return !s.closing && len(s.line) == 0 }

// reserveSoon takes a job for a new run, and waits for a short time behind those that came before it.
func (s *Service) reserveSoon(ctx context.Context) bool {
	s.mu.Lock()
	switch {
	case s.Jobs <= 0 || !s.mayStart():
		s.mu.Unlock()
		return false
	case s.jobs.free > 0 && len(s.jobs.waiters) == 0:
		s.jobs.free--
		s.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	s.jobs.waiters = append(s.jobs.waiters, granted)
	s.mu.Unlock()
	timer := time.NewTimer(briefWait)
	defer timer.Stop()
	select {
	case <-granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.jobs.waiters, granted); at >= 0 {
		s.jobs.waiters = slices.Delete(s.jobs.waiters, at, at+1)
		return false
	}
	return true // just now
}

// reserveQueued takes up to n jobs for runs of the queue.
func (s *Service) reserveQueued(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mayStart() {
		return 0
	}
	owed := min(n, s.jobs.owed)
	s.jobs.owed -= owed
	free := min(n-owed, s.jobs.free)
	s.jobs.free -= free
	return owed + free
}

// unowe gives the jobs that were kept for the queue to others: the scheduler has found nothing more to begin.
func (s *Service) unowe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs.free += s.jobs.owed
	s.jobs.owed = 0
	s.grant()
}

// release gives jobs back, and wakes the scheduler if runs may be waiting for them.
func (s *Service) release(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.giveBack(n)
	s.mu.Unlock()
	s.pokeQueue()
}

// giveBack is release without the wake-up. s.mu is held.
func (s *Service) giveBack(n int) {
	if s.waiting.Load() {
		s.jobs.owed += n
		return
	}
	s.jobs.free += n
	s.grant()
}

// grant gives free jobs to those that wait. s.mu is held.
func (s *Service) grant() {
	for s.jobs.free > 0 && len(s.jobs.waiters) > 0 && s.mayStart() {
		close(s.jobs.waiters[0])
		s.jobs.waiters = s.jobs.waiters[1:]
		s.jobs.free--
	}
}
