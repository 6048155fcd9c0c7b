package bridge

import (
	"context"
	"slices"
	"sync"

	"understudy/id"
)

// overhead is the memory of a record in addition to its text.
const overhead = 160

func size(r *Record) int64 { return int64(len(r.Event)+len(r.Data)+len(r.Frame)) + overhead }

// topic is the stream of one thread: the records kept for replay, and the live records that some subscriber has not read yet. The newest of
// these are in memory, earlier ones, when readers lag, on disk. Slices that were returned to subscribers are never written below their length:
// kept and live only grow at their end, or are replaced.
type topic struct {
	owner *Memory

	mu   sync.Mutex // guards everything below, and the fields of subscriptions marked so
	last Offset
	gone bool // removed from the bridge; look the thread up again

	kept      []*Record
	keptBytes int64
	unsaved   map[Offset]struct{} // of kept records that are Stored, and which the database does not have yet; or never, when it was away for long
	// runs holds the kept runs that are running, or have kept or dropped records.
	runs    map[id.Run]*keptRun
	open    int   // kept runs that have not ended
	expires int64 // ms; valid while records are kept and no kept run is open
	lost    loss  // over all runs
	settled bool  // a run with stored records has ended, and some of them may be kept

	live      []*Record
	end       int64 // number of live records so far; live holds the last len(live) of them
	endBytes  int64 // their bytes
	liveBytes int64
	spilled   *spill // the live records before those; nil: no reader is that far behind
	spilling  bool   // a goroutine moves live records to disk
	noDisk    bool   // the disk failed; retried when all readers have caught up
	subs      []*subscription
	behind    int           // subscriptions that have live records to read
	wake      chan struct{} // closed by the next publish; nil without waiters
}

type keptRun struct {
	ended bool
	lost  loss
}

// loss holds the highest offsets that were dropped.
type loss struct{ tokens, records Offset }

func (l *loss) add(r *Record) {
	o := &l.records
	if r.Kind == Token {
		o = &l.tokens
	}
	if o.Compare(r.Offset) < 0 {
		*o = r.Offset
	}
}

func (l *loss) above(o Offset) Gap {
	switch {
	case l.records.Compare(o) > 0:
		return RecordGap
	case l.tokens.Compare(o) > 0:
		return TokenGap
	default:
		return NoGap
	}
}

func (p *topic) publish(now int64, records []*Record, opts *Options) {
	p.expire(now)
	for _, r := range records {
		p.last = r.After(p.last, now)
		r.Offset = p.last
		p.keep(r, now+opts.TTL.Milliseconds())
	}
	if len(p.kept) > opts.Records || p.keptBytes > opts.Bytes {
		p.shrink(opts.Records-opts.Records/8, opts.Bytes-opts.Bytes/8)
	}
	p.deliver(records, opts)
}

// deliver passes records to the subscribers.
func (p *topic) deliver(records []*Record, opts *Options) {
	if len(p.subs) == 0 {
		return
	}
	// Check before the batch is added: a reader that has seen everything so far is never slow, however large the batch.
	if p.liveBytes > opts.LagBytes { // the disk is slower than the publisher, or not there
		p.dropSlow(opts.LagBytes / 2)
	}
	p.live = append(p.live, records...)
	p.end += int64(len(records))
	for _, r := range records {
		p.liveBytes += size(r)
		p.endBytes += size(r)
	}
	p.behind = len(p.subs)
	p.notify()
	if p.liveBytes > opts.LagBytes/spillAt && !p.spilling && !p.noDisk {
		p.spilling = p.owner.spillers.begin(p.spillOver)
	}
}

func (p *topic) notify() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// keep stores a record for replay, and notes the ends of kept runs. expires is when the kept records expire if this was the
// last end.
func (p *topic) keep(r *Record, expires int64) {
	run := p.runs[r.Run]
	if r.Kept && run == nil {
		run = &keptRun{}
		if p.runs == nil {
			p.runs = map[id.Run]*keptRun{}
		}
		p.runs[r.Run] = run
		p.open++
	}
	if r.Kind == Terminal && run != nil && !run.ended {
		run.ended = true
		p.open--
		p.expires = expires
		p.settled = p.settled || r.Stored
	}
	if !r.Kept || r.Ephemeral {
		return
	}
	p.kept = append(p.kept, r)
	if r.Stored {
		if p.unsaved == nil {
			p.unsaved = map[Offset]struct{}{}
		}
		p.unsaved[r.Offset] = struct{}{}
	}
	p.holds(p.keptBytes + size(r))
}

