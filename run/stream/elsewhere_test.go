package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
)

// A server of a version before, which does not know the event, ends the followers of a deleted thread by the kind of the record.
func TestServersBeforeKnowDeletions(t *testing.T) {
	t.Parallel()
	rec := DeletedRuns()
	require.Equal(t, bridge.Terminal, rec.Kind)
	require.Empty(t, rec.Run)
	require.False(t, rec.Kept)
}
