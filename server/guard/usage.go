package guard

import (
	"cmp"
	"context"

	"understudy/access"
	"understudy/run/usage"
	"understudy/server"
)

// noIdentity is one that has no runs.
const noIdentity = "\x00"

type used struct {
	*Guard
	inner server.Usage
}

// Report asks as for a search of threads. Who reaches all threads sees the use of everyone, others their own.
func (g *used) Report(ctx context.Context, q usage.Query) (*usage.Report, error) {
	narrow, _, err := g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return nil, err
	}
	if access.Reach(narrow, access.Threads) != nil {
		q.Identity = cmp.Or(access.From(ctx).Identity, noIdentity)
	}
	return g.inner.Report(ctx, q)
}
