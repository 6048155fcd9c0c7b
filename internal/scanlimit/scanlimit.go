// Package scanlimit limits queries that may read everything: searches and counts that no index answers. They share a part of the connections, wait for it in
// a bounded queue, and end when they take too long, so that they never hold up reads of single rows.
package scanlimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"understudy/internal/fault"
)

// DefaultBudget is the default time limit of a query.
const DefaultBudget = 10 * time.Second

// waiting is the maximum number of queued queries, per allowed scan.
const waiting = 16

// Limits bounds the scans of one storage. It is safe for concurrent use.
type Limits struct {
	budget time.Duration
	slots  chan struct{}
	queue  chan struct{}
}

// New returns limits: at most n scans at once (at least one), each for at most budget; 0 is DefaultBudget.
func New(n int, budget time.Duration) *Limits {
	if budget <= 0 {
		budget = DefaultBudget
	}
	n = max(n, 1)
	return &Limits{budget: budget, slots: make(chan struct{}, n), queue: make(chan struct{}, n*(1+waiting))}
}

var errCrowded = fault.New(fault.Unavailable, "too many searches at once: try again, or narrow them to what an index answers")

// ErrOverBudget is the cause of a scan that exceeded its time.
var ErrOverBudget = errors.New("search timeout")

// within marks the context of a scan: nested queries are part of it.
type within struct{}

// Do runs fn as a scan. hint says how a client can narrow the search. The context of fn ends with
// ctx, or when the scan takes too long; then the error is fault.Unprocessable. It returns
// fault.Unavailable if too many others wait, or if waiting takes as long as a scan may.
func (l *Limits) Do(ctx context.Context, hint string, fn func(context.Context) error) error {
	if ctx.Value(within{}) == l {
		return fn(ctx)
	}
	select {
	case l.queue <- struct{}{}:
		defer func() { <-l.queue }()
	default:
		return errCrowded
	}
	timer := time.NewTimer(l.budget)
	defer timer.Stop()
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errCrowded
	}
	over := fault.Wrap(fault.Unprocessable, fmt.Sprintf("the search was stopped after %v because it reads too much: %s", l.budget, hint), ErrOverBudget)
	limited, cancel := context.WithTimeoutCause(context.WithValue(ctx, within{}, l), l.budget, over)
	defer cancel()
	err := fn(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return over
	}
	return err
}
