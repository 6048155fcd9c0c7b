package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
)

// StreamEvents follows all runs of a thread, from its first record that is kept, as events of the protocol for event streaming. It never ends by itself, and
// waits for a thread that does not exist yet. Records have the whole frame of their event, with its id.
func (f *Followers) StreamEvents(ctx context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error) {
	var start bridge.Offset
	sub, err := f.Bridge.Subscribe(ctx, t, &start)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if sub.Gap("") != bridge.NoGap {
		f.Publisher.FlushRecords(ctx) // what the live stream has dropped must be found in the database
	}
	ef := &eventFollower{request: ctx, looks: map[string]overlay.Look{}, open: map[id.Run]*openRun{}, opened: time.Now()}
	ef.threadFollower = threadFollower{
		f: f, thread: t, src: newSource(f.Store, t, "", sub, &start), stop: f.Watches.watchThread(t), places: map[id.Run]place{}, all: true, durableEnds: true, replaying: true,
	}
	ef.projection = protocol.New(ef, filter)
	f.rotations.add(ef)
	return ef, nil
}

// eventFollower follows a thread as events.
type eventFollower struct {
	threadFollower
	projection *protocol.Projection
	request    context.Context // of the request: of it only the choice of the overlay is used
	looks      map[string]overlay.Look
	read       []*bridge.Record // what may be missing before them has not been looked up
	ready      []*bridge.Record // complete, and not projected yet
	open       map[id.Run]*openRun
	look       time.Time // when to look whether a run is over whose end has not come; zero: not

	opened time.Time
	until  atomic.Int64     // when it may be taken not to be replaced any more, in ns
	waited bool             // it may send
	held   []*bridge.Record // events that wait for it
}

// openRun is a run whose end has not come.
type openRun struct {
	row   *run.Run // as it was at its first record, until the projection has it; nil then, and when it was deleted
	whole *whole   // nil: nothing can be missing
}

// A client that has started a run opens a stream, and for each subscription a wider one in place of it. Events that both send come by the narrow one first, and
// so before earlier ones that only the wide one has. For a run that began up to recentRun before its stream was opened, the stream waits until rotation has
// passed since it, or the last stream of the thread, was opened: if it is to be replaced, it is closed by then. The wider one does not wait.
const (
	recentRun = time.Second
	rotation  = 100 * time.Millisecond
)

// rotations are the streams of events that are open on this server, by thread.
type rotations struct {
	mu   sync.Mutex
	open map[id.Thread][]*eventFollower
}

// add notes a stream. It replaces those that are waiting, which continue to wait.
func (r *rotations) add(ef *eventFollower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := ef.opened.Add(rotation)
	ef.until.Store(until.UnixNano())
	for _, other := range r.open[ef.thread] {
		if ef.opened.UnixNano() < other.until.Load() && until.Sub(other.opened) < recentRun {
			other.until.Store(until.UnixNano())
			ef.waited = true
		}
	}
	if r.open == nil {
		r.open = map[id.Thread][]*eventFollower{}
	}
	r.open[ef.thread] = append(r.open[ef.thread], ef)
}

func (r *rotations) remove(ef *eventFollower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(r.open[ef.thread], func(other *eventFollower) bool { return other == ef })
	if r.open[ef.thread] = left; len(left) == 0 {
		delete(r.open, ef.thread)
	}
}

// Close implements Follower.
func (ef *eventFollower) Close(left bool) {
	ef.f.rotations.remove(ef)
	ef.threadFollower.Close(left)
}

