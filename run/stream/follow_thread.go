package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// StreamThread follows all runs of a thread; it never ends by itself. A thread that does not exist yet is waited for.
func (f *Followers) StreamThread(ctx context.Context, t id.Thread, from *bridge.Offset, modes []string) (run.Follower, error) {
	sub, err := f.Bridge.Subscribe(ctx, t, from)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	tf := &threadFollower{
		f: f, thread: t, members: membersOf(ctx, f, t), src: newSource(f.Store, t, "", sub, from), stop: f.Watches.watchThread(t), ordinals: map[id.Run]ordinal{},
		all: len(modes) == 0 || slices.Contains(modes, "run_modes"), lifecycle: slices.Contains(modes, "lifecycle"), states: slices.Contains(modes, stateUpdate),
	}
	// The thread may not be there yet, so which graph it has is asked when something is to be shown. Of ctx only the choice is used then.
	request := ctx
	if from != nil {
		tf.seen = *from
	}
	tf.shown = f.forms.overlaid(t, func(ctx context.Context) (overlay.Look, error) {
		row, err := f.Store.Thread(ctx, t)
		if err != nil {
			return overlay.Look{}, fmt.Errorf("thread %s: %w", t, err)
		}
		return f.Overlay.Look(request, jsonobj.Of(row.Metadata).Text("graph_id"), overlay.Stream), nil
	}, tf.next)
	return tf, nil
}

// errReplayed is returned once, by a threadFollower that is replaying.
var errReplayed = errors.New("all records kept before have been returned")

// threadFollower follows all runs of a thread.
type threadFollower struct {
	f      *Followers
	thread id.Thread
	src    *source
	shown  reader // records as the client sees them
	stop   func() // watching for ends elsewhere

	all, lifecycle, states bool // what is wanted
	durableEnds            bool // of a run that ended elsewhere only what the database has of it is wanted
	replaying              bool // records kept before the subscription come first, and errReplayed after them

	members  members
	rest     []*bridge.Record   // read, but their runs are not looked up yet
	seen     bridge.Offset      // of the last record
	ordinals map[id.Run]ordinal // of the last record of each run that has not ended
	far      []id.Run           // ended on other servers
	unsaved  map[id.Run]bool    // of which the client knows that their end cannot be written
	gone     bool               // the thread was deleted
}

// Next implements Follower.
func (tf *threadFollower) Next(ctx context.Context) ([]*bridge.Record, error) {
	return tf.shown(tf.members.in(ctx))
}

// next returns the next records as the graphs have them.
func (tf *threadFollower) next(ctx context.Context) ([]*bridge.Record, error) {
	for !tf.gone {
		records := tf.rest
		if tf.rest = nil; len(records) == 0 {
			var err error
			if records, err = tf.read(ctx); err != nil {
				return nil, err
			}
		}
		if err := tf.members.lookUp(ctx, records); err != nil {
			tf.rest = records
			return nil, err
		}
		var out []*bridge.Record
		for i, rec := range records {
			if !tf.members.has(rec) {
				continue
			}
			var err error
			if tf.gone, err = tf.ends(ctx, rec); err != nil {
				if tf.rest = slices.Clone(records[i:]); len(out) > 0 {
					return out, nil
				}
				return nil, err
			}
			if tf.gone {
				break
			}
			switch rec.Event {
			case elsewhere:
				tf.far = append(tf.far, rec.Run)
				continue
			case unsavedEnd:
				if shown := tf.unsavedOf(rec); shown != nil {
					out = append(out, shown)
				}
				continue
			case deletedRuns:
				continue
			}
			if rec.Kept && !tf.isNew(rec) {
				continue
			}
			if tf.wants(rec.Event) {
				out = append(out, rec)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, io.EOF
}

// ends reports whether a record ends the follower: its thread was deleted. One with the same ID that the reader may read is the thread that it follows.
func (tf *threadFollower) ends(ctx context.Context, rec *bridge.Record) (bool, error) {
	if rec.Event != deletedRuns {
		return rec.Kind == bridge.Terminal && rec.Run == "", nil
	}
	_, err := tf.f.Store.Thread(ctx, tf.thread)
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	return false, err
}

// isNew reports whether a kept record was not returned before. The live stream and the database may have it under different offsets.
func (tf *threadFollower) isNew(rec *bridge.Record) bool {
	if !after(rec.Offset, tf.seen) || rec.Index > 0 && !tf.ordinals[rec.Run].before(ordinalOf(rec)) {
		return false
	}
	tf.seen = rec.Offset
	switch {
	case rec.Kind == bridge.Terminal:
		delete(tf.ordinals, rec.Run)
		delete(tf.unsaved, rec.Run)
	case rec.Index > 0:
		tf.ordinals[rec.Run] = ordinalOf(rec)
	}
	return true
}

// read returns what is next: of the stream, or what is known of a run that has ended on another server. It waits for most of a stream's life: what
// needs room on the stack is elsewhere (see TestMemoryOfIdleStreams).
func (tf *threadFollower) read(ctx context.Context) ([]*bridge.Record, error) {
	if tf.replaying {
		records, err := tf.src.kept(ctx)
		if err != nil || len(records) > 0 {
			return records, err
		}
		tf.replaying = false
		return nil, errReplayed
	}
	if len(tf.far) > 0 {
		return tf.endedElsewhere(ctx)
	}
	return tf.src.next(ctx)
}

// endedElsewhere returns what is known of the next run that has ended on another server.
func (tf *threadFollower) endedElsewhere(ctx context.Context) ([]*bridge.Record, error) {
	records, err := tf.f.facts(ctx, tf.thread, tf.far[0], tf.seen)
	if err != nil {
		return nil, err
	}
	if tf.durableEnds {
		records = slices.DeleteFunc(records, func(rec *bridge.Record) bool { return !rec.Kept })
	}
	records = append(records, tf.f.Publisher.Terminal(&run.Run{ID: tf.far[0]}))
	tf.far = tf.far[1:]
	return records, nil
}

// unsavedOf returns what the client sees of a run whose end cannot be written; nil when it was shown, or is not wanted.
func (tf *threadFollower) unsavedOf(rec *bridge.Record) *bridge.Record {
	if tf.unsaved[rec.Run] || !tf.all {
		return nil
	}
	if tf.unsaved == nil {
		tf.unsaved = map[id.Run]bool{}
	}
	tf.unsaved[rec.Run] = true
	return unsavedNotice(rec)
}

func (tf *threadFollower) wants(event string) bool {
	if event == stateUpdate {
		return tf.states
	}
	if isOfEventStreaming(event) && !tf.durableEnds {
		return false
	}
	return tf.all || tf.lifecycle && event == "metadata"
}

// Result implements Follower: a thread has none.
func (tf *threadFollower) Result(context.Context) (run.Result, error) {
	return run.Result{Values: nullJSON}, nil
}

// EnsureDurable implements Follower.
func (tf *threadFollower) EnsureDurable(context.Context) error { return nil }

// Close implements Follower.
func (tf *threadFollower) Close(bool) {
	tf.src.close()
	tf.stop()
}
