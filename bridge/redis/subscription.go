package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"understudy/bridge"
	"understudy/id"
)

// Subscribe implements bridge.Bridge. While Redis is away: bridge.ErrInterrupted.
func (b *Bridge) Subscribe(ctx context.Context, t id.Thread, after *bridge.Offset) (bridge.Subscription, error) {
	if b.isClosed() {
		return nil, bridge.ErrClosed
	}
	// What was published here before is to count as such.
	bounded, cancel := context.WithTimeoutCause(ctx, b.opts.Outage, bridge.ErrInterrupted)
	defer cancel()
	s := &subscription{b: b, thread: t}
	var err error
	if b.queue.shut.Load() {
		return nil, fmt.Errorf("%w: %w", bridge.ErrInterrupted, errShut)
	}
	if err = s.open(bounded, after); err == nil && b.queue.shut.Load() {
		err = errShut // those that were there were interrupted before this one was
	}
	if err != nil {
		s.Close()
		switch {
		case b.isClosed():
			return nil, bridge.ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", bridge.ErrInterrupted, err)
	}
	return s, nil
}

var errShut = errors.New("redis takes no records")

// subscription gives the kept records above an offset, page by page, and then what comes.
type subscription struct {
	b      *Bridge
	thread id.Thread
	live   bridge.Subscription
	read   bool // the reader reads the stream for it

	at      position // of the stream when it was subscribed to
	after   bridge.Offset
	resumed bool             // after was given
	given   bridge.Offset    // of what comes live only what is above it is given
	replay  []*bridge.Record // ready to be given
	more    bool             // of the replay is in Redis, above from
	from    bridge.Offset
}

// maxTries bounds how often a subscription begins anew because its stream was left or interrupted meanwhile. Once is the rule; a Redis that has
// lost its memory and is not found out yet would be asked for ever.
const maxTries = 10

var errUnsteady = errors.New("the stream changes faster than it can be subscribed to")

func (s *subscription) open(ctx context.Context, after *bridge.Offset) error {
	if err := s.b.queue.flushed(ctx, s.thread, nil); err != nil {
		return err
	}
	var first []goredis.XMessage
	var tell bool
	var start bridge.Offset // from where on the reader hands entries out
	for tries := 0; s.live == nil; tries++ {
		if tries == maxTries {
			return errUnsteady
		}
		// First what comes, then what has been: what is in both is told by its offset.
		live, err := s.b.local.Subscribe(ctx, s.thread, nil)
		if err != nil {
			return err
		}
		if s.at, first, err = s.b.reader.look(ctx, s.thread, after); err != nil {
			live.Close()
			return err
		}
		// Others may have been interrupted meanwhile for something that this one has found missing already.
		if b, ok := live.(bridge.Beginner); ok && !b.Begin(s.at.last) {
			live.Close()
			continue
		}
		if !s.read {
			tell, start = s.b.reader.add(s.thread, s.at.last, s.at.count)
			s.read = true
		}
		// The stream may have been left since the look, and taken up again further on: nobody hands out what came in between.
		if start.Compare(s.at.last) > 0 {
			live.Close()
			continue
		}
		s.live, s.given = live, s.at.last
	}
	if tell {
		// Also for those who have joined meanwhile: whoever asked first may be gone.
		told, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.b.patience())
		defer cancel()
		if err := s.b.reader.poke(told); err != nil {
			return err
		}
	}
	if after == nil {
		return nil
	}
	s.after, s.from, s.resumed = *after, *after, true
	if after.Compare(s.given) > 0 {
		s.given = *after
	}
	s.b.opts.Metrics.Replayed(s.Gap(""))
	return s.take(first)
}

// take makes entries of the stream ready, up to where it was when it was subscribed to.
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

// above returns the records above an offset, each once. Some may come again: a stream that was left while somebody subscribed to it is read anew from
// where they had found it, and a Redis that came back empty may be given once more what had arrived and was not acknowledged.
func above(records []*bridge.Record, o bridge.Offset) []*bridge.Record {
	for i, r := range records {
		if r.Offset.Compare(o) > 0 {
			o = r.Offset
			continue
		}
		out := slices.Clone(records[:i]) // others have been given the same
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
		return s.live.Replay(ctx) // which has none, but may have ended
	}
	records, s.replay = s.replay, nil
	return records, nil
}

// Head implements bridge.Subscription.
func (s *subscription) Head() bridge.Offset { return s.at.last }

// page reads on in a long replay. What is dropped meanwhile was not told by Gap: then the reader has to come again.
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
		// Whoever saw this offset saw a stream that is gone: Redis has lost its memory, or the thread was quiet for long.
		return bridge.RecordGap
	}
	if s.after.Compare(s.at.last) > 0 {
		return bridge.RecordGap // the same, or it came back without its last moments
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
