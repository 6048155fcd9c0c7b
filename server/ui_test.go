package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Graphs have no components here: what asks for them learns it as from LangGraph Server, and a missing asset is no fault of the server.
func TestNoUI(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, request := range []string{"POST /ui/a%20b", "GET /ui/a%20b/entry.js", "POST /ui/%3Cscript%3E"} {
		method, path, _ := strings.Cut(request, " ")
		res, body := w.ask(t, method, path, "")
		require.Equal(t, 404, res.StatusCode)
		require.Contains(t, body, "UI not found for graph '")
		require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
		require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	}
	disabled := setup(t, func(o *Options) { o.Disable.UI = true })
	res, body := disabled.ask(t, "POST", "/ui/a", "")
	require.Equal(t, 404, res.StatusCode)
	require.NotContains(t, body, "UI not found")
}
