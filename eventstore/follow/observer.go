package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
)

// Kind says what happened.
type Kind string

const (
	Started     Kind = "started"     // a run began
	Completed   Kind = "completed"   // a run succeeded
	Interrupted Kind = "interrupted" // a run succeeded and its thread waits for an answer
	Failed      Kind = "failed"      // a run failed, or took too long
	Cancelled   Kind = "cancelled"   // a run that had begun was cancelled, or rolled back
	Changed     Kind = "changed"     // the messages of a thread changed, or it was forked
	Deleted     Kind = "deleted"     // a thread was deleted
)

// Observation is something that happened on a thread.
type Observation struct {
	// Key is the same when an observation is repeated, and of no other one.
	Key    string
	Kind   Kind
	Thread string
	Run    string // "" when it is of no run
	// Seq is the event in the log of the thread, for Changed the last of several in a row; 0 for Deleted.
	Seq int64
	At  time.Time
	// Content and Metadata are those of the event, as GET /threads/{id}/events shows them.
	Content, Metadata json.RawMessage
}

// ObserverStore is the storage of an Observer.
type ObserverStore interface {
	Store
	// Behind returns threads above one, in order of id: those with events behind the offset of a follower that are older than a time, and those with an offset
	// that are deleted.
	Behind(ctx context.Context, follower string, after id.Thread, before time.Time, limit int) ([]id.Thread, error)
	// LastOf returns the seq of the last event of a type in a thread; 0: it has none.
	LastOf(ctx context.Context, t id.Thread, kind string) (eventstore.Seq, error)
	TakeTurn(ctx context.Context, name string, now time.Time, every time.Duration) (next time.Time, mine bool, err error)
}

const (
	batchRows = 100
	// sweepEvery is how often one of the servers looks for what another one that ended has left, and grace how old that must be.
	sweepEvery = time.Minute
	grace      = time.Minute
)

// NewObserver returns the loop of an observer: fn gets every observation at least once, those of a thread in order, and again after an error.
func NewObserver(name string, store ObserverStore, changes *eventstore.Changes, fn func(context.Context, Observation) error, log *slog.Logger) *Loop {
	o := &observer{store: store, fn: fn}
	l := &Loop{Name: "observer:" + name, Store: store, Changes: changes, Log: log, Sync: o.sync, Describe: describer(name)}
	l.SweepBehind(store)
	return l
}

// SweepBehind sets All and Turn for a follower that runs on every server of a database: at the start it finds all that is behind its offsets, afterwards one of the
// servers looks now and then for what another one that ended has left.
func (l *Loop) SweepBehind(store ObserverStore) {
	start := time.Now()
	l.All = func(ctx context.Context, after id.Thread, limit int) ([]id.Thread, error) {
		// Until the end of the first sweep all are those of servers before.
		return store.Behind(ctx, l.Name, after, maxTime(start, time.Now().Add(-grace)), limit)
	}
	l.Turn = func(ctx context.Context) (bool, time.Time, error) {
		next, mine, err := store.TakeTurn(ctx, l.Name, time.Now(), sweepEvery)
		return mine, next, err
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

type observer struct {
	store ObserverStore
	fn    func(context.Context, Observation) error
}

// sync implements Loop.Sync.
func (o *observer) sync(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, _ bool) (changed *eventstore.Offset, more bool, err error) {
	at := eventstore.Offset{Thread: t, Created: created}
	if was != nil && !was.Created.Equal(created) {
		gone := Observation{Key: key(t, was.Created) + "deleted", Kind: Deleted, Thread: string(t), At: time.Now().UTC()}
		if err := o.call(ctx, gone); err != nil {
			return nil, false, err
		}
		changed, was = &at, nil // without Created it is deleted
	}
	if created.IsZero() {
		return changed, false, nil
	}
	if was != nil {
		at = *was
	} else if at.Seq, err = o.first(ctx, t); err != nil {
		return changed, false, err
	}
	before := at.Seq
	more, err = o.events(ctx, &at)
	if at.Seq != before || changed != nil {
		changed = &at
	}
	return changed, more, err
}

// first returns the seq behind which the events of a thread are its own: those of a fork begin with its lineage.
func (o *observer) first(ctx context.Context, t id.Thread) (eventstore.Seq, error) {
	fork, err := o.store.LastOf(ctx, t, eventstore.TypeFork)
	return max(0, fork-1), err
}

// events passes on events behind an offset, and moves it.
func (o *observer) events(ctx context.Context, at *eventstore.Offset) (more bool, err error) {
	rows, err := o.store.Events(ctx, at.Thread, at.Seq, batchRows)
	if err != nil {
		return false, err
	}
	prefix := key(at.Thread, at.Created)
	for i, e := range rows {
		kind := kindOf(e)
		// One is enough for changes in a row.
		if kind == "" || kind == Changed && i+1 < len(rows) && kindOf(rows[i+1]) == Changed {
			if kind == "" {
				at.Seq = e.Seq
			}
			continue
		}
		if err := o.call(ctx, Observation{
			Key: prefix + strconv.FormatInt(int64(e.Seq), 10), Kind: kind, Thread: string(at.Thread), Run: string(e.Run), Seq: int64(e.Seq), At: e.CreatedAt,
			Content: e.Content, Metadata: e.Metadata,
		}); err != nil {
			return false, err
		}
		at.Seq = e.Seq
	}
	return len(rows) == batchRows, nil
}

// key begins the keys of observations of a thread: a later one may have its id.
func key(t id.Thread, created time.Time) string {
	return fmt.Sprintf("%s@%d/", t, created.UnixMicro())
}

// kindOf returns what an event reports; "": nothing.
func kindOf(e *eventstore.Event) Kind {
	switch e.Type {
	case eventstore.TypeRunStart:
		return Started
	case eventstore.TypeRunError:
		return Failed
	case eventstore.TypeRunRollback:
		return Cancelled
	case eventstore.TypeRunEnd:
		switch m := gjson.ParseBytes(e.Metadata); {
		case m.Get("status").Str == "interrupted":
			return Cancelled
		case m.Get("waiting").Bool():
			return Interrupted
		}
		return Completed
	case eventstore.TypeSummarize, eventstore.TypeRemoved, eventstore.TypeFork:
		return Changed
	}
	if e.Category == eventstore.CategoryMessage {
		return Changed
	}
	return ""
}

// programError is an error or a panic of the program's function.
type programError struct{ error }

func (e programError) Unwrap() error { return e.error }

// describer returns Loop.Describe of an observer: errors of the program's function are for who wrote it, others are those of any follower.
func describer(name string) func(error) (string, []any) {
	return func(err error) (string, []any) {
		if !errors.As(err, &programError{}) {
			return "", nil
		}
		return "the function of an observer failed; it gets the event again, and no later one of the thread before it returns nil",
			[]any{"observer", name, "fix", fmt.Sprintf("correct the function passed to Observe(%q, …), or let it return nil for events that it cannot handle", name)}
	}
}

// call calls the program. A panic of it is an error.
func (o *observer) call(ctx context.Context, x Observation) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = programError{fmt.Errorf("%s of event %d: panic: %v\n%s", x.Kind, x.Seq, p, debug.Stack())}
		}
	}()
	if err := o.fn(ctx, x); err != nil {
		return programError{fmt.Errorf("%s of event %d: %w", x.Kind, x.Seq, err)}
	}
	return nil
}
