package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
)

// FollowEvents follows all runs of a thread, from its first record that is kept, as events of the protocol for event streaming, as long as the thread exists. It
// waits for a thread that does not exist yet.
func (f *Followers) FollowEvents(ctx context.Context, t id.Thread, filters ...protocol.Filter) (protocol.Follower, error) {
	er, err := f.readEvents(ctx, t, filters...)
	if err != nil {
		return nil, err // not a nil *eventReader
	}
	return er, nil
}

// StreamEvents is FollowEvents for one filter and server-sent events: records have the whole frame of their event, with its id.
func (f *Followers) StreamEvents(ctx context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error) {
	er, err := f.readEvents(ctx, t, filter)
	if err != nil {
		return nil, err
	}
	ef := &eventFollower{eventReader: er, opened: time.Now(), free: make(chan struct{})}
	f.rotations.add(ef)
	return ef, nil
}

func (f *Followers) readEvents(ctx context.Context, t id.Thread, filters ...protocol.Filter) (*eventReader, error) {
	var start bridge.Offset
	sub, err := f.Bridge.Subscribe(ctx, t, &start)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if sub.Gap("") != bridge.NoGap {
		f.Publisher.FlushRecords(ctx, 0, nil) // what the live stream has dropped must be found in the database
	}
	er := &eventReader{request: ctx, looks: map[string]overlay.Look{}, open: map[id.Run]*openRun{}}
	er.threadFollower = threadFollower{
		f: f, thread: t, members: membersOf(ctx, f, t), src: newSource(f.Store, t, "", sub, &start), stop: f.Watches.watchThread(t), ordinals: map[id.Run]ordinal{}, all: true, durableEnds: true, replaying: true,
	}
	// Now, and not when the reader comes: runs that begin by then are in the live stream, where those that are not kept have their place between the others.
	if err := er.src.page(ctx); err != nil {
		er.Close()
		return nil, err
	}
	er.projection = protocol.New(er, filters...)
	if len(filters) > 0 && filters[0].Resume {
		er.since = filters[0].Since
		er.projection.Await(er.since)
	}
	return er, nil
}

// Asks returns the interrupts that a run has shown, as far as its records are to be had here.
func (f *Followers) Asks(ctx context.Context, r *run.Run) (names []string, err error) {
	er, err := f.readEvents(ctx, r.Thread)
	if err != nil {
		return nil, err
	}
	defer er.Close()
	for er.replaying {
		records, err := er.next(ctx)
		if errors.Is(err, errReplayed) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range records {
			if rec.Run == r.ID {
				names = append(names, protocol.Asks(rec)...)
			}
		}
	}
	return names, nil
}

// eventReader reads a thread as events.
type eventReader struct {
	threadFollower
	projection *protocol.Projection
	request    context.Context // of the request: of it only the choice of the overlay is used
	looks      map[string]overlay.Look
	read       []*bridge.Record // what may be missing before them has not been looked up
	ready      []*bridge.Record // complete, and not projected yet
	open       map[id.Run]*openRun
	since      int64            // whether all events after it are kept is to be found out; 0: it is known
	held       []protocol.Event // events that wait for that
	ended      bool             // Next is to return that everything kept has been returned
	look       time.Time        // when to look whether a run is over whose end has not come; zero: not
}

// openRun is a run whose end has not come.
type openRun struct {
	row     *run.Run // as it was at its first record, until the projection has it; nil then, and when it was deleted
	gapless *gapless // nil: nothing can be missing
}

// Close implements protocol.Follower.
func (er *eventReader) Close() { er.threadFollower.Close(false) }

// Select implements protocol.Follower.
func (er *eventReader) Select(filters ...protocol.Filter) { er.projection.Select(filters...) }

// Last implements protocol.Follower.
func (er *eventReader) Last() int64 { return er.projection.Last() }

// Tree implements protocol.Follower.
func (er *eventReader) Tree() []byte { return er.projection.Tree() }

// Asked implements protocol.Follower.
func (er *eventReader) Asked(interrupt string) ([]string, bool) {
	return er.projection.Asked(interrupt)
}

