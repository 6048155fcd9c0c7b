package run

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"understudy/bridge"
	"understudy/id"
)

const (
	// recentBytes bounds what is kept of the latest records of a run, recentTotal of all runs.
	recentBytes = 4 << 20
	recentTotal = 64 << 20
	// recentFor is how long records may take to come back from Redis before their followers are interrupted. What is older goes, except recentLeast.
	recentFor   = 20 * time.Second
	recentLeast = 256 << 10
)

// nearby serves followers of runs that this instance executes when Redis is full or away: it keeps the latest records of runs with followers
// here, until these have them from Redis, and delivers what comes to followers that Redis has interrupted. Offsets are those that the database has.
type nearby struct {
	live *bridge.Memory // carries the records of runs to interrupted followers, a topic for each run; it keeps nothing

	mu    sync.Mutex // guards what follows, and the fields of nearRun
	runs  map[id.Run]*nearRun
	bytes int64
}

// nearRun is a run that is executed or followed here.
type nearRun struct {
	run       id.Run
	followers int
	active    bool // executed here
	over      bool // its end was published
	last      bridge.Offset
	// recent holds everything published above complete. unknown: what precedes the first record was published elsewhere, or is not known.
	recent   []*bridge.Record
	since    []time.Time // when each of recent was published
	bytes    int64
	complete bridge.Offset
	unknown  bool
}

func newNearby(limits bridge.Options) *nearby {
	limits.Metrics = nil // followers count once, where they subscribed first
	return &nearby{live: bridge.NewMemory(limits), runs: map[id.Run]*nearRun{}}
}

// topic is the name of a run's stream in live.
func (h *nearRun) topic() id.Thread { return id.Thread(h.run) }

func (n *nearby) of(r id.Run) *nearRun {
	h := n.runs[r]
	if h == nil {
		h = &nearRun{run: r}
		n.runs[r] = h
	}
	return h
}

// begin notes that an attempt of a run begins here.
func (n *nearby) begin(r *Run) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of(r.ID)
	h.active, h.over, h.unknown = true, false, r.Attempt > 1 // another instance may have published what was before
	n.drop(h, len(h.recent))
}

// end notes that an attempt has ended here. When the run has not, its followers have to look elsewhere.
func (n *nearby) end(r id.Run) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of(r)
	h.active = false
	if !h.over {
		n.live.Interrupt(h.topic(), bridge.Offset{MS: math.MaxInt64})
	}
	n.leave(h)
}

// leave drops a run that is neither executed nor followed.
func (n *nearby) leave(h *nearRun) {
	if h.followers == 0 {
		n.drop(h, len(h.recent))
		if !h.active && n.runs[h.run] == h {
			delete(n.runs, h.run)
		}
	}
}

// drop drops the oldest records.
func (n *nearby) drop(h *nearRun, count int) {
	for _, rec := range h.recent[:count] {
		h.bytes -= sizeOf(rec)
		n.bytes -= sizeOf(rec)
		h.complete = rec.Offset
	}
	// Only append moves the rest, when it has no more room: thousands may be kept, and each that comes may drop one.
	clear(h.recent[:count])
	h.recent, h.since = h.recent[count:], h.since[count:]
}

func sizeOf(r *bridge.Record) int64 { return int64(len(r.Event)+len(r.Data)) + 160 }

// published takes records that a run which is executed here has published.
func (n *nearby) published(r id.Run, records []*bridge.Record) {
	if n == nil || len(records) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.runs[r]
	if h == nil || !h.active {
		return
	}
	if h.unknown {
		first := records[0].Offset
		h.complete, h.unknown = bridge.Offset{MS: first.MS, N: first.N - 1}, false
	}
	h.last = records[len(records)-1].Offset
	for _, rec := range records {
		h.over = h.over || rec.Kind == bridge.Terminal
	}
	if h.followers == 0 {
		h.complete = h.last
		return
	}
	now := time.Now()
	for _, rec := range records {
		h.recent, h.since = append(h.recent, rec), append(h.since, now)
		h.bytes += sizeOf(rec)
		n.bytes += sizeOf(rec)
	}
	count, bytes, total := 0, h.bytes, n.bytes
	for count < len(h.recent)-len(records) && (bytes > recentBytes || total > recentTotal || bytes > recentLeast && now.Sub(h.since[count]) > recentFor) {
		bytes -= sizeOf(h.recent[count])
		total -= sizeOf(h.recent[count])
		count++
	}
	if count > 0 {
		n.drop(h, count)
	}
	n.live.Deliver(h.topic(), records)
}

// follow registers a follower of a run. Its records are kept until unfollow.
func (n *nearby) follow(r id.Run) *nearRun {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.of(r)
	h.followers++
	return h
}

