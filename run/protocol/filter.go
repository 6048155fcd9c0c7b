package protocol

import (
	"slices"
	"strings"
)

// Filter selects the events of one subscription.
type Filter struct {
	Channels   []string   // of Channels
	Namespaces [][]string // prefixes; empty: all namespaces, whatever Depth is
	Depth      *int       // how many levels below a prefix; nil: all
	Since      int64      // events up to this seq are hidden
	Resume     bool       // Since is where a reader resumes: it wants to know of a Gap
}

// Channels are the names of channels, in the order in which errors list them. `checkpoints` is one too; LangGraph Server, whose text it is, has no events for it.
var Channels = []string{"values", "updates", "messages", "tools", "custom", "lifecycle", "input", "tasks"}

// IsChannel reports whether a subscription may name a channel.
func IsChannel(name string) bool {
	if custom, ok := strings.CutPrefix(name, customOf); ok {
		return custom != ""
	}
	return slices.Contains(Channels, name) || name == "checkpoints"
}

// customOf begins the names of channels of a graph; `custom` selects all of them.
const customOf = "custom:"

// channel reports whether events of a method are selected. The method of an event of a channel of the graph is the name of that.
func (f *Filter) channel(method string) bool {
	if method == inputRequested {
		method = "input"
	}
	return slices.Contains(f.Channels, method) || strings.HasPrefix(method, customOf) && slices.Contains(f.Channels, "custom")
}

// namespace reports whether events of a namespace are selected.
func (f *Filter) namespace(ns []string) bool {
	if len(f.Namespaces) == 0 {
		return true
	}
	return slices.ContainsFunc(f.Namespaces, func(prefix []string) bool {
		if len(prefix) > len(ns) || f.Depth != nil && len(ns)-len(prefix) > *f.Depth {
			return false
		}
		for i, want := range prefix {
			if ns[i] == want {
				continue
			}
			if name, _, _ := strings.Cut(ns[i], ":"); strings.Contains(want, ":") || name != want {
				return false
			}
		}
		return true
	})
}