// Next implements Follower.
func (ef *eventFollower) Next(ctx context.Context) ([]*bridge.Record, error) {
	if ef.held == nil {
		events, err := ef.events(ctx)
		if err != nil || ef.waited || !ef.recent(events) {
			return framed(events), err
		}
		ef.waited, ef.held = true, framed(events)
	}
	for wait := ef.waits(); wait > 0; wait = ef.waits() {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	out := ef.held
	ef.held = nil
	return out, nil
}

// waits is how long the stream has to wait.
func (ef *eventFollower) waits() time.Duration { return time.Until(time.Unix(0, ef.until.Load())) }

// recent reports whether events are of a run that began shortly before the stream was opened.
func (ef *eventFollower) recent(events []protocol.Event) bool {
	if ef.waited = ef.waits() <= 0; ef.waited || len(events) == 0 {
		return false
	}
	began := time.UnixMicro(events[len(events)-1].Seq) // within milliseconds
	return began.Before(ef.opened) && ef.opened.Sub(began) < recentRun
}

// events returns the next events.
func (ef *eventFollower) events(ctx context.Context) ([]protocol.Event, error) {
	for {
		if len(ef.read) == 0 && len(ef.ready) == 0 {
			events, err := ef.await(ctx)
			if errors.Is(err, bridge.ErrSlow) {
				// On this wire no event says so: the connection breaks, and its client comes again.
				err = fmt.Errorf("%w: the reader fell too far behind", bridge.ErrInterrupted)
			}
			if err != nil || len(events) > 0 {
				return events, err
			}
		}
		events, err := ef.project(ctx)
		if len(events) > 0 {
			return events, nil // after an error the rest is projected again
		}
		if err != nil {
			return nil, err
		}
	}
}

// replayQuiet is how long after a replay a run that is over is given to end by its records.
const replayQuiet = time.Second

// await reads the next records. When none come for a while it returns the events of ends that are not recorded.
func (ef *eventFollower) await(ctx context.Context) ([]protocol.Event, error) {
	limited, cancel := ctx, func() {}
	if !ef.look.IsZero() && (ef.projection.Open() || ef.f.Watches != nil) {
		limited, cancel = context.WithDeadlineCause(ctx, ef.look, errQuiet)
	}
	records, err := ef.next(limited)
	cancel()
	switch {
	case errors.Is(err, errReplayed):
		// The end of a run may be missing among what is kept. If it ended after the subscription began, its records are about to come.
		ef.look = time.Now().Add(replayQuiet)
		return nil, nil
	case errors.Is(err, errQuiet) && ctx.Err() == nil:
		return ef.overdue(ctx)
	case err != nil:
		return nil, err
	}
	if ef.read = records; !ef.look.IsZero() {
		ef.look = time.Now().Add(ef.f.Lease / 2)
	}
	return nil, nil
}

// overdue ends runs that are over although no record says so: the server that executed them died, or could not write it. Before, it reads what the database
// has of them, and where streams are not shared, of runs that other servers execute.
func (ef *eventFollower) overdue(ctx context.Context) ([]protocol.Event, error) {
	over, err := ef.projection.Overdue(ctx)
	if err != nil {
		return nil, err
	}
	if over || ef.f.Watches != nil {
		const page = 1000
		records, err := ef.f.Store.Records(ctx, ef.thread, ef.seen, page)
		if err != nil {
			return nil, fmt.Errorf("replay thread %s: %w", ef.thread, err)
		}
		for _, rec := range records {
			if rec.Kept = true; ef.isNew(rec) {
				ef.read = append(ef.read, rec)
			}
		}
		if len(ef.read) > 0 {
			return nil, nil
		}
	}
	events, err := ef.projection.Settle(ctx)
	if err != nil {
		return nil, err
	}
	if ef.look = (time.Time{}); ef.f.Shared {
		ef.look = time.Now().Add(ef.f.Lease / 2)
	}
	return events, nil
}

// eventsAtOnce bounds the events of one call: those of a page of records may be many times its size.
const eventsAtOnce = 256

// project projects records that were read.
func (ef *eventFollower) project(ctx context.Context) (out []protocol.Event, err error) {
	for len(out) < eventsAtOnce {
		if len(ef.ready) == 0 {
			if len(ef.read) == 0 {
				return out, nil
			}
			if err := ef.complete(ctx, ef.read[0]); err != nil {
				return out, err
			}
			ef.read = ef.read[1:]
			continue
		}
		rec := ef.ready[0]
		events, err := ef.projection.Add(ctx, rec)
		if err != nil {
			return out, err
		}
		if ef.ready = ef.ready[1:]; rec.Kind == bridge.Terminal {
			delete(ef.open, rec.Run)
		}
		out = append(out, events...)
	}
	return out, nil
}

// complete makes a record ready, and before it what the live stream does not have: records that were missing would change the numbers of all that follow.
func (ef *eventFollower) complete(ctx context.Context, rec *bridge.Record) error {
	o := ef.open[rec.Run]
	if o == nil && ef.f.Shared && rec.Run != "" && rec.Kept {
		o = &openRun{}
		row, err := ef.f.Store.Run(ctx, ef.thread, rec.Run)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err == nil && row.Durable() {
			o.row, o.whole = row, &whole{f: ef.f, run: row, durable: true, known: true}
		}
		ef.open[rec.Run] = o
	}
	if o == nil || o.whole == nil {
		ef.ready = append(ef.ready[:0], rec)
		return nil
	}
	missing, give, err := o.whole.admit(ctx, rec)
	if err != nil {
		return err
	}
	if ef.ready = append(ef.ready[:0], missing...); give {
		ef.ready = append(ef.ready, rec)
	}
	return nil
}

// Run implements protocol.Source.
func (ef *eventFollower) Run(ctx context.Context, r id.Run) (*run.Run, error) {
	if o := ef.open[r]; o != nil && o.row != nil {
		row := o.row
		o.row = nil // later it may have ended
		return row, nil
	}
	return ef.f.Store.Run(ctx, ef.thread, r)
}

// Show implements protocol.Source.
func (ef *eventFollower) Show(ctx context.Context, r *run.Run, rec *bridge.Record) (*bridge.Record, error) {
	if ef.f.Overlay == nil || !overlays(rec) && !rec.Summarizer {
		return rec, nil
	}
	look, ok := ef.looks[r.Graph]
	if !ok {
		look = ef.f.Overlay.Look(ef.request, r.Graph, overlay.Stream)
		ef.looks[r.Graph] = look
	}
	if rec.Summarizer && look.On {
		return nil, nil
	}
	return ef.f.forms.shown(ctx, ef.thread, rec, look)
}

// framed returns events as records with their frames.
func framed(events []protocol.Event) []*bridge.Record {
	out := make([]*bridge.Record, len(events))
	for i, e := range events {
		b := append(make([]byte, 0, len(e.Data)+len(e.Method)+48), "event: "...)
		b = append(append(append(b, e.Method...), "\r\ndata: "...), e.Data...)
		b = strconv.AppendInt(append(b, "\r\nid: "...), e.Seq, 10)
		out[i] = &bridge.Record{Event: e.Method, Data: e.Data, Ephemeral: true, Frame: append(b, "\r\n"...)}
	}
	return out
}
