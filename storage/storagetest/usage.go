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
)

var usageCases = map[string]func(*testing.T, Backend){
	// Whatever is folded when, by how many servers, and whether runs still exist: each counts once, for everyone and for its identity.
	"sums are those of all runs": func(t *testing.T, b Backend) {
		t.Helper()
		r := rand.New(rand.NewPCG(1, 2))
		services := []*usage.Service{{Store: b.Usage, Now: time.Now}, {Store: b.Usage, Now: time.Now}}
		hostile := "m\x00\xff" + strings.Repeat("é", 200)
		days, named := map[string]map[int64][]usage.Sum{}, map[string][]usage.Sum{}
		put := func(identity string) {
			day := 20_000 + int64(r.IntN(4))
			n := int64(r.IntN(1000))
			row := &run.Run{Graph: fmt.Sprint("g", r.IntN(2)), Assistant: id.Assistant(fmt.Sprint("a", r.IntN(3))), Status: []run.Status{run.Success, run.Error, run.Timeout}[r.IntN(3)], CreatedAt: base}
			sums := usage.Of(row, &run.Completion{
				TotalTokens: &n, LLMCalls: &n, ByModel: map[string]run.Usage{"m é": {Calls: n, Total: &n}, "": {Calls: 1}, hostile: {Calls: 2}}, ByCaller: map[string]run.Usage{"lead": {Calls: n, Input: &n}},
			}, base.Add(time.Duration(r.IntN(100_000))*time.Millisecond))
			body, err := json.Marshal(sums)
			require.NoError(t, err)
			write(t, b, func(tx run.Tx) error { return tx.PutUsage(identity, day, body) })
			for _, of := range []string{"", identity} {
				if days[of] == nil {
					days[of] = map[int64][]usage.Sum{}
				}
				days[of][day] = append(days[of][day], sums...)
				if day >= 20_001 {
					named[of] = append(named[of], sums...)
				}
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
				require.Equal(t, usage.NewReport(20_001, 20_003, days[identity], named[identity]), got, identity)
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
		require.Equal(t, usage.NewReport(20_001, 20_003, days[""], nil).Days, got.Days)
	},
	"what another server has folded is not folded again": func(t *testing.T, b Backend) {
		t.Helper()
		write(t, b, func(tx run.Tx) error { return tx.PutUsage("", 1, []byte(`[{"k":"all","r":1}]`)) })
		list, err := b.Usage.EndedRuns(ctx, 10)
		require.NoError(t, err)
		sums := map[usage.Place][]usage.Sum{{Day: 1}: {{Kind: usage.All, Runs: 1}}}
		require.NoError(t, b.Usage.FoldUsage(ctx, []int64{list[0].ID}, sums))
		require.ErrorIs(t, b.Usage.FoldUsage(ctx, []int64{list[0].ID}, sums), usage.ErrFolded)
		days, _, err := b.Usage.UsageOf(ctx, "", 1, 1)
		require.NoError(t, err)
		require.Equal(t, map[int64][]usage.Sum{1: {{Kind: usage.All, Runs: 1}}}, days)
	},
}
