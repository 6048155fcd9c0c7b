package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The API keeps its own routes from an application, those too that end with a star.
func TestRoutesOfTheAPIAreKnown(t *testing.T) {
	t.Parallel()
	s := &Server{patterns: []pattern{patternOf("GET", "/threads/{thread_id}", nil), patternOf("GET", "/api/threads/{thread_id}/artifacts/*", nil)}}
	for path, want := range map[string]bool{
		"/threads/x": true, "/threads/": false, "/threads": false, "/threads/x/y": false,
		"/api/threads/x/artifacts/a": true, "/api/threads/x/artifacts/a/b": true, "/api/threads/x/artifacts/": true, "/api/threads/x/artifacts": false, "/api/threads//artifacts/a": false,
	} {
		require.Equal(t, want, s.routed("GET", path), path)
		require.Equal(t, want, s.routed("HEAD", path), path)
		require.False(t, s.routed("POST", path), path)
		require.Equal(t, want, s.known(path), path)
	}
}
