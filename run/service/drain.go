package service

import (
	"context"
	"time"

	"understudy/run/execute"
)

// When a stop that waits for runs says so: who stops a server sees that it is not stuck.
const (
	sayWaiting      = 2 * time.Second
	sayWaitingEvery = 30 * time.Second
)

// drain lets nothing begin any more, and returns when all runs have ended. What runs longer than the grace period is handed back to the queue.
func (s *Service) drain(work context.Context) {
	s.slots.Close()
	s.executions.Close()
	ended := make(chan struct{})
	go func() {
		<-s.slots.Idle() // a run that is being created has a slot before it has an execution
		s.executions.Wait()
		close(ended)
	}()
	over := time.Now().Add(s.Grace)
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	beats := time.NewTicker(s.Lease / 4)
	defer beats.Stop()
	say := time.NewTimer(sayWaiting)
	defer say.Stop()
	for {
		select {
		case <-ended:
			return
		case <-say.C:
			name, _, _ := s.executions.Busiest()
			s.log.InfoContext(work, "waiting for runs to end; the rest continues from its checkpoints on another server, or at the next start",
				"runs", s.executions.Len(), "busiest_graph", name, "for", max(0, time.Until(over)).Round(time.Second).String())
			say.Reset(sayWaitingEvery)
		case <-beats.C:
			if err := s.queue.Renew(work); err != nil {
				s.log.ErrorContext(work, "background task failed; retrying", "part", "leases", "error", err)
			}
		case <-grace.C:
			name, _, _ := s.executions.Busiest()
			s.log.InfoContext(work, "the grace period is over: runs are stopped, and continue from their checkpoints; one that does not stop ends with its worker a few seconds later",
				"runs", s.executions.Len(), "busiest_graph", name)
			close(s.quit)
			s.executions.CancelAll(execute.ErrShutdown)
		}
	}
}
