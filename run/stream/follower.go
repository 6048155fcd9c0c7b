package stream

import (
	"context"
	"io"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/run"
)

// passive is the part of a Follower that has nothing to close or to settle.
type passive struct{}

// EnsureDurable implements Follower.
func (passive) EnsureDurable(context.Context) error { return nil }

// Close implements Follower.
func (passive) Close(bool) {}

// endedRun joins a run that is over, for its result: its thread as it is now.
type endedRun struct {
	passive
	f      *Followers
	thread id.Thread
	look   overlay.Look
}

// Next implements Follower.
func (e *endedRun) Next(context.Context) ([]*bridge.Record, error) { return nil, io.EOF }

// Result implements Follower.
func (e *endedRun) Result(ctx context.Context) (run.Result, error) {
	now, err := e.f.Store.Thread(ctx, e.thread)
	if err != nil {
		return run.Result{}, err
	}
	if now.Error != nil {
		return run.Result{Error: now.Error}, nil
	}
	return e.f.threadAnswer(ctx, e.thread, e.look)
}

// unseenRun joins a run for its result while live streams are interrupted: the run is looked up until it is over.
type unseenRun struct {
	passive
	f             *Followers
	run           *run.Run
	cancelOnLeave bool
	ended         bool
}

// Run returns the run as it was when following began.
func (u *unseenRun) Run() *run.Run { return u.run }

// Next implements Follower.
func (u *unseenRun) Next(context.Context) ([]*bridge.Record, error) {
	return nil, bridge.ErrInterrupted
}

// Result implements Follower.
func (u *unseenRun) Result(ctx context.Context) (run.Result, error) {
	if err := u.f.await(ctx, u.run.Thread, u.run.ID, run.Status.Over); err != nil {
		return run.Result{}, err
	}
	u.ended = true
	over, err := u.f.Join(ctx, u.run.Thread, u.run.ID)
	if err != nil {
		return run.Result{}, err
	}
	defer over.Close(false)
	return over.Result(ctx)
}

// Close implements Follower.
func (u *unseenRun) Close(left bool) {
	if left && !u.ended && u.cancelOnLeave {
		u.f.cancelAfterLeave(u.run)
	}
}

// announcement follows a run of which something is missing: it says so, and ends.
type announcement struct {
	passive
	records []*bridge.Record
}

// Next implements Follower.
func (a *announcement) Next(context.Context) ([]*bridge.Record, error) {
	if a.records == nil {
		return nil, io.EOF
	}
	out := a.records
	a.records = nil
	return out, nil
}

// Result implements Follower.
func (a *announcement) Result(context.Context) (run.Result, error) {
	return run.Result{Values: nullJSON}, nil
}
