package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// LangGraph Server reads check_db as Python's int does.
func TestCheckDB(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.CheckDB = func(context.Context) error { return errors.New("gone") } })
	const fine, away = `{"ok":true,"services":{}}`, `{"detail":"The storage does not respond"}`
	for query, want := range map[string]struct {
		status int
		body   string
	}{
		"": {200, fine}, "?check_db=0": {200, fine}, "?check_db=-0": {200, fine}, "?check_db=0_0": {200, fine},
		"?check_db=1": {503, away}, "?check_db=%201%20": {503, away}, "?check_db=-1": {503, away}, "?check_db=1_000": {503, away},
		"?check_db=":     {400, `{"detail":"invalid literal for int() with base 10: ''"}`},
		"?check_db=true": {400, `{"detail":"invalid literal for int() with base 10: 'true'"}`},
		"?check_db=_1":   {400, `{"detail":"invalid literal for int() with base 10: '_1'"}`},
		"?check_db=1__0": {400, `{"detail":"invalid literal for int() with base 10: '1__0'"}`},
		"?check_db=1_":   {400, `{"detail":"invalid literal for int() with base 10: '1_'"}`},
		"?check_db=-":    {400, `{"detail":"invalid literal for int() with base 10: '-'"}`},
	} {
		res, body := w.ask(t, "GET", "/ok"+query, "")
		require.Equal(t, []any{want.status, want.body}, []any{res.StatusCode, body}, query)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var down, slow atomic.Bool
	w := setup(t, func(o *Options) {
		o.Disable.Meta = true // health stays
		o.Checks = map[string]Check{
			"database": func(ctx context.Context) error {
				if _, bounded := ctx.Deadline(); !bounded {
					return errors.New("no deadline")
				}
				if down.Load() {
					return errors.New("dial s3cret: refused")
				}
				return nil
			},
			"workers": func(context.Context) error {
				if slow.Load() {
					return Remark("a worker does not answer")
				}
				return nil
			},
		}
	})
	answers := func(path string, status int, want string) {
		t.Helper()
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, []any{status, want}, []any{res.StatusCode, body})
	}
	answers("/livez", 200, `{"live":true}`)
	answers("/readyz", 200, `{"ready":true,"checks":{"draining":"ok","database":"ok","workers":"ok"}}`)
	down.Store(true)
	answers("/readyz", 503, `{"ready":false,"checks":{"draining":"ok","database":"failed","workers":"ok"}}`)
	answers("/livez", 200, `{"live":true}`)
	down.Store(false)
	answers("/readyz", 200, `{"ready":true,"checks":{"draining":"ok","database":"ok","workers":"ok"}}`)
	slow.Store(true)
	answers("/readyz", 200, `{"ready":true,"checks":{"draining":"ok","database":"ok","workers":"ok: a worker does not answer"}}`)
}

// While what requests need is still being loaded, probes answer and say so; other requests wait, and are refused when it cannot be loaded.
func TestHealthWhileLoading(t *testing.T) {
	t.Parallel()
	loaded, waiting := make(chan struct{}), make(chan struct{}, 1)
	var broken atomic.Bool
	w := setup(t, func(o *Options) {
		o.MountPrefix = "/mounted"
		o.Loaded = func(ctx context.Context) error {
			select {
			case waiting <- struct{}{}:
			default:
			}
			select {
			case <-loaded:
				if broken.Load() {
					return errors.New("no module s3cret")
				}
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		o.Checks = map[string]Check{"gate": func(context.Context) error {
			select {
			case <-loaded:
				return nil
			default:
				return fault.New(fault.Unavailable, "still loading http.app")
			}
		}}
	})
	answers := func(path string, status int, want string) {
		t.Helper()
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, status, res.StatusCode, body)
		require.Contains(t, body, want)
	}
	for path, want := range map[string]string{"/mounted/livez": `{"live":true}`, "/mounted/ok": `"ok":true`, "/mounted/metrics": "# HELP"} {
		answers(path, 200, want)
	}
	answers("/mounted/readyz", 503, `"gate":"failed: still loading http.app"`)
	answered := make(chan int, 1)
	go func() {
		res, err := http.Get("http://" + w.addr + "/mounted/info")
		if err != nil {
			answered <- 0
			return
		}
		res.Body.Close()
		answered <- res.StatusCode
	}()
	<-waiting
	require.Empty(t, answered)
	close(loaded)
	require.Equal(t, 200, <-answered)
	answers("/mounted/readyz", 200, `"gate":"ok"`)
	broken.Store(true)
	answers("/mounted/info", 503, "The server is starting")
	answers("/mounted/livez", 200, "true")
}

// However long checks take, and whatever they make of their context: all together take no longer than one deadline, and one that did not return has
// failed.
func TestChecksThatHang(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	hangs := func(context.Context) error {
		<-end
		return nil
	}
	w := setup(t, func(o *Options) {
		o.CheckDB = hangs
		o.Checks = map[string]Check{"a": hangs, "b": hangs, "c": func(context.Context) error { return nil }}
	})
	t.Cleanup(func() { close(end) }) // before the server ends
	for path, want := range map[string]string{
		"/readyz":        `{"ready":false,"checks":{"draining":"ok","a":"failed: no answer within 2s","b":"failed: no answer within 2s","c":"ok"}}`,
		"/ok?check_db=1": `{"detail":"The storage does not respond"}`,
	} {
		began := time.Now()
		res, body := w.ask(t, "GET", path, "")
		require.Less(t, time.Since(began), checkTime+time.Second, "what the documentation gives probes: %s", path)
		require.Equal(t, []any{503, want}, []any{res.StatusCode, body}, path)
	}
}

// During drain a server reports that it is not ready, while it still accepts connections.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Drain = time.Hour })
	status := func() int {
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
		defer fresh.CloseIdleConnections()
		res, err := fresh.Get("http://" + w.addr + "/readyz")
		if err != nil {
			return 0
		}
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	require.Equal(t, 200, status())
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	require.Eventually(t, func() bool { return status() == 503 }, time.Minute, time.Millisecond)
	require.NoError(t, w.ln.Close()) // what else ends it is time
	if err := <-stopped; err != nil {
		require.ErrorIs(t, err, net.ErrClosed)
	}
	require.Zero(t, status())
}
