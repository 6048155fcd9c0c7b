package web

import "strings"

// MatchesPath reports whether a path is one of a route, both by segment. A segment of the route in braces stands for any that is not empty, and a star for all that follow.
func MatchesPath(route, path []string) bool {
	for i, want := range route {
		switch {
		case want == "*":
			return len(path) > i
		case i >= len(path) || want != path[i] && (!strings.HasPrefix(want, "{") || path[i] == ""):
			return false
		}
	}
	return len(path) == len(route)
}
