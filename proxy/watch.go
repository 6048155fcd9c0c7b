package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Watch asks the upstream every so often whether it answers, until ctx ends, and logs when that changes: callers of a proxy whose upstream is down
// see 502, and its operator should see why. Any answer will do.
func (u *Upstream) Watch(ctx context.Context, every time.Duration, log *slog.Logger) error {
	down := false
	for {
		asking, cancel := context.WithTimeout(ctx, min(every, 5*time.Second))
		_, _, _, err := u.Ask(asking, nil, http.MethodGet, "/ok", nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !down:
			down = true
			log.Warn("the upstream does not answer", "upstream", u.String(), "error", err)
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
