package remote

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
)

// TestHistoryGoesBack: an upstream that returns the same page forever is not read forever.
func TestHistoryGoesBack(t *testing.T) {
	t.Parallel()
	for page, ok := range map[string]bool{
		`[{"checkpoint":{"checkpoint_id":"3"}}]`: true, `[]`: true,
		`[{"checkpoint":{"checkpoint_id":"5"}}]`: false, `[{"checkpoint":{"checkpoint_id":"7"}}]`: false, `[{"checkpoint":{}}]`: false, `[null]`: false,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
		g, err := New(Options{ID: "g", URL: srv.URL, Transport: srv.Client().Transport})
		require.NoError(t, err)
		_, err = g.newMirror(&graph.Config{Thread: "t"}, "").history(t.Context(), "", id.Checkpoint("5"), 1)
		require.Equal(t, ok, err == nil, "%s: %v", page, err)
		srv.Close()
	}
}
