// Package room marks work that makes room on a disk, so that it may continue where others have to wait.
package room

import "context"

type key struct{}

// Making says that what is done with the context deletes.
func Making(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// IsMade reports whether the context is one of Making.
func IsMade(ctx context.Context) bool {
	made, _ := ctx.Value(key{}).(bool)
	return made
}
