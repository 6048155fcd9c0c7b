package thread

import "time"

// Strategy is what happens to a thread when it expires or is pruned.
type Strategy string

const (
	Delete     Strategy = "delete"      // the thread is deleted with all its data
	KeepLatest Strategy = "keep_latest" // older checkpoints are deleted; thread, newest state and transcript stay
)

// TTL is how long an unused thread is kept.
type TTL struct {
	Strategy Strategy
	After    time.Duration // since the last activity, which is UpdatedAt
	// Default reports that it comes from the configuration, not from a client. The configuration at the time of the last
	// run applies.
	Default bool
}

// TTLRequest is a client's request. Without After the configured time applies, if any.
type TTLRequest struct {
	Strategy Strategy
	After    *time.Duration
}

// ExpiresAt returns when the thread expires unless it is used before; false: never.
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

// Renew applies the current configuration to a thread without its own ttl; nil: none.
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
