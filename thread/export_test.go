package thread

import (
	"context"
	"time"
)

// SweepOnce is one sweep.
func (s *Service) SweepOnce(ctx context.Context, until time.Time) error { return s.sweep(ctx, until) }
