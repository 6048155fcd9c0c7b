package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
	"understudy/run"
	"understudy/run/completion"
	"understudy/run/compose"
	"understudy/run/cron"
	"understudy/run/execute"
	"understudy/run/settle"
	"understudy/run/stream"
)

var (
	errNoThread = fault.New(fault.NotFound, "Thread or assistant not found.")
	errBusy     = fault.New(fault.Conflict, "Thread is already running a task. Wait for it to finish or choose a different multitask strategy.")
)

// created is what one transaction of create did.
type created struct {
	run     *run.Run   // as clients see it: pending
	claimed *run.Run   // not nil: it was claimed in the same transaction
	ended   []*run.Run // pending runs that the strategy ended
	stopped []id.Run
}

// create is createOnce, tried again when another request with the same key was faster: then that one's runs are stored.
func (s *Service) create(ctx context.Context, t id.Thread, reqs []run.Request, follow bool) ([]*run.Run, *stream.Subscription, error) {
	runs, sub, err := s.createOnce(ctx, t, reqs, follow)
	if errors.Is(err, idempotency.ErrRace) {
		return s.createOnce(ctx, t, reqs, follow)
	}
	return runs, sub, err
}

// createOnce makes runs in one transaction, each with what its multitask strategy demands. A run that can start at once is claimed in the
// same transaction when a job is free. With follow (one run only) the stream is subscribed before anything can be published.
func (s *Service) createOnce(ctx context.Context, t id.Thread, reqs []run.Request, follow bool) ([]*run.Run, *stream.Subscription, error) {
	for i := range reqs {
		if resume := string(jsonobj.Of(reqs[i].Command).Get("resume")); t == "" && resume != "" && resume != "null" {
			return nil, nil, fault.New(fault.Invalid, "You must provide a thread_id when resuming.")
		}
		if err := s.Webhooks.Check(reqs[i].Webhook); err != nil {
			return nil, nil, err
		}
		if err := s.checkPush(reqs[i].Push); err != nil {
			return nil, nil, err
		}
		if err := errors.Join(limits.Metadata(reqs[i].Metadata), limits.Metadata(jsonobj.Of(reqs[i].Config).Get("metadata"))); err != nil {
			return nil, nil, err
		}
		compose.Carry(ctx, &reqs[i])
	}
	assistants := make([]id.Assistant, len(reqs))
	for i, req := range reqs {
		a, err := s.ResolveAssistant(req.AssistantID)
		if err != nil {
			return nil, nil, err
		}
		assistants[i] = a
	}
	threads := make([]id.Thread, len(reqs))
	for i := range threads {
		if threads[i] = t; t == "" {
			threads[i] = id.NewThread()
		}
	}
	var sub *stream.Subscription // nil: without followers
	if follow {
		var err error
		if sub, err = s.followers.SubscribeNew(ctx, threads[0]); err != nil {
			return nil, nil, err
		}
	}
	key, now := reqs[0].Key, s.Now()
	var repeated *idempotency.Record
	free := s.slots.Reserve(len(reqs)) // until it is given back, Run waits for what is launched here
	defer func() { s.slots.Release(free) }()
	var done []created
	written := false
	err := s.settler.Write(ctx, func(tx run.Tx, read *settle.Readings) error {
		s.undo(done) // an attempt
		done, written = done[:0], false
		left := free
		var err error
		if repeated, err = recordOf(tx, key, now); err != nil || repeated != nil {
			return err
		}
		for i := range reqs {
			c, err := s.insert(tx, read, threads[i], assistants[i], t == "", &reqs[i], left > 0, true)
			done = append(done, c)
			if err != nil {
				return err
			}
			if c.claimed != nil {
				left--
			} else if err := sub.MustStartHere(); err != nil {
				return err
			}
		}
		err = storeKey(tx, key, t, done, now)
		written = err == nil
		return err
	})
	if err != nil && !(written && s.happened(ctx, done)) {
		s.undo(done)
		sub.Close()
		return nil, nil, err
	}
	if repeated != nil {
		sub.Close()
		key.Repeated = true
		runs, err := s.repeat(ctx, repeated)
		return runs, nil, err
	}
	sub.Made(done[0].run) // before it can publish
	runs := make([]*run.Run, len(done))
	for i, c := range done {
		runs[i] = c.run
		s.displace(ctx, &c)
		if c.claimed != nil {
			free--
			s.executor.Launch(c.claimed)
		} else {
			s.queue.Queued()
		}
	}
	sub.Started(ctx)
	return runs, sub, nil
}

// CreateIn calls fn in a transaction, in which add makes runs that no client follows; fn may be called again.
func (s *Service) CreateIn(ctx context.Context, fn func(tx run.CronTx, add cron.Add) error) error {
	var made []created
	written := false
	err := s.settler.Write(ctx, func(tx run.Tx, read *settle.Readings) error {
		made = made[:0]
		err := fn(tx, func(t id.Thread, a id.Assistant, stateless bool, req *run.Request) (*run.Run, error) {
			c, err := s.insert(tx, read, t, a, stateless, req, false, false)
			if err != nil {
				return nil, err
			}
			made = append(made, c)
			return c.run, nil
		})
		written = err == nil && len(made) > 0
		return err
	})
	if err != nil && !(written && s.happened(ctx, made)) {
		return err
	}
	for i := range made {
		s.displace(ctx, &made[i])
	}
	if len(made) > 0 {
		s.queue.Queued()
	}
	return nil
}

