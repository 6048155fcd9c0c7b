package run

import (
	"context"

	"understudy/bridge"
)

// Follower reads one run, or one thread, as its records come. Not safe for concurrent use.
type Follower struct {
	next   func(ctx context.Context) ([]*bridge.Record, error)
	result func(ctx context.Context) (Result, error)
	close  func(left bool)
	settle func(ctx context.Context) error // nil: nothing is to be done
}

// NewFollower makes a Follower of three functions. Followers of runs come from Service; this is for those who stand in for it.
func NewFollower(
	next func(ctx context.Context) ([]*bridge.Record, error),
	result func(ctx context.Context) (Result, error),
	close func(left bool),
) *Follower {
	return &Follower{next: next, result: result, close: close}
}

// Next gives the next records, at least one, in order; io.EOF when the run has ended and all was given, bridge.ErrClosed when the
// server shuts down, bridge.ErrSlow when the reader fell too far behind (it may follow again from its last offset).
func (f *Follower) Next(ctx context.Context) ([]*bridge.Record, error) { return f.next(ctx) }

// Settle makes what it follows durable, where Service.Begin has not.
func (f *Follower) Settle(ctx context.Context) error {
	if f.settle == nil {
		return nil
	}
	return f.settle(ctx)
}

// Result waits for the end of the run and gives its outcome. Use either it or Next. When ctx ended before, it may be called again.
func (f *Follower) Result(ctx context.Context) (Result, error) { return f.result(ctx) }

// Close ends following. left says that the client went away before the end: a run with on_disconnect=cancel is then cancelled.
func (f *Follower) Close(left bool) { f.close(left) }
