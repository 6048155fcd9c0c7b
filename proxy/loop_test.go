package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// Proxies whose upstreams lead back to them say so and refuse calls, where each call would be forwarded for ever.
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

// A proxy serves again when its upstream no longer leads back to it, and answers 502 when that has gone away.
func TestLoopsEnd(t *testing.T) {
	t.Parallel()
	const loop, serve, gone = 0, 1, 2
	var mode atomic.Int32
	var back atomic.Pointer[httputil.ReverseProxy]
	probes := make(chan string, 100)
	w := behind(t, func(rw http.ResponseWriter, r *http.Request) {
		switch mode.Load() {
		case loop:
			back.Load().ServeHTTP(rw, r)
		case serve:
			if r.URL.Path != "/ok" {
				probes <- r.Header.Get(probeHeader)
			}
			_, _ = io.WriteString(rw, `{"ok":true}`)
		default:
			panic(http.ErrAbortHandler)
		}
	})
	to, err := url.Parse(w.url)
	require.NoError(t, err)
	back.Store(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)})
	up := w.proxy.c.Upstream
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = up.Watch(ctx, time.Millisecond, slog.New(slog.DiscardHandler)) })
	defer running.Wait()
	defer cancel()
	for _, next := range []struct {
		mode int32
		want int
	}{{gone, http.StatusBadGateway}, {serve, http.StatusOK}} {
		mode.Store(loop)
		require.Eventually(t, up.looped.Load, time.Minute, time.Millisecond)
		status, _ := w.get("/info")
		require.Equal(t, http.StatusLoopDetected, status)
		mode.Store(next.mode)
		require.Eventually(t, func() bool { return !up.looped.Load() }, 20*time.Second, time.Millisecond)
		// The last check of the loop may still be on its way back.
		require.Eventually(t, func() bool { status, _ = w.get("/info", probeHeader, "of another proxy"); return status == next.want }, 20*time.Second, time.Millisecond)
	}
	require.Empty(t, <-probes, "a call that is no check has the header of checks")
}
