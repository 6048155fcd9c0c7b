// Package follow keeps what lies outside of the log in step with it: files, or what an embedding program does with events. A follower has an offset in each
// thread, stored in the database, and gets every event at least once, in the order of its thread. It runs behind the writes of runs and cannot delay them.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/loop"
)

// Store is the storage of a Loop, including its offsets.
type Store interface {
	// Events returns the log above a seq, in order.
	Events(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error)
	// Offset returns a follower's offset, nil when there is none, and the time when the thread was created, zero when it
	// was deleted.
	Offset(ctx context.Context, follower string, t id.Thread) (o *eventstore.Offset, created time.Time, err error)
	// PutOffsets stores offsets; one without Created is deleted.
	PutOffsets(ctx context.Context, follower string, offsets []eventstore.Offset) error
}

// Loop synchronizes one follower. All fields are required but Turn, Last, Describe and Gather.
type Loop struct {
	Name    string // of the follower in the table of offsets
	Store   Store
	Changes *eventstore.Changes
	Log     *slog.Logger
	// All returns threads above one, in order of id, to be synchronized by a sweep: at the start, and after more changed than was remembered.
	All func(ctx context.Context, after id.Thread, limit int) ([]id.Thread, error)
	// Sync brings a thread up to date, from the offset was (nil: none) of a thread that was created then (zero: it is deleted). It returns the offset if it
	// changed, also with an error, and whether there is more to do. swept: the thread may have no new events.
	Sync func(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, swept bool) (changed *eventstore.Offset, more bool, err error)
	// Turn reports whether it is time to sweep again, and when to ask the next time; nil: never.
	Turn func(ctx context.Context) (mine bool, next time.Time, err error)
	// Last reports that changes are synchronized at the end of Run too.
	Last bool
	// Describe returns what the log says of an error of Sync, with more attributes; "": what it says of all followers. nil: the same.
	Describe func(err error) (message string, attrs []any)
	// Gather is how long changes wait for others before they are synchronized.
	Gather time.Duration

	// sweep is the thread after which the sweep continues.
	sweep    id.Thread
	sweeping bool
}

// roundThreads is how many threads are synchronized before Run checks for its end, and lastTime how long it may take then.
const (
	roundThreads = 64
	lastTime     = 5 * time.Second
)

// Run synchronizes until ctx ends: every thread of All at the start, afterwards those that change. What fails is logged and retried.
func (l *Loop) Run(ctx context.Context) error {
	l.sweeping = true
	wait := loop.NewBackoff(time.Second, time.Minute)
	turn := time.NewTimer(0)
	if l.Turn == nil {
		turn.Stop()
	}
	defer turn.Stop()
	for {
		idle, err := l.round(ctx)
		switch {
		case ctx.Err() != nil:
			return l.last(ctx)
		case err != nil:
			pause := wait.Next()
			l.logFailure(ctx, pause, err)
			loop.Sleep(ctx, pause)
			continue
		}
		wait.Reset()
		if !idle {
			continue
		}
		select {
		case <-l.Changes.Wake():
			if l.Gather > 0 {
				loop.Sleep(ctx, l.Gather)
			}
		case <-turn.C:
			mine, next, err := l.Turn(ctx)
			if err != nil {
				next = time.Now().Add(time.Minute)
			}
			l.sweep, l.sweeping = "", mine
			turn.Reset(min(max(time.Second, time.Until(next)), time.Minute))
		case <-ctx.Done():
		}
	}
}

// logFailure logs an error, and when it is tried again.
func (l *Loop) logFailure(ctx context.Context, pause time.Duration, err error) {
	message, attrs := "", []any(nil)
	if l.Describe != nil {
		message, attrs = l.Describe(err)
	}
	if message == "" {
		message, attrs = "follower of the log failed; retrying", []any{"follower", l.Name}
	}
	l.Log.ErrorContext(ctx, message, append(attrs, "in", pause.Round(time.Millisecond).String(), "error", err)...)
}

// last synchronizes the changes up to now. The rest is found at the next start.
func (l *Loop) last(ctx context.Context) error {
	if !l.Last {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	l.sweeping = false
	for {
		idle, err := l.round(ctx)
		if err != nil {
			return fmt.Errorf("follower %s of the log: %w", l.Name, err)
		}
		if idle || l.sweeping {
			return nil
		}
	}
}

// round handles some threads. idle reports that there are no more.
func (l *Loop) round(ctx context.Context) (idle bool, err error) {
	threads, missed := l.Changes.Take(roundThreads)
	if missed {
		l.sweep, l.sweeping = "", true
	}
	if err := l.syncAll(ctx, threads, false); err != nil {
		return false, err
	}
	if !l.sweeping {
		return len(threads) == 0, nil
	}
	page, err := l.All(ctx, l.sweep, roundThreads)
	if err != nil {
		return false, err
	}
	if err := l.syncAll(ctx, page, true); err != nil {
		return false, err
	}
	if len(page) == 0 {
		l.sweeping = false
	} else {
		l.sweep = page[len(page)-1]
	}
	return false, nil
}

// syncAll brings threads up to date and stores the offsets. Failed threads are retried.
func (l *Loop) syncAll(ctx context.Context, threads []id.Thread, swept bool) error {
	var offsets []eventstore.Offset
	var again []id.Thread
	var errs []error
	for _, t := range threads {
		was, created, err := l.Store.Offset(ctx, l.Name, t)
		var o *eventstore.Offset
		more := false
		if err == nil {
			o, more, err = l.Sync(ctx, t, was, created, swept)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("thread %s: %w", t, err))
		}
		if err != nil || more {
			again = append(again, t)
		}
		if o != nil {
			offsets = append(offsets, *o)
		}
	}
	if len(offsets) > 0 {
		// Also when the context has ended meanwhile: what is done is not repeated.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
		if err := l.Store.PutOffsets(limited, l.Name, offsets); err != nil {
			errs, again = append(errs, err), threads
		}
		cancel()
	}
	if len(again) > 0 {
		l.Changes.Add(again)
	}
	return errors.Join(errs...)
}
