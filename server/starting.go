package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Starting answers on ln while the server is being assembled, for example during a long migration: GET /ok and /livez report that the
// process is alive, everything else gets 503 with Retry-After. It begins after delay, so that during a quick start clients wait in the
// listen backlog instead of getting a 503. wrap adds TLS; nil does not. stop ends it and leaves ln open for Serve; call it once.
func Starting(ln *net.TCPListener, wrap func(net.Listener) net.Listener, delay time.Duration) (stop func()) {
	held := &borrowed{TCPListener: ln}
	accepting := net.Listener(held)
	if wrap != nil {
		accepting = wrap(held)
	}
	srv := &http.Server{Handler: http.HandlerFunc(answerStarting), ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	srv.SetKeepAlivesEnabled(false)
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-time.After(delay):
			_ = srv.Serve(accepting) // ends with the error of borrowed
		case <-stopped:
		}
	}()
	return func() {
		close(stopped)
		held.over.Store(true)
		_ = ln.SetDeadline(time.Now()) // ends Accept
		<-ended
		_ = ln.SetDeadline(time.Time{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx) // answers accepted requests
		_ = srv.Close()
	}
}

func answerStarting(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/ok"):
		_, _ = io.WriteString(w, `{"ok":true,"starting":true}`)
	case strings.HasSuffix(path, "/livez"):
		_, _ = io.WriteString(w, `{"live":true}`)
	case strings.HasSuffix(path, "/readyz"):
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"ready":false,"checks":{"starting":"failed"}}`)
	default:
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"detail":"The server is starting. Try again in a few seconds."}`)
	}
}

// borrowed is a listener that does not close, and whose Accept fails once it has ended.
type borrowed struct {
	*net.TCPListener
	over atomic.Bool
}

func (b *borrowed) Accept() (net.Conn, error) {
	if b.over.Load() {
		return nil, net.ErrClosed
	}
	conn, err := b.TCPListener.Accept()
	if err != nil && b.over.Load() {
		return nil, net.ErrClosed
	}
	return conn, err
}

func (b *borrowed) Close() error { return nil }
