package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread/overlay"
)

// following says how a run is followed.
type following struct {
	modes         []string         // event names without namespace; empty: all
	past          []*bridge.Record // kept records that the live stream does not have any more; shown first
	cancelOnLeave bool
}

// follow makes a Follower of a subscription that sees the run's end.
func (s *Service) follow(ctx context.Context, r *Run, sub bridge.Subscription, how following) *Follower {
	// One reader uses it at a time; ended tells Close whether the client left before the end.
	ended := false
	var seen bridge.Offset
	asStream, asResult := s.Overlay.Look(ctx, r.Graph, overlay.Stream), s.Overlay.Look(ctx, r.Graph, overlay.Wait)
	next := func(ctx context.Context) ([]*bridge.Record, error) {
		for !ended {
			records := how.past
			if records != nil {
				how.past = nil
			} else {
				var err error
				if records, err = sub.Next(ctx); err != nil {
					return nil, err
				}
			}
			out := records[:0:0]
			for _, rec := range records {
				if rec.Run != r.ID && (rec.Kind != bridge.Terminal || rec.Run != "") {
					continue
				}
				if rec.Kept && !after(rec.Offset, seen) {
					continue // the replay had it
				}
				if rec.Kept {
					seen = rec.Offset
				}
				if rec.Kind == bridge.Terminal {
					ended = true
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
	result := func(ctx context.Context) (Result, error) {
		var values *bridge.Record
		var failure json.RawMessage
		for {
			records, err := next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return Result{}, err
			}
			for _, rec := range records {
				switch rec.Event {
				case "values":
					values = rec
				case "error":
					failure = rec.Data
				}
			}
		}
		switch {
		case failure != nil:
			return Result{Error: failure}, nil
		case values != nil:
			return Result{Values: s.shown(ctx, r.Thread, values, asResult).Data}, nil
		case r.Kwargs.Temporary:
			return Result{Values: emptyObject}, nil
		default:
			return s.threadValues(ctx, r.Thread, asResult)
		}
	}
	return NewFollower(s.overlaid(r.Thread, always(asStream), next), result, func(left bool) { //nolint:contextcheck // when it is called, the request is over
		sub.Close()
		if left && !ended && how.cancelOnLeave {
			s.cancelAfterLeave(r)
		}
	})
}

// cancelAfterLeave cancels a run whose reader has gone: the request that asked for it is over, so the work has a context of its own.
func (s *Service) cancelAfterLeave(r *Run) {
	err := s.Cancel(context.Background(), r.Thread, []id.Run{r.ID}, CancelInterrupt, false)
	if err != nil && !fault.Is(err, fault.NotFound) {
		s.log.Error("cannot cancel a run whose reader left", "run_id", r.ID, "error", err)
	}
}

func after(a, b bridge.Offset) bool { return a.MS > b.MS || a.MS == b.MS && a.N > b.N }

// matches reports whether an event is of one of the modes.
func matches(event string, modes []string) bool {
	if len(modes) == 0 {
		return true
	}
	base, _, _ := strings.Cut(event, "|")
	if slices.Contains(modes, base) {
		return true
	}
	family, _, nested := strings.Cut(base, "/") // messages/partial
	return nested && slices.Contains(modes, family) || base == "messages" && slices.Contains(modes, "messages-tuple")
}

func (s *Service) threadValues(ctx context.Context, t id.Thread, look overlay.Look) (Result, error) {
	row, err := s.Store.Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return Result{Values: null}, nil
	}
	if err != nil {
		return Result{}, err
	}
	if row.Head == "" {
		return Result{Values: null}, nil
	}
	values, err := s.Snapshots.Values(ctx, checkpointer.Key{Thread: t, ID: row.Head})
	if err != nil {
		return Result{}, fmt.Errorf("values of thread %s: %w", t, err)
	}
	if look.On {
		reading := s.Overlay.Read(t, look)
		defer reading.Done()
		if values, err = reading.Values(ctx, row.Head, values, overlay.RecordView); err != nil {
			return Result{}, fmt.Errorf("values of thread %s: %w", t, err)
		}
	}
	return Result{Values: values}, nil
}

// Join follows a run to its end for its result. A run that is over answers with its thread as it is now.
func (s *Service) Join(ctx context.Context, t id.Thread, r id.Run) (*Follower, error) {
	row, sub, err := s.subscribe(ctx, t, r, nil)
	if err != nil {
		return nil, err
	}
	if !row.Status.Over() {
		return s.follow(ctx, row, sub, following{}), nil
	}
	sub.Close()
	look := s.Overlay.Look(ctx, row.Graph, overlay.Wait)
	result := func(ctx context.Context) (Result, error) {
		now, err := s.Store.Thread(ctx, t)
		if err != nil {
			return Result{}, err
		}
		switch {
		case now.Error != nil:
			return Result{Error: now.Error}, nil
		case now.Interrupts != nil && string(now.Interrupts) != "{}":
			var all []byte
			jsonobj.Of(now.Interrupts).Each(func(_ string, list json.RawMessage) {
				if inner := strings.TrimSuffix(strings.TrimPrefix(string(list), "["), "]"); inner != "" {
					if all != nil {
						all = append(all, ',')
					}
					all = append(all, inner...)
				}
			})
			return Result{Values: json.RawMessage(`{"__interrupt__":[` + string(all) + `]}`)}, nil
		default:
			return s.threadValues(ctx, t, look)
		}
	}
	return NewFollower(func(context.Context) ([]*bridge.Record, error) { return nil, io.EOF }, result, func(bool) {}), nil
}

// subscribe subscribes first and reads the run then, so that its end cannot fall between the two.
func (s *Service) subscribe(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset) (*Run, bridge.Subscription, error) {
	sub, err := s.Bridge.Subscribe(ctx, t, from)
	if err != nil {
		return nil, nil, fmt.Errorf("subscribe: %w", err)
	}
	row, err := s.Store.Run(ctx, t, r)
	if err != nil {
		sub.Close()
		if fault.Is(err, fault.NotFound) {
			err = errNoRun
		}
		return nil, nil, err
	}
	return row, sub, nil
}

var errNoRun = fault.New(fault.NotFound, "Run not found")

// JoinStream follows the records of a run; after nil: only what comes from now on. The run is not cancelled when the reader leaves
// unless cancelOnLeave.
func (s *Service) JoinStream(ctx context.Context, t id.Thread, r id.Run, from *bridge.Offset, modes []string, cancelOnLeave bool) (*Follower, error) {
	if t == "" { // a stateless run is named by its id alone
		row, err := s.Store.Run(ctx, "", r)
		if fault.Is(err, fault.NotFound) {
			return nil, errNoRun
		}
		if err != nil {
			return nil, err
		}
		t = row.Thread
	}
	row, sub, err := s.subscribe(ctx, t, r, from)
	if err != nil {
		return nil, err
	}
	var past []*bridge.Record
	if from != nil && row.Kwargs.Resumable && (row.Status.Over() || row.StartedAt.Before(s.started)) {
		// An ended run is replayed from the database alone, and so is what an earlier process streamed.
		if past, err = s.past(ctx, t, r, *from); err != nil {
			sub.Close()
			return nil, err
		}
	}
	if !row.Status.Over() {
		if len(past) == 0 {
			past = nil
		}
		return s.follow(ctx, row, sub, following{modes: modes, past: past, cancelOnLeave: cancelOnLeave}), nil
	}
	sub.Close()
	asStream := s.Overlay.Look(ctx, row.Graph, overlay.Stream)
	next := func(context.Context) ([]*bridge.Record, error) {
		var out []*bridge.Record
		for _, rec := range past {
			if rec.Kind != bridge.Terminal && matches(rec.Event, modes) {
				out = append(out, rec)
			}
		}
		past = nil
		if len(out) == 0 {
			return nil, io.EOF
		}
		return out, nil
	}
	return NewFollower(s.overlaid(row.Thread, always(asStream), next), func(context.Context) (Result, error) { return Result{Values: null}, nil }, func(bool) {}), nil
}

// past reads kept records; of one run, or with an empty run of all.
func (s *Service) past(ctx context.Context, t id.Thread, r id.Run, from bridge.Offset) ([]*bridge.Record, error) {
	const page = 1000
	var out []*bridge.Record
	for {
		records, err := s.Store.Records(ctx, t, from, page)
		if err != nil {
			return nil, fmt.Errorf("replay thread %s: %w", t, err)
		}
		for _, rec := range records {
			from = rec.Offset
			if r != "" && rec.Run != r {
				continue
			}
			rec.Kept = true
			if rec.Frame == nil && s.Wire != nil {
				rec.Frame = s.Wire.Frame(rec.Event, rec.Data)
			}
			out = append(out, rec)
		}
		if len(records) < page {
			return out, nil
		}
	}
}

// StreamThread follows all runs of a thread; it never ends by itself. A thread that is not there yet is waited for.
func (s *Service) StreamThread(ctx context.Context, t id.Thread, from *bridge.Offset, modes []string) (*Follower, error) {
	sub, err := s.Bridge.Subscribe(ctx, t, from)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	var past []*bridge.Record
	if from != nil {
		if past, err = s.past(ctx, t, "", *from); err != nil {
			sub.Close()
			return nil, err
		}
	}
	all := len(modes) == 0 || slices.Contains(modes, "run_modes")
	lifecycle := slices.Contains(modes, "lifecycle")
	gone := false
	var seen bridge.Offset
	next := func(ctx context.Context) ([]*bridge.Record, error) {
		for !gone {
			records := past
			if len(past) > 0 {
				past = nil
			} else if records, err = sub.Next(ctx); err != nil {
				return nil, err
			}
			var out []*bridge.Record
			for _, rec := range records {
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
		row, err := s.Store.Thread(ctx, t)
		if err != nil {
			return overlay.Look{}, fmt.Errorf("thread %s: %w", t, err)
		}
		return s.Overlay.Look(request, jsonobj.Of(row.Metadata).Text("graph_id"), overlay.Stream), nil
	}
	return NewFollower(s.overlaid(t, asStream, next), func(context.Context) (Result, error) { return Result{Values: null}, nil }, func(bool) { sub.Close() }), nil
}

// stateUpdate is the event, and the mode, that tells of state written by a client.
const stateUpdate = "state_update"

// PublishState tells those who follow a thread of a state that a client has written, and its checkpoint.
// data: {"state": …, "thread_id": …}.
func (s *Service) PublishState(t id.Thread, at id.Checkpoint, data json.RawMessage) {
	rec := &bridge.Record{Kind: bridge.Data, Event: stateUpdate, Data: data, Checkpoint: at, Frame: s.Wire.Frame(stateUpdate, data)}
	if err := s.Bridge.Publish(context.Background(), t, []*bridge.Record{rec}); err != nil { // does not block
		s.log.Warn("a state update was not published", "thread_id", t, "error", err)
	}
}
