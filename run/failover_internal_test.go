package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
)

// A reader that gets neither the bridge nor what the run publishes here is interrupted: it does not wait, and nothing else happens to it.
func TestASubscriptionOfNothingIsInterrupted(t *testing.T) {
	t.Parallel()
	n := newFailover(bridge.Options{})
	st := (&followers{publisher: &publisher{failover: n}}).runSubscription("r", n.follow("r"), nil, bridge.Offset{MS: 1})
	_, err := st.Replay(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	_, err = st.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	require.Equal(t, bridge.RecordGap, st.Gap("r"))
	require.Equal(t, bridge.Offset{MS: 1}, st.Head())
	st.Close()
	st.Close()
	require.Empty(t, n.runs)
}
