package memory

import (
	"context"
	"time"
)

// Leased is how long a learner that was killed keeps others from the queue, and Idle when one looks again at a queue in which nothing waits.
const (
	Leased = leased
	Idle   = idle
)

// Alone is one look at the queue.
func (l *Learner) Alone(ctx context.Context) time.Duration { return l.alone(ctx) }
