package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Watch checks at an interval whether the upstream answers, until ctx ends, and logs changes: clients see 502 while it is down, and the operator
// should see why. Any answer counts.
func (u *Upstream) Watch(ctx context.Context, every time.Duration, log *slog.Logger) error {
	down := false
	for {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _, _, err := u.Ask(asking, nil, http.MethodGet, "/ok", nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !down:
			down = true
			log.Warn("upstream does not respond", "upstream", u.String(), "error", err)
		case err == nil && down:
			down = false
			log.Info("the upstream answers", "upstream", u.String())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}
