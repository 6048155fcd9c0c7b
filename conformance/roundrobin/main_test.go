package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each request goes to the next server, also on one connection, and events are passed on before their stream ends.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	addresses := make([]string, 2)
	for i, name := range []string{"a", "b"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, name+"\n")
			if r.URL.Path == "/stream" {
				w.(http.Flusher).Flush()
				<-goOn
				_, _ = io.WriteString(w, "end\n")
			}
		}))
		t.Cleanup(s.Close)
		addresses[i] = s.URL
	}
	handler, err := newProxy(addresses)
	require.NoError(t, err)
	proxy := httptest.NewServer(handler)
	t.Cleanup(proxy.Close)
	for _, want := range []string{"a\n", "b\n", "a\n"} {
		resp, err := http.Get(proxy.URL)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, string(text))
	}
	resp, err := http.Get(proxy.URL + "/stream")
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "b\n", line)
	close(goOn)
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "end\n", line)

	_, err = newProxy(nil)
	require.Error(t, err)
}
