package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread/overlay"
)

// followers reads the streams of runs and threads for clients.
type followers struct {
	store      Store
	bridge     bridge.Bridge
	shared     bool // other servers work on the store
	snapshots  Snapshots
	overlay    *overlay.Overlay
	publisher  *publisher
	executions *executions
	watches    *watches
	forms      *forms
	lease      time.Duration
	started    time.Time                                                      // when this server began: what was streamed before only the database has
	cancel     func(context.Context, id.Thread, []id.Run, Action, bool) error // Service.Cancel: cancels a run whose reader left
	log        *slog.Logger
}

// following says how a run is followed.
type following struct {
	modes         []string       // event names without namespace; empty: all
	stored        *bridge.Offset // not nil: what the live stream does not have any more comes from the database, above this offset
	cancelOnLeave bool
	// at is what was seen before, when known; else the first record is taken as it is. Without numbered records it says nothing.
	at    mark
	known bool
	so    reply // folded from the records before the subscription
}

// follow makes a Follower of a subscription that sees the run's end; nil: the run is over.
func (f *followers) follow(ctx context.Context, r *Run, sub bridge.Subscription, how following) *Follower {
	// One reader uses it at a time; ended tells Close whether the client left before the end.
	ended, far := false, false // far: it has ended on another instance, whose stream was not seen
	stop := func() {}
	if sub != nil {
		stop = f.watches.watch(r)
	}
	var seen bridge.Offset
	var completed *whole // nil: the stream loses nothing, or the database does not have it
	if f.shared && sub != nil && r.Kwargs.Resumable && !r.Kwargs.Temporary {
		completed = &whole{f: f, run: r, at: how.at, known: how.known}
	}
	var rest []*bridge.Record // read, but what comes before it is not at hand
	asStream, asResult := f.overlay.Look(ctx, r.Graph, overlay.Stream), f.overlay.Look(ctx, r.Graph, overlay.Wait)
	src := newSource(f.store, r.Thread, r.ID, sub, how.stored)
	read := f.watched(src, r)
	next := func(ctx context.Context) ([]*bridge.Record, error) {
		for !ended {
			if far {
				facts, err := f.facts(ctx, r.Thread, r.ID, seen)
				if err != nil {
					return nil, err
				}
				ended = true
				return slices.DeleteFunc(facts, func(rec *bridge.Record) bool { return rec.Event != "gap" && !matches(rec.Event, how.modes) }), nil
			}
			records := rest
			rest = nil
			if len(records) == 0 {
				var err error
				records, err = read(ctx)
				if errors.Is(err, io.EOF) {
					ended = true
					break
				}
				if err != nil {
					return nil, err
				}
			}
			out := records[:0:0]
			for i, rec := range records {
				if rec.Run != r.ID && (rec.Kind != bridge.Terminal || rec.Run != "") {
					continue
				}
				if completed != nil && rec.Run != "" && rec.Event != elsewhere {
					missing, give, err := completed.admit(ctx, rec)
					if err != nil && len(out) == 0 {
						rest = slices.Clone(records[i:])
						return nil, err
					}
					if err != nil {
						rest = slices.Clone(records[i:])
						return out, nil //nolint:nilerr // it is asked again
					}
					for _, m := range missing {
						seen = m.Offset
						if matches(m.Event, how.modes) {
							out = append(out, m)
						}
					}
					if !give {
						continue
					}
					if rec.Kept {
						seen = rec.Offset
					}
				} else if rec.Kept {
					if !after(rec.Offset, seen) {
						continue // the replay had it
					}
					seen = rec.Offset
				}
				if rec.Kind == bridge.Terminal {
					far = rec.Event == elsewhere
					ended = !far
					break
				}
				if matches(rec.Event, how.modes) {
					out = append(out, rec)
				}
			}
			if len(out) > 0 {
				return out, nil
			}
		}
		return nil, io.EOF
	}
	so := how.so
	result := func(ctx context.Context) (Result, error) {
		for {
			records, err := next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if (errors.Is(err, bridge.ErrSlow) || errors.Is(err, bridge.ErrInterrupted)) && !r.Kwargs.Temporary {
				// The stream lost records, or there are none for a while. Only the end is wanted, and the database has it.
				again, err := f.Join(ctx, r.Thread, r.ID)
				if err != nil {
					return Result{}, err
				}
				defer again.Close(false)
				return again.Result(ctx)
			}
			if err != nil {
				return Result{}, err
			}
			for _, rec := range records {
				so.add(rec)
			}
		}
		if far {
			return f.resultOf(ctx, r, asResult)
		}
		return f.answered(ctx, r, &so, asResult)
	}
	return NewFollower(f.forms.overlaid(r.Thread, always(asStream), next), result, func(left bool) { //nolint:contextcheck // when it is called, the request is over
		src.close()
		stop()
		if left && !ended && how.cancelOnLeave {
			f.cancelAfterLeave(r)
		}
	})
}

