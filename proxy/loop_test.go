package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// Proxies whose upstreams lead back to them say so and refuse calls, where each call would be forwarded for ever, and serve when one of them has a server behind it.
func TestLoops(t *testing.T) {
	t.Parallel()
	for _, proxies := range []int{1, 2, 3} {
		listeners := make([]net.Listener, proxies)
		for i := range listeners {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			listeners[i] = ln
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		log := &logtest.Buffer{}
		var first *Upstream
		for i, ln := range listeners {
			up := NewUpstream(&url.URL{Scheme: "http", Host: listeners[(i+1)%proxies].Addr().String()}, 1<<20)
			p := New(Config{Upstream: up, Recorder: &fakeRecorder{ended: make(chan struct{}, 2000)}, ShutdownTimeout: time.Second})
			running.Go(func() { _ = p.Serve(ctx, ln) })
			if first == nil {
				first = up
			}
		}
		running.Go(func() { _ = first.Watch(ctx, 10*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))) })
		require.Eventually(t, first.looped.Load, time.Minute, time.Millisecond)
		for range 3 {
			res, err := http.Get("http://" + listeners[0].Addr().String() + "/threads/x")
			require.NoError(t, err)
			text, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusLoopDetected, res.StatusCode)
			require.Contains(t, string(text), "leads back to this proxy. Name the LangGraph Server with --upstream")
		}
		require.Eventually(t, func() bool { return len(log.String()) > 0 }, time.Minute, time.Millisecond)
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), "not the address of a proxy")
		cancel()
		running.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
}