// Next implements protocol.Follower.
func (er *eventReader) Next(ctx context.Context) ([]protocol.Event, error) {
	ctx = er.members.in(ctx)
	for {
		if er.ended {
			er.ended = false
			return nil, nil
		}
		if len(er.read) == 0 && len(er.ready) == 0 && er.held == nil {
			replaying := er.replaying
			events, err := er.await(ctx)
			if errors.Is(err, bridge.ErrSlow) {
				// On this wire no event says so: the connection breaks, and its client comes again.
				err = fmt.Errorf("%w: the reader fell too far behind", bridge.ErrInterrupted)
			}
			if err != nil || len(events) > 0 || replaying && !er.replaying && er.held == nil {
				return events, err
			}
		}
		events, err := er.project(ctx)
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
func (er *eventReader) await(ctx context.Context) ([]protocol.Event, error) {
	limited, cancel := ctx, func() {}
	if !er.look.IsZero() && (er.projection.Open() || er.f.Watches != nil) {
		limited, cancel = context.WithDeadlineCause(ctx, er.look, errQuiet)
	}
	records, err := er.next(limited)
	cancel()
	switch {
	case errors.Is(err, errReplayed):
		// The end of a run may be missing among what is kept. If it ended after the subscription began, its records are about to come.
		er.look = time.Now().Add(replayQuiet)
		if er.since > 0 {
			er.held, er.ended = []protocol.Event{}, true // project finds out
		}
		return nil, nil
	case errors.Is(err, errQuiet) && ctx.Err() == nil:
		return er.overdue(ctx)
	case err != nil:
		return nil, err
	}
	if er.read = records; !er.look.IsZero() {
		er.look = time.Now().Add(er.f.Lease / 2)
	}
	return nil, nil
}

// overdue ends runs that are over although no record says so: the server that executed them died, or could not write it. Before, it reads what the database
// has of them, and where streams are not shared, of runs that other servers execute.
func (er *eventReader) overdue(ctx context.Context) ([]protocol.Event, error) {
	over, err := er.projection.Overdue(ctx)
	if err != nil {
		return nil, err
	}
	if over || er.f.Watches != nil {
		const page = 1000
		records, err := er.f.Store.Records(ctx, er.thread, er.seen, page)
		if err != nil {
			return nil, fmt.Errorf("replay thread %s: %w", er.thread, err)
		}
		for _, rec := range records {
			if rec.Kept = true; er.isNew(rec) {
				er.read = append(er.read, rec)
			}
		}
		if len(er.read) > 0 {
			return nil, nil
		}
	}
	events, err := er.projection.Settle(ctx)
	if err != nil {
		return nil, err
	}
	if er.look = (time.Time{}); er.f.Shared {
		er.look = time.Now().Add(er.f.Lease / 2)
	}
	return events, nil
}

// eventsAtOnce bounds the events of one call: those of a page of records may be many times its size.
const eventsAtOnce = 256

// project projects records that were read.
func (er *eventReader) project(ctx context.Context) (out []protocol.Event, err error) {
	if er.held != nil {
		if out, err = er.resumed(ctx, er.held); err != nil {
			return nil, err
		}
		er.held = nil
	}
	for len(out) < eventsAtOnce {
		if len(er.ready) == 0 {
			if len(er.read) == 0 {
				return out, nil
			}
			if err := er.complete(ctx, er.read[0]); err != nil {
				return out, err
			}
			er.read = er.read[1:]
			continue
		}
		rec := er.ready[0]
		events, err := er.projection.Add(ctx, rec)
		if err != nil {
			return out, err
		}
		if er.ready = er.ready[1:]; rec.Kind == bridge.Terminal {
			delete(er.open, rec.Run)
		}
		if er.since > 0 && (er.projection.Met() || er.projection.Last() > er.since) {
			checked, err := er.resumed(ctx, events)
			if err != nil {
				er.held = append([]protocol.Event{}, events...)
				return out, err
			}
			events = checked
		}
		out = append(out, events...)
	}
	return out, nil
}

// complete makes a record ready, and before it what the live stream does not have: records that were missing would change the numbers of all that follow.
func (er *eventReader) complete(ctx context.Context, rec *bridge.Record) error {
	o := er.open[rec.Run]
	if o == nil && er.f.Shared && rec.Run != "" && rec.Kept {
		o = &openRun{}
		row, err := er.f.Store.Run(ctx, er.thread, rec.Run)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err == nil && row.Durable() {
			o.row, o.gapless = row, &gapless{f: er.f, run: row, durable: true, known: true}
		}
		er.open[rec.Run] = o
	}
	if o == nil || o.gapless == nil {
		er.ready = append(er.ready[:0], rec)
		return nil
	}
	missing, give, err := o.gapless.admit(ctx, rec)
	if err != nil {
		return err
	}
	if er.ready = append(er.ready[:0], missing...); give {
		er.ready = append(er.ready, rec)
	}
	return nil
}

// Run implements protocol.Source.
func (er *eventReader) Run(ctx context.Context, r id.Run) (*run.Run, error) {
	if o := er.open[r]; o != nil && o.row != nil {
		row := o.row
		o.row = nil // later it may have ended
		return row, nil
	}
	return er.f.Store.Run(ctx, er.thread, r)
}

// Show implements protocol.Source.
func (er *eventReader) Show(ctx context.Context, r *run.Run, rec *bridge.Record) (*bridge.Record, error) {
	if er.f.Overlay == nil || !overlays(rec) && !rec.Summarizer {
		return rec, nil
	}
	look, ok := er.looks[r.Graph]
	if !ok {
		look = er.f.Overlay.Look(er.request, r.Graph, overlay.Stream)
		er.looks[r.Graph] = look
	}
	if rec.Summarizer && look.On {
		return nil, nil
	}
	return er.f.forms.shown(ctx, er.thread, rec, look)
}

// framed returns events as records with their frames.
func framed(events []protocol.Event) []*bridge.Record {
	out, records := make([]*bridge.Record, len(events)), make([]bridge.Record, len(events))
	for i := range events {
		e := &events[i]
		out[i] = &records[i]
		if e.Gap != nil {
			b := append([]byte("event: error\r\ndata: "), e.Gap.Frame()...)
			records[i] = bridge.Record{Event: "error", Ephemeral: true, Frame: append(b, "\r\n"...)}
			continue
		}
		records[i] = bridge.Record{Event: e.Method, Data: e.Data, Ephemeral: true, Frame: e.Frame()}
	}
	return out
}
