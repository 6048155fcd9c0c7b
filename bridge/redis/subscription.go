package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"understudy/bridge"
	"understudy/id"
)

// Subscribe implements bridge.Bridge. While Redis is unavailable it returns bridge.ErrInterrupted.
func (b *Bridge) Subscribe(ctx context.Context, t id.Thread, after *bridge.Offset) (bridge.Subscription, error) {
	if b.isClosed() {
		return nil, bridge.ErrClosed
	}
	over := b.queue.over()
	select {
	case <-over:
		return nil, fmt.Errorf("%w: %w", bridge.ErrInterrupted, errShut)
	default:
	}
	began := time.Now()
	bounded, cancel := context.WithTimeoutCause(ctx, b.opts.Outage, bridge.ErrInterrupted)
	defer cancel()
	s := &subscription{b: b, thread: t}
	// It must not wait for a Redis that hangs, and the client of Redis does not watch the end of a context: the goroutine may be left behind.
	opened, left := make(chan error), make(chan struct{})
	go func() {
		err := s.open(bounded, after)
		if err != nil {
			s.Close()
		}
		select {
		case opened <- err:
		case <-left:
			s.Close()
		}
	}()
	var err error
	select {
	case err = <-opened:
		if err == nil && b.queue.shut.Load() { // earlier subscriptions were interrupted before this one was added
			s.Close()
			err = errShut
		}
	case <-over:
		close(left)
		err = errShut
	case <-bounded.Done():
		close(left)
		err = context.Cause(bounded)
	}
	switch {
	case err == nil:
		return s, nil
	case b.isClosed():
		return nil, bridge.ErrClosed
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bounded.Err() != nil:
		b.queue.hung(began)
	}
	return nil, fmt.Errorf("%w: %w", bridge.ErrInterrupted, err)
}

var errShut = errors.New("redis accepts no records")

// subscription returns the kept records above an offset, page by page, and then new ones.
type subscription struct {
	b      *Bridge
	thread id.Thread
	live   bridge.Subscription
	read   bool // the reader reads the stream for it

	at      position // of the stream at Subscribe
	after   bridge.Offset
	resumed bool             // after was given
	given   bridge.Offset    // only live records above it are returned
	replay  []*bridge.Record // ready to be returned
	more    bool             // the rest of the replay is in Redis, above from
	from    bridge.Offset
}

// maxTries limits how often a subscription starts over because its stream was dropped or interrupted meanwhile. Usually one try is enough; with
// a Redis that lost its data unnoticed it would try forever.
const maxTries = 10

var errUnsteady = errors.New("the stream changes faster than it can be subscribed to")

func (s *subscription) open(ctx context.Context, after *bridge.Offset) error {
	// Records published here before must be in Redis, so that they count as earlier ones.
	if err := s.b.queue.flushed(ctx, s.thread, nil); err != nil {
		return err
	}
	var first []goredis.XMessage
	var wakes bool
	var start bridge.Offset // from where the reader delivers entries
	for tries := 0; s.live == nil; tries++ {
		if tries == maxTries {
			return errUnsteady
		}
		// Subscribe to live records before reading the kept ones: duplicates are recognized by their offset.
		live, err := s.b.local.Subscribe(ctx, s.thread, nil)
		if err != nil {
			return err
		}
		if s.at, first, err = s.b.reader.look(ctx, s.thread, after); err != nil {
			live.Close()
			return err
		}
		// Other subscriptions may have been interrupted meanwhile for a loss that this one has noticed already.
		if b, ok := live.(bridge.Beginner); ok && !b.Begin(s.at.last) {
			live.Close()
			continue
		}
		if !s.read {
			wakes, start = s.b.reader.add(s.thread, s.at)
			s.read = true
		}
		// The stream may have been dropped since the look, and added again at a later position: entries in between are not
		// delivered.
		if start.Compare(s.at.last) > 0 {
			live.Close()
			continue
		}
		s.live, s.given = live, s.at.last
	}
	if wakes {
		// Not canceled with ctx, because others that have joined since depend on it too.
		waking, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.b.patience())
		defer cancel()
		if err := s.b.reader.wake(waking); err != nil {
			return err
		}
	}
	if after == nil {
		return nil
	}
	s.after, s.from, s.resumed = *after, *after, true
	return s.take(first)
}

