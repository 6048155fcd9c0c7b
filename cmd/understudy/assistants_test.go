package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
)

// Assistants of graphs that a server does not serve do not make it one that has them.
func TestGraphsOfAServer(t *testing.T) {
	t.Parallel()
	of := func(graph string) listed { return listed{string(id.DefaultAssistant(graph)), graph} }
	left := []listed{{"one", "renamed"}, {"two", "slow"}, {"three", "b"}, {"four", "b"}}
	require.Equal(t, []string{"a", "b"}, graphsOf(append([]listed{of("b"), of("a")}, left...)))
	require.Equal(t, []string{"b", "renamed", "slow"}, graphsOf(left), "the default ones are hidden")
	require.Empty(t, graphsOf(nil))
}
