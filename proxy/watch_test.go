package proxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
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
	server := &http.Server{Handler: answering(`{"ok":true}`), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	line("the upstream answers")
	require.NoError(t, server.Close())
	line("does not respond")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func answering(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
}

// An operator who names another service gets a line about it; one that asks for credentials may be right.
func TestUpstreamThatIsAnother(t *testing.T) {
	t.Parallel()
	var handler atomic.Pointer[http.Handler]
	serve := func(h http.Handler) { handler.Store(&h) }
	serve(http.NotFoundHandler())
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			return
		}
		(*handler.Load()).ServeHTTP(w, r)
		select {
		case asked <- struct{}{}:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	logged := make(lines, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- proxy.NewUpstream(at, 1<<20).Watch(ctx, time.Millisecond, slog.New(slog.NewTextHandler(logged, nil)))
	}()
	for _, h := range []http.Handler{
		http.NotFoundHandler(), http.NotFoundHandler(), answering(`{"ok":true}`),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
		answering(`<html>`), answering(`{"ok":true}`), answering(`{"ok":true}`),
	} {
		serve(h)
		<-asked
	}
	<-asked // what came before is logged
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	close(logged)
	var said []string
	for line := range logged {
		require.Contains(t, line, "does not look like a LangGraph Server")
		said = append(said, line)
	}
	require.Len(t, said, 2)
}

// An upstream, or a gateway before it, that answers with errors of the server gets one line until another answer comes.
func TestUpstreamThatFails(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 502, 503, 504, 599} {
		var now atomic.Int64
		now.Store(int64(status))
		asked := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/ok" {
				return
			}
			w.WriteHeader(int(now.Load()))
			_, _ = w.Write([]byte(`{"ok":true}`))
			select {
			case asked <- struct{}{}:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(server.Close)
		at, err := url.Parse(server.URL)
		require.NoError(t, err)
		logged := make(lines, 8)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- proxy.NewUpstream(at, 1<<20).Watch(ctx, time.Millisecond, slog.New(slog.NewTextHandler(logged, nil)))
		}()
		for _, next := range []int{status, status, http.StatusOK, http.StatusOK, status} {
			<-asked
			now.Store(int64(next))
		}
		<-asked // of the last status
		<-asked // what came before is logged
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		close(logged)
		var said []string
		for line := range logged {
			said = append(said, line)
		}
		require.Len(t, said, 3, "%s", said)
		for i, want := range []string{"upstream answers with an error", "the upstream's errors ended", "upstream answers with an error"} {
			require.Contains(t, said[i], want)
		}
		require.Contains(t, said[0], "level=WARN")
		require.Contains(t, said[0], fmt.Sprintf("status=%d", status))
		require.Contains(t, said[0], "fix=")
	}
}
