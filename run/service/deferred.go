package service

import (
	"context"

	"understudy/id"
	"understudy/run"
	"understudy/run/compose"
	"understudy/run/execute"
)

// deferredFollower follows a deferred run.
type deferredFollower struct {
	run.Follower
	deferred *execute.DeferredRun
}

// EnsureDurable implements Follower.
func (f *deferredFollower) EnsureDurable(ctx context.Context) error { return f.deferred.Settle(ctx) }

// mayDefer reports whether a request is for a run that need not be written at once.
func (s *Service) mayDefer(t id.Thread, req *run.Request) bool {
	return s.identityOf(req) == "" && t == "" && req.Key == nil && req.OnCompletion != "keep" && req.Webhook == "" && req.After <= 0 && !req.Resumable && len(req.Command) == 0
}

// startDeferred starts a run without writing it. ok is false when it cannot start at once and must be queued.
func (s *Service) startDeferred(ctx context.Context, req *run.Request) (r *run.Run, f run.Follower, ok bool, err error) {
	if err := s.admit(ctx, "", req); err != nil {
		return nil, nil, false, err
	}
	a, err := s.ResolveAssistant(req.AssistantID)
	if err != nil {
		return nil, nil, false, err
	}
	if !s.slots.ReserveSoon(ctx) {
		return nil, nil, false, nil
	}
	started, entered := false, ""
	defer func() {
		if started {
			return
		}
		if s.slots.Leave(entered) {
			s.queue.WakeUp()
		}
		s.slots.Release(1)
	}()
	as, err := s.servedHere(s.Store.Assistant(ctx, a))
	if err != nil {
		return nil, nil, false, err
	}
	if s.Elsewhere(as.GraphID) || !s.slots.Enter(as.GraphID) {
		return nil, nil, false, nil
	}
	entered = as.GraphID
	now := s.Now()
	row := compose.Thread(id.NewThread(), req, true, now)
	claimed, err := compose.Run(as, row, req, true, true, s.ThreadTTL, now)
	if err != nil {
		return nil, nil, false, err
	}
	shown := *claimed
	s.queue.Claim(claimed, row, now)
	stream, err := s.publisher.DeferStream(ctx, row.ID)
	if err != nil {
		return nil, nil, false, err
	}
	started = true
	d := s.executor.LaunchDeferred(claimed, row, stream)
	return &shown, &deferredFollower{s.followers.FollowDeferred(ctx, &shown, stream, req.OnDisconnect == "cancel"), d}, true, nil
}
