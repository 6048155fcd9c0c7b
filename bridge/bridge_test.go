package bridge_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
)

// Offsets only grow, whatever follows what and whatever the clock does, and those of numbered records say which records they are.
func TestOffsetsGrow(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	var last bridge.Offset
	now := int64(1_700_000_000_000)
	for range 100_000 {
		var r bridge.Record
		if rnd.IntN(3) > 0 {
			r.Attempt, r.Index = 1+rnd.IntN(1<<rnd.IntN(15)), 1+rnd.Int64N(1<<rnd.IntN(28))
		}
		if rnd.IntN(8) == 0 {
			now += rnd.Int64N(5) - 1
		}
		o := r.After(last, now)
		require.Positive(t, o.Compare(last), "%s after %s", o, last)
		require.GreaterOrEqual(t, o.MS, now)
		require.Less(t, o.N, int64(1)<<53)
		if attempt, index, ok := o.Position(); r.Index > 0 {
			require.True(t, ok)
			require.Equal(t, []any{r.Attempt, r.Index}, []any{attempt, index})
		}
		last = o
	}
}
