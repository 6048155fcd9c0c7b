package stream

import (
	"context"
	"errors"

	"understudy/bridge"
	"understudy/id"
)

// runSubscription is a subscription to one run. While this instance executes the run it outlives the subscription of the bridge. Offsets of the bridge
// and of records from this instance do not compare: the bridge moves records that came behind those of a server whose clock is ahead.
type runSubscription struct {
	failover *failover
	entry    *failoverRun // nil after Close
	run      id.Run
	sub      bridge.Subscription // of the bridge
	seen     ordinal             // of the last record
	durable  bool                // the database has the records of the run
	// fillsGaps: the reader reads records that are missing before the next one from the database.
	fillsGaps bool

	failedOver bool
	pending    []*bridge.Record
	live       bridge.Subscription // nil: nothing comes after pending
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

// runSubscription returns the subscription of a run over one of its thread, which is nil while the bridge is away. Its reader has seen the records up to a
// place, of which the database has an offset.
func (f *Followers) runSubscription(r id.Run, entry *failoverRun, sub bridge.Subscription, seen ordinal, offset bridge.Offset) *runSubscription {
	if sub == nil {
		sub = noSubscription{head: offset}
	}
	return &runSubscription{failover: f.Publisher.failover, entry: entry, run: r, sub: sub, seen: seen}
}

// failOver switches to what the run publishes here, and reports whether it could.
func (st *runSubscription) failOver(ctx context.Context) bool {
	if st.failedOver {
		return false
	}
	recent, live, ok := st.failover.resume(ctx, st.entry, st.seen, st.fillsGaps)
	if !ok {
		return false
	}
	st.failedOver, st.pending, st.live = true, recent, live
	return true
}

// Next implements bridge.Subscription.
func (st *runSubscription) Next(ctx context.Context) ([]*bridge.Record, error) {
	if !st.failedOver {
		records, err := st.sub.Next(ctx)
		if !errors.Is(err, bridge.ErrInterrupted) || !st.failOver(ctx) {
			st.note(records)
			return records, err
		}
	}
	for {
		records := st.pending
		st.pending = nil
		if len(records) == 0 {
			if st.live == nil {
				return nil, bridge.ErrInterrupted
			}
			var err error
			if records, err = st.live.Next(ctx); err != nil {
				return nil, err
			}
		}
		if records = st.unseen(records); len(records) > 0 {
			return records, nil
		}
	}
}

// unseen returns those of some records that were not returned before. The bridge may have returned a record before the failover got it.
func (st *runSubscription) unseen(records []*bridge.Record) []*bridge.Record {
	out := records[:0:0]
	for _, rec := range records {
		if rec.Index > 0 {
			if !st.seen.before(ordinalOf(rec)) {
				continue
			}
			st.seen = ordinalOf(rec)
		}
		out = append(out, rec)
	}
	return out
}

// Replay implements bridge.Subscription.
func (st *runSubscription) Replay(ctx context.Context) ([]*bridge.Record, error) {
	if st.failedOver {
		return nil, nil
	}
	records, err := st.sub.Replay(ctx)
	if errors.Is(err, bridge.ErrInterrupted) && st.failOver(ctx) {
		return nil, nil
	}
	st.note(records)
	return records, err
}

func (st *runSubscription) note(records []*bridge.Record) {
	for _, rec := range records {
		if rec.Run == st.run && rec.Index > 0 && st.seen.before(ordinalOf(rec)) {
			st.seen, st.fillsGaps = ordinalOf(rec), st.durable
		}
	}
}

// Head implements bridge.Subscription.
func (st *runSubscription) Head() bridge.Offset { return st.sub.Head() }

// Gap implements bridge.Subscription.
func (st *runSubscription) Gap(r id.Run) bridge.Gap { return st.sub.Gap(r) }

// Close implements bridge.Subscription.
func (st *runSubscription) Close() {
	st.sub.Close()
	if st.live != nil {
		st.live.Close()
	}
	if st.entry != nil {
		st.failover.unfollow(st.entry)
		st.entry = nil
	}
}
