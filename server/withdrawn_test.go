package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/gate"
)

// revocable accepts every request until its credentials are withdrawn.
type revocable struct{ withdrawn, stuck atomic.Bool }

func (*revocable) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	return &access.Actor{Identity: "ann", Permissions: []string{}}, nil
}

func (r *revocable) Follow(*access.Request) func(context.Context) bool {
	return func(ctx context.Context) bool {
		if r.stuck.Load() {
			<-ctx.Done()
		}
		return r.withdrawn.Load()
	}
}

// follow begins a run whose client waits for its records, or for its result.
func follow(t *testing.T, w *world, path string) (*line, *http.Response) {
	t.Helper()
	l := following(w)
	t.Cleanup(func() { close(l.records) })
	res, err := http.Post("http://"+w.addr+runsPath+path, "application/json", strings.NewReader(aRun)) //nolint:noctx // as a client without a limit
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, res.Body.Close()) })
	return l, res
}

// A stream and a WebSocket end soon after the credentials of their client were withdrawn, and not before; a command that is sent afterwards is not executed.
func TestWithdrawnCredentials(t *testing.T) {
	t.Parallel()
	by := &revocable{}
	w := setup(t, quick, func(o *Options) { o.Authenticator = by })
	l, res := follow(t, w, "/stream")
	_, err := io.ReadFull(res.Body, make([]byte, 1))
	require.NoError(t, err, "it lives")
	c := dialSocket(t, w, newEventScript())
	c.subscribe()
	for c.frame().Header.OpCode != ws.OpPing { // it lives
	}

	by.withdrawn.Store(true)
	_, err = io.ReadAll(res.Body)
	require.Error(t, err, "it breaks: there is more")
	require.True(t, <-l.closed, "as if the client had left")
	code, reason := c.end()
	require.Equal(t, ws.StatusPolicyViolation, code, reason)

	by.withdrawn.Store(false)
	idle := setup(t, func(o *Options) { o.Authenticator = by }) // whose next heartbeat is far away
	c = dialSocket(t, idle, newEventScript())
	c.subscribe()
	by.withdrawn.Store(true)
	c.send(ws.OpText, `{"id":2,"method":"run.start","params":{"assistant_id":"a","input":{}}}`)
	code, _ = c.end()
	require.Equal(t, ws.StatusPolicyViolation, code)
}

// A client that waits for a run gets no result once its credentials were withdrawn, and the wait ends.
func TestWithdrawnWhileWaiting(t *testing.T) {
	t.Parallel()
	by := &revocable{}
	w := setup(t, quick, func(o *Options) { o.Authenticator = by })
	l, res := follow(t, w, "/wait")
	_, err := io.ReadFull(res.Body, make([]byte, 1))
	require.NoError(t, err, "it lives")
	by.withdrawn.Store(true)
	_, err = io.ReadAll(res.Body)
	require.Error(t, err, "it breaks")
	require.True(t, <-l.closed, "as if the client had left")
}

// A database that does not answer who may still read holds a stream up, and does not stop it.
func TestWithdrawnCannotBeFoundOut(t *testing.T) {
	t.Parallel()
	by := &revocable{}
	by.stuck.Store(true)
	w := setup(t, quick, func(o *Options) { o.Authenticator = by })
	_, res := follow(t, w, "/stream")
	_, err := io.ReadFull(res.Body, make([]byte, 20)) // more than a heartbeat
	require.NoError(t, err)
}

// named is revocable that accepts no one without a key.
type named struct{ revocable }

func (n *named) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	if r.Header.Get("X-Api-Key") == "" {
		return nil, &access.Refusal{Status: http.StatusUnauthorized}
	}
	return n.revocable.Authenticate(ctx, r)
}

// A stream of the application ends as those of the API do: that of a route that needs credentials, that of the API which passes its middleware, whichever of both
// authenticates first, and that of a client who says to be a graph.
func TestWithdrawnBehindApplication(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"credentials first": true, "middleware first": false} {
		for _, route := range []string{"/app", runsPath + "/stream", "direct"} {
			t.Run(name+" "+route, func(t *testing.T) {
				t.Parallel()
				by := &named{}
				var w *world
				serve := func(ctx context.Context, r *gate.Request) (*http.Response, error) {
					if r.Path == "/app" {
						if !first { // as the gate does for a guarded route
							r.Outer.(interface{ Accepted(*access.Request) }).Accepted(&access.Request{Header: r.Header})
						}
						h := &hold{ctx: ctx, pieces: make(chan string, 1), closed: make(chan struct{})}
						h.pieces <- "here"
						return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: h, ContentLength: -1}, nil
					}
					again, err := http.NewRequestWithContext(ctx, r.Method, "http://x"+r.Path, r.Body)
					if err != nil {
						return nil, err
					}
					again.Header = r.Header
					return w.s.Inside(again, gate.Passage{Outer: r.Outer})
				}
				wraps := []string{"wrapped"}
				if route == "direct" {
					wraps = nil
				}
				a := &playedApp{about: &gate.Application{Wraps: wraps}, serve: serve}
				w = setup(t, quick, func(o *Options) { o.Authenticator, o.App, o.AuthFirst, o.GuardRoutes = by, a, first, true })
				var l *line
				path := route
				if route == "direct" {
					path = runsPath + "/stream"
				}
				if route != "/app" {
					l = following(w)
					t.Cleanup(func() { close(l.records) })
				}
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+w.addr+path, strings.NewReader(aRun))
				require.NoError(t, err)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Api-Key", "ann")
				req.Header.Set(access.InsideHeader, "no such graph")
				res, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				t.Cleanup(func() { _ = res.Body.Close() })
				require.Equal(t, 200, res.StatusCode)
				_, err = io.ReadFull(res.Body, make([]byte, 4))
				require.NoError(t, err, "it lives")
				by.withdrawn.Store(true)
				_, err = io.ReadAll(res.Body)
				require.Error(t, err, "it breaks")
				if l != nil {
					require.True(t, <-l.closed, "as if the client had left")
				}
			})
		}
	}
}
