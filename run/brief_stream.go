package run

import (
	"context"
	"sync"

	"understudy/bridge"
	"understudy/id"
)

// briefStream is the stream of a brief run. While nobody else can know of the run there is one reader, so what is published is handed to it here;
// once the run is written it goes through the bridge as that of any other.
type briefStream struct {
	wake chan struct{} // capacity 1: something changed

	mu      sync.Mutex
	waiting []*bridge.Record
	bridged bridge.Subscription // nil: the run is not written
	err     error               // why nothing comes any more
	closed  bool
}

// briefRecords bounds what waits for the reader. A run that says more in its first moments than is read is one that a reader cannot follow.
const briefRecords = 10_000

func newBriefStream() *briefStream { return &briefStream{wake: make(chan struct{}, 1)} }

// publish takes records. ok is false when they are the bridge's.
func (b *briefStream) publish(records []*bridge.Record) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.bridged != nil:
		return false
	case b.closed || b.err != nil: // nobody reads
	case len(b.waiting)+len(records) > briefRecords:
		b.waiting, b.err = nil, bridge.ErrSlow
	default:
		b.waiting = append(b.waiting, records...)
	}
	poke(b.wake)
	return true
}

// hand goes on with a subscription of the bridge, to which what waits is published first. Without one it ends with an error when what waits was read.
func (b *briefStream) hand(sub bridge.Subscription, err error, publish func([]*bridge.Record) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer poke(b.wake)
	if err == nil && len(b.waiting) > 0 {
		err = publish(b.waiting)
		b.waiting = nil
	}
	if err != nil {
		b.err = err
	}
	if b.bridged = sub; sub == nil {
		b.bridged = lostSubscription{}
	}
	if b.closed {
		b.bridged.Close()
	}
}

// Next implements bridge.Subscription.
func (b *briefStream) Next(ctx context.Context) ([]*bridge.Record, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b.mu.Lock()
		records, err, bridged := b.waiting, b.err, b.bridged
		b.waiting = nil
		b.mu.Unlock()
		switch {
		case len(records) > 0:
			return records, nil
		case err != nil:
			return nil, err
		case bridged != nil:
			return bridged.Next(ctx)
		}
		select {
		case <-b.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Replay implements bridge.Subscription: nothing was published before.
func (b *briefStream) Replay(context.Context) ([]*bridge.Record, error) { return nil, nil }

// Head implements bridge.Subscription.
func (b *briefStream) Head() bridge.Offset { return bridge.Offset{} }

// Gap implements bridge.Subscription.
func (b *briefStream) Gap(id.Run) bridge.Gap { return bridge.NoGap }

// Close implements bridge.Subscription.
func (b *briefStream) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.bridged != nil {
		b.bridged.Close()
	}
	b.closed, b.waiting = true, nil
}

// lostSubscription stands for one that could not be had: what is published goes to the bridge all the same.
type lostSubscription struct{ bridge.Subscription }

func (lostSubscription) Close() {}
