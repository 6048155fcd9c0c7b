package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The log shows which route is called, and nothing private.
func TestRouteOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/assistants/search":                    "/assistants/search",
		"/assistants/0f1e-2d/schemas":           "/assistants/*/schemas",
		"/store/items":                          "/store/items",
		"/webhooks/ann@example.com":             "/webhooks/*",
		"/ann@example.com":                      "/*",
		"/0123456789abcdef":                     "/*",
		"/":                                     "/",
		"//threads":                             "//threads",
		"/a\nb":                                 "/*",
		"/threads/x/runs/y/stream":              "/threads/*/runs/*/stream",
		"/" + strings.Repeat("x/", 1000):        "/x/*/*/*/*/*/*/*/…",
		"/" + strings.Repeat("x", 1000) + "/ok": "/*/ok",
	} {
		require.Equal(t, want, routeOf(path))
	}
}
