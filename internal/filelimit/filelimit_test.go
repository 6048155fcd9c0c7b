package filelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The least limit leaves room for the server, its workers and some clients, and no limit gives a reserve in which a worker could not start.
func TestReserve(t *testing.T) {
	t.Parallel()
	for workers := range 65 {
		needed := Needed(workers)
		require.GreaterOrEqual(t, needed-Reserve(needed), uint64(filesOfServer+filesOfWorker*workers+someClients/2), "%d workers", workers)
	}
	for limit := Needed(1); limit < 1<<20; limit += limit / 7 {
		require.GreaterOrEqual(t, Reserve(limit), uint64(leastReserve))
		require.LessOrEqual(t, Reserve(limit), max(limit/16, leastReserve))
	}
	require.Equal(t, uint64(mostReserve), Reserve(1<<20))
}
