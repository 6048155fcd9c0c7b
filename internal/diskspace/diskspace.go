// Package diskspace marks work that may use the part of the disk which is kept for it: what frees space, and the little that a server writes when it
// starts and ends. A full disk must not stop it.
package diskspace

import (
	"context"

	"understudy/internal/fault"
)

// ErrFull is the error of what a full disk has no room for. It lasts until something frees space; other errors of a storage may be gone at the next try.
var ErrFull = fault.New(fault.Unavailable, "the disk is full: nothing can be saved until there is room. Deleting threads, runs and store items works")

type key struct{}

// WithReserve lets what is done with the context use the reserve.
func WithReserve(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// HasReserve reports whether WithReserve made the context.
func HasReserve(ctx context.Context) bool {
	has, _ := ctx.Value(key{}).(bool)
	return has
}
