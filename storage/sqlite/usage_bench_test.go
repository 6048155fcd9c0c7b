package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run/usage"
)

// A year of usage of everyone, of runs that are there and of deleted ones: graphs, models and tools of each day, and how long runs took, also by graph and model. The number of runs and threads does not matter.
// The first report of a server reads them all, and the next ones what is not past.
func BenchmarkUsageOfAYear(b *testing.B) {
	ctx := context.Background()
	s := openBench(b, "normal")
	name := func(kind string, n int) string {
		if by, ok := strings.CutPrefix(kind, "took-"); ok { // ten buckets of each name
			return fmt.Sprint(n/10, " ", by, n%10)
		} else if kind == "took" {
			return fmt.Sprint(n)
		}
		return fmt.Sprint(kind, n)
	}
	for day := range int64(366) {
		var sums []usage.Sum
		for kind, names := range map[string]int{"all": 1, "took": 20, "graph": 10, "model": 10, "tool": 40, "took-graph": 100, "took-model": 100} {
			for n := range names {
				sums = append(sums, usage.Sum{Kind: kind, Name: name(kind, n), Runs: 100, Calls: 300, Input: 10_000, Output: 5_000, Total: 15_000})
			}
		}
		require.NoError(b, s.ChangeUsage(ctx, usage.Change{Sums: map[usage.Place][]usage.Sum{{Day: day}: sums}, Final: map[usage.Place][]usage.Sum{{Day: day}: sums}}))
	}
	fresh := func() *usage.Service {
		return &usage.Service{Store: s, Now: func() time.Time { return usage.Date(365) }}
	}
	service := fresh()
	report := func() {
		r, err := service.Report(ctx, usage.Query{Days: 366})
		if err != nil || len(r.Days) != 366 || len(r.By[usage.Model]) != 10 {
			b.Fatal(err, r)
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			service = fresh()
			report()
		}
	})
	b.Run("next", func(b *testing.B) {
		report()
		b.ReportAllocs()
		for b.Loop() {
			report()
		}
	})
}