// happened reports whether runs were created though the answer to the commit was lost. Those that were claimed are then executed here.
func (s *Service) happened(ctx context.Context, made []created) bool {
	ctx, cancel := s.confirming(ctx)
	defer cancel()
	for _, c := range made {
		row, err := run.Confirm(ctx, s.Store, c.run.Thread, c.run.ID)
		if err != nil || row == nil || c.claimed != nil && !c.claimed.SameClaim(row) {
			return false
		}
	}
	return true
}

// confirming is the context in which the outcome of a transaction is looked up: it ends before other servers take its runs over.
func (s *Service) confirming(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.Lease/4)
}

// displace notifies, after the commit, followers of the runs that the strategy of a new run ended, and stops those that are being executed.
func (s *Service) displace(ctx context.Context, c *created) {
	s.sendPush(c.ended)
	s.executor.TellInterrupted(ctx, c.ended)
	s.executor.Stop(c.stopped, execute.ErrCancelled)
}

// undo returns the places of claims that were not committed.
func (s *Service) undo(all []created) {
	for _, c := range all {
		if c.claimed != nil && s.slots.Leave(c.claimed.Graph) {
			s.queue.WakeUp()
		}
	}
}

// ResolveAssistant returns the assistant of an id or of the name of a graph, without looking whether there is one.
func (s *Service) ResolveAssistant(name string) (id.Assistant, error) {
	if _, ok := s.Graphs.Graph(name); ok {
		return id.DefaultAssistant(name), nil
	}
	if canonical := id.Canonical(name); canonical != "" {
		return id.Assistant(canonical), nil
	}
	return "", fault.Newf(fault.Unprocessable, "Invalid assistant: '%s'. Must be either:\n- A valid assistant UUID, or\n- One of the registered graphs: %s", name, strings.Join(s.Graphs.Names(), ", "))
}

// insert writes one run, and claims it when it may start at once. limited: it is refused when its identity has as many as it may.
func (s *Service) insert(tx run.Tx, read *settle.Readings, t id.Thread, a id.Assistant, stateless bool, req *run.Request, mayClaim, limited bool) (created, error) {
	var c created
	run.Expect(tx, func(e run.Expecting) {
		if stateless { // whose thread is made for it
			e.ExpectNew(t)
		} else {
			e.ExpectCreate(t)
		}
	})
	as, err := tx.Assistant(a)
	if fault.Is(err, fault.NotFound) {
		return c, errNoThread
	}
	if err != nil {
		return c, err
	}
	if _, ok := s.Graphs.Graph(as.GraphID); !ok {
		return c, fault.Newf(fault.NotFound, "Graph '%s' not found", as.GraphID)
	}
	temporary := stateless && req.OnCompletion != "keep"
	row, err := tx.Thread(t)
	now := s.Now() // after waiting for the thread: runs are queued in the order in which they got it
	fresh := fault.Is(err, fault.NotFound)
	if err != nil && !fresh {
		return c, err
	}
	if fresh {
		if !stateless && req.IfNotExists != "create" {
			return c, errNoThread
		}
		row = compose.Thread(t, req, temporary, now)
	}
	if req.NewThread != nil {
		if !fresh {
			return c, fault.Newf(fault.Conflict, "Thread with ID %s already exists", t)
		}
		row.TTL = req.NewThread
	}
	var active []*run.Run
	if !fresh { // and mostly there are none, which is quickly seen
		busy, err := tx.HasActiveRuns(t)
		if err == nil && busy {
			active, err = tx.ActiveRuns(t)
		}
		if err != nil {
			return c, err
		}
	}
	if len(active) > 0 && req.Strategy == run.Reject {
		return c, errBusy
	}
	if missing := unasked(askedIn(row.Interrupts), req.Answers); missing != "" { // another run, which is over, has answered meanwhile
		return c, &run.UnknownInterrupt{ID: missing}
	}
	running, ahead := false, false
	for _, other := range active {
		delayed := other.Attempt == 0 && other.CreatedAt.After(other.UpdatedAt) // it is due in the future, by intention
		if !delayed && !now.After(other.CreatedAt) {
			// By the clock of another server, which may differ by milliseconds. Runs begin in the order in which they were acknowledged; and one that is taken over must
			// not find a younger run before it in the queue, which would continue from its state.
			now = other.CreatedAt.Add(time.Microsecond)
		}
	}
	r, err := compose.Run(as, row, req, stateless, temporary, s.ThreadTTL, now) // before anything is written: it may refuse the request
	if err != nil {
		return c, err
	}
	for _, other := range active {
		switch {
		case req.Strategy == run.Interrupt || req.Strategy == run.Rollback:
			action := run.CancelInterrupt
			if req.Strategy == run.Rollback {
				action = run.CancelRollback
			}
			if other.Status == run.Running {
				running = true
				c.stopped = append(c.stopped, other.ID)
			} else {
				c.ended = append(c.ended, other)
			}
			if err := s.settler.MarkCancelled(tx, read, other, action, now); err != nil {
				return c, err
			}
		case other.Status == run.Running:
			running = true
		case !other.CreatedAt.After(now):
			ahead = true
		}
	}
	if err := s.countRun(tx, req, r, &c, limited); err != nil {
		return c, err
	}

	shown := *r
	c.run = &shown
	if mayClaim && !running && !ahead && req.After <= 0 && s.slots.Enter(r.Graph) {
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
	if err := completion.RecordStart(tx, r, now); err != nil {
		return c, err
	}
	return c, nil
}
