package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// source returns to one reader the records of a thread in order, each once: those kept above an offset, from the live stream and, what that does not
// have any more, from the database; then those that come. Not safe for concurrent use.
type source struct {
	store  Store
	thread id.Thread
	run    id.Run              // whose records are wanted of the database; "" all
	sub    bridge.Subscription // nil: nothing comes any more

	// Of the database, a page at a time.
	stored bool          // there may be more above from
	from   bridge.Offset // read so far
	until  bridge.Offset // what lies above it comes from the stream; zero: it is not known where that begins
	past   []*bridge.Record

	replay   []*bridge.Record // of the stream
	replayed bool             // there is no more of it
}

// newSource reads from a subscription, which may be nil, and with stored also what the database has above that offset.
func newSource(store Store, t id.Thread, r id.Run, sub bridge.Subscription, stored *bridge.Offset) *source {
	src := &source{store: store, thread: t, run: r, sub: sub, replayed: sub == nil}
	if stored == nil {
		return src
	}
	src.stored, src.from = true, *stored
	// A stream that does not reach to where its reader has been has lost its end.
	if sub != nil && !after(*stored, sub.Head()) {
		src.until = sub.Head()
	}
	return src
}

// next returns at least one record. io.EOF: there are no more, and none will come.
func (src *source) next(ctx context.Context) ([]*bridge.Record, error) {
	out, err := src.merged(ctx)
	switch {
	case err != nil, len(out) > 0:
		return out, err
	case len(src.replay) > 0:
		out, src.replay = src.replay, nil
		return out, nil
	case src.sub == nil:
		return nil, io.EOF
	}
	return src.sub.Next(ctx)
}

// kept returns what next does, but only records kept before the subscription, and then nothing.
func (src *source) kept(ctx context.Context) ([]*bridge.Record, error) {
	out, err := src.merged(ctx)
	if err != nil || len(out) > 0 {
		return out, err
	}
	if len(src.replay) == 0 && !src.replayed {
		if src.replay, err = src.sub.Replay(ctx); err != nil {
			return nil, err
		}
		src.replayed = len(src.replay) == 0
	}
	out, src.replay = src.replay, nil
	return out, nil
}

// merged returns records while the database has some that may be next; then nothing, and what comes is in replay and in the subscription.
func (src *source) merged(ctx context.Context) ([]*bridge.Record, error) {
	for src.stored || len(src.past) > 0 {
		if len(src.past) == 0 {
			if err := src.page(ctx); err != nil {
				return nil, err
			}
		}
		if len(src.replay) == 0 && !src.replayed {
			var err error
			if src.replay, err = src.sub.Replay(ctx); err != nil {
				return nil, err
			}
			src.replayed = len(src.replay) == 0
		}
		if out := src.merge(); len(out) > 0 {
			return out, nil
		}
	}
	return nil, nil
}

// page reads on in the database.
func (src *source) page(ctx context.Context) error {
	const size = 1000
	records, err := src.store.Records(ctx, src.thread, src.from, size)
	if err != nil {
		return fmt.Errorf("replay thread %s: %w", src.thread, err)
	}
	src.stored = len(records) == size
	for _, rec := range records {
		src.from = rec.Offset
		if src.until != (bridge.Offset{}) && after(rec.Offset, src.until) {
			src.stored = false
			break
		}
		if src.run == "" || rec.Run == src.run {
			rec.Kept = true
			src.past = append(src.past, rec)
		}
	}
	return nil
}

// merge returns what is known to be next of both, as far as both have been read.
func (src *source) merge() (out []*bridge.Record) {
	for {
		a, b := src.past, src.replay
		switch {
		case len(a) == 0 && (src.stored || len(b) == 0), len(b) == 0 && !src.replayed:
			return out
		case len(b) == 0 || len(a) > 0 && after(b[0].Offset, a[0].Offset):
			out, src.past = append(out, a[0]), a[1:]
		default:
			if len(a) > 0 && a[0].Offset == b[0].Offset {
				src.past = a[1:]
			}
			out, src.replay = append(out, b[0]), b[1:]
		}
	}
}

