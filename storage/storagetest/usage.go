package storagetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/run"
	"understudy/run/usage"
	"understudy/thread"
)

var usageCases = map[string]func(*testing.T, Backend){
	// Whatever is folded when, by how many servers, and whether runs still exist: each counts once, for everyone and for its identity.
	"sums are those of all runs": func(t *testing.T, b Backend) {
		t.Helper()
		r := rand.New(rand.NewPCG(1, 2))
		now := func() time.Time { return usage.Date(20_000) } // no day is past, so that nothing is kept in memory
		services := []*usage.Service{{Store: b.Usage, Now: now}, {Store: b.Usage, Now: now}}
		hostile := "m\x00\xff" + strings.Repeat("é", 200)
		days := map[string]map[int64][]usage.Sum{}
		known := 0
		put := func(identity string) {
			day := 20_000 + int64(r.IntN(4))
			n := int64(r.IntN(1000))
			row := &run.Run{Graph: fmt.Sprint("g", r.IntN(2)), Assistant: id.Assistant(fmt.Sprint("a", r.IntN(3))), Status: []run.Status{run.Success, run.Error, run.Timeout}[r.IntN(3)], CreatedAt: base}
			row.EndedAt = base.Add(time.Duration(r.IntN(100_000)) * time.Millisecond)
			sums := usage.Of(row, &run.Completion{
				TotalTokens: &n, LLMCalls: &n, ByModel: map[string]run.Usage{"m é": {Calls: n, Total: &n}, "": {Calls: 1}, hostile: {Calls: 2}}, ByCaller: map[string]run.Usage{"lead": {Calls: n, Input: &n}},
			})
			body, err := json.Marshal(sums)
			require.NoError(t, err)
			known++
			of := id.Run(fmt.Sprintf("r%04d", known))
			if r.IntN(4) == 0 { // as servers of the version before list it
				of = ""
			}
			write(t, b, func(tx run.Tx) error { return tx.PutUsage(of, identity, day, body) })
			for _, of := range []string{"", identity} {
				if days[of] == nil {
					days[of] = map[int64][]usage.Sum{}
				}
				days[of][day] = append(days[of][day], sums...)
				if identity == "" {
					break
				}
			}
		}
		check := func() {
			t.Helper()
			for _, identity := range []string{"", "ada", "ben 😀\x01", "none"} {
				got, err := services[0].Report(ctx, usage.Query{Identity: identity, Days: 3, Until: usage.Date(20_003)})
				require.NoError(t, err)
				require.Equal(t, usage.NewReport(20_001, 20_003, days[identity]), got, identity)
			}
		}
		check()
		for range 6 {
			for range 60 {
				put([]string{"", "ada", "ben 😀\x01"}[r.IntN(3)])
			}
			check()
			var all sync.WaitGroup
			for _, s := range services {
				all.Go(func() {
					_, err := s.Fold(ctx)
					require.NoError(t, err)
				})
			}
			all.Wait()
			check()
		}
		for {
			n, err := services[1].Fold(ctx)
			require.NoError(t, err)
			if n == 0 {
				break
			}
		}
		left, err := b.Usage.EndedRuns(ctx, 10)
		require.NoError(t, err)
		require.Empty(t, left)
		b = b.reopen(t)
		services[0].Store = b.Usage
		check()
		require.NoError(t, b.Usage.DropUsage(ctx, 20_002))
		for _, list := range days {
			delete(list, 20_001)
		}
		got, err := services[0].Report(ctx, usage.Query{Days: 3, Until: usage.Date(20_003)})
		require.NoError(t, err)
		require.Equal(t, usage.NewReport(20_001, 20_003, days[""]).Days, got.Days)
	},
	// What is kept of runs follows from their rows, and the sums from what is kept, also after one of them was changed or lost; what deleted runs used stays.
	"usage is made anew": func(t *testing.T, b Backend) {
		t.Helper()
		r := rand.New(rand.NewPCG(5, 6))
		service := &usage.Service{Store: b.Usage, Now: func() time.Time { return base }}
		const threads, each = 4, 12
		for n := range threads {
			insertThreads(t, b, newThread(n+1))
			for i := range each {
				row := &run.Run{
					ID: id.Run(fmt.Sprintf("r%d-%02d", n, i)), Thread: threadID(n + 1), Graph: fmt.Sprint("g", r.IntN(2)), Assistant: "a", Status: []run.Status{run.Success, run.Error}[r.IntN(2)], Metadata: []byte(`{}`),
					CreatedAt: base, EndedAt: base.Add(time.Duration(r.IntN(4 * 24 * 3600_000_000_000))).Add(time.Duration(i) * time.Nanosecond), UpdatedAt: base,
				}
				if i%3 > 0 {
					row.Kwargs.Config = json.RawMessage(fmt.Sprintf(`{"configurable":{"langgraph_auth_user_id":"user %d"}}`, i%3))
				}
				total := int64(r.IntN(1000))
				c := &run.Completion{TotalTokens: &total, LLMCalls: &total, ByModel: map[string]run.Usage{"m": {Calls: 1, Total: &total}, "other": {Calls: 2}}, ByCaller: map[string]run.Usage{"lead": {Calls: 3, Total: &total}}}
				body, err := json.Marshal(usage.Of(row, c))
				require.NoError(t, err)
				write(t, b, func(tx run.Tx) error {
					if err := tx.InsertRun(row); err != nil {
						return err
					}
					if err := tx.PutCompletion(row.ID, c); err != nil {
						return err
					}
					return tx.PutUsage(row.ID, usage.IdentityOf(row), usage.DayOf(row.EndedAt), body)
				})
			}
		}
		// One that ended when servers did not list which run it was.
		write(t, b, func(tx run.Tx) error {
			return tx.PutUsage("", "", usage.DayOf(base), []byte(`[{"k":"all","r":1,"t":5}]`))
		})
		report := func() []*usage.Report {
			var out []*usage.Report
			for _, who := range []string{"", "user 1", "user 2"} {
				got, err := service.Report(ctx, usage.Query{Identity: who, Days: 10, Until: base.Add(6 * 24 * time.Hour)})
				require.NoError(t, err)
				out = append(out, got)
			}
			return out
		}
		rebuild := func(check bool) *usage.Rebuilt {
			got, err := (&usage.Rebuilding{Store: b.Usage, Check: check}).Run(ctx)
			require.NoError(t, err)
			return got
		}
		want := report()
		require.Equal(t, int64(threads*each+1), want[0].Whole.Runs)
		require.Positive(t, rebuild(true).Behind)
		first := rebuild(false)
		require.Equal(t, []int{threads * each, 0, 0}, []int{first.Runs, first.Deleted, first.Different})
		require.Equal(t, want, report())
		require.Equal(t, first.Rows, rebuild(true).Rows)

		damage := map[string]func(kept []usage.Kept) usage.Change{
			"a sum": func([]usage.Kept) usage.Change {
				return usage.Change{Sums: map[usage.Place][]usage.Sum{{Day: usage.DayOf(base)}: {{Kind: usage.All, Runs: 3, Total: -7}, {Kind: usage.Model, Name: "invented", Runs: 1}}}}
			},
			"what is kept of a run": func(kept []usage.Kept) usage.Change {
				e := kept[2].Ended
				e.Sums = []usage.Sum{{Kind: usage.All, Runs: 9}}
				return usage.Change{Put: []usage.Ended{e}}
			},
			"the day of a run": func(kept []usage.Kept) usage.Change {
				e := kept[4].Ended
				e.Day += 2
				return usage.Change{Drop: []usage.Ended{kept[4].Ended}, Put: []usage.Ended{e}}
			},
		}
		for name, change := range damage {
			kept, err := b.Usage.KeptRuns(ctx, usage.Ended{}, 100)
			require.NoError(t, err)
			require.Len(t, kept, threads*each, name)
			require.NoError(t, b.Usage.ChangeUsage(ctx, change(kept)), name)
			for range 2 { // a check changes nothing
				require.Positive(t, rebuild(true).Different, name)
			}
			require.Positive(t, rebuild(false).Different, name)
			require.Zero(t, rebuild(true).Different, name)
			require.Equal(t, want, report(), name)
		}

		// Runs of a deleted thread stay in the sums, before and after they are settled, and a rebuild leaves them.
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error { return tx.DeleteThread(threadID(1)) }))
		require.Zero(t, rebuild(true).Different) // while its rows are still there
		for more := true; more; {
			require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) (err error) {
				more, err = tx.DeleteRemains(threadID(1), 3)
				return err
			}))
			require.Zero(t, rebuild(true).Different)
		}
		require.Equal(t, want, report())
		got := rebuild(false)
		require.Equal(t, []int{(threads - 1) * each, each, 0}, []int{got.Runs, got.Deleted, got.Different})
		for range 2 {
			require.NoError(t, service.Settle(ctx))
			require.Equal(t, want, report())
		}
		got = rebuild(false)
		require.Equal(t, []int{(threads - 1) * each, 0, 0}, []int{got.Runs, got.Deleted, got.Different})
		require.Equal(t, want, report())
		require.NoError(t, b.Usage.DropUsage(ctx, usage.DayOf(base)+100))
		require.Equal(t, &usage.Rebuilt{}, rebuild(true))
	},
	"what another server has folded is not folded again": func(t *testing.T, b Backend) {
		t.Helper()
		write(t, b, func(tx run.Tx) error { return tx.PutUsage("", "", 1, []byte(`[{"k":"all","r":1}]`)) })
		list, err := b.Usage.EndedRuns(ctx, 10)
		require.NoError(t, err)
		change := usage.Change{Listed: []int64{list[0].ID}, Sums: map[usage.Place][]usage.Sum{{Day: 1}: {{Kind: usage.All, Runs: 1}}}}
		require.NoError(t, b.Usage.ChangeUsage(ctx, change))
		require.ErrorIs(t, b.Usage.ChangeUsage(ctx, change), usage.ErrFolded)
		days, _, err := b.Usage.UsageOf(ctx, "", 1, 1)
		require.NoError(t, err)
		require.Equal(t, map[int64][]usage.Sum{1: {{Kind: usage.All, Runs: 1}}}, days)
	},
}
