// Package within bounds calls that may outlast their context.
package within

import "context"

// Do returns what fn returns for ctx, or the cause of ctx as soon as it ends. Drivers end a call some time after its context, or never: a call that
// does not end in time is left behind, and its result dropped.
func Do[T any](ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		v, err := fn(ctx)
		ended <- outcome{v, err}
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