// cancelAfterLeave cancels a run whose reader has gone: the request that asked for it is over, so the work has a context of its own.
func (f *followers) cancelAfterLeave(r *Run) {
	err := f.cancel(context.Background(), r.Thread, []id.Run{r.ID}, CancelInterrupt, false)
	if err != nil && !fault.Is(err, fault.NotFound) {
		f.log.Error("cannot cancel a run whose reader left", "run_id", r.ID, "error", err)
	}
}

func after(a, b bridge.Offset) bool { return a.MS > b.MS || a.MS == b.MS && a.N > b.N }

// matches reports whether a reader of some modes gets an event. A mode selects the events of its name in all namespaces, and those below it
// (`messages` selects `messages/partial`); `messages-tuple` is `messages`. No modes select everything.
func matches(event string, modes []string) bool {
	if len(modes) == 0 {
		return true
	}
	base, _, _ := strings.Cut(event, "|")
	family, _, _ := strings.Cut(base, "/")
	return slices.Contains(modes, base) || slices.Contains(modes, family) || family == "messages" && slices.Contains(modes, "messages-tuple")
}

// subscribe subscribes first and reads the run then, so that its end cannot fall between the two. Of a run that is over it needs no
// subscription, and gives none while streams are interrupted; of another it gives the run with bridge.ErrInterrupted then.
func (f *followers) subscribe(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset) (*Run, bridge.Subscription, error) {
	sub, interrupted := f.subscribeRun(ctx, t, r, from)
	if interrupted != nil && !errors.Is(interrupted, bridge.ErrInterrupted) {
		return nil, nil, fmt.Errorf("subscribe: %w", interrupted)
	}
	row, err := f.store.Run(ctx, t, r)
	if err != nil {
		if sub != nil {
			sub.Close()
		}
		if fault.Is(err, fault.NotFound) {
			err = errNoRun
		}
		return nil, nil, err
	}
	here, _ := sub.(*steady)
	if here != nil {
		here.fills = durable(row) && from == nil
	}
	if interrupted == nil {
		return row, sub, nil
	}
	if row.Status.Over() {
		if sub != nil {
			sub.Close()
		}
		return row, nil, nil
	}
	// Of a run that is executed here the records come without Redis. Those before the subscription are in the database, if anywhere.
	if here != nil && (from == nil || !row.Kwargs.Resumable || durable(row)) && here.cross(ctx) {
		return row, sub, nil
	}
	if sub != nil {
		sub.Close()
	}
	return row, nil, fmt.Errorf("subscribe: %w", interrupted)
}

// subscribeRun subscribes to the stream of a thread for one of its runs. With bridge.ErrInterrupted it may also return a
// subscription, which has to cross.
func (f *followers) subscribeRun(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset) (bridge.Subscription, error) {
	if f.publisher.near == nil {
		return f.bridge.Subscribe(ctx, t, from)
	}
	of := f.publisher.near.follow(r) // first, so that everything published from now on is kept
	last := f.publisher.near.lastOf(of)
	sub, err := f.bridge.Subscribe(ctx, t, from)
	if err != nil && !errors.Is(err, bridge.ErrInterrupted) {
		f.publisher.near.unfollow(of)
		return nil, err
	}
	st := f.steady(r, of, sub, last)
	st.head = last
	if sub != nil && from != nil {
		st.seen = *from
	}
	return st, err
}

var errNoRun = fault.New(fault.NotFound, "Run not found")

