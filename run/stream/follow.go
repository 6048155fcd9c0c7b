package stream

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
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
)

// FollowersOptions are what followers are made of.
type FollowersOptions struct {
	Store     Store
	Bridge    bridge.Bridge
	Shared    bool // other servers work on the store
	Snapshots run.Snapshots
	Overlay   *overlay.Overlay // nil: readers see what the graph itself has
	Publisher *Publisher
	Attempts  Attempts
	Watches   *Watches // nil: Bridge carries the records of all servers
	Metrics   *bridge.Metrics
	Lease     time.Duration
	Started   time.Time // when this server began: what was streamed before only the database has
	// Cancel cancels a run whose reader left.
	Cancel func(ctx context.Context, t id.Thread, runs []id.Run, action run.Action, wait bool) error
	Log    *slog.Logger
}

// NewFollowers makes followers; Close ends what they do.
func NewFollowers(o FollowersOptions) *Followers {
	return &Followers{FollowersOptions: o, forms: newForms(o.Store, o.Overlay, o.Log)}
}

// Followers reads the streams of runs and threads for clients.
type Followers struct {
	FollowersOptions
	forms     *forms
	rotations rotations
}

// following says how a run is followed.
type following struct {
	modes         []string       // event names without namespace; empty: all
	stored        *bridge.Offset // not nil: what the live stream does not have any more comes from the database, above this offset
	cancelOnLeave bool
	// at is what was seen before, with the offset that the database has of it, and seen the offset that the reader has. Without known the first record is
	// taken as it is.
	at    position
	known bool
	seen  bridge.Offset
	so    reply // folded from the records before the subscription
}

// runFollower follows one run by its stream.
type runFollower struct {
	f        *Followers
	run      *run.Run
	how      following
	src      *source
	read     reader // of src; see watched
	shown    reader // records as the client sees them
	asResult overlay.Look
	stop     func() // watching for its end elsewhere

	gapless gapless
	seen    bridge.Offset    // of the last record
	rest    []*bridge.Record // read, but records before it are missing
	so      reply            // folded by Result
	ended   bool
	far     bool // it has ended on another server, whose stream was not seen

	waits   bool  // for the result: Result was called
	unsaved error // why there is none yet
}

// follow makes a Follower of a subscription that sees the run's end; nil: the run is over.
func (f *Followers) follow(ctx context.Context, r *run.Run, sub bridge.Subscription, how following) *runFollower {
	src := newSource(f.Store, r.Thread, r.ID, sub, how.stored)
	rf := &runFollower{
		f: f, run: r, how: how, src: src, read: f.watched(src, r), asResult: f.Overlay.Look(ctx, r.Graph, overlay.Wait), stop: func() {}, so: how.so, seen: how.seen,
		gapless: gapless{f: f, run: r, durable: sub != nil && f.Shared && r.Durable(), at: how.at, known: how.known, stored: how.at.offset},
	}
	rf.shown = f.forms.overlaid(r.Thread, always(f.Overlay.Look(ctx, r.Graph, overlay.Stream)), rf.next)
	if sub != nil {
		rf.stop = f.Watches.watch(r)
	}
	return rf
}

// Run returns the run as it was when following began.
func (rf *runFollower) Run() *run.Run { return rf.run }

// Next implements Follower.
func (rf *runFollower) Next(ctx context.Context) ([]*bridge.Record, error) { return rf.shown(ctx) }

