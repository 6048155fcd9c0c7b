package guard

import (
	"cmp"
	"context"
	"net/http"

	"understudy/access"
	"understudy/internal/jsonobj"
	"understudy/run/usage"
	"understudy/server"
)

// noIdentity is one that has no runs.
const noIdentity = "\x00"

type used struct {
	*Guard
	inner server.Usage
}

// Report asks as for a search of threads. Who reaches all threads sees the use of everyone or of any user, others their own.
func (g *used) Report(ctx context.Context, q usage.Query) (*usage.Report, error) {
	narrow, _, err := g.ask(ctx, access.Threads, "search", anyThreads())
	if err != nil {
		return nil, err
	}
	if access.Reach(narrow, access.Threads) != nil {
		own := cmp.Or(access.From(ctx).Identity, noIdentity)
		if q.Identity != "" && q.Identity != own {
			return nil, &access.Refusal{Status: http.StatusForbidden, Detail: jsonobj.Quote("Forbidden: the use of other users is for who reaches all threads")}
		}
		q.Identity = own
	}
	return g.inner.Report(ctx, q)
}
