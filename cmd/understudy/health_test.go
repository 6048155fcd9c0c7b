package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"ready":true}`))
	}))
	defer server.Close()
	out, err := execute(t, "health", "--url", server.URL)
	require.NoError(t, err)
	require.Equal(t, "{\"ready\":true}\n", out)
	status = http.StatusServiceUnavailable
	_, err = execute(t, "health", "--url", server.URL)
	require.ErrorContains(t, err, "not ready")
	server.Close()
	_, err = execute(t, "health", "--url", server.URL)
	require.Error(t, err)
	_, err = execute(t, "health", "--url", "http://%zz")
	require.ErrorAs(t, err, new(usageError))
}
