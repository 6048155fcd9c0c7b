package id_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
)

func TestTimeOfCheckpoint(t *testing.T) {
	t.Parallel()
	at, ok := id.Checkpoint("1f0bd33e-8a23-6f9d-8001-b9fb5e9b9a58").Time()
	require.True(t, ok)
	require.Equal(t, "2025-11-09T06:18:29.2", at.Format(time.RFC3339Nano)[:21])
	for _, other := range []id.Checkpoint{"", "c0", "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10"} {
		_, ok := other.Time()
		require.False(t, ok, other)
	}
}
