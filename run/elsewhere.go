package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/thread/overlay"
)

// elsewhere is the event of a terminal record that stands for the end of a run whose records went over another instance's bridge, and the code
// of what readers are then told.
const elsewhere = "stream_elsewhere"

// watches are the runs and threads that somebody follows here, while the bridge carries only what this instance executes. Their ends are told by
// the other instances, or else found at a heartbeat; what they left is read from the database.
type watches struct {
	mu      sync.Mutex
	runs    map[id.Run]*watch
	threads map[id.Thread]int      // of those who follow all runs of a thread
	due     map[id.Run]id.Thread   // to be looked at
	gone    map[id.Thread]struct{} // said to be deleted
}

// watch is one run, and how many follow it. told: they know of its end.
type watch struct {
	thread id.Thread
	by     int
	told   bool
}

// watch notes that a run is followed until the function it gives is called.
func (s *Service) watch(r *Run) (stop func()) {
	if s.watches == nil {
		return func() {}
	}
	w := s.watches
	w.mu.Lock()
	if w.runs[r.ID] == nil {
		w.runs[r.ID] = &watch{thread: r.Thread}
	}
	w.runs[r.ID].by++
	w.due[r.ID] = r.Thread // it may have ended before it was noted
	w.mu.Unlock()
	loop.Poke(s.ends)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs[r.ID].by--; w.runs[r.ID].by == 0 {
			delete(w.runs, r.ID)
		}
	})
}

// watchThread is watch for all runs of a thread.
func (s *Service) watchThread(t id.Thread) (stop func()) {
	if s.watches == nil {
		return func() {}
	}
	w := s.watches
	w.mu.Lock()
	w.threads[t]++
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.threads[t]--; w.threads[t] == 0 {
			delete(w.threads, t)
		}
	})
}

// ended tells other instances that a run is over, when they cannot see it in its stream.
func (s *Service) ended(r *Run) {
	if s.watches != nil {
		s.signal(Signal{Thread: r.Thread, Run: r.ID, Ended: s.Instance})
	}
}

// heardOf notes what another instance says of a thread, if anybody here wants to know.
func (s *Service) heardOf(sig Signal) {
	if s.watches == nil || sig.Thread == "" || sig.Ended == s.Instance {
		return
	}
	w := s.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := w.threads[sig.Thread] > 0
	if sig.Run != "" {
		followed := w.runs[sig.Run]
		wanted = wanted || followed != nil
		if wanted = wanted && (followed == nil || !followed.told); wanted {
			w.due[sig.Run] = sig.Thread
		}
	} else {
		for _, followed := range w.runs {
			wanted = wanted || followed.thread == sig.Thread
		}
		if wanted {
			w.gone[sig.Thread] = struct{}{}
		}
	}
	if wanted {
		loop.Poke(s.ends)
	}
}

// watchAll has all runs that are followed looked at: a signal may have been lost.
func (s *Service) watchAll() {
	if s.watches == nil {
		return
	}
	w := s.watches
	w.mu.Lock()
	for r, followed := range w.runs {
		if !followed.told {
			w.due[r] = followed.thread
		}
	}
	wanted := len(w.due) > 0
	w.mu.Unlock()
	if wanted {
		loop.Poke(s.ends)
	}
}

// tellEnds tells followers here of runs that have ended on other instances, as the database has it.
func (s *Service) tellEnds(ctx context.Context) (time.Time, error) {
	w := s.watches
	w.mu.Lock()
	due, gone := w.due, w.gone
	w.due, w.gone = map[id.Run]id.Thread{}, map[id.Thread]struct{}{}
	w.mu.Unlock()
	s.mu.Lock()
	maps.DeleteFunc(due, func(r id.Run, _ id.Thread) bool { return s.active[r] != nil }) // they are told of it by their stream
	s.mu.Unlock()
	err := s.tellEndsOf(ctx, due, gone)
	if err != nil { // once more
		w.mu.Lock()
		maps.Copy(w.due, due)
		maps.Copy(w.gone, gone)
		w.mu.Unlock()
	}
	return time.Time{}, err
}

