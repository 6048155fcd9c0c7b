package pregel

import "context"

// ReadState gives, in a node that got an input of its own by a Send, the state of the graph as the step began, in the form in which
// nodes of Values get it.
func ReadState(ctx context.Context) (Values, error) {
	tc := taskOf(ctx)
	if tc == nil {
		return nil, errOutside
	}
	return tc.l.read(tc.l.g.out).values()
}
