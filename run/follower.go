package run

import (
	"context"

	"understudy/bridge"
)

// Follower reads one run, or one thread, as its records come. Not safe for concurrent use.
type Follower interface {
	// Next returns the next records, at least one, in order; io.EOF when the run has ended and all were returned, bridge.ErrClosed when the server shuts down,
	// bridge.ErrSlow when the reader fell too far behind (it may follow again from its last offset).
	Next(ctx context.Context) ([]*bridge.Record, error)
	// Result waits for the end of the run and returns its outcome. Use either it or Next. When ctx ended before, it may be called again.
	Result(ctx context.Context) (Result, error)
	// EnsureDurable makes what it follows durable, where Begin of the service has not.
	EnsureDurable(ctx context.Context) error
	// Close ends following. left says that the client went away before the end: a run with on_disconnect=cancel is then cancelled.
	Close(left bool)
}