func (n *nearby) unfollow(h *nearRun) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h.followers--
	n.leave(h)
}

// cross returns what a run has published above an offset, and, unless it is over, a subscription of what comes. With partial
// records may be missing between the offset and the first one returned. ok is false when the run is not executed here, or records are missing.
func (n *nearby) cross(ctx context.Context, h *nearRun, seen bridge.Offset, partial bool) (recent []*bridge.Record, live bridge.Subscription, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !h.active && !h.over || !partial && (h.unknown || after(h.complete, seen)) {
		return nil, nil, false
	}
	for _, rec := range h.recent {
		if after(rec.Offset, seen) {
			recent = append(recent, rec)
		}
	}
	if h.over {
		return recent, nil, true
	}
	live, err := n.live.Subscribe(ctx, h.topic(), nil)
	return recent, live, err == nil
}

// lastOf is the last offset that a run has published here.
func (n *nearby) lastOf(h *nearRun) bridge.Offset {
	n.mu.Lock()
	defer n.mu.Unlock()
	return h.last
}

// steady is the subscription of one run. While this instance executes the run it outlives the subscription of the bridge.
type steady struct {
	near *nearby
	of   *nearRun
	run  id.Run
	sub  bridge.Subscription // of the bridge
	seen bridge.Offset       // of the last record
	// fills: the reader finds records that are missing before the next one in the database.
	fills bool

	crossed bool
	pending []*bridge.Record
	live    bridge.Subscription // nil: nothing comes after pending
}

// noSubscription stands for the subscription that a bridge did not give because it is away.
type noSubscription struct{ head bridge.Offset }

// Next implements bridge.Subscription.
func (noSubscription) Next(context.Context) ([]*bridge.Record, error) {
	return nil, bridge.ErrInterrupted
}

// Replay implements bridge.Subscription.
func (noSubscription) Replay(context.Context) ([]*bridge.Record, error) {
	return nil, bridge.ErrInterrupted
}

// Head implements bridge.Subscription.
func (n noSubscription) Head() bridge.Offset { return n.head }

// Gap implements bridge.Subscription.
func (noSubscription) Gap(id.Run) bridge.Gap { return bridge.RecordGap }

// Close implements bridge.Subscription.
func (noSubscription) Close() {}

// steady returns the subscription of a run over one of its thread, which is nil while the bridge is away.
func (f *followers) steady(r id.Run, of *nearRun, sub bridge.Subscription, seen bridge.Offset) *steady {
	if sub == nil {
		sub = noSubscription{head: seen}
	}
	return &steady{near: f.publisher.near, of: of, run: r, sub: sub, seen: seen}
}

// cross switches to what the run publishes here, and reports whether it could.
func (st *steady) cross(ctx context.Context) bool {
	if st.crossed {
		return false
	}
	recent, live, ok := st.near.cross(ctx, st.of, st.seen, st.fills)
	if !ok {
		return false
	}
	st.crossed, st.pending, st.live = true, recent, live
	return true
}

// Next implements bridge.Subscription.
func (st *steady) Next(ctx context.Context) ([]*bridge.Record, error) {
	if !st.crossed {
		records, err := st.sub.Next(ctx)
		if !errors.Is(err, bridge.ErrInterrupted) || !st.cross(ctx) {
			st.note(records)
			return records, err
		}
	}
	if records := st.pending; len(records) > 0 {
		st.pending = nil
		return records, nil
	}
	if st.live == nil {
		return nil, bridge.ErrInterrupted
	}
	return st.live.Next(ctx)
}

// Replay implements bridge.Subscription.
func (st *steady) Replay(ctx context.Context) ([]*bridge.Record, error) {
	if st.crossed {
		return nil, nil
	}
	records, err := st.sub.Replay(ctx)
	if errors.Is(err, bridge.ErrInterrupted) && st.cross(ctx) {
		return nil, nil
	}
	st.note(records)
	return records, err
}

func (st *steady) note(records []*bridge.Record) {
	for _, rec := range records {
		if rec.Run == st.run {
			st.seen, st.fills = rec.Offset, st.fills || rec.Index > 0
		}
	}
}

// Head implements bridge.Subscription.
func (st *steady) Head() bridge.Offset { return st.sub.Head() }

// Gap implements bridge.Subscription.
func (st *steady) Gap(r id.Run) bridge.Gap { return st.sub.Gap(r) }

// Close implements bridge.Subscription.
func (st *steady) Close() {
	st.sub.Close()
	if st.live != nil {
		st.live.Close()
	}
	if st.of != nil {
		st.near.unfollow(st.of)
		st.of = nil
	}
}
