package usage

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
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
			requireNear(t, all, share, d)
		}
	}
}

// The percentiles of a name are those of its runs, also where many names are together and where parts of a name come from versions that kept no times by name.
func TestPercentilesByName(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		names := 1 + r.IntN(2*MaxNamed)
		days, took := map[int64][]Sum{}, map[string]map[string][]float64{Graph: {}, Assistant: {}, Model: {}, Caller: {}}
		of := func(kind string, d time.Duration) string {
			name := []string{"", "17 ", "m 2 é "}[r.IntN(3)] + fmt.Sprint(r.IntN(names))
			took[kind][name] = append(took[kind][name], max(1, float64(d)/1e6))
			return name
		}
		for range 1 + r.IntN(500) {
			d := time.Duration(math.Exp(r.Float64()*18)) * time.Microsecond
			row := &run.Run{Graph: of(Graph, d), Assistant: id.Assistant(of(Assistant, d)), Status: run.Success, CreatedAt: time.Unix(1, 0), EndedAt: time.Unix(1, 0).Add(d)}
			c := &run.Completion{ByModel: map[string]run.Usage{of(Model, d): {}}, ByCaller: map[string]run.Usage{of(Caller, d): {}}}
			day := int64(r.IntN(3))
			days[day] = append(days[day], Of(row, c)...)
		}
		old := Sum{Kind: Graph, Name: "counted before", Runs: 1000, Total: 1}
		days[0] = append(days[0], old)
		report := NewReport(0, 2, days)
		require.Equal(t, Named{Sum: old}, report.By[Graph][0])
		report.By[Graph] = report.By[Graph][1:]
		for kind, byName := range took {
			for _, got := range report.By[kind] {
				all := byName[got.Name]
				if delete(byName, got.Name); got.Name == "" { // the last
					all = slices.Concat(slices.Collect(maps.Values(byName))...)
					clear(byName)
				}
				slices.Sort(all)
				require.EqualValues(t, len(all), got.Runs)
				for share, d := range map[float64]time.Duration{0.5: got.P50, 0.95: got.P95} {
					requireNear(t, all, share, d)
				}
			}
			require.Empty(t, byName, kind)
		}
	}
}

// requireNear requires that a duration is right within a bucket.
func requireNear(t *testing.T, sorted []float64, share float64, d time.Duration) {
	t.Helper()
	want := sorted[int(math.Ceil(share*float64(len(sorted))))-1]
	ms := float64(d) / 1e6
	require.True(t, ms >= want-1 && ms <= want*1.19+1, "%v of %d runs: %v, not %v", share, len(sorted), ms, want)
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
	require.Equal(t, Sum{Kind: Model, Name: fmt.Sprint("m", MaxNamed+49), Runs: 2, Total: 2 * (MaxNamed + 49)}, got[0].Sum)
	require.Equal(t, Sum{Kind: Model, Runs: 100, Total: 49 * 50}, got[MaxNamed].Sum)
}
