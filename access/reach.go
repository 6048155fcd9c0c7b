package access

import "context"

// Resources that questions and filters are about.
const (
	Threads    = "threads"
	Assistants = "assistants"
	Crons      = "crons"
	Store      = "store"
)

// reachKey is the key of the filter of one resource in a context: a byte, which takes no memory as an interface.
type reachKey uint8

// resources are those that filters are about; the index of one is its reachKey.
var resources = [...]string{Threads, Assistants, Crons, Store}

func keyOf(resource string) reachKey {
	for i, r := range resources {
		if r == resource {
			return reachKey(i)
		}
	}
	panic("access: no resource " + resource)
}

// Narrow returns a context in which, of the resources of one kind that exist in ctx, only those exist that f selects. Storage applies it together with each
// access, so that a resource that is replaced by one of another actor between two accesses is not reached.
func Narrow(ctx context.Context, resource string, f *Filter) context.Context {
	if f == nil {
		return ctx
	}
	if was := Reach(ctx, resource); was != nil {
		f = &Filter{and: []*Filter{was, f}, size: was.size + f.size}
	}
	return context.WithValue(ctx, keyOf(resource), f)
}

// Reach returns what selects the resources of one kind that exist in ctx; nil: all do.
func Reach(ctx context.Context, resource string) *Filter {
	f, _ := ctx.Value(keyOf(resource)).(*Filter)
	return f
}

// Everything returns a context in which all resources exist, for what the server does by itself.
func Everything(ctx context.Context) context.Context {
	for key, resource := range resources {
		if Reach(ctx, resource) != nil {
			ctx = context.WithValue(ctx, reachKey(key), (*Filter)(nil))
		}
	}
	return ctx
}
