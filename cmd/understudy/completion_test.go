package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access/audit"
	"understudy/internal/config"
)

// completed returns what a shell offers for the last of args.
func completed(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := execute(t, append([]string{"__complete"}, args...)...)
	require.NoError(t, err)
	values, _, found := strings.Cut(out, "\n:4\n") // 4: no files
	if values, only := strings.CutPrefix(out, ":4\n"); only {
		return strings.Fields(values)
	}
	require.True(t, found, out)
	return strings.Split(values, "\n")
}

// Shells offer what commands accept, and nothing that they refuse.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, s := range config.Settings() {
		if s.Values != nil && s.Of(config.Serve) {
			require.Equal(t, s.Values, completed(t, "serve", "--"+s.Flag, ""), s.Flag)
		}
		if s.Switch && s.Of(config.Serve) {
			require.Equal(t, []string{"true", "false"}, completed(t, "serve", "--"+s.Flag+"="), s.Flag)
		}
	}
	require.Empty(t, completed(t, "serve", "--port", ""), "no file is a port")
	names := make([]string, 0, len(projects))
	for _, p := range projects {
		names = append(names, p.name)
	}
	require.Equal(t, names, completed(t, "init", "--template", ""))
	require.Equal(t, audit.Events, completed(t, "audit", "--event", ""))
	require.Len(t, scopes, len(scopeNames))
	for _, name := range completed(t, "keys", "create", "--scope", "") {
		require.Contains(t, scopes, name)
	}
	require.Equal(t, threadStatuses, completed(t, "threads", "--status", ""))

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Team") == "a" {
			_, _ = io.WriteString(w, `[{"graph_id":"agent"},{"graph_id":"chat"},{"graph_id":"agent"}]`)
		}
	}))
	t.Cleanup(server.Close)
	of := []string{"--url", server.URL, "--header", "X-Team: a"}
	require.Equal(t, []string{"agent", "chat"}, completed(t, slices.Concat([]string{"chat"}, of, []string{""})...))
	require.Equal(t, []string{"agent", "chat"}, completed(t, slices.Concat([]string{"threads"}, of, []string{"--graph", ""})...))
	require.Empty(t, completed(t, "chat", "--url", "http://127.0.0.1:1", ""))
	require.Empty(t, completed(t, "chat", "--url", "none", ""))
}
