package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// Active runs are counted, and their threads walked, as run.Active selects them, within reach.
func activeRuns(t *testing.T, b Backend) {
	t.Helper()
	const threads = 40
	r := rand.New(rand.NewPCG(7, 8))
	var all []*run.Run
	for n := range 120 {
		row := newRun(n+1, r.IntN(threads)+1)
		row.Status = []run.Status{run.Pending, run.Pending, run.Running, run.Success, run.Interrupted}[r.IntN(5)]
		row.Graph = fmt.Sprint("g", r.IntN(2))
		if r.IntN(6) == 0 {
			row.Cancel = run.CancelInterrupt
		}
		all = append(all, row)
	}
	owner := func(t id.Thread) string {
		for n := range threads {
			if threadID(n+1) == t {
				return fmt.Sprint("u", n%3)
			}
		}
		return ""
	}
	write(t, b, func(tx run.Tx) error {
		for n := range threads {
			th := newThread(n + 1)
			th.Metadata = raw(fmt.Sprintf(`{"owner":"u%d"}`, n%3))
			if err := tx.InsertThread(th); err != nil {
				return err
			}
		}
		running := map[id.Thread]bool{} // a thread has one at most
		for _, row := range all {
			if row.Status == run.Running && running[row.Thread] {
				row.Status = run.Pending
			}
			running[row.Thread] = running[row.Thread] || row.Status == run.Running
			if err := tx.InsertRun(row); err != nil {
				return err
			}
		}
		return tx.DeleteThread(threadID(7))
	})
	for _, user := range []string{"", "u1", "none"} {
		seen := ctx
		if user != "" {
			seen = in(t, access.Threads, `{"owner":"`+user+`"}`)
		}
		for range 40 {
			of := run.Active{Status: []run.Status{"", run.Pending, run.Running}[r.IntN(3)], Graph: []string{"", "g0", "g1", "none"}[r.IntN(4)]}
			if r.IntN(2) == 0 {
				of.Until = all[r.IntN(len(all))].ID
			}
			var n run.ActiveCount
			var want []id.Thread
			for _, x := range all {
				if of.Chooses(x) && x.Thread != threadID(7) && (user == "" || owner(x.Thread) == user) {
					n.Runs, n.Last = n.Runs+1, max(n.Last, x.ID)
					want = append(want, x.Thread)
				}
			}
			slices.Sort(want)
			want = slices.Compact(want)
			got, err := b.Runs.CountActive(seen, of)
			require.NoError(t, err)
			require.Equal(t, n, got, "%s %+v", user, of)
			var walked []id.Thread
			for above, limit := id.Thread(""), 1+r.IntN(9); ; above = walked[len(walked)-1] {
				page, err := b.Runs.ActiveThreads(seen, of, above, limit)
				require.NoError(t, err)
				if len(page) == 0 {
					break
				}
				require.LessOrEqual(t, len(page), limit)
				walked = append(walked, page...)
			}
			require.Equal(t, want, walked, "%s %+v", user, of)
		}
	}
}
