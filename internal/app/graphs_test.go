package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/server"
)

// A worker that does not answer keeps no server from being ready, and names of graphs and nodes are not for those who show no credentials.
func TestChecksOfWorkersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	const held = "a worker does not answer: its event loop is blocked by node plan of graph secret for 3s"
	require.NoError(t, heldUp("", true))
	require.EqualError(t, heldUp(held, false), held+"; see the log")
	require.EqualError(t, heldUp(held, true), "a worker does not answer; see the log")

	var err error
	checks := map[string]server.Check{"workers": func(context.Context) error { return err }}
	require.False(t, loading(t.Context(), checks))
	err = heldUp(held, false)
	require.False(t, loading(t.Context(), checks))
	err = errors.New("no worker has loaded the graphs")
	require.True(t, loading(t.Context(), checks))
}
