package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/run/usage"
)

// A year of usage of everyone, of runs that are there and of deleted ones: graphs, models and tools of each day, and how long runs took. The number of runs and threads does not matter.
func BenchmarkUsageOfAYear(b *testing.B) {
	ctx := context.Background()
	s := openBench(b, "normal")
	for day := range int64(366) {
		var sums []usage.Sum
		for kind, names := range map[string]int{"all": 1, "took": 20, "graph": 10, "model": 10, "tool": 40} {
			for n := range names {
				sums = append(sums, usage.Sum{Kind: kind, Name: fmt.Sprint(kind, n), Runs: 100, Calls: 300, Input: 10_000, Output: 5_000, Total: 15_000})
			}
		}
		require.NoError(b, s.ChangeUsage(ctx, usage.Change{Sums: map[usage.Place][]usage.Sum{{Day: day}: sums}, Final: map[usage.Place][]usage.Sum{{Day: day}: sums}}))
	}
	b.ReportAllocs()
	for b.Loop() {
		days, named, err := s.UsageOf(ctx, "", 0, 365)
		if err != nil || len(days) != 366 || len(named) < 60 {
			b.Fatal(err, len(days), len(named))
		}
	}
}
