package guard

import (
	"context"

	"understudy/access"
	"understudy/server"
	"understudy/thread/search"
)

type searching struct {
	*Guard
	inner server.Search
}

// Search asks as for a search of threads, and inside of one as for reading it.
func (g *searching) Search(ctx context.Context, q search.Query, limit int) (page []search.Result, next search.Place, err error) {
	if q.Thread != "" {
		ctx, err = g.read(ctx, q.Thread)
	} else {
		ctx, _, err = g.ask(ctx, access.Threads, "search", anyThreads())
	}
	if err != nil {
		return nil, search.Place{}, err
	}
	return g.inner.Search(ctx, q, limit)
}
