package guard

import (
	"context"

	"understudy/access"
	"understudy/server"
	"understudy/thread/changes"
)

type changed struct {
	*Guard
	inner server.Changes
}

// Follow asks as for a search of threads.
func (g *changed) Follow(ctx context.Context) (*changes.Follower, error) {
	ctx, _, err := g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return nil, err
	}
	return g.inner.Follow(ctx)
}
