package relational

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
)

// someRecords are n records of some runs and attempts, in order. Times advance by up to a few seconds, so that spans end.
func someRecords(rnd *rand.Rand, n int) (records []*bridge.Record) {
	r := &bridge.Record{Run: "r0", Attempt: 1, Offset: bridge.Offset{MS: rnd.Int64N(1 << 41)}}
	for range n {
		next := &bridge.Record{
			Run: r.Run, Attempt: r.Attempt, Index: r.Index + rnd.Int64N(3), Kind: bridge.Kind(rnd.IntN(3)), Offset: r.Offset,
			Event: []string{"messages", "values", "", "updates|a:1"}[rnd.IntN(4)], Checkpoint: id.Checkpoint([]string{"", "c1", "c2"}[rnd.IntN(3)]),
			Kept: rnd.IntN(2) == 0, Ephemeral: rnd.IntN(2) == 0, Ahead: rnd.IntN(2) == 0, Summarizer: rnd.IntN(2) == 0,
		}
		switch rnd.IntN(10) {
		case 0:
			next.Run, next.Index = id.Run(fmt.Sprint("r", rnd.IntN(3))), 0
		case 1:
			next.Attempt, next.Index = r.Attempt+1, 1
		case 2:
			next.Offset.MS += rnd.Int64N(5000)
		}
		if next.Offset.N += 1 + rnd.Int64N(2048); rnd.IntN(3) == 0 {
			next.Offset.MS, next.Offset.N = next.Offset.MS+1+rnd.Int64N(3), rnd.Int64N(1<<40)
		}
		switch rnd.IntN(8) {
		case 0:
		case 1:
			next.Data = []byte{}
		case 2:
			next.Data = []byte(strings.Repeat("x", rnd.IntN(3*packBytes)))
		default:
			next.Data = fmt.Appendf(nil, `[{"content":"w%d","type":"AIMessageChunk"},{}]`, rnd.IntN(1000))
		}
		records, r = append(records, next), next
	}
	return records
}

// What is packed is unpacked as it was, and a pack keeps its limits.
func TestPacks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		records := someRecords(rnd, 1+rnd.IntN(200))
		var got []*bridge.Record
		for _, p := range packed(records) {
			list, err := unpacked(p)
			require.NoError(t, err)
			require.Len(t, list, p.Records)
			require.Equal(t, []bridge.Offset{p.First, p.Last}, []bridge.Offset{list[0].Offset, list[len(list)-1].Offset})
			require.LessOrEqual(t, p.Last.MS-p.First.MS, int64(packSpan))
			size := 0
			for _, r := range list {
				require.Equal(t, []any{p.Run, p.Attempt}, []any{r.Run, r.Attempt})
				size += len(r.Data)
			}
			require.True(t, p.Records == 1 || size <= packBytes, "%d records have %d bytes", p.Records, size)
			got = append(got, list...)
		}
		require.Equal(t, records, got, "seed %d", seed)
	}
}

// Tokens of a stream cost a small part of a row.
func TestPacksOfTokens(t *testing.T) {
	t.Parallel()
	var records []*bridge.Record
	for n := range int64(1000) {
		records = append(records, &bridge.Record{
			Run: "r", Attempt: 1, Index: n + 1, Offset: bridge.Offset{MS: 1000 + n/30, N: (n + 1) << 10}, Kind: bridge.Token, Event: "messages", Kept: true,
			Data: fmt.Appendf(nil, `[{"content":"w%d ","type":"AIMessageChunk","id":"run--1"},{"langgraph_node":"model","langgraph_step":1,"thread_id":"t","ls_model_type":"chat"}]`, n),
		})
	}
	packs, size := packed(records), 0
	for _, p := range packs {
		size += len(p.Data)
	}
	require.Less(t, len(packs), 12)
	require.Less(t, size, 40<<10, "compressed from 140 KB")
}

// Damaged data is an error, never a panic or a wrong number of records.
func TestDamagedPacks(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := packed(someRecords(rnd, 20))[0]
		p.Data = slices.Clone(p.Data)
		switch rnd.IntN(3) {
		case 0:
			p.Data = p.Data[:rnd.IntN(len(p.Data))]
		case 1:
			p.Data[rnd.IntN(len(p.Data))] ^= byte(1 + rnd.IntN(255))
		case 2:
			p.Records += 1 + rnd.IntN(1<<30)
		}
		if list, err := unpacked(p); err == nil {
			require.Len(t, list, p.Records)
		} else {
			require.ErrorIs(t, err, errDamagedPack)
		}
	}
}

// A merger returns what sorting all records does, whatever overlaps.
func TestMerger(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var packs [][]*bridge.Record
		var all []*bridge.Record
		used := map[bridge.Offset]bool{}
		after := bridge.Offset{MS: rnd.Int64N(300)}
		for run := range 1 + rnd.IntN(5) {
			var pack []*bridge.Record
			at := rnd.Int64N(500)
			for range 1 + rnd.IntN(10) {
				at += 1 + rnd.Int64N(50)
				r := &bridge.Record{Run: id.Run(fmt.Sprint(run)), Offset: bridge.Offset{MS: at}}
				if used[r.Offset] {
					continue
				}
				used[r.Offset] = true
				pack = append(pack, r)
				if r.Offset.Compare(after) > 0 {
					all = append(all, r)
				}
			}
			if len(pack) > 0 {
				packs = append(packs, pack)
				if rnd.IntN(4) == 0 {
					packs = append(packs, pack[:1+rnd.IntN(len(pack))]) // stored before, in part
				}
			}
		}
		byOffset := func(a, b *bridge.Record) int { return a.Offset.Compare(b.Offset) }
		slices.SortStableFunc(packs, func(a, b []*bridge.Record) int { return byOffset(a[0], b[0]) })
		slices.SortFunc(all, byOffset)
		var got []*bridge.Record
		m := merger{after: after, fn: func(r *bridge.Record) error { got = append(got, r); return nil }}
		for _, p := range packs {
			require.NoError(t, m.add(p))
		}
		require.NoError(t, m.flush())
		require.Equal(t, all, got, "seed %d", seed)
	}
}

func BenchmarkPack(b *testing.B) {
	var records []*bridge.Record
	for n := range int64(100) {
		records = append(records, &bridge.Record{
			Run: "r", Attempt: 1, Index: n + 1, Offset: bridge.Offset{MS: 1000 + n/30, N: (n + 1) << 10}, Kind: bridge.Token, Event: "messages", Kept: true,
			Data: fmt.Appendf(nil, `[{"content":"w%d ","type":"AIMessageChunk","id":"run--1"},{"langgraph_node":"model","langgraph_step":1,"thread_id":"t","ls_model_type":"chat"}]`, n),
		})
	}
	b.Run("pack", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			packed(records)
		}
	})
	packs := packed(records)
	b.Run("unpack", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for _, p := range packs {
				if _, err := unpacked(p); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