// holds notes how many bytes are kept now.
func (p *topic) holds(bytes int64) {
	p.owner.kept.Add(bytes - p.keptBytes)
	p.keptBytes = bytes
}

// shrink drops kept records until no more than these are left. Dropping touches all kept records, so the callers drop many at a time. Tokens go
// first, then the oldest records, and records of a running run only when nothing else is left.
func (p *topic) shrink(records int, bytes int64) {
	for _, may := range []func(*Record) bool{
		func(r *Record) bool { return r.Kind == Token },
		func(r *Record) bool { return p.runs[r.Run].ended },
		func(*Record) bool { return true },
	} {
		if len(p.kept) <= records && p.keptBytes <= bytes {
			return
		}
		n, size0 := len(p.kept), p.keptBytes
		p.filter(func(r *Record) bool {
			if n <= records && size0 <= bytes || !may(r) {
				return true
			}
			n--
			size0 -= size(r)
			p.lost.add(r)
			p.runs[r.Run].lost.add(r)
			return false
		})
	}
}

// saved notes that the database has records, and drops what it has: all of runs that have ended, and of the others the older ones when there are many.
func (p *topic) saved(records []*Record) {
	for _, r := range records {
		delete(p.unsaved, r.Offset)
	}
	if !p.settled && p.keptBytes <= recentBytes {
		return
	}
	bytes, waits := p.keptBytes, false
	p.filter(func(r *Record) bool {
		ended := p.runs[r.Run].ended
		_, unsaved := p.unsaved[r.Offset]
		switch {
		case unsaved:
			waits = waits || ended
			return true
		case !r.Stored || !ended && bytes <= recentBytes/2: // half of them, so that this happens seldom
			return true
		}
		bytes -= size(r)
		p.lost.add(r)
		p.runs[r.Run].lost.add(r)
		return false
	})
	p.settled = waits
}

// filter keeps only the records for which stays returns true.
func (p *topic) filter(stays func(*Record) bool) {
	var kept []*Record
	bytes := int64(0)
	for _, r := range p.kept {
		if !stays(r) {
			delete(p.unsaved, r.Offset)
			continue
		}
		kept = append(kept, r)
		bytes += size(r)
	}
	p.kept = kept
	p.holds(bytes)
}

// forget drops what is kept of runs. expires is when the rest expires if one of them was the last that had not ended.
func (p *topic) forget(expires int64, gone func(id.Run) bool) {
	before := len(p.runs)
	for r, run := range p.runs {
		if !gone(r) {
			continue
		}
		if !run.ended {
			p.open--
			p.expires = expires
		}
		delete(p.runs, r)
	}
	if len(p.runs) == before {
		return
	}
	p.filter(func(k *Record) bool { return p.runs[k.Run] != nil })
	p.lost = loss{}
	for _, run := range p.runs {
		if p.lost.tokens.Compare(run.lost.tokens) < 0 {
			p.lost.tokens = run.lost.tokens
		}
		if p.lost.records.Compare(run.lost.records) < 0 {
			p.lost.records = run.lost.records
		}
	}
}

// expire drops kept records after their expiry.
func (p *topic) expire(now int64) {
	if len(p.runs) > 0 && p.open == 0 && now >= p.expires {
		p.forget(0, func(id.Run) bool { return true })
	}
}

// idle reports whether the topic can be removed without losing anything.
func (p *topic) idle(now int64) bool {
	return len(p.subs) == 0 && len(p.runs) == 0 && p.last.MS < now && !p.gone
}

func (p *topic) subscribe(after *Offset, closed <-chan struct{}, opts *Options) *subscription {
	s := &subscription{topic: p, closed: closed, opts: opts, head: p.last, cursor: p.end, cursorBytes: p.endBytes, index: len(p.subs)}
	p.subs = append(p.subs, s)
	if after == nil {
		return s
	}
	s.after, s.resumed, s.lost = *after, true, p.lost
	if s.lost.above(*after) != NoGap {
		s.lostOf = make(map[id.Run]loss, len(p.runs))
		for r, run := range p.runs {
			s.lostOf[r] = run.lost
		}
	}
	i, found := slices.BinarySearchFunc(p.kept, *after, func(r *Record, o Offset) int { return r.Offset.Compare(o) })
	if found {
		i++
	}
	s.replay = p.kept[i:len(p.kept):len(p.kept)]
	return s
}

// drop ends a subscription at once. Its reader gets the error why.
func (p *topic) drop(s *subscription, why error) {
	s.opts.Metrics.dropped(why)
	p.finish(s, why)
}

// finish removes a subscription whose reader gets an error.
func (p *topic) finish(s *subscription, why error) {
	s.dropped, s.replay = why, nil
	p.remove(s)
	p.notify()
}

