package service

import (
	"context"

	"understudy/id"
	"understudy/run"
)

// Start is Begin for a run that is to be in the storage.
func (s *Service) Start(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	r, f, err := s.Begin(ctx, t, req)
	if err != nil {
		return nil, nil, err
	}
	if err := f.EnsureDurable(ctx); err != nil {
		f.Close(false)
		return nil, nil, err
	}
	return r, f, nil
}
