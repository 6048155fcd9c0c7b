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
