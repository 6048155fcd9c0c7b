package stream

import (
	"context"
	"sync"

	"understudy/bridge"
	"understudy/id"
)

// DeferredStream is the stream of a deferred run. While no other client can know of the run there is one reader, which a bridge of its own serves: records
// that are not read yet go to disk as in any other. Once the run is written its records go through the bridge of the service.
type DeferredStream struct {
	publisher *Publisher
	thread    id.Thread
	own       *bridge.Memory
	sub       bridge.Subscription // of own

	// read: everything in own was read. It belongs to the reader.
	read bool

	mu      sync.Mutex
	last    int64               // ms of the last offset in own
	bridged bridge.Subscription // nil: the run is not written
	err     error               // why nothing comes after what is in own
	closed  bool
}

// handedOver is the event of the record that ends the stream of a deferred run when it was written.
const handedOver = "handed over"

// DeferStream makes the stream of a run on a new thread that is not written yet. Its records go there until Hand or Drop.
func (p *Publisher) DeferStream(ctx context.Context, t id.Thread) (*DeferredStream, error) {
	own := bridge.NewMemory(p.Streams)
	sub, err := own.Subscribe(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	s := &DeferredStream{publisher: p, thread: t, own: own, sub: sub}
	p.deferred.Store(t, s)
	return s, nil
}

// publish takes records. It returns false when they are the bridge's.
func (b *DeferredStream) publish(ctx context.Context, records []*bridge.Record) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bridged != nil {
		return false
	}
	if err := b.own.Publish(ctx, b.thread, records); err == nil && len(records) > 0 { // it fails only when there is no reader any more
		b.last = records[len(records)-1].Offset.MS
	}
	return true
}

// Hand continues with a subscription of the service's bridge, whose offsets are to exceed those of the records so far. Without one it ends with
// an error when these were read.
func (b *DeferredStream) Hand(ctx context.Context, sub bridge.Subscription, err error) {
	defer b.Drop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publisher.Bridge.Advance(b.thread, b.last)
	_ = b.own.Publish(ctx, b.thread, []*bridge.Record{{Event: handedOver}}) // as above
	b.err = err
	if b.bridged = sub; sub == nil {
		b.bridged = noSubscription{}
	}
	if b.closed {
		b.bridged.Close()
	}
}

// Drop ends taking records: the run was never written, and has ended.
func (b *DeferredStream) Drop() { b.publisher.deferred.Delete(b.thread) }

// Next implements bridge.Subscription.
func (b *DeferredStream) Next(ctx context.Context) ([]*bridge.Record, error) {
	for !b.read {
		records, err := b.sub.Next(ctx)
		if err != nil {
			return nil, err
		}
		if last := len(records) - 1; records[last].Event == handedOver {
			b.read, records = true, records[:last]
			b.sub.Close()
		}
		if len(records) > 0 {
			return records, nil
		}
	}
	b.mu.Lock()
	bridged, err := b.bridged, b.err
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return bridged.Next(ctx)
}

// Replay implements bridge.Subscription: nothing was published before.
func (b *DeferredStream) Replay(context.Context) ([]*bridge.Record, error) { return nil, nil }

// Head implements bridge.Subscription.
func (b *DeferredStream) Head() bridge.Offset { return bridge.Offset{} }

// Gap implements bridge.Subscription.
func (b *DeferredStream) Gap(id.Run) bridge.Gap { return bridge.NoGap }

// Close implements bridge.Subscription.
func (b *DeferredStream) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	if b.bridged != nil {
		b.bridged.Close()
	}
	b.sub.Close()
	_ = b.own.Close() // which has no error
}
