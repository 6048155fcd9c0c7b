package stream

import (
	"context"
	"math"
	"sync"
	"time"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

const (
	// recentBytes bounds what is kept of the latest records of a run, recentTotal of all runs.
	recentBytes = 4 << 20
	recentTotal = 64 << 20
	// recentFor is how long records may take to come back from Redis before their followers are interrupted. What is older goes, except recentLeast.
	recentFor   = 20 * time.Second
	recentLeast = 256 << 10
)

// failover serves followers of runs that this instance executes when Redis is full or away: it keeps the latest records of runs with followers
// here, until these have them from Redis, and delivers what comes to followers that Redis has interrupted.
type failover struct {
	live *bridge.Memory // carries the records of runs to interrupted followers, a topic for each run; it keeps nothing

	mu    sync.Mutex // guards what follows, and the fields of failoverRun
	runs  map[id.Run]*failoverRun
	bytes int64
}

// failoverRun is a run that is executed or followed here.
type failoverRun struct {
	run       id.Run
	followers int
	attempt   int  // the last that has begun here
	active    bool // that attempt is executed here
	over      bool // the end of the run was published, or it was deleted
	// last is the place of the last record that was published here, and lastOffset the offset that the database has of it.
	last       ordinal
	lastOffset bridge.Offset
	// recent holds everything published above complete.
	recent   []*bridge.Record
	since    []time.Time // when each of recent was published
	bytes    int64
	complete ordinal
}

func newFailover(limits bridge.Options) *failover {
	limits.Metrics = nil // followers count once, where they subscribed first
	return &failover{live: bridge.NewMemory(limits), runs: map[id.Run]*failoverRun{}}
}

// topic is the name of a run's stream in live.
func (h *failoverRun) topic() id.Thread { return id.Thread(h.run) }

// entry returns what is kept of a run, and makes it if needed.
func (f *failover) entry(r id.Run) *failoverRun {
	h := f.runs[r]
	if h == nil {
		h = &failoverRun{run: r}
		f.runs[r] = h
	}
	return h
}

// begin notes that an attempt of a run begins here. An earlier one may not have ended yet.
func (f *failover) begin(r *run.Run) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.entry(r.ID)
	if r.Attempt < h.attempt {
		return
	}
	f.drop(h, len(h.recent))
	h.attempt, h.active, h.over = r.Attempt, true, false
	h.last = ordinal{attempt: r.Attempt}
	if r.Attempt > 1 { // earlier attempts may have been executed elsewhere
		h.complete = h.last
	}
}

// end notes that an attempt has ended here. When the run has not, its followers have to look elsewhere.
func (f *failover) end(r *run.Run) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.runs[r.ID]
	if h == nil || h.attempt != r.Attempt {
		return // the next attempt has begun here
	}
	h.active = false
	if !h.over {
		f.live.Interrupt(h.topic(), bridge.Offset{MS: math.MaxInt64})
	}
	f.leave(h)
}

// deleted notes that a run is gone, with its thread or by itself: its followers end.
func (f *failover) deleted(r *run.Run) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.runs[r.ID]; h != nil && h.attempt == r.Attempt && !h.over {
		f.add(h, []*bridge.Record{{Kind: bridge.Terminal}})
	}
}

// leave drops a run that is neither executed nor followed.
func (f *failover) leave(h *failoverRun) {
	if h.followers == 0 {
		f.drop(h, len(h.recent))
		if !h.active && f.runs[h.run] == h {
			delete(f.runs, h.run)
		}
	}
}

// drop drops the oldest records.
func (f *failover) drop(h *failoverRun, count int) {
	for _, rec := range h.recent[:count] {
		h.bytes -= sizeOf(rec)
		f.bytes -= sizeOf(rec)
		if rec.Index > 0 {
			h.complete = ordinalOf(rec)
		}
	}
	// Only append moves the rest, when it has no more room: thousands may be kept, and each that comes may drop one.
	clear(h.recent[:count])
	h.recent, h.since = h.recent[count:], h.since[count:]
}

func sizeOf(r *bridge.Record) int64 { return int64(len(r.Event)+len(r.Data)) + 160 }

// published takes records that an attempt of a run which is executed here has published.
func (f *failover) published(r *run.Run, records []*bridge.Record) {
	if f == nil || len(records) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.runs[r.ID]; h != nil && h.active && h.attempt == r.Attempt {
		f.add(h, records)
	}
}

// add keeps and delivers records.
func (f *failover) add(h *failoverRun, records []*bridge.Record) {
	for _, rec := range records {
		h.over = h.over || rec.Kind == bridge.Terminal
		if rec.Index > 0 {
			h.last, h.lastOffset = ordinalOf(rec), rec.Offset
		}
	}
	if h.followers == 0 {
		h.complete = h.last
		return
	}
	now := time.Now()
	for _, rec := range records {
		h.recent, h.since = append(h.recent, rec), append(h.since, now)
		h.bytes += sizeOf(rec)
		f.bytes += sizeOf(rec)
	}
	count, bytes, total := 0, h.bytes, f.bytes
	for count < len(h.recent)-len(records) && (bytes > recentBytes || total > recentTotal || bytes > recentLeast && now.Sub(h.since[count]) > recentFor) {
		bytes -= sizeOf(h.recent[count])
		total -= sizeOf(h.recent[count])
		count++
	}
	if count > 0 {
		f.drop(h, count)
	}
	f.live.Deliver(h.topic(), records)
}

// follow registers a follower of a run. Its records are kept until unfollow.
func (f *failover) follow(r id.Run) *failoverRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.entry(r)
	h.followers++
	return h
}

func (f *failover) unfollow(h *failoverRun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.followers--
	f.leave(h)
}

// resume returns what a run has published above a place, and, unless it is over, a subscription of what comes. With partial records may be missing
// between the place and the first one returned. ok is false when the run is not executed here, or records are missing.
func (f *failover) resume(ctx context.Context, h *failoverRun, seen ordinal, partial bool) (recent []*bridge.Record, live bridge.Subscription, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.active && !h.over || !partial && seen.before(h.complete) {
		return nil, nil, false
	}
	from := 0
	for i, rec := range h.recent {
		if rec.Index > 0 && !seen.before(ordinalOf(rec)) {
			from = i + 1
		}
	}
	recent = append(recent, h.recent[from:]...)
	if h.over {
		return recent, nil, true
	}
	live, err := f.live.Subscribe(ctx, h.topic(), nil)
	return recent, live, err == nil
}

// lastOf returns the place of the last record that a run has published here, and the offset that the database has of it.
func (f *failover) lastOf(h *failoverRun) (ordinal, bridge.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.last, h.lastOffset
}
