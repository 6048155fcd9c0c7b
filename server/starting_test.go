package server_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/server"
)

// While a server is assembled its port answers health, and afterwards the listener is as it was.
func TestStarting(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	url := "http://" + ln.Addr().String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) (int, string) {
		res, err := client.Get(url + path)
		require.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(body)
	}
	stop := server.Starting(ln.(*net.TCPListener), nil, 0)
	for path, want := range map[string]int{"/ok": 200, "/livez": 200, "/mounted/ok": 200, "/readyz": 503, "/threads": 503} {
		status, body := ask(path)
		require.Equal(t, want, status, path+" "+body)
	}
	stop()

	done := make(chan error, 1)
	go func() { done <- http.Serve(ln, http.NotFoundHandler()) }()
	status, _ := ask("/ok")
	require.Equal(t, http.StatusNotFound, status, "the next owner of the listener answers")
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// A quick start accepts nothing: clients wait in the backlog for the server itself.
func TestStartingQuickly(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	stop := server.Starting(ln.(*net.TCPListener), nil, time.Hour)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer := make(chan int, 1)
	go func() {
		res, err := client.Get("http://" + ln.Addr().String() + "/ok")
		if err != nil {
			answer <- 0
			return
		}
		_ = res.Body.Close()
		answer <- res.StatusCode
	}()
	stop()
	go func() { _ = http.Serve(ln, http.NotFoundHandler()) }()
	require.Equal(t, http.StatusNotFound, <-answer)
}