// next returns the next records as the graph has them.
func (rf *runFollower) next(ctx context.Context) ([]*bridge.Record, error) {
	for !rf.ended {
		if rf.far {
			facts, err := rf.f.facts(ctx, rf.run.Thread, rf.run.ID, rf.seen)
			if err != nil {
				return nil, err
			}
			rf.ended = true
			return slices.DeleteFunc(facts, func(rec *bridge.Record) bool { return rec.Event != "gap" && !matches(rec.Event, rf.how.modes) }), nil
		}
		records := rf.rest
		rf.rest = nil
		if len(records) == 0 {
			var err error
			if records, err = rf.read(ctx); errors.Is(err, io.EOF) {
				rf.ended = true
				break
			}
			if err != nil {
				return nil, err
			}
		}
		out, err := rf.take(ctx, records)
		if rf.waits && rf.unsaved != nil && !rf.ended {
			return nil, rf.unsaved
		}
		if len(out) > 0 {
			return out, nil // after an error the rest is read again
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, io.EOF
}

// take returns those of some records that are for the reader, with what is missing before them. What it could not complete is in rest.
func (rf *runFollower) take(ctx context.Context, records []*bridge.Record) (out []*bridge.Record, err error) {
	out = records[:0:0]
	for i, rec := range records {
		if rec.Event == deletedRuns {
			gone, err := rf.isDeleted(ctx)
			if err != nil {
				rf.rest = slices.Clone(records[i:])
				return out, err
			}
			if rf.ended = gone; gone {
				break
			}
			continue
		}
		if rec.Run != rf.run.ID && (rec.Kind != bridge.Terminal || rec.Run != "") {
			continue
		}
		if rec.Event == unsavedEnd {
			if rf.unsaved == nil && !rf.waits { // it comes with each attempt to write the end
				out = append(out, unsavedNotice(rec))
			}
			rf.unsaved = fault.New(fault.Unavailable, string(rec.Data))
			continue
		}
		if rec.Run != "" && rec.Event != elsewhere {
			missing, give, err := rf.gapless.admit(ctx, rec)
			if err != nil {
				rf.rest = slices.Clone(records[i:])
				return out, err
			}
			for _, m := range missing {
				m = rf.raised(m)
				if matches(m.Event, rf.how.modes) {
					out = append(out, m)
				}
			}
			if !give {
				continue
			}
			rec = rf.raised(rec)
		}
		if rec.Kind == bridge.Terminal {
			rf.far = rec.Event == elsewhere
			rf.ended = !rf.far
			break
		}
		if matches(rec.Event, rf.how.modes) {
			out = append(out, rec)
		}
	}
	return out, nil
}

// raised returns a record with an offset above that of the last one: the live stream may have moved earlier ones to higher offsets than the database has,
// and clients resume from the last offset that they got.
func (rf *runFollower) raised(rec *bridge.Record) *bridge.Record {
	if rec.Offset == (bridge.Offset{}) {
		return rec
	}
	if !after(rec.Offset, rf.seen) {
		copied := *rec // others share it
		copied.Offset = rec.After(rf.seen, 0)
		rec = &copied
	}
	rf.seen = rec.Offset
	return rec
}

// Result implements Follower.
func (rf *runFollower) Result(ctx context.Context) (run.Result, error) {
	rf.waits = true
	for {
		records, err := rf.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if (errors.Is(err, bridge.ErrSlow) || errors.Is(err, bridge.ErrInterrupted)) && !rf.run.Kwargs.Temporary {
			// The stream lost records, or there are none for a while. Only the end is wanted, and the database has it.
			again, err := rf.f.Join(ctx, rf.run.Thread, rf.run.ID)
			if err != nil {
				return run.Result{}, err
			}
			defer again.Close(false)
			return again.Result(ctx)
		}
		if err != nil {
			return run.Result{}, err
		}
		for _, rec := range records {
			rf.so.add(rec)
		}
	}
	if rf.far {
		return rf.f.resultOf(ctx, rf.run, rf.asResult)
	}
	return rf.f.answered(ctx, rf.run, &rf.so, rf.asResult)
}

// EnsureDurable implements Follower.
func (rf *runFollower) EnsureDurable(context.Context) error { return nil }

// Close implements Follower.
func (rf *runFollower) Close(left bool) {
	rf.src.close()
	rf.stop()
	if left && !rf.ended && rf.how.cancelOnLeave {
		rf.f.cancelAfterLeave(rf.run)
	}
}

// leaveTime bounds the cancel of a run whose reader left.
const leaveTime = 30 * time.Second

// cancelAfterLeave cancels a run whose reader has gone: the request that asked for it is over, so the work has a context of its own.
func (f *Followers) cancelAfterLeave(r *run.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	err := f.Cancel(ctx, r.Thread, []id.Run{r.ID}, run.CancelInterrupt, false)
	if err != nil && !fault.Is(err, fault.NotFound) {
		f.Log.Error("cannot cancel a run whose reader left", "run_id", r.ID, "error", err)
	}
}

func after(a, b bridge.Offset) bool { return a.MS > b.MS || a.MS == b.MS && a.N > b.N }

// isOfEventStreaming reports whether an event is of a mode that only clients of event streaming know.
func isOfEventStreaming(event string) bool {
	if len(event) == 0 || event[0] != 't' && event[0] != 'c' { // nearly all
		return false
	}
	base, _, _ := strings.Cut(event, "|")
	return base == "tools" || base == graph.ModeIDs || base == graph.ModeChannels
}

// matches reports whether a reader of some modes gets an event. A mode selects the events of its name in all namespaces, and those below it
// (`messages` selects `messages/partial`); `messages-tuple` is `messages`. No modes select everything that the v1 wire has.
func matches(event string, modes []string) bool {
	if len(modes) == 0 {
		return !isOfEventStreaming(event)
	}
	base, _, _ := strings.Cut(event, "|")
	family, _, _ := strings.Cut(base, "/")
	return slices.Contains(modes, base) || slices.Contains(modes, family) || family == "messages" && slices.Contains(modes, "messages-tuple")
}

// subscribe subscribes first and reads the run then, so that its end cannot fall between the two. Of a run that is over it needs no
// subscription, and returns none while streams are interrupted; of another run it returns the row with bridge.ErrInterrupted then.
func (f *Followers) subscribe(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset) (*run.Run, bridge.Subscription, error) {
	sub, interrupted := f.subscribeRun(ctx, t, r, from)
	if interrupted != nil && !errors.Is(interrupted, bridge.ErrInterrupted) {
		return nil, nil, fmt.Errorf("subscribe: %w", interrupted)
	}
	row, err := f.Store.Run(ctx, t, r)
	if err != nil {
		if sub != nil {
			sub.Close()
		}
		if fault.Is(err, fault.NotFound) {
			err = errNoRun
		}
		return nil, nil, err
	}
	here, _ := sub.(*runSubscription)
	if here != nil {
		here.durable = row.Durable()
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
	if here != nil && (from == nil || !row.Kwargs.Resumable || row.Durable()) && here.failOver(ctx) {
		return row, sub, nil
	}
	if sub != nil {
		sub.Close()
	}
	return row, nil, fmt.Errorf("subscribe: %w", interrupted)
}

// subscribeRun subscribes to the stream of a thread for one of its runs. With bridge.ErrInterrupted it may also return a
// subscription, which is interrupted unless it crosses.
func (f *Followers) subscribeRun(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset) (bridge.Subscription, error) {
	if f.Publisher.failover == nil {
		return f.Bridge.Subscribe(ctx, t, from)
	}
	entry := f.Publisher.failover.follow(r) // first, so that everything published from now on is kept
	last, offset := f.Publisher.failover.lastOf(entry)
	sub, err := f.Bridge.Subscribe(ctx, t, from)
	if err != nil && !errors.Is(err, bridge.ErrInterrupted) {
		f.Publisher.failover.unfollow(entry)
		return nil, err
	}
	return f.runSubscription(r, entry, sub, last, offset), err
}

var errNoRun = fault.New(fault.NotFound, "Run not found")

// JoinStream follows the records of a run above an offset; from nil: only what comes from now on. The run is not cancelled when the reader leaves
// unless cancelOnLeave.
func (f *Followers) JoinStream(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset, modes []string, cancelOnLeave bool) (run.Follower, error) {
	if t == "" { // a stateless run is named by its id alone
		row, err := f.Store.Run(ctx, "", r)
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
	resumes := from != nil && row.Kwargs.Resumable
	switch {
	case row.Status.Over(): // it is replayed from the database alone
		if sub != nil {
			sub.Close()
			sub = nil
		}
		if resumes {
			err = f.replayStored(ctx, row, *from, &how)
		}
	case resumes && gap(row, sub, modes):
		f.Metrics.Replayed(sub.Gap(row.ID))
		return announce(ctx, row, *from, sub)
	case resumes:
		err = f.resume(ctx, row, sub, *from, &how)
	}
	if err != nil {
		if sub != nil {
			sub.Close()
		}
		return nil, err
	}
	return f.follow(ctx, row, sub, how), nil
}

// replayStored lets a reader that has seen an offset get what the database has above it.
func (f *Followers) replayStored(ctx context.Context, r *run.Run, from bridge.Offset, how *following) (err error) {
	at := position{offset: from}
	if f.Shared {
		at, _, err = f.locate(ctx, r, from)
	}
	how.stored, how.seen = &at.offset, from
	return err
}

// resume lets a reader that has seen an offset continue in the live stream behind it, after what only the database has.
func (f *Followers) resume(ctx context.Context, r *run.Run, sub bridge.Subscription, from bridge.Offset, how *following) (err error) {
	// A bridge in memory does not have the records of an earlier process, and a reader that starts at the beginning cannot detect a gap.
	stored := !r.Kwargs.Temporary && (sub.Gap(r.ID) != bridge.NoGap || from == (bridge.Offset{}) || r.StartedAt.Before(f.Started))
	if stored {
		f.Publisher.FlushRecords(ctx, 0, nil)
	}
	how.at, how.seen = position{offset: from}, from
	if f.Shared {
		if how.at, how.known, err = f.locate(ctx, r, from); err != nil {
			return err
		}
		if here, ok := sub.(*runSubscription); ok && !here.failedOver { // else it continues behind what the database has
			here.seen, here.fillsGaps = how.at.ordinal, r.Durable() && how.known
		}
	}
	if stored {
		how.stored = &how.at.offset
	}
	return nil
}

// stateUpdate is the event, and the mode, for state that a client has written.
const stateUpdate = "state_update"

// AwaitEnd waits until a run that another instance executes has stopped.
func (f *Followers) AwaitEnd(ctx context.Context, t id.Thread, r id.Run) error {
	return f.await(ctx, t, r, func(now run.Status) bool { return now != run.Running })
}

// await looks a run up until its status is one that is waited for, or the run is gone.
func (f *Followers) await(ctx context.Context, t id.Thread, r id.Run, reached func(run.Status) bool) error {
	for wait := loop.NewBackoff(20*time.Millisecond, time.Second); ; {
		row, err := f.Store.Run(ctx, t, r)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		switch {
		case fault.Is(err, fault.Unavailable): // it may come back, and the caller waits anyway
		case err != nil:
			return err
		case reached(row.Status):
			return nil
		}
		if err := f.Attempts.Attempt(r).UnsavedErr(); err != nil {
			return err
		}
		if !wait.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}