func (s *Service) tellEndsOf(ctx context.Context, due map[id.Run]id.Thread, gone map[id.Thread]struct{}) error {
	if len(due) > 0 {
		over, err := s.shared.Ended(ctx, slices.Sorted(maps.Keys(due)))
		if err != nil {
			return fmt.Errorf("which runs have ended: %w", err)
		}
		for _, r := range over {
			if err := s.Bridge.Publish(ctx, due[r], []*bridge.Record{{Run: r, Kind: bridge.Terminal, Event: elsewhere}}); err != nil {
				return fmt.Errorf("tell of the end of run %s: %w", r, err)
			}
			s.watches.mu.Lock()
			if followed := s.watches.runs[r]; followed != nil {
				followed.told = true
			}
			s.watches.mu.Unlock()
		}
	}
	for t := range gone {
		_, err := s.Store.Thread(ctx, t)
		switch {
		case err == nil:
			continue
		case !fault.Is(err, fault.NotFound):
			return fmt.Errorf("thread %s: %w", t, err)
		}
		if err := s.Bridge.Publish(ctx, t, []*bridge.Record{{Kind: bridge.Terminal}}); err != nil {
			return fmt.Errorf("tell of the end of thread %s: %w", t, err)
		}
	}
	return nil
}

// facts are what is known of the end of a run that another instance executed: that its records are not to be had here; of a resumable run those
// that the database has, above an offset, else its values and interrupts, if it was to stream them; and its error.
func (s *Service) facts(ctx context.Context, t id.Thread, r id.Run, seen bridge.Offset) ([]*bridge.Record, error) {
	out := []*bridge.Record{{Run: r, Event: "gap", Ephemeral: true, Data: fmt.Appendf(nil,
		`{"code":%q,"run_id":%q,"message":"Another server executed the run, and without Redis its stream is not shared.","recovery":"reload_durable_state"}`, elsewhere, r)}}
	row, err := s.Store.Run(ctx, t, r)
	if fault.Is(err, fault.NotFound) {
		return out, nil // rolled back, or it went with its thread
	}
	if err != nil {
		return nil, err
	}
	if row.Kwargs.Resumable {
		records, err := s.Store.Records(ctx, t, seen, 0)
		if err != nil {
			return nil, fmt.Errorf("replay run %s: %w", r, err)
		}
		for _, rec := range records {
			if rec.Run == r && rec.Kind != bridge.Terminal {
				rec.Kept = true
				out = append(out, rec)
			}
		}
	} else if slices.Contains(row.Kwargs.Modes, "values") {
		values, err := s.lastValues(ctx, row)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
	}
	if row.Error != nil {
		out = append(out, &bridge.Record{Run: r, Event: "error", Data: row.Error, Ephemeral: true})
	}
	return out, nil
}

// lastValues are the values that a run has left in its thread, and its interrupts, as its stream would have ended with them.
func (s *Service) lastValues(ctx context.Context, r *Run) (out []*bridge.Record, err error) {
	row, err := s.Store.Thread(ctx, r.Thread)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if row.Head != "" {
		values, err := s.Snapshots.Values(ctx, checkpointer.Key{Thread: r.Thread, ID: row.Head})
		if err != nil {
			return nil, fmt.Errorf("values of thread %s: %w", r.Thread, err)
		}
		out = append(out, &bridge.Record{Run: r.ID, Event: "values", Data: values, Checkpoint: row.Head})
	}
	if interrupts := interruptsOf(row); interrupts != nil {
		out = append(out, &bridge.Record{Run: r.ID, Event: "values", Data: interrupts})
	}
	return out, nil
}

// resultOf is the outcome of a run that another instance executed.
func (s *Service) resultOf(ctx context.Context, r *Run, look overlay.Look) (Result, error) {
	if r.Kwargs.Temporary {
		return Result{Error: errorJSON("ResultUnavailable", "Another server executed the run, and without Redis its result is not shared. "+
			"It was not to be kept: give the run a thread, or on_completion \"keep\".")}, nil
	}
	over, err := s.Join(ctx, r.Thread, r.ID)
	if fault.Is(err, fault.NotFound) { // rolled back
		return s.threadValues(ctx, r.Thread, look)
	}
	if err != nil {
		return Result{}, err
	}
	defer over.Close(false)
	return over.Result(ctx)
}
