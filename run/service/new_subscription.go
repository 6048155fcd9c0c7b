package service

import (
	"context"
	"errors"
	"fmt"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

// newSubscription is of a run that is about to be made: it gets the records from the first one on. All methods may be called on nil.
type newSubscription struct {
	f    *followers
	sub  bridge.Subscription
	here *runSubscription // sub, when the bridge is remote and the run was made
	away error            // the bridge is: only a run that starts here at once can be followed
}

// subscribeNew subscribes to the stream of a thread for a run that is about to be made. The caller calls made and started, or close.
func (f *followers) subscribeNew(ctx context.Context, t id.Thread) (*newSubscription, error) {
	sub, err := f.bridge.Subscribe(ctx, t, nil)
	if err == nil {
		return &newSubscription{f: f, sub: sub}, nil
	}
	away := fmt.Errorf("subscribe: %w", err)
	if f.publisher.failover == nil || !errors.Is(err, bridge.ErrInterrupted) {
		return nil, away
	}
	return &newSubscription{f: f, away: away}, nil
}

// made notes the run, after the commit and before it can publish.
func (n *newSubscription) made(r *run.Run) {
	if n == nil || n.f.publisher.failover == nil {
		return
	}
	n.here = n.f.runSubscription(r.ID, n.f.publisher.failover.follow(r.ID), n.sub, place{}, bridge.Offset{})
	n.here.durable = r.Durable()
	n.here.fillsGaps = n.here.durable
	n.sub = n.here
}

// started notes that the run has begun, if it starts here at once.
func (n *newSubscription) started(ctx context.Context) {
	if n != nil && n.away != nil {
		n.here.failOver(ctx) // else its reader is interrupted: the run is there, and who was refused would ask for another
	}
}

// close ends the subscription for a run that was not made.
func (n *newSubscription) close() {
	if n != nil && n.sub != nil {
		n.sub.Close()
	}
}

// followNew follows a run from its first record.
func (f *followers) followNew(ctx context.Context, r *run.Run, n *newSubscription, cancelOnLeave bool) run.Follower {
	return f.follow(ctx, r, n.sub, following{cancelOnLeave: cancelOnLeave, known: true})
}

// followDeferred is followNew of a run that may not be written yet.
func (f *followers) followDeferred(ctx context.Context, r *run.Run, s *deferredStream, cancelOnLeave bool) run.Follower {
	return f.follow(ctx, r, s, following{cancelOnLeave: cancelOnLeave})
}

// subscribeHere subscribes to a run that is executed here and has published nothing on the bridge yet. With an error there is a subscription too, or nil:
// it is interrupted.
func (f *followers) subscribeHere(ctx context.Context, t id.Thread, r id.Run) (bridge.Subscription, error) {
	sub, away := f.subscribeRun(ctx, t, r, nil)
	if here, ok := sub.(*runSubscription); ok && away != nil && here.failOver(ctx) {
		away = nil
	}
	return sub, away
}

// lookUp follows a run for its result without its stream.
func (f *followers) lookUp(r *run.Run, cancelOnLeave bool) run.Follower {
	return &unseenRun{f: f, run: r, cancelOnLeave: cancelOnLeave}
}
