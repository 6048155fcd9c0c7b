package run

import (
	"context"
	"io"

	"understudy/bridge"
	"understudy/eventstore/overlay"
	"understudy/id"
)

// Follower reads one run, or one thread, as its records come. Not safe for concurrent use.
type Follower interface {
	// Next returns the next records, at least one, in order; io.EOF when the run has ended and all were returned, bridge.ErrClosed when the server shuts down,
	// bridge.ErrSlow when the reader fell too far behind (it may follow again from its last offset).
	Next(ctx context.Context) ([]*bridge.Record, error)
	// Result waits for the end of the run and returns its outcome. Use either it or Next. When ctx ended before, it may be called again.
	Result(ctx context.Context) (Result, error)
	// Settle makes what it follows durable, where Service.Begin has not.
	Settle(ctx context.Context) error
	// Close ends following. left says that the client went away before the end: a run with on_disconnect=cancel is then cancelled.
	Close(left bool)
}

// passive is the part of a Follower that has nothing to close or to settle.
type passive struct{}

// Settle implements Follower.
func (passive) Settle(context.Context) error { return nil }

// Close implements Follower.
func (passive) Close(bool) {}

// endedRun joins a run that is over, for its result: its thread as it is now.
type endedRun struct {
	passive
	f      *followers
	thread id.Thread
	look   overlay.Look
}

// Next implements Follower.
func (e *endedRun) Next(context.Context) ([]*bridge.Record, error) { return nil, io.EOF }

// Result implements Follower.
func (e *endedRun) Result(ctx context.Context) (Result, error) {
	now, err := e.f.store.Thread(ctx, e.thread)
	if err != nil {
		return Result{}, err
	}
	if now.Error != nil {
		return Result{Error: now.Error}, nil
	}
	return e.f.threadAnswer(ctx, e.thread, e.look)
}

// unseenRun joins a run for its result while live streams are interrupted: the run is looked up until it is over.
type unseenRun struct {
	passive
	f             *followers
	run           *Run
	cancelOnLeave bool
	ended         bool
}

// Next implements Follower.
func (u *unseenRun) Next(context.Context) ([]*bridge.Record, error) {
	return nil, bridge.ErrInterrupted
}

// Result implements Follower.
func (u *unseenRun) Result(ctx context.Context) (Result, error) {
	if err := u.f.await(ctx, u.run.Thread, u.run.ID, Status.Over); err != nil {
		return Result{}, err
	}
	u.ended = true
	over, err := u.f.join(ctx, u.run.Thread, u.run.ID)
	if err != nil {
		return Result{}, err
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
func (a *announcement) Result(context.Context) (Result, error) { return Result{Values: null}, nil }
