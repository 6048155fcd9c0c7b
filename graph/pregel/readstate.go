package pregel

import "context"

// ReadState returns the state of the graph at the beginning of the step, in the form that nodes of Values take. It is for nodes that a
// Send started with an input of its own.
func ReadState(ctx context.Context) (Values, error) {
	tc := taskOf(ctx)
	if tc == nil {
		return nil, errOutside
	}
	return tc.l.read(tc.l.g.out).values()
}
