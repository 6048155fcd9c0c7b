package stream

import (
	"context"
	"errors"
	"fmt"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

// Subscription is of a run that is about to be made: it gets the records from the first one on. All methods may be called on nil.
type Subscription struct {
	f    *Followers
	sub  bridge.Subscription
	here *runSubscription // sub, when the bridge is remote and the run was made
	away error            // the bridge is: only a run that starts here at once can be followed
}

// SubscribeNew subscribes to the stream of a thread for a run that is about to be made. The caller calls Made and Started, or Close.
func (f *Followers) SubscribeNew(ctx context.Context, t id.Thread) (*Subscription, error) {
	sub, err := f.Bridge.Subscribe(ctx, t, nil)
	if err == nil {
		return &Subscription{f: f, sub: sub}, nil
	}
	away := fmt.Errorf("subscribe: %w", err)
	if f.Publisher.failover == nil || !errors.Is(err, bridge.ErrInterrupted) {
		return nil, away
	}
	return &Subscription{f: f, away: away}, nil
}

// Made notes the run, after the commit and before it can publish.
func (n *Subscription) Made(r *run.Run) {
	if n == nil || n.f.Publisher.failover == nil {
		return
	}
	n.here = n.f.runSubscription(r.ID, n.f.Publisher.failover.follow(r.ID), n.sub, ordinal{}, bridge.Offset{})
	n.here.durable = r.Durable()
	n.here.fillsGaps = n.here.durable
	n.sub = n.here
}

// MustStartHere returns why the run cannot be followed unless it starts here at once; nil: nothing is wrong.
func (n *Subscription) MustStartHere() error {
	if n == nil {
		return nil
	}
	return n.away
}

// Started notes that the run has begun, if it starts here at once.
func (n *Subscription) Started(ctx context.Context) {
	if n != nil && n.away != nil {
		n.here.failOver(ctx) // else its reader is interrupted: the run exists, and a client that is refused now would create a second one
	}
}

// Close ends the subscription for a run that was not made.
func (n *Subscription) Close() {
	if n != nil && n.sub != nil {
		n.sub.Close()
	}
}

// FollowNew follows a run from its first record.
func (f *Followers) FollowNew(ctx context.Context, r *run.Run, n *Subscription, cancelOnLeave bool) run.Follower {
	return f.follow(ctx, r, n.sub, following{cancelOnLeave: cancelOnLeave, known: true})
}

// FollowDeferred is FollowNew of a run that may not be written yet.
func (f *Followers) FollowDeferred(ctx context.Context, r *run.Run, s *DeferredStream, cancelOnLeave bool) run.Follower {
	return f.follow(ctx, r, s, following{cancelOnLeave: cancelOnLeave})
}

// SubscribeHere subscribes to a run that is executed here and has published nothing on the bridge yet. With an error there is a subscription too, or nil:
// it is interrupted.
func (f *Followers) SubscribeHere(ctx context.Context, t id.Thread, r id.Run) (bridge.Subscription, error) {
	sub, away := f.subscribeRun(ctx, t, r, nil)
	if here, ok := sub.(*runSubscription); ok && away != nil && here.failOver(ctx) {
		away = nil
	}
	return sub, away
}

// LookUp follows a run for its result without its stream.
func (f *Followers) LookUp(r *run.Run, cancelOnLeave bool) run.Follower {
	return &unseenRun{f: f, run: r, cancelOnLeave: cancelOnLeave}
}
