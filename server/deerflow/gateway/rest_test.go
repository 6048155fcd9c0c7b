package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKnownPaths(t *testing.T) {
	t.Parallel()
	var k known
	k.add("GET", "/threads/{thread_id}", members)
	k.add("PATCH", "/threads/{thread_id}", members)
	k.add("POST", "/threads/search", members)
	k.add("GET", "/threads/{thread_id}/artifacts/*", members)
	k.add("GET", "/channels/", members)
	for at, want := range map[string][]string{
		"/threads/x": {"GET", "PATCH"}, "/threads/search": {"GET", "PATCH"}, "/threads/x/artifacts/a/b": {"GET"}, "/threads/x/artifacts/": {"GET"}, "/channels/": {"GET"},
		"/threads": nil, "/threads/": nil, "/threads/x/": nil, "/threads/x/y": nil, "/threads/x/artifacts": nil, "/channels": nil, "": nil, "/": nil,
	} {
		var methods []string
		if p := k.find(at); p != nil {
			methods = p.methods
		}
		require.Equal(t, want, methods, at)
	}
}
