package run

import (
	"context"
	"time"
)

// longestSleep bounds how long a loop trusts its timer: a clock that is set forward is noticed within it.
const longestSleep = time.Minute

// loop calls step at the start, whenever it is poked, and at the time that step asked for (zero: a poke will tell). An error of step is
// logged and tried again after a second: the storage may come back, and what waits there is not lost meanwhile. It returns nil when ctx
// ends.
func (s *Service) loop(ctx context.Context, what string, poked <-chan struct{}, step func(context.Context) (time.Time, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poked:
		case <-timer.C:
		}
		next, err := step(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			s.log.ErrorContext(ctx, "cannot go on; trying again", "part", what, "error", err)
			next = s.Now().Add(time.Second)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(min(max(0, next.Sub(s.Now())), longestSleep))
		}
	}
}

// every calls step at an interval until ctx ends.
func (s *Service) every(ctx context.Context, interval time.Duration, what string, step func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := step(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "cannot go on; trying again", "part", what, "error", err)
			}
		}
	}
}