// take decodes entries for return, up to the position of the stream at Subscribe.
func (s *subscription) take(entries []goredis.XMessage) error {
	s.more = len(entries) == page
	for _, m := range entries {
		e, err := decode(m.ID, m.Values)
		if err != nil {
			return err
		}
		if e.Offset.Compare(s.at.last) > 0 {
			s.more = false
			break
		}
		s.from = e.Offset
		if e.gap || !e.Kept || e.Ephemeral {
			continue
		}
		if s.b.opts.Frame != nil {
			e.Frame = s.b.opts.Frame(e.Event, e.Data)
		}
		s.replay = append(s.replay, e.Record)
	}
	return nil
}

// Next implements bridge.Subscription.
func (s *subscription) Next(ctx context.Context) ([]*bridge.Record, error) {
	for {
		records, err := s.Replay(ctx)
		if err != nil || len(records) > 0 {
			return records, err
		}
		records, err = s.live.Next(ctx)
		if err != nil {
			return nil, err
		}
		if records = above(records, s.given); len(records) > 0 {
			s.given = records[len(records)-1].Offset
			return records, nil
		}
	}
}

// above returns the records above an offset, each once. Some may arrive twice: a stream that was dropped during a Subscribe is read again from the
// position that it found, and a server may resend unacknowledged records to a Redis that came back empty.
func above(records []*bridge.Record, o bridge.Offset) []*bridge.Record {
	for i, r := range records {
		if r.Offset.Compare(o) > 0 {
			o = r.Offset
			continue
		}
		out := slices.Clone(records[:i]) // others share the slice
		for _, r := range records[i+1:] {
			if r.Offset.Compare(o) > 0 {
				out, o = append(out, r), r.Offset
			}
		}
		return out
	}
	return records
}

// Replay implements bridge.Subscription.
func (s *subscription) Replay(ctx context.Context) (records []*bridge.Record, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for s.more && len(s.replay) == 0 {
		if err := s.page(ctx); err != nil {
			return nil, err
		}
	}
	if len(s.replay) == 0 {
		return s.live.Replay(ctx) // it has none, but may have ended
	}
	records, s.replay = s.replay, nil
	return records, nil
}

// Head implements bridge.Subscription.
func (s *subscription) Head() bridge.Offset { return s.at.last }

// page reads the next page of a long replay. If records are dropped meanwhile, which Gap did not report, the reader must
// subscribe again.
func (s *subscription) page(ctx context.Context) error {
	now, entries, err := s.b.reader.look(ctx, s.thread, &s.from)
	switch {
	case err == nil:
	case s.b.isClosed():
		return bridge.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("%w: %w", bridge.ErrInterrupted, err)
	}
	if now.lost != s.at.lost || now.born != s.at.born {
		return bridge.ErrInterrupted
	}
	if err := s.take(entries); err != nil {
		return errors.Join(bridge.ErrInterrupted, err)
	}
	return nil
}

// Gap implements bridge.Subscription.
func (s *subscription) Gap(r id.Run) bridge.Gap {
	if !s.resumed {
		return bridge.NoGap
	}
	var none bridge.Offset
	if s.after != none && s.after.Compare(s.at.born) < 0 {
		// The offset is of a stream that no longer exists: Redis has lost its data, or the thread was idle for long.
		return bridge.RecordGap
	}
	if s.after.Compare(s.at.last) > 0 {
		return bridge.RecordGap // the same, or Redis lost its latest writes
	}
	lost := s.at.lost
	if r != "" {
		lost = s.at.lostOf[r]
	}
	return lost.above(s.after)
}

// Close implements bridge.Subscription.
func (s *subscription) Close() {
	if s.live != nil {
		s.live.Close()
	}
	if s.read {
		s.read = false
		s.b.reader.remove(s.thread)
	}
}
