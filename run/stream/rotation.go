package stream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/run/protocol"
)

// A client that has started a run opens a stream, and for each subscription a wider one in place of it. Events that both send come by the narrow one first, and
// so before earlier ones that only the wide one has. For a run that began up to recentRun before its stream was opened, the stream waits until rotation has
// passed since it, or the last stream of the thread, was opened: if it is to be replaced, it is closed by then. The wider one does not wait.
//
// A client that starts another run has opened its streams of the one before. What these replay it must read before it reads of the new run, else it takes an
// interrupt that is answered for one of the new run: streams that are open when a run is started, or opened until it is, do not wait.
const (
	recentRun = time.Second
	rotation  = 100 * time.Millisecond
)

// eventFollower streams a thread as server-sent events.
type eventFollower struct {
	*eventReader
	opened time.Time
	until  atomic.Int64     // when it may be taken not to be replaced any more, in ns
	free   chan struct{}    // is closed when it need not wait until then
	waited bool             // it may send
	held   []*bridge.Record // events that wait for it
}

// rotations are the streams of events that are open on this server, by thread.
type rotations struct {
	mu       sync.Mutex
	open     map[id.Thread][]*eventFollower
	starting map[id.Thread]int // commands that start a run
}

// Starting sends what streams of a thread hold back, and has those that are opened before done is called hold nothing back: a run of it is started.
func (f *Followers) Starting(t id.Thread) (done func()) {
	r := &f.rotations
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ef := range r.open[t] {
		ef.release()
	}
	if r.starting == nil {
		r.starting = map[id.Thread]int{}
	}
	r.starting[t]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.starting[t]--; r.starting[t] == 0 {
			delete(r.starting, t)
		}
	}
}

// add notes a stream. It replaces those that are waiting, which continue to wait.
func (r *rotations) add(ef *eventFollower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := ef.opened.Add(rotation)
	if r.starting[ef.thread] > 0 {
		ef.release()
	}
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
		events, err := ef.eventReader.Next(ctx)
		for len(events) == 0 && err == nil { // at the end of the replay
			events, err = ef.eventReader.Next(ctx)
		}
		if err != nil || ef.waited || !ef.recent(events) {
			return framed(events), err
		}
		ef.waited, ef.held = true, framed(events)
	}
	for wait := ef.waits(); wait > 0; wait = ef.waits() {
		select {
		case <-time.After(wait):
		case <-ef.free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	out := ef.held
	ef.held = nil
	return out, nil
}

// release ends the wait of the stream. The caller holds the lock of the rotations.
func (ef *eventFollower) release() {
	if !ef.released() {
		close(ef.free)
	}
}

func (ef *eventFollower) released() bool {
	select {
	case <-ef.free:
		return true
	default:
		return false
	}
}

// waits is how long the stream has to wait.
func (ef *eventFollower) waits() time.Duration {
	if ef.released() {
		return 0
	}
	return time.Until(time.Unix(0, ef.until.Load()))
}

// recent reports whether events are of a run that began shortly before the stream was opened.
func (ef *eventFollower) recent(events []protocol.Event) bool {
	if ef.waited = ef.waits() <= 0; ef.waited || len(events) == 0 {
		return false
	}
	began := ef.projection.Began()
	return began.Before(ef.opened) && ef.opened.Sub(began) < recentRun
}
