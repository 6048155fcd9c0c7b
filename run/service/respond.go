package service

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
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

// StartOrResume creates a run. On a thread that waits at interrupts its input is the answer to them.
func (s *Service) StartOrResume(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	if req.Input != nil && req.CheckpointID == "" {
		row, err := s.Store.Thread(ctx, t)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if err == nil && row.Status == thread.Interrupted && len(row.Interrupts) > len("{}") {
			command := &jsonobj.Object{}
			command.Set("resume", req.Input)
			req.Command, req.Input = command.JSON(), nil
		}
	}
	return s.Create(ctx, t, req)
}

// settlePatience is how long an answer waits for the interrupt: clients see it in a stream before the end of its run is committed.
const settlePatience = 5 * time.Second

// Respond creates the run that resumes a thread with answers to its interrupts, all or none. Of two answers to one interrupt the second is refused, with
// *run.UnknownInterrupt. run.ErrNotInterrupted: the thread has had no run.
func (s *Service) Respond(ctx context.Context, t id.Thread, req run.Request, responses []run.Response) (*run.Run, error) {
	command, resume := jsonobj.Of(req.Command), &jsonobj.Object{}
	for _, r := range responses {
		resume.Set(r.Interrupt, r.Value)
	}
	command.Set("resume", resume.JSON())
	req.Command, req.Answers = command.JSON(), responses
	req.Strategy = run.Reject // another run has consumed the interrupts, or is about to
	began := time.Now()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		row, err := s.Store.Thread(ctx, t)
		if fault.Is(err, fault.NotFound) {
			return nil, run.ErrNotInterrupted
		}
		if err != nil {
			return nil, err
		}
		if req.AssistantID = jsonobj.Of(row.Metadata).Text("assistant_id"); req.AssistantID == "" {
			return nil, run.ErrNotInterrupted
		}
		if row.Status != thread.Busy { // else the row has the interrupts of the run before
			if missing := unasked(row.Interrupts, responses); missing != "" {
				return nil, &run.UnknownInterrupt{ID: missing}
			}
			if r, err := s.Create(ctx, t, req); !errors.Is(err, errBusy) {
				return r, err
			}
		}
		if time.Since(began) > settlePatience {
			return nil, &run.UnknownInterrupt{ID: responses[0].Interrupt}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unasked returns the id of the first response whose interrupt is not among those of a thread; "" when all are. interrupts: {task: [{id, value}]}.
func unasked(interrupts json.RawMessage, responses []run.Response) string {
	asked := map[string]bool{}
	jsonscan.Each(interrupts, func(_ []byte, start, end int) bool {
		items, _ := jsonscan.Elements(interrupts[start:end])
		for _, item := range items {
			asked[jsonscan.Text(item, "id")] = true
		}
		return true
	})
	for _, r := range responses {
		if !asked[r.Interrupt] {
			return r.Interrupt
		}
	}
	return ""
}
