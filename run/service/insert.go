package service

import (
	"fmt"
	"time"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/compose"
	"understudy/run/settle"
	"understudy/thread"
)

// insertion is a run that one attempt of a transaction writes.
type insertion struct {
	thread    id.Thread
	assistant id.Assistant
	req       *run.Request
	stateless bool // its thread is made for it
	mayClaim  bool // it is claimed when it may start at once
	limited   bool // it is refused when its identity has as many as it may
}

// insert writes one run, and claims it when it may start at once.
func (s *Service) insert(tx run.Tx, read *settle.Readings, in insertion) (created, error) {
	var c created
	run.Expect(tx, func(e run.Expecting) {
		if in.stateless {
			e.ExpectNew(in.thread)
		} else {
			e.ExpectCreate(in.thread)
		}
	})
	as, err := s.servedHere(tx.Assistant(in.assistant))
	if err != nil {
		return c, err
	}
	row, fresh, err := threadOf(tx, in)
	if err != nil {
		return c, err
	}
	now := s.Now() // after waiting for the thread: runs are queued in the order in which they got it
	temporary := in.stateless && in.req.OnCompletion != "keep"
	if fresh {
		row = compose.Thread(in.thread, in.req, temporary, now)
	}
	if in.req.NewThread != nil {
		row.TTL = in.req.NewThread
	}
	var active []*run.Run
	if !fresh {
		if active, err = activeRuns(tx, in.thread); err != nil {
			return c, err
		}
	}
	if len(active) > 0 && in.req.Strategy == run.Reject {
		return c, errBusy
	}
	if missing := unasked(askedIn(row.Interrupts), in.req.Answers); missing != "" { // another run, which is over, has answered meanwhile
		return c, &run.UnknownInterrupt{ID: missing}
	}
	now = creationTime(active, now)
	r, err := compose.Run(as, row, in.req, in.stateless, temporary, s.ThreadTTL, now) // before anything is written: it may refuse the request
	if err != nil {
		return c, err
	}
	free, err := s.applyStrategy(tx, read, in.req.Strategy, active, now, &c)
	if err != nil {
		return c, err
	}
	if err := s.countRun(tx, in.req, r, &c, in.limited); err != nil {
		return c, err
	}

	shown := *r
	c.run = &shown
	if in.mayClaim && free && in.req.After <= 0 && !s.Elsewhere(r.Graph) && s.slots.Enter(r.Graph) {
		s.queue.Claim(r, row, now)
		c.claimed = r
	}
	if fresh {
		err = tx.InsertThread(row)
	} else {
		err = tx.UpdateThread(row)
	}
	if err != nil {
		return c, fmt.Errorf("thread of a new run: %w", err)
	}
	if err := tx.InsertRun(r); err != nil {
		return c, fmt.Errorf("insert run: %w", err)
	}
	if c.claimed == nil {
		return c, nil
	}
	return c, completion.RecordStart(tx, r, now)
}

// servedHere returns the assistant of a new run, as it was read, if its graph is served here.
func (s *Service) servedHere(as *assistant.Assistant, err error) (*assistant.Assistant, error) {
	if fault.Is(err, fault.NotFound) {
		return nil, run.ErrNoThread
	}
	if err != nil {
		return nil, err
	}
	if _, ok := s.Graphs.Graph(as.GraphID); !ok {
		return nil, fault.Newf(fault.NotFound, "Graph '%s' not found", as.GraphID)
	}
	return as, nil
}

// threadOf reads the thread of a new run. fresh: there is none, and the request makes it.
func threadOf(tx run.Tx, in insertion) (row *thread.Thread, fresh bool, err error) {
	row, err = tx.Thread(in.thread)
	fresh = fault.Is(err, fault.NotFound)
	switch {
	case err != nil && !fresh:
		return nil, false, err
	case fresh && !in.stateless && in.req.IfNotExists != "create":
		return nil, false, run.ErrNoThread
	case !fresh && in.req.NewThread != nil:
		return nil, false, fault.Newf(fault.Conflict, "Thread with ID %s already exists", in.thread)
	}
	return row, fresh, nil
}

// activeRuns returns the waiting and running runs of a thread: mostly none, which one indexed read shows.
func activeRuns(tx run.Tx, t id.Thread) ([]*run.Run, error) {
	if busy, err := tx.HasActiveRuns(t); err != nil || !busy {
		return nil, err
	}
	return tx.ActiveRuns(t)
}

// creationTime returns now, or a time after the creation of all active runs if one was created later by the clock of another server, which may differ by
// milliseconds. Runs begin in the order in which they were acknowledged; and one that is taken over must not find a younger run before it in the queue,
// which would continue from its state.
func creationTime(active []*run.Run, now time.Time) time.Time {
	for _, other := range active {
		delayed := other.Attempt == 0 && other.CreatedAt.After(other.UpdatedAt) // it is due in the future, by intention
		if !delayed && !now.After(other.CreatedAt) {
			now = other.CreatedAt.Add(time.Microsecond)
		}
	}
	return now
}

// applyStrategy does what the strategy of a new run demands of the active runs of its thread. free: none of them is before it.
func (s *Service) applyStrategy(tx run.Tx, read *settle.Readings, strategy run.Strategy, active []*run.Run, now time.Time, c *created) (free bool, err error) {
	free = true
	action := run.CancelInterrupt
	if strategy == run.Rollback {
		action = run.CancelRollback
	}
	for _, other := range active {
		running := other.Status == run.Running
		if strategy != run.Interrupt && strategy != run.Rollback {
			if running || !other.CreatedAt.After(now) {
				free = false
			}
			continue
		}
		if running {
			free = false
			c.stopped = append(c.stopped, other.ID)
		} else {
			c.ended = append(c.ended, other)
		}
		if err := s.settler.MarkCancelled(tx, read, other, action, now); err != nil {
			return false, err
		}
	}
	return free, nil
}
