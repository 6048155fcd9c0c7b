package thread

import "time"

// Strategy says what happens to a thread when its time is up, or when it is pruned.
type Strategy string

const (
	Delete     Strategy = "delete"      // the thread goes, with everything of it
	KeepLatest Strategy = "keep_latest" // older checkpoints go; thread, newest state and transcript stay
)

// TTL is how long an unused thread is kept.
type TTL struct {
	Strategy Strategy
	After    time.Duration // after the last activity: what moved UpdatedAt
	// Default: the configuration says so, not a client. What it says when a run comes counts from then on.
	Default bool
}

// TTLRequest is what a client asks for. Without After it is as long as the configuration says, if it says anything.
type TTLRequest struct {
	Strategy Strategy
	After    *time.Duration
}

// ExpiresAt is when the time of the thread is up, unless it is used before; false: never.
func (t *Thread) ExpiresAt() (time.Time, bool) {
	if t.TTL == nil {
		return time.Time{}, false
	}
	return t.UpdatedAt.Add(t.TTL.After), true
}

// ask applies a client's request to the thread. byDefault is the configured TTL; nil: none.
func (t *Thread) ask(r *TTLRequest, byDefault *TTL) {
	switch {
	case r == nil:
	case r.After != nil:
		t.TTL = &TTL{Strategy: r.Strategy, After: *r.After}
	case byDefault != nil:
		t.TTL = &TTL{Strategy: r.Strategy, After: byDefault.After}
	}
}

// Renew returns a thread that has no ttl of its own what the configuration says now; nil: nothing.
func (t *Thread) Renew(byDefault *TTL) {
	if t.TTL != nil && !t.TTL.Default {
		return
	}
	if byDefault == nil {
		t.TTL = nil
		return
	}
	t.TTL = &TTL{Strategy: byDefault.Strategy, After: byDefault.After, Default: true}
}
