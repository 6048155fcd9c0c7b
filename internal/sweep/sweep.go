// Package sweep does again and again what one instance at a time has to do, on all that share a database.
package sweep

import (
	"context"
	"log/slog"
	"time"

	"understudy/internal/diskspace"
)

// Turns are what instances agree by.
type Turns interface {
	// TakeTurn takes the next turn of doing what name says, if the last was taken more than every ago, by whichever instance. next is when it
	// is time again.
	TakeTurn(ctx context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error)
}

// Loop describes background work.
type Loop struct {
	Turns Turns
	Name  string
	Every time.Duration
	Log   *slog.Logger
	Now   func() time.Time
	// Do does the work. It returns before until, when another server may begin.
	Do func(ctx context.Context, until time.Time) error
}

// longestSleep is the longest sleep of the timer, so that a clock that is set forward is noticed.
const longestSleep = time.Minute

// Run calls Do until ctx ends, the first time at once if it is due. Errors are logged and retried: at the next turn if this one was taken, else
// soon.
func (l *Loop) Run(ctx context.Context) error {
	ctx = diskspace.WithReserve(ctx) // what is swept away is deleted
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		next, mine, err := l.Turns.TakeTurn(ctx, l.Name, l.Now(), l.Every)
		if err != nil {
			next = l.Now().Add(min(l.Every, 10*time.Second))
		} else if mine {
			err = l.Do(ctx, next)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			l.Log.ErrorContext(ctx, "sweep failed; retrying", "what", l.Name, "error", err)
		}
		timer.Reset(min(max(0, next.Sub(l.Now())), longestSleep))
	}
}
