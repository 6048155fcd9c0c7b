// Package room marks work that a full disk must not stop, because it makes room or is how a server ends.
package room

import (
	"context"

	"understudy/internal/fault"
)

// ErrFull is the error of what a full disk has no room for. It stays one until something makes room, as other errors of a storage do not.
var ErrFull = fault.New(fault.Unavailable, "the disk is full: nothing can be saved until there is room. Deleting threads, runs and store items works")

type key struct{}

// Making says that what is done with the context deletes, or is the little that a server must write when it starts and ends: it may use the space that is kept for deletes.
func Making(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// IsMade reports whether the context is one of Making.
func IsMade(ctx context.Context) bool {
	made, _ := ctx.Value(key{}).(bool)
	return made
}
