package service

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/thread"
)

// StreamEvents follows all runs of a thread as events of event streaming; it never ends by itself. A thread that does not exist yet is waited for.
func (s *Service) StreamEvents(ctx context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error) {
	return s.followers.StreamEvents(ctx, t, filter)
}

// FollowEvents is StreamEvents for several filters, for a connection that frames events itself.
func (s *Service) FollowEvents(ctx context.Context, t id.Thread, filters ...protocol.Filter) (protocol.Follower, error) {
	return s.followers.FollowEvents(ctx, t, filters...)
}

// seenRuns is how many runs of a thread are looked at for one that has ended: more than that do not wait.
const seenRuns = 100

// Seen returns the seq up to which the events of a thread are of runs that have ended; 0: none has. Events of runs that are made later have higher ones.
func (s *Service) Seen(ctx context.Context, t id.Thread) (int64, error) {
	runs, err := s.Store.Runs(ctx, t, run.Query{Limit: seenRuns})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return 0, err
	}
	for _, r := range runs { // the newest first
		if r.Status.Over() && !r.StartedAt.IsZero() {
			return r.EndedAt.UnixMicro(), nil
		}
	}
	return 0, nil
}

// resumes bounds how often an input is offered as an answer to interrupts that others answer at the same time.
const resumes = 3

// StartOrResume creates a run. On a thread that waits at interrupts, also at those that it has only shown yet, its input is the answer to them. A thread that is
// busy otherwise is not waited for: the strategy of the run says what happens.
func (s *Service) StartOrResume(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	defer s.followers.Starting(t)()
	if req.Input == nil || req.CheckpointID != "" {
		return s.Create(ctx, t, req)
	}
	for try := 1; ; try++ {
		row, err := s.settled(ctx, t)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err != nil || !row.Waits() {
			return s.Create(ctx, t, req)
		}
		command, answer := &jsonobj.Object{}, req
		command.Set("resume", req.Input)
		answer.Command, answer.Input = command.JSON(), nil
		if try < resumes {
			for _, name := range askedIn(row.Interrupts) {
				answer.Answers = append(answer.Answers, run.Response{Interrupt: name})
			}
			answer.Strategy = run.Reject // another run answers them, or has
		}
		r, err := s.Create(ctx, t, answer)
		unknown := (*run.UnknownInterrupt)(nil)
		if try == resumes || !errors.Is(err, errBusy) && !errors.As(err, &unknown) {
			return r, err
		}
	}
}

// Fork creates a run from a checkpoint of a thread, for the assistant of the thread. Errors: run.ErrNoRun, *run.UnknownCheckpoint.
func (s *Service) Fork(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	defer s.followers.Starting(t)()
	row, err := s.Store.Thread(ctx, t)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	if err == nil {
		req.AssistantID = assistantOf(row)
	}
	if req.AssistantID == "" {
		return nil, run.ErrNoRun
	}
	at, err := s.Store.LoadCheckpoint(ctx, checkpointer.Key{Thread: t, ID: req.CheckpointID})
	if err != nil {
		return nil, err
	}
	if at == nil {
		return nil, &run.UnknownCheckpoint{ID: req.CheckpointID}
	}
	return s.Create(ctx, t, req)
}

// Inject creates a run whose input is a message, for the assistant of the thread unless it names one: on a busy thread behind its current run, which does not
// stop. check refuses assistants whose graphs take no messages. Errors: run.ErrNoRun, run.ErrAsks.
func (s *Service) Inject(ctx context.Context, t id.Thread, req run.Request, check func(id.Assistant) error) (*run.Run, error) {
	defer s.followers.Starting(t)()
	row, err := s.settled(ctx, t)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	if err != nil {
		if req.AssistantID != "" {
			return nil, run.ErrNoThread
		}
		return nil, run.ErrNoRun
	}
	if req.AssistantID == "" {
		req.AssistantID = assistantOf(row)
	}
	if req.AssistantID == "" {
		return nil, run.ErrNoRun
	}
	if row.Waits() {
		return nil, run.ErrAsks
	}
	a, err := s.ResolveAssistant(req.AssistantID)
	if err == nil {
		err = check(a)
	}
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, t, req)
}

// assistantOf returns the assistant of the last run of a thread; "" when there was none.
func assistantOf(row *thread.Thread) string { return jsonobj.Of(row.Metadata).Text("assistant_id") }