// JoinStream follows the records of a run; after nil: only what comes from now on. The run is not cancelled when the reader leaves
// unless cancelOnLeave.
func (f *followers) JoinStream(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset, modes []string, cancelOnLeave bool) (*Follower, error) {
	if t == "" { // a stateless run is named by its id alone
		row, err := f.store.Run(ctx, "", r)
		if fault.Is(err, fault.NotFound) {
			return nil, errNoRun
		}
		if err != nil {
			return nil, err
		}
		t = row.Thread
	}
	row, sub, err := f.subscribe(ctx, t, r, from)
	if err != nil {
		return nil, err
	}
	how := following{modes: modes, cancelOnLeave: cancelOnLeave && !row.Status.Over()}
	if row.Status.Over() {
		// An ended run is replayed from the database alone.
		if sub != nil {
			sub.Close()
			sub = nil
		}
		if row.Kwargs.Resumable {
			how.stored = from
		}
		return f.follow(ctx, row, sub, how), nil
	}
	if from != nil && row.Kwargs.Resumable {
		if gap(row, sub, modes) {
			return announce(ctx, row, *from, sub)
		}
		// What an earlier process streamed a bridge in memory knows nothing of, and who reads from the beginning cannot know what a stream has lost.
		if !row.Kwargs.Temporary && (sub.Gap(r) != bridge.NoGap || *from == (bridge.Offset{}) || row.StartedAt.Before(f.started)) {
			f.publisher.flushRecords(ctx)
			how.stored = from
		}
		if f.shared {
			if how.at, how.known, err = f.markOf(ctx, row, *from); err != nil {
				sub.Close()
				return nil, err
			}
			if here, ok := sub.(*steady); ok && durable(row) && how.known {
				here.fills = true
			}
		}
	}
	return f.follow(ctx, row, sub, how), nil
}

// StreamThread follows all runs of a thread; it never ends by itself. A thread that is not there yet is waited for.
func (f *followers) StreamThread(ctx context.Context, t id.Thread, from *bridge.Offset, modes []string) (*Follower, error) {
	sub, err := f.bridge.Subscribe(ctx, t, from)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	src := newSource(f.store, t, "", sub, from)
	all := len(modes) == 0 || slices.Contains(modes, "run_modes")
	lifecycle := slices.Contains(modes, "lifecycle")
	gone := false
	var far []id.Run // ended on other instances
	stop := f.watches.watchThread(t)
	var seen bridge.Offset
	next := func(ctx context.Context) ([]*bridge.Record, error) {
		for !gone {
			var records []*bridge.Record
			var err error
			if len(far) > 0 {
				if records, err = f.facts(ctx, t, far[0], seen); err == nil {
					records, far = append(records, f.publisher.terminal(&Run{ID: far[0]})), far[1:]
				}
			} else {
				records, err = src.next(ctx)
			}
			if err != nil {
				return nil, err
			}
			var out []*bridge.Record
			for _, rec := range records {
				if rec.Event == elsewhere {
					far = append(far, rec.Run)
					continue
				}
				if rec.Kept && !after(rec.Offset, seen) {
					continue
				}
				if rec.Kept {
					seen = rec.Offset
				}
				if rec.Kind == bridge.Terminal && rec.Run == "" {
					gone = true // the thread was deleted
					break
				}
				if rec.Event == stateUpdate && slices.Contains(modes, stateUpdate) || rec.Event != stateUpdate && (all || lifecycle && rec.Event == "metadata") {
					out = append(out, rec)
				}
			}
			if len(out) > 0 {
				return out, nil
			}
		}
		return nil, io.EOF
	}
	// The thread may not be there yet, so which graph it has is asked when something is to be shown. Of ctx only the choice is used then.
	request := ctx
	asStream := func(ctx context.Context) (overlay.Look, error) {
		row, err := f.store.Thread(ctx, t)
		if err != nil {
			return overlay.Look{}, fmt.Errorf("thread %s: %w", t, err)
		}
		return f.overlay.Look(request, jsonobj.Of(row.Metadata).Text("graph_id"), overlay.Stream), nil
	}
	return NewFollower(f.forms.overlaid(t, asStream, next), func(context.Context) (Result, error) { return Result{Values: null}, nil }, func(bool) {
		src.close()
		stop()
	}), nil
}

// stateUpdate is the event, and the mode, that tells of state written by a client.
const stateUpdate = "state_update"

// awaitEnd waits until a run that another instance executes has stopped.
func (f *followers) awaitEnd(ctx context.Context, t id.Thread, r id.Run) error {
	return f.await(ctx, t, r, func(now Status) bool { return now != Running })
}

// await looks a run up until its status is one that is waited for, or the run is gone.
func (f *followers) await(ctx context.Context, t id.Thread, r id.Run, reached func(Status) bool) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		row, err := f.store.Run(ctx, t, r)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		switch {
		case fault.Is(err, fault.Unavailable): // it may come back, and whoever waits has time
		case err != nil:
			return err
		case reached(row.Status):
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
