package server

import (
	"context"
	"testing"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/fault"
)

// full is an authenticator whose queue is full, as that of handlers in Python.
type full struct{}

func (full) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	return nil, fault.New(fault.Unavailable, "Too many requests are being authenticated at the moment, try again")
}

// While too many requests are being authenticated, every further one gets 503 with the time to try again, and no route does anything.
func TestFullAuthenticator(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Authenticator = full{} })
	for _, request := range [][]string{
		{"POST", "/threads", `{}`},
		{"GET", "/threads/" + someThread, ""},
		{"POST", runsPath, aRun},
		{"POST", runsPath + "/stream", aRun},
		{"POST", "/store/items/search", `{}`},
		{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"GET", "/nowhere", ""},
	} {
		res, body := w.ask(t, request[0], request[1], request[2])
		require.Equal(t, 503, res.StatusCode, request)
		require.Equal(t, "1", res.Header.Get("Retry-After"), request)
		require.JSONEq(t, `{"detail":"Too many requests are being authenticated at the moment, try again"}`, body, request)
	}
	_, _, _, err := ws.Dial(t.Context(), "ws://"+w.addr+protocolPath+"/stream/events")
	var status ws.StatusError
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, 503, status)
}
