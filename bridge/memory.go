package bridge

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"understudy/id"
)

// Memory is a Bridge within one process. Run, which its owner calls, frees the memory of unused threads. Its only goroutines move unread
// records to disk, one per thread with lagging readers; Close waits for them.
type Memory struct {
	opts  Options
	clock atomic.Int64 // highest time seen, in ms: offsets never go back, even if the clock does

	closed chan struct{}
	close  sync.Once

	spillers spillers
	spilled  atomic.Int64 // bytes on disk, of all threads

	kept     atomic.Int64 // bytes kept for replay, of all threads
	evicting sync.Mutex   // held by the publisher that makes room

	mu     sync.RWMutex // guards topics; taken before the lock of a topic
	topics map[id.Thread]*topic
}

var _ Bridge = (*Memory)(nil)

// NewMemory makes an empty bridge.
func NewMemory(opts Options) *Memory {
	return &Memory{opts: opts.withDefaults(), closed: make(chan struct{}), topics: map[id.Thread]*topic{}}
}

// Run removes expired records and empty threads until ctx ends, and returns its cause.
func (m *Memory) Run(ctx context.Context) error {
	tick := time.NewTicker(min(max(m.opts.TTL/4, time.Second), 30*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.sweep()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Publish implements Bridge.
func (m *Memory) Publish(_ context.Context, t id.Thread, records []*Record) error {
	if m.isClosed() {
		return ErrClosed
	}
	if len(records) == 0 {
		return nil
	}
	p := m.locked(t)
	p.publish(m.now(), records, &m.opts)
	p.mu.Unlock()
	if m.kept.Load() > m.opts.Total && m.evicting.TryLock() {
		m.evict()
		m.evicting.Unlock()
	}
	return nil
}

// recentBytes is how much a thread keeps of the records of a run that the database has too: what a reader that was away for a moment needs.
const recentBytes = 2 << 20

// Saved notes that the database has some records of a thread. Of a run that has ended what it has is dropped, and of others all but the newest.
func (m *Memory) Saved(t id.Thread, records []*Record) {
	m.mu.RLock()
	p := m.topics[t]
	m.mu.RUnlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saved(records)
}

// evict drops kept records until an eighth of the limit of all threads is free again: all of threads on which no kept run goes, from the one that ended
// first, and then half of the others, from the one that keeps most.
func (m *Memory) evict() {
	type keeper struct {
		*topic
		busy           bool
		bytes, expires int64
	}
	var keepers []keeper
	m.mu.RLock()
	for _, p := range m.topics {
		p.mu.Lock()
		if p.keptBytes > 0 {
			keepers = append(keepers, keeper{p, p.open > 0, p.keptBytes, p.expires})
		}
		p.mu.Unlock()
	}
	m.mu.RUnlock()
	slices.SortFunc(keepers, func(a, b keeper) int {
		switch {
		case a.busy != b.busy && a.busy:
			return 1
		case a.busy != b.busy:
			return -1
		case a.busy:
			return cmp.Compare(b.bytes, a.bytes)
		}
		return cmp.Compare(a.expires, b.expires)
	})
	for _, k := range keepers {
		if m.kept.Load() <= m.opts.Total-m.opts.Total/8 {
			return
		}
		k.mu.Lock()
		if k.open == 0 {
			k.shrink(0, 0)
		} else {
			k.shrink(len(k.kept)/2, k.keptBytes/2)
		}
		k.mu.Unlock()
	}
}

// Deliver passes records of a stream that is stored elsewhere, with their offsets, to its subscribers. It does not keep them.
func (m *Memory) Deliver(t id.Thread, records []*Record) {
	m.mu.RLock()
	p := m.topics[t]
	m.mu.RUnlock()
	if p == nil || len(records) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deliver(records, &m.opts)
}

// Interrupt ends, with ErrInterrupted, the subscriptions of a thread (of all threads when t is empty) that begin below an offset, because they
// wait for records that are missing there. They first return the records already delivered to them.
func (m *Memory) Interrupt(t id.Thread, at Offset) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	topics := m.topics
	if t != "" {
		if topics = nil; m.topics[t] != nil {
			topics = map[id.Thread]*topic{t: m.topics[t]}
		}
	}
	for _, p := range topics {
		p.mu.Lock()
		for _, s := range slices.Backward(p.subs) { // remove puts the last one in the place of the one it takes out
			if s.begin.Compare(at) < 0 {
				p.interrupt(s)
			}
		}
		p.mu.Unlock()
	}
}

// Beginner is a Subscription of Memory whose records come from Deliver.
type Beginner interface {
	Subscription
	// Begin sets the offset up to which the reader knows the stream. Until then each Interrupt affects it: Begin returns false
	// after one.
	Begin(o Offset) bool
}

// Subscribe implements Bridge.
func (m *Memory) Subscribe(_ context.Context, t id.Thread, after *Offset) (Subscription, error) {
	if m.isClosed() {
		return nil, ErrClosed
	}
	p := m.locked(t)
	defer p.mu.Unlock()
	p.expire(m.now())
	return p.subscribe(after, m.closed, &m.opts), nil
}

// Advance implements Bridge.
func (m *Memory) Advance(t id.Thread, ms int64) {
	p := m.locked(t)
	defer p.mu.Unlock()
	if p.last.MS <= ms {
		p.last = Offset{MS: ms + 1, N: -1}
	}
}

// Forget implements Bridge.
func (m *Memory) Forget(_ context.Context, t id.Thread, r id.Run) error {
	p := m.existing(t)
	if p == nil {
		return nil
	}
	defer p.mu.Unlock()
	p.forget(m.now()+m.opts.TTL.Milliseconds(), func(of id.Run) bool { return of == r })
	return nil
}

// ForgetThread implements Bridge.
func (m *Memory) ForgetThread(_ context.Context, t id.Thread, until Offset) error {
	p := m.existing(t)
	if p == nil {
		return nil
	}
	defer p.mu.Unlock()
	since := map[id.Run]bool{}
	for _, r := range p.kept {
		since[r.Run] = since[r.Run] || r.Offset.Compare(until) > 0
	}
	expires := m.now() + m.opts.TTL.Milliseconds()
	p.forget(expires, func(r id.Run) bool { return !since[r] })
	return nil
}

// Close implements Bridge.
func (m *Memory) Close() error {
	m.close.Do(func() { close(m.closed) })
	m.spillers.end()
	return nil
}

func (m *Memory) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// now returns the time in ms, never less than before. A topic may be removed once the time has passed its last offset:
// later records of its thread then get a higher one.
func (m *Memory) now() int64 {
	now := m.opts.Now().UnixMilli()
	for {
		seen := m.clock.Load()
		if now <= seen {
			return seen
		}
		if m.clock.CompareAndSwap(seen, now) {
			return now
		}
	}
}

// existing returns the topic of a thread, locked; nil when there is none.
func (m *Memory) existing(t id.Thread) *topic {
	m.mu.RLock()
	p := m.topics[t]
	m.mu.RUnlock()
	if p != nil {
		p.mu.Lock()
	}
	return p
}

// locked returns the topic of a thread, locked. It is created if needed.
func (m *Memory) locked(t id.Thread) *topic {
	for {
		m.mu.RLock()
		p := m.topics[t]
		m.mu.RUnlock()
		if p == nil {
			m.mu.Lock()
			if p = m.topics[t]; p == nil {
				p = &topic{owner: m}
				m.topics[t] = p
			}
			m.mu.Unlock()
		}
		p.mu.Lock()
		if !p.gone {
			return p
		}
		p.mu.Unlock() // removed by Run meanwhile
	}
}

func (m *Memory) sweep() {
	now := m.now()
	var idle []id.Thread
	m.mu.RLock()
	for t, p := range m.topics {
		p.mu.Lock()
		p.expire(now)
		if p.idle(now) {
			idle = append(idle, t)
		}
		p.mu.Unlock()
	}
	m.mu.RUnlock()
	if len(idle) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range idle {
		p := m.topics[t]
		if p == nil {
			continue
		}
		p.mu.Lock()
		if p.idle(now) {
			p.gone = true
			delete(m.topics, t)
		}
		p.mu.Unlock()
	}
}
