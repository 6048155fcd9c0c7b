package python

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/graph"
)

// The message that starts a run is one msgpack value: its map has as many pairs as its header says.
func TestRunMessageIsWhole(t *testing.T) {
	t.Parallel()
	for _, head := range [][]byte{nil, msgp.AppendNil(nil)} {
		rest, err := msgp.Skip(appendRun(nil, 1, "g", &graph.Invocation{Arguments: graph.Arguments{Modes: []string{"values", "updates"}}}, head))
		require.NoError(t, err)
		require.Empty(t, rest)
	}
}
