package storagetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/id"
	"understudy/run"
)

// Pages of the runs of all threads hold, one after the other, what is chosen and in reach, newest first.
func recentRuns(t *testing.T, b Backend) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	var all []*run.Run
	owners := map[id.Run]string{}
	for n := range 60 {
		row := newRun(n+1, n/2+1)
		row.Status = []run.Status{run.Pending, run.Success, run.Error}[r.IntN(3)]
		row.Graph = fmt.Sprint("g", r.IntN(2))
		all = append(all, row)
	}
	write(t, b, func(tx run.Tx) error {
		for n := range 30 {
			th := newThread(n + 1)
			th.Metadata = raw(fmt.Sprintf(`{"owner":"u%d"}`, n%3))
			if err := tx.InsertThread(th); err != nil {
				return err
			}
		}
		for _, row := range all {
			if err := tx.InsertRun(row); err != nil {
				return err
			}
		}
		return tx.DeleteThread(threadID(7))
	})
	for i, row := range all {
		owners[row.ID] = fmt.Sprint("u", (i/2)%3)
	}
	for _, owner := range []string{"", "u1", "none"} {
		seen := ctx
		if owner != "" {
			seen = in(t, access.Threads, `{"owner":"`+owner+`"}`)
		}
		for _, status := range []run.Status{"", run.Error, run.Timeout} {
			for _, graph := range []string{"", "g1", "none"} {
				var want []id.Run
				for i := len(all) - 1; i >= 0; i-- {
					if x := all[i]; x.Thread != threadID(7) && (owner == "" || owners[x.ID] == owner) && (status == "" || x.Status == status) && (graph == "" || x.Graph == graph) {
						want = append(want, x.ID)
					}
				}
				for _, limit := range []int{1, 7, 100} {
					var got []id.Run
					for q, pages := (run.Recent{Status: status, Graph: graph, Limit: limit}), 0; ; pages++ {
						require.Less(t, pages, 100)
						page, next, err := b.Runs.RecentRuns(seen, q)
						require.NoError(t, err)
						require.LessOrEqual(t, len(page), limit)
						for _, x := range page {
							got = append(got, x.ID)
						}
						if q.Before = next; next == "" {
							break
						}
					}
					require.Equal(t, want, got, "%s %s %s %d", owner, status, graph, limit)
				}
			}
		}
	}
}
