package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Each answer counts once: parts of one add up, as providers say what the question took with the first and the answer with the last, and a whole one is what it says.
func TestUsageOfParts(t *testing.T) {
	t.Parallel()
	const stream = "event: messages\ndata: [{\"id\":\"a\",\"type\":\"AIMessageChunk\",\"usage_metadata\":{\"input_tokens\":10,\"output_tokens\":1,\"total_tokens\":11}},{}]\n\n" +
		"event: messages\ndata: [{\"id\":\"a\",\"type\":\"AIMessageChunk\",\"usage_metadata\":{\"input_tokens\":0,\"output_tokens\":5,\"total_tokens\":5}},{}]\n\n" +
		"event: messages\ndata: [{\"id\":\"b\",\"type\":\"ai\",\"usage_metadata\":{\"input_tokens\":1,\"output_tokens\":2,\"total_tokens\":3}},{}]\n\n" +
		"event: messages\ndata: [{\"id\":\"b\",\"type\":\"ai\",\"usage_metadata\":{\"input_tokens\":1,\"output_tokens\":2,\"total_tokens\":3}},{}]\n\n" +
		"event: end\ndata: null\n\n"
	var sum Usage
	require.NoError(t, events(strings.NewReader(stream), used{}, func(_ Event, u used) bool { sum = u.sum(); return true }))
	require.Equal(t, Usage{11, 8, 19}, sum)
}

// An upload that the server refuses before it has read it leaves nothing behind.
func TestUploadThatIsRefused(t *testing.T) { //nolint:paralleltest // it counts goroutines
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(large, make([]byte, 4<<20), 0o600))
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"detail":"no"}`, http.StatusForbidden) }))
	defer served.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := &Client{base: served.URL, http: &http.Client{Transport: transport}}
	for range 20 {
		_, err := c.Upload(context.Background(), "t", large)
		require.Error(t, err)
	}
}
