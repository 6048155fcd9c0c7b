package loop

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff returns the waits between the attempts of one operation. It is for one goroutine.
type Backoff struct{ wait backoff.ExponentialBackOff }

// NewBackoff returns a Backoff whose waits double from first up to last. Each is up to half longer or shorter than that, so that servers that fail together
// do not try again together.
func NewBackoff(first, last time.Duration) Backoff {
	return Backoff{backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: last, Multiplier: 2, RandomizationFactor: backoff.DefaultRandomizationFactor}}
}

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration { return b.wait.NextBackOff() }

// Reset makes the next wait the first again, after an attempt that succeeded.
func (b *Backoff) Reset() { b.wait.Reset() }

// Sleep waits for the next attempt; false when ctx ended first.
func (b *Backoff) Sleep(ctx context.Context) bool { return Sleep(ctx, b.Next()) }
