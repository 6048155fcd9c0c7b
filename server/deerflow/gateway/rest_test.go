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

// Origins are equal when a browser would call them the same.
func TestOrigins(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"http://A.example": "http://a.example", "http://a.example:80": "http://a.example", "https://a.example:443": "https://a.example", "https://a.example:80": "https://a.example:80",
		"HTTP://[::1]:8001": "http://[::1]:8001", " http://a ": "http://a", "http://a:0": "", "http://a:65536": "", "http://a:x": "", "null": "", "": "", "ftp://a": "", "http://": "", "http://a/": "", "http://a?b": "",
		"http://u@a": "", "http://a#b": "", "//a": "", "a": "",
	} {
		require.Equal(t, want, originOf(given), given)
	}
}
