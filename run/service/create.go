package service

import (
	"context"
	"errors"
	"strings"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/internal/jsonobj"
	"understudy/internal/limits"
	"understudy/run"
	"understudy/run/compose"
	"understudy/run/cron"
	"understudy/run/execute"
	"understudy/run/settle"
	"understudy/run/stream"
)

var errBusy = fault.New(fault.Conflict, "Thread is already running a task. Wait for it to finish or choose a different multitask strategy.")

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
	threads, assistants, err := s.admitAll(ctx, t, reqs)
	if err != nil {
		return nil, nil, err
	}
	var sub *stream.Subscription // nil: without followers
	if follow {
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
	err = s.settler.Write(ctx, func(tx run.Tx, read *settle.Readings) error {
		s.undo(done) // an attempt
		done, written = done[:0], false
		left := free
		var err error
		if repeated, err = recordOf(tx, key, now); err != nil || repeated != nil {
			return err
		}
		for i := range reqs {
			c, err := s.insert(tx, read, insertion{
				thread: threads[i], assistant: assistants[i], req: &reqs[i], stateless: t == "", mayClaim: left > 0, limited: true,
			})
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

// admit checks a request for a run on the thread t ("": one of its own), and completes it with what ctx carries.
func (s *Service) admit(ctx context.Context, t id.Thread, req *run.Request) error {
	if resume := string(jsonobj.Of(req.Command).Get("resume")); t == "" && resume != "" && resume != "null" {
		return run.ErrStatelessResume
	}
	if err := s.Webhooks.Check(req.Webhook); err != nil {
		return err
	}
	if err := s.checkPush(req.Push); err != nil {
		return err
	}
	if err := errors.Join(limits.Metadata(req.Metadata), limits.Metadata(jsonobj.Of(req.Config).Get("metadata"))); err != nil {
		return err
	}
	compose.Carry(ctx, req)
	return nil
}

// admitAll admits requests, and returns the thread and the assistant of each.
func (s *Service) admitAll(ctx context.Context, t id.Thread, reqs []run.Request) ([]id.Thread, []id.Assistant, error) {
	threads, assistants := make([]id.Thread, len(reqs)), make([]id.Assistant, len(reqs))
	for i := range reqs {
		if err := s.admit(ctx, t, &reqs[i]); err != nil {
			return nil, nil, err
		}
	}
	for i := range reqs {
		var err error
		if assistants[i], err = s.ResolveAssistant(reqs[i].AssistantID); err != nil {
			return nil, nil, err
		}
		if threads[i] = t; t == "" {
			threads[i] = id.NewThread()
		}
	}
	return threads, assistants, nil
}

// CreateIn calls fn in a transaction, in which add makes runs that no client follows; fn may be called again.
func (s *Service) CreateIn(ctx context.Context, fn func(tx run.CronTx, add cron.Add) error) error {
	var made []created
	written := false
	err := s.settler.Write(ctx, func(tx run.Tx, read *settle.Readings) error {
		made = made[:0]
		err := fn(tx, func(t id.Thread, a id.Assistant, stateless bool, req *run.Request) (*run.Run, error) {
			c, err := s.insert(tx, read, insertion{thread: t, assistant: a, req: req, stateless: stateless})
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
	s.executor.AnnounceInterrupted(ctx, c.ended)
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
