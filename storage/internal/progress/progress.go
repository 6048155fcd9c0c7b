// Package progress logs steps that take long, so that a server at work does not look like one that
// hangs.
package progress

import (
	"context"
	"log/slog"
	"time"

	"understudy/internal/logctx"
)

// every is how often a step is logged while it runs.
const every = 5 * time.Second

// Watch logs every five seconds that a step is still running, until stop is called. A step that
// took longer than a second is logged at its end as well. Errors are the caller's to report.
func Watch(ctx context.Context, log *slog.Logger, step string, args ...any) (stop func()) {
	began, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				log.InfoContext(ctx, step+" is still running", append(args, "elapsed", time.Since(began).Round(time.Second).String())...)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		if took := time.Since(began); took > time.Second {
			log.InfoContext(ctx, step+" ended", append(args, logctx.Took(took))...)
		}
	}
}
