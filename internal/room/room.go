// Package room marks work that a full disk must not stop, because it makes room or is how a server ends.
package room

import "context"

type key struct{}

// Making says that what is done with the context deletes, or is the little that a server must write when it starts and ends: it may use the space that is kept for deletes.
func Making(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// IsMade reports whether the context is one of Making.
func IsMade(ctx context.Context) bool {
	made, _ := ctx.Value(key{}).(bool)
	return made
}
