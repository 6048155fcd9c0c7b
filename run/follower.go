package run

import (
	"context"

	"understudy/bridge"
)

// Follower reads one run, or one thread, as its records come. Not safe for concurrent use.
type Follower struct{}

// Next gives the next records, at least one, in order; io.EOF when the run has ended and all was given, bridge.ErrClosed when the
// server shuts down, bridge.ErrSlow when the reader fell too far behind (it may follow again from its last offset).
func (f *Follower) Next(ctx context.Context) ([]*bridge.Record, error) { panic("skeleton") }

// Result waits for the end of the run and gives its outcome.
func (f *Follower) Result(ctx context.Context) (Result, error) { panic("skeleton") }

// Close ends following. left says that the client went away before the end: a run with on_disconnect=cancel is then cancelled.
func (f *Follower) Close(left bool) {}
