// Package loop repeats the steps of background work until a context ends, and waits between attempts.
package loop

import (
	"context"
	"log/slog"
	"time"
)

// longestSleep is the longest sleep of the timer, so that a clock that is set forward is noticed.
const longestSleep = time.Minute

// Loop identifies a background loop in the log.
type Loop struct {
	Name string
	Log  *slog.Logger
	Now  func() time.Time
}

// Run calls step at the start, whenever something arrives on poked, and at the time that step returned (zero: the next poke is early enough). An error of
// step is logged, once a minute while it is the same, and step is called again after a second: the storage may come back, and what waits there is not
// lost meanwhile. The first step that succeeds after one is logged too. Run returns nil when ctx ends.
func (l Loop) Run(ctx context.Context, poked <-chan struct{}, step func(context.Context) (next time.Time, err error)) error {
	var failed failures
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
			failed.log(ctx, l, err)
			next = l.Now().Add(time.Second)
		} else {
			failed.over(ctx, l)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(min(max(0, next.Sub(l.Now())), longestSleep))
		}
	}
}

// Every calls step at an interval until ctx ends. Errors of step are logged.
func (l Loop) Every(ctx context.Context, interval time.Duration, step func(context.Context) error) error {
	var failed failures
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			switch err := step(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				failed.log(ctx, l, err)
			default:
				failed.over(ctx, l)
			}
		}
	}
}

// failures are the last error of a loop that was logged.
type failures struct {
	text          string
	logged, since time.Time // since: of the first failure after a success; zero after a success
}

// failedEvery is the interval between log lines for the same error.
const failedEvery = time.Minute

func (f *failures) log(ctx context.Context, l Loop, err error) {
	now := time.Now()
	if f.since.IsZero() {
		f.since = now
	}
	if text := err.Error(); text != f.text || now.Sub(f.logged) >= failedEvery {
		f.text, f.logged = text, now
		l.Log.ErrorContext(ctx, "background task failed; retrying", "part", l.Name, "error", err)
	}
}

// over logs that a step succeeded after others that failed.
func (f *failures) over(ctx context.Context, l Loop) {
	if f.since.IsZero() {
		return
	}
	l.Log.InfoContext(ctx, "background task succeeds again", "part", l.Name, "after", time.Since(f.since).Round(time.Millisecond).String())
	*f = failures{}
}

// Poke wakes a loop by its channel, which has a capacity of one: several pokes before the next step count as one.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits; false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Repeat calls say after a time, and then at an interval, until the function that it returns is called. That waits for the last call, and may be called again.
func Repeat(first, every time.Duration, say func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for wait := first; Sleep(ctx, wait); wait = every {
			say()
		}
	}()
	return func() { cancel(); <-over }
}