func (src *source) close() {
	if src.sub != nil {
		src.sub.Close()
	}
}

// watched reads the records of a source for a run that is followed. Its terminal record may never arrive: the server that executed it may have died
// before it was published. So when nothing has come for a while the run is looked up, and when it is over and still nothing comes: bridge.ErrInterrupted, for the
// reader to come again.
func (f *Followers) watched(src *source, r *run.Run) reader {
	if !f.Shared {
		return src.next // the readers of a server die with it
	}
	quiet := f.Lease / 2
	over := false
	look := time.Now().Add(quiet)
	return func(ctx context.Context) ([]*bridge.Record, error) {
		for {
			limited, cancel := context.WithDeadlineCause(ctx, look, errQuiet)
			records, err := src.next(limited)
			cancel()
			if err == nil || ctx.Err() != nil || !errors.Is(err, errQuiet) {
				if err == nil {
					over, look = false, time.Now().Add(quiet)
				}
				return records, err
			}
			if over {
				return nil, bridge.ErrInterrupted
			}
			over = f.isOver(ctx, r)
			look = time.Now().Add(quiet)
		}
	}
}

var errQuiet = errors.New("nothing has come for a while")

// isOver reports whether a run has ended, as far as can be seen.
func (f *Followers) isOver(ctx context.Context, r *run.Run) bool {
	if f.Attempts.Attempt(r.ID) != nil {
		return false
	}
	row, err := f.Store.Run(ctx, r.Thread, r.ID)
	return fault.Is(err, fault.NotFound) || err == nil && row.Status.Over()
}

// gap reports whether something of a run can be had neither from the live stream nor from the database, for one who reads events of some modes.
func gap(r *run.Run, sub bridge.Subscription, modes []string) bool {
	if !r.Kwargs.Temporary {
		return false // the database has it all
	}
	missing := sub.Gap(r.ID)
	return missing == bridge.RecordGap || missing == bridge.TokenGap && !messagesWhole(r, modes)
}

// messagesWhole reports whether a reader gets messages by other events than their pieces, or no messages at all.
func messagesWhole(r *run.Run, modes []string) bool {
	gets := func(mode, as string) bool {
		return slices.Contains(r.Kwargs.Modes, mode) && (len(modes) == 0 || slices.Contains(modes, as))
	}
	// `messages` ends each message with the whole of it.
	for _, mode := range []string{"values", "updates", "messages", "events", "debug", "tasks", "checkpoints"} {
		if gets(mode, mode) {
			return true
		}
	}
	return !gets("messages-tuple", "messages-tuple") && !gets("messages-tuple", "messages")
}

// announce follows a run of which something is missing: it says so, and ends. The run continues.
func announce(ctx context.Context, r *run.Run, requested bridge.Offset, sub bridge.Subscription) (run.Follower, error) {
	defer sub.Close()
	earliest := nullJSON
	for earliest[0] == 'n' {
		records, err := sub.Replay(ctx)
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			break
		}
		for _, rec := range records {
			if rec.Run == r.ID {
				earliest = []byte(`"` + rec.Offset.String() + `"`)
				break
			}
		}
	}
	latest := nullJSON
	if head := sub.Head(); head != (bridge.Offset{}) {
		latest = []byte(`"` + head.String() + `"`)
	}
	records := []*bridge.Record{{
		Run: r.ID, Event: "gap", Ephemeral: true,
		Data: fmt.Appendf(nil, `{"code":"stream_replay_gap","run_id":%q,"requested_event_id":%q,"earliest_available_event_id":%s,"latest_available_event_id":%s,"recovery":"reload_durable_state"}`,
			r.ID, requested, earliest, latest),
	}}
	return &announcement{records: records}, nil
}
