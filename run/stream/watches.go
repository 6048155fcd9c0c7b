package stream

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/loop"
	"understudy/run"
)

// WatchesOptions are what watches are made of.
type WatchesOptions struct {
	Store    endStore
	Bridge   bridge.Bridge
	Attempts Attempts
	Instance string // name of this server in signals
	Log      *slog.Logger
	Now      func() time.Time
}

// endStore reports what has ended.
type endStore interface {
	// Ended returns those of the runs that are over, or not there.
	Ended(ctx context.Context, runs []id.Run) ([]id.Run, error)
}

// Watches are the runs and threads that are followed here, while the bridge carries only what this server executes. Other servers signal their
// ends, or they are found at a heartbeat; what they left is read from the database. nil: the bridge carries everything.
type Watches struct {
	WatchesOptions
	poked chan struct{} // capacity 1: runs that are followed here may have ended

	mu      sync.Mutex
	runs    map[id.Run]*watch
	threads map[id.Thread]int      // of those who follow all runs of a thread
	due     map[id.Run]id.Thread   // to be looked at
	gone    map[id.Thread]struct{} // reported as deleted
}

// NewWatches makes watches, whose Run reports ends.
func NewWatches(o WatchesOptions) *Watches {
	return &Watches{
		WatchesOptions: o, poked: make(chan struct{}, 1),
		runs: map[id.Run]*watch{}, threads: map[id.Thread]int{}, due: map[id.Run]id.Thread{}, gone: map[id.Thread]struct{}{},
	}
}

// Run notifies followers of ends until ctx ends.
func (w *Watches) Run(ctx context.Context) error {
	if w == nil {
		return nil
	}
	return loop.Loop{Name: "ends", Log: w.Log, Now: w.Now}.Run(ctx, w.poked, w.announceEnds)
}

// watch is one run, and how many follow it. notified: they were notified of its end.
type watch struct {
	thread   id.Thread
	by       int
	notified bool
}

// watch notes that a run is followed until the returned function is called.
func (w *Watches) watch(r *run.Run) (stop func()) {
	if w == nil {
		return func() {}
	}
	w.mu.Lock()
	if w.runs[r.ID] == nil {
		w.runs[r.ID] = &watch{thread: r.Thread}
	}
	w.runs[r.ID].by++
	w.due[r.ID] = r.Thread // it may have ended before it was noted
	w.mu.Unlock()
	loop.Poke(w.poked)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs[r.ID].by--; w.runs[r.ID].by == 0 {
			delete(w.runs, r.ID)
		}
	})
}

// watchThread is watch for all runs of a thread.
func (w *Watches) watchThread(t id.Thread) (stop func()) {
	if w == nil {
		return func() {}
	}
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

// HeardOf notes a signal of another server about a thread that is followed here.
func (w *Watches) HeardOf(sig run.Signal) {
	if w == nil || sig.Thread == "" || sig.Ended == w.Instance {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	wanted := w.threads[sig.Thread] > 0
	if sig.Run != "" {
		followed := w.runs[sig.Run]
		wanted = wanted || followed != nil
		if wanted = wanted && (followed == nil || !followed.notified); wanted {
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
		loop.Poke(w.poked)
	}
}

// WatchAll has all runs that are followed looked at: a signal may have been lost.
func (w *Watches) WatchAll() {
	if w == nil {
		return
	}
	w.mu.Lock()
	for r, followed := range w.runs {
		if !followed.notified {
			w.due[r] = followed.thread
		}
	}
	wanted := len(w.due) > 0
	w.mu.Unlock()
	if wanted {
		loop.Poke(w.poked)
	}
}

// announceEnds notifies followers here of runs that have ended on other servers, as the database has it.
func (w *Watches) announceEnds(ctx context.Context) (time.Time, error) {
	w.mu.Lock()
	due, gone := w.due, w.gone
	w.due, w.gone = map[id.Run]id.Thread{}, map[id.Thread]struct{}{}
	w.mu.Unlock()
	maps.DeleteFunc(due, func(r id.Run, _ id.Thread) bool { return w.Attempts.Attempt(r) != nil }) // their stream has their end
	err := w.announceEndsOf(ctx, due, gone)
	if err != nil { // once more
		w.mu.Lock()
		maps.Copy(w.due, due)
		maps.Copy(w.gone, gone)
		w.mu.Unlock()
	}
	return time.Time{}, err
}

func (w *Watches) announceEndsOf(ctx context.Context, due map[id.Run]id.Thread, gone map[id.Thread]struct{}) error {
	if len(due) > 0 {
		over, err := w.Store.Ended(ctx, slices.Sorted(maps.Keys(due)))
		if err != nil {
			return fmt.Errorf("which runs have ended: %w", err)
		}
		for _, r := range over {
			if err := w.Bridge.Publish(ctx, due[r], []*bridge.Record{{Run: r, Kind: bridge.Terminal, Event: elsewhere}}); err != nil {
				return fmt.Errorf("report the end of run %s: %w", r, err)
			}
			w.mu.Lock()
			if followed := w.runs[r]; followed != nil {
				followed.notified = true
			}
			w.mu.Unlock()
		}
	}
	for t := range gone {
		if err := w.Bridge.Publish(ctx, t, []*bridge.Record{DeletedRuns()}); err != nil {
			return fmt.Errorf("report the deletion of thread %s: %w", t, err)
		}
	}
	return nil
}
