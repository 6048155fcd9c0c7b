package proxy_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/proxy"
)

// lines hands on what is logged, line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestUpstreamThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	logged := make(lines, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	up := proxy.NewUpstream(&url.URL{Scheme: "http", Host: address, User: url.UserPassword("u", "secret")}, 1<<20)
	go func() { ended <- up.Watch(ctx, 20*time.Millisecond, slog.New(slog.NewTextHandler(logged, nil))) }()
	line := func(want string) {
		select {
		case got := <-logged:
			require.Contains(t, got, want)
			require.NotContains(t, got, "secret")
		case <-time.After(time.Minute):
			t.Fatal("nothing was logged")
		}
	}
	line("cannot be reached")
	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	line("the upstream answers")
	require.NoError(t, server.Close())
	line("does not respond")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