// interrupt ends a subscription with ErrInterrupted once it has read all delivered records.
func (p *topic) interrupt(s *subscription) {
	if s.interrupted {
		return
	}
	s.opts.Metrics.dropped(ErrInterrupted)
	s.interrupted, s.until, s.untilBytes = true, p.end, p.endBytes
	if s.cursor == p.end && len(s.replay) == 0 {
		p.finish(s, ErrInterrupted)
	}
}

// remove removes a subscription from the topic.
func (p *topic) remove(s *subscription) {
	last := len(p.subs) - 1
	p.subs[s.index] = p.subs[last]
	p.subs[s.index].index = s.index
	p.subs[last] = nil
	p.subs = p.subs[:last]
	s.index = -1
	if s.cursor < p.end {
		p.caughtUp()
	}
	p.release()
}

// caughtUp notes that a subscription has no live records left to read.
func (p *topic) caughtUp() {
	if p.behind--; p.behind == 0 {
		p.live, p.liveBytes, p.noDisk = nil, 0, false
		p.release()
	}
}

// subscription is a cursor in a topic. It costs no goroutine and no timer.
type subscription struct {
	topic  *topic
	closed <-chan struct{} // of the bridge
	opts   *Options        // of the bridge

	head    Offset // of the stream at Subscribe
	after   Offset
	resumed bool // after was given
	lost    loss
	lostOf  map[id.Run]loss

	// Guarded by topic.mu.
	index       int       // in topic.subs; -1 when out
	dropped     error     // why it was dropped; nil when it was not
	begin       Offset    // see Beginner
	replay      []*Record // still to return, before live records
	cursor      int64     // live records read, or published before
	cursorBytes int64
	// interrupted: the subscription ends with ErrInterrupted after reading the live records up to until.
	interrupted bool
	until       int64
	untilBytes  int64
}

// Next implements Subscription.
func (s *subscription) Next(ctx context.Context) ([]*Record, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		records, wake, err := s.take()
		if err != nil || records != nil {
			return records, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
		case <-s.closed:
			// Records published just before the end are still returned.
			if records, _, err = s.take(); err != nil || records != nil {
				return records, err
			}
			return nil, ErrClosed
		}
	}
}

// Replay implements Subscription.
func (s *subscription) Replay(ctx context.Context) (records []*Record, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	if err := s.gone(); err != nil {
		return nil, err
	}
	records, s.replay = s.replay, nil
	return records, nil
}

// Head implements Subscription.
func (s *subscription) Head() Offset { return s.head }

// take returns what is ready, or a channel to wait on.
func (s *subscription) take() (records []*Record, wake <-chan struct{}, err error) {
	p := s.topic
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.gone(); err != nil {
		return nil, nil, err
	}
	switch {
	case len(s.replay) > 0:
		records, s.replay = s.replay, nil
		return records, nil, nil
	case s.interrupted && s.cursor >= s.until:
		p.finish(s, ErrInterrupted)
		return nil, nil, ErrInterrupted
	case s.cursor < p.start():
		records, err = s.takeSpilled()
	case s.interrupted && s.until < p.end:
		records = p.live[s.cursor-p.start() : s.until-p.start() : s.until-p.start()]
		s.cursor, s.cursorBytes = s.until, s.untilBytes
	case s.cursor < p.end:
		n := len(p.live)
		records = p.live[int64(n)-(p.end-s.cursor) : n : n]
		s.cursor, s.cursorBytes = p.end, p.endBytes
		p.caughtUp()
	default:
		if p.wake == nil {
			p.wake = make(chan struct{})
		}
		return nil, p.wake, nil
	}
	if err == nil {
		s.opts.Metrics.took(records[0].Offset.MS, s.opts.Now().UnixMilli())
	}
	return records, nil, err
}

// gone is the error of a subscription that has ended; nil while it has not.
func (s *subscription) gone() error {
	switch {
	case s.dropped != nil:
		return s.dropped
	case s.index < 0:
		return ErrClosed
	}
	return nil
}

// Gap implements Subscription.
func (s *subscription) Gap(r id.Run) Gap {
	if !s.resumed {
		return NoGap
	}
	l := s.lost
	if r != "" {
		l = s.lostOf[r]
	}
	return l.above(s.after)
}

var _ Beginner = (*subscription)(nil)

// Begin implements Beginner.
func (s *subscription) Begin(o Offset) bool {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	s.begin = o
	return s.dropped == nil && !s.interrupted
}

// Close implements Subscription.
func (s *subscription) Close() {
	p := s.topic
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.index >= 0 {
		p.remove(s)
	}
}
