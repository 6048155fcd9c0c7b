package usage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run"
)

// Percentiles are right within a bucket, however many runs there are.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var all []float64 // ms
		days := map[int64][]Sum{}
		for range 1 + r.IntN(500) {
			took := time.Duration(math.Exp(r.Float64()*18)) * time.Microsecond
			all = append(all, max(1, float64(took)/1e6))
			day := int64(r.IntN(3))
			days[day] = append(days[day], Of(&run.Run{Status: run.Success, CreatedAt: time.Unix(1, 0), EndedAt: time.Unix(1, 0).Add(took)}, &run.Completion{})...)
		}
		slices.Sort(all)
		got := NewReport(0, 2, days).Whole
		require.Equal(t, int64(len(all)), got.Runs)
		for share, d := range map[float64]time.Duration{0.5: got.P50, 0.95: got.P95} {
			want := all[int(math.Ceil(share*float64(len(all))))-1]
			ms := float64(d) / 1e6
			require.True(t, ms >= want-1 && ms <= want*1.19+1, "%v of %d runs: %v, not %v", share, len(all), ms, want)
		}
	}
}

// What is beyond the limit is in one sum, so that the sums of a kind add up.
func TestMostUsed(t *testing.T) {
	t.Parallel()
	var named []Sum
	for i := range MaxNamed + 50 {
		s := Sum{Kind: Model, Name: fmt.Sprint("m", i), Runs: 1, Total: int64(i)}
		named = append(named, s, s) // in parts
	}
	got := NewReport(0, 0, map[int64][]Sum{0: named}).By[Model]
	require.Len(t, got, MaxNamed+1)
	require.Equal(t, Sum{Kind: Model, Name: fmt.Sprint("m", MaxNamed+49), Runs: 2, Total: 2 * (MaxNamed + 49)}, got[0])
	require.Equal(t, Sum{Kind: Model, Runs: 100, Total: 49 * 50}, got[MaxNamed])
}