// Clients see an interrupt in a stream before the end of its run is committed, and only then the row of the thread has it. Who acts on interrupts waits for that
// end, polling from settlePoll, for up to settlePatience.
const (
	settlePoll     = 5 * time.Millisecond
	settlePollMax  = 100 * time.Millisecond
	settlePatience = 5 * time.Second
)

// settled returns a thread as clients have seen it: when its run has shown an interrupt, as it is after the end of that run.
func (s *Service) settled(ctx context.Context, t id.Thread) (*thread.Thread, error) {
	began := time.Now()
	for wait := loop.NewBackoff(settlePoll, settlePollMax); ; {
		row, err := s.Store.Thread(ctx, t)
		if err != nil || row.Status != thread.Busy || time.Since(began) > settlePatience {
			return row, err
		}
		if asks, _, err := s.asks(ctx, t); err != nil {
			return nil, err
		} else if len(asks) == 0 {
			return s.Store.Thread(ctx, t) // again: the run may have shown an interrupt and ended after the row was read
		}
		if !wait.Sleep(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// asks returns the interrupts that the current run of a thread has shown. sure is false while there may be others: no run is executed, or one on a server whose
// streams are not to be had here.
func (s *Service) asks(ctx context.Context, t id.Thread) (names []string, sure bool, err error) {
	active, err := s.Store.ActiveRuns(ctx, t)
	if err != nil {
		return nil, false, err
	}
	for _, r := range active {
		if r.Status != run.Running {
			continue
		}
		if a := s.executions.Attempt(r.ID); a != nil {
			return a.Asks(), true, nil
		}
		names, err := s.followers.Asks(ctx, r)
		return names, s.watches == nil && r.Durable(), err
	}
	return nil, false, nil
}

// Respond creates the run that resumes a thread with answers to its interrupts, all or none. Of two answers to one interrupt the second is refused, with
// *run.UnknownInterrupt. run.ErrNotInterrupted: the thread has had no run.
func (s *Service) Respond(ctx context.Context, t id.Thread, req run.Request, responses []run.Response) (*run.Run, error) {
	defer s.followers.Starting(t)()
	command, resume := jsonobj.Of(req.Command), &jsonobj.Object{}
	for _, r := range responses {
		resume.Set(r.Interrupt, r.Value)
	}
	command.Set("resume", resume.JSON())
	req.Command, req.Answers = command.JSON(), responses
	req.Strategy = run.Reject // another run has consumed the interrupts, or is about to
	began := time.Now()
	for wait := loop.NewBackoff(settlePoll, settlePollMax); ; {
		row, err := s.Store.Thread(ctx, t)
		if fault.Is(err, fault.NotFound) {
			return nil, run.ErrNotInterrupted
		}
		if err != nil {
			return nil, err
		}
		if req.AssistantID = assistantOf(row); req.AssistantID == "" {
			return nil, run.ErrNotInterrupted
		}
		if row.Status != thread.Busy { // else the row has the interrupts of the run before
			if missing := unasked(askedIn(row.Interrupts), responses); missing != "" {
				return nil, &run.UnknownInterrupt{ID: missing}
			}
			if r, err := s.Create(ctx, t, req); !errors.Is(err, errBusy) {
				return r, err
			}
		} else if names, sure, err := s.asks(ctx, t); err != nil {
			return nil, err
		} else if missing := unasked(names, responses); sure && missing != "" {
			return nil, &run.UnknownInterrupt{ID: missing}
		}
		if time.Since(began) > settlePatience {
			return nil, &run.UnknownInterrupt{ID: responses[0].Interrupt}
		}
		if !wait.Sleep(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// askedIn returns the ids of the interrupts of a thread: {task: [{id, value}]}.
func askedIn(interrupts json.RawMessage) (names []string) {
	jsonscan.Each(interrupts, func(_ []byte, start, end int) bool {
		items, _ := jsonscan.Elements(interrupts[start:end])
		for _, item := range items {
			names = append(names, jsonscan.Text(item, "id"))
		}
		return true
	})
	return names
}

// unasked returns the id of the first response whose interrupt is not among some; "" when all are.
func unasked(names []string, responses []run.Response) string {
	for _, r := range responses {
		if !slices.Contains(names, r.Interrupt) {
			return r.Interrupt
		}
	}
	return ""
}
