package python

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The loop that writes what a node returned is not blocked by code of the node.
func TestSendingIsNoCodeOfTheUser(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]bool{
		"/usr/lib/python3.11/asyncio/selector_events.py:1073": true,
		`C:/Python/Lib/asyncio/proactor_events.py:12`:         true,
		"/usr/lib/python3.11/asyncio/tasks.py:12":             false,
		"/project/selector_events.py:3":                       false,
		"graph.py:3":                                          false,
		"":                                                    false,
	} {
		require.Equal(t, want, sends(place), place)
	}
}
