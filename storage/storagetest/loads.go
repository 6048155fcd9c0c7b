package storagetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
	"understudy/store"
	"understudy/thread"
	"understudy/transfer"
)

func mover(t *testing.T, b Backend) transfer.Target {
	t.Helper()
	m, ok := b.Threads.(transfer.Target)
	require.True(t, ok, "the store of threads moves nothing")
	return m
}

// anyCheckpoints saves checkpoints of all shapes, and returns their keys, newest first: lists that
// grow, shrink and are rewritten, values that change or do not, and small or large content of
// every kind.
func anyCheckpoints(t *testing.T, b Backend, th int, rng *rand.Rand, count int) (keys []checkpointer.Key) {
	t.Helper()
	size := func() int {
		if rng.IntN(6) == 0 {
			return 20_000 + rng.IntN(60_000)
		}
		return rng.IntN(300)
	}
	text := func() string { return strings.Repeat("x", size()) }
	from, to, values := 0, 10, 0
	value := blob("value", "0", text())
	for n := range count {
		switch rng.IntN(8) {
		case 0: // nothing of it stays
			from, to = 1000*n, 1000*n+10+rng.IntN(100)
		case 1:
			from += (to - from) / 2
		default:
			to += rng.IntN(5)
		}
		next := unchanged("value", value.Version)
		if rng.IntN(2) == 0 {
			values++
			value = blob("value", fmt.Sprint(values), text())
			next = value
		} else if n == 0 {
			next = value
		}
		p := put(key(th, "", fmt.Sprintf("c%03d", n)), "", raw(`{"pad":"`+text()+`"}`), list("messages", fmt.Sprint(n), packed(items(from, to, 300))), next)
		p.Tasks = raw(`[{"name":"` + text() + `"}]`)
		puts(t, b, p)
		write(t, b, func(tx run.Tx) error {
			return tx.PutWrites(p.Key, []checkpointer.Write{{TaskID: "t", Channel: "ch", Type: "msgpack", Data: []byte(text())}})
		})
		keys = append(keys, p.Key)
	}
	slices.Reverse(keys)
	return keys
}

// fits requires that a list is within a bound on what is loaded, and returns how many checkpoints
// it has.
func fits(t *testing.T, tuples []*checkpointer.Tuple, bytes int) int {
	t.Helper()
	var load checkpointer.Load
	adds := 0
	for i, tuple := range tuples {
		if tuple.Left {
			require.Positive(t, i, "the first was left")
			return i
		}
		if n := load.Add(tuple); i > 0 {
			adds += n
		}
	}
	require.LessOrEqual(t, adds, bytes)
	return len(tuples)
}

// digests are as equal as what they are of, and compared in no time.
func digests[T any](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out[i] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return out
}

var loadCases = map[string]func(*testing.T, Backend){
	"checkpoints are listed by bytes": func(t *testing.T, b Backend) {
		for n := 1; n <= 3; n++ {
			anyCheckpoints(t, b, n, rand.New(rand.NewPCG(uint64(n), 1)), 40)
			th := threadID(n)
			all, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: th})
			require.NoError(t, err)
			for _, tt := range []struct{ bytes, limit int }{{1, 0}, {3000, 5}, {30_000, 0}, {100_000, 7}, {400_000, 0}, {100 << 20, 0}, {100 << 20, 9}} {
				var got []*checkpointer.Tuple
				pages := 0
				for q := (checkpointer.List{Thread: th, Limit: tt.limit, Bytes: tt.bytes}); ; pages++ {
					list, err := b.Threads.ListCheckpoints(ctx, q)
					require.NoError(t, err)
					n := fits(t, list, tt.bytes)
					require.LessOrEqual(t, len(list)-n, 1, "the list continues after what was left")
					got = append(got, list[:n]...)
					if n == len(list) && (tt.limit == 0 || n < tt.limit) {
						break
					}
					q.Before = list[n-1].ID
				}
				require.Equal(t, digests(all), digests(got))
				if tt.bytes == 100<<20 && tt.limit == 0 {
					require.Zero(t, pages, "content was left although it fits")
				}
			}
			ids := []string{}
			for _, tuple := range all {
				ids = append(ids, "@"+string(tuple.ID))
			}
			list, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: th, Keys: true})
			require.NoError(t, err)
			for i, tuple := range list {
				same(t, &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{Key: all[i].Key}}, tuple)
			}
			require.Equal(t, ids, listed(t, b, checkpointer.List{Thread: th, Keys: true}))
		}
	},
	"checkpoints are moved by bytes": func(t *testing.T, b Backend) {
		keys := anyCheckpoints(t, b, 1, rand.New(rand.NewPCG(1, 2)), 40)
		rng := rand.New(rand.NewPCG(1, 3))
		var links []transfer.Link
		for _, k := range keys {
			links = append(links, transfer.Link{NS: k.NS, ID: k.ID})
			if rng.IntN(4) == 0 {
				links = append(links, transfer.Link{ID: "none"})
			}
		}
		rng.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
		all, err := mover(t, b).Checkpoints(ctx, threadID(1), links, 0)
		require.NoError(t, err)
		require.Len(t, all, len(keys))
		for _, bytes := range []int{1, 30_000, 100_000, 100 << 20} {
			var got []*checkpointer.Tuple
			for rest := links; len(got) < len(all); {
				list, err := mover(t, b).Checkpoints(ctx, threadID(1), rest, bytes)
				require.NoError(t, err)
				n := fits(t, list, bytes)
				require.Positive(t, n)
				got = append(got, list[:n]...)
				for _, left := range list[n:] {
					same(t, &checkpointer.Tuple{Checkpoint: checkpointer.Checkpoint{Key: left.Key}, Left: true}, left)
				}
				require.True(t, bytes < 100<<20 || n == len(all), "content was left although it fits")
				if n < len(list) {
					rest = rest[slices.Index(rest, transfer.Link{NS: list[n].NS, ID: list[n].ID}):]
				}
			}
			require.Equal(t, digests(all), digests(got))
		}
	},
	"threads and items are moved by bytes": func(t *testing.T, b Backend) {
		rng := rand.New(rand.NewPCG(1, 4))
		pad := func() string {
			if rng.IntN(5) == 0 {
				return strings.Repeat("x", 5000)
			}
			return ""
		}
		var ids []id.Thread
		var names []string
		for n := range 100 {
			th := newThread(n)
			th.Metadata = raw(`{"pad":"` + pad() + `"}`)
			insertThreads(t, b, th)
			ids = append(ids, th.ID)
			i := &store.Item{Namespace: []string{"a"}, Key: fmt.Sprintf("%03d", n), Value: raw(`{"pad":"` + pad() + `"}`), CreatedAt: at(1), UpdatedAt: at(1)}
			require.NoError(t, b.Items.Apply(ctx, []*store.Item{i}))
			names = append(names, i.Key)
		}
		for _, bytes := range []int{1, 7000, 1 << 20} {
			for _, limit := range []int{1, 7, 1000} {
				var got []id.Thread
				for after := id.Thread(""); ; {
					page, err := mover(t, b).ThreadsAfter(ctx, after, limit, bytes)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page), limit)
					if len(page) == 0 {
						break
					}
					size := 0
					for _, th := range page[:len(page)-1] {
						size += th.Size()
					}
					require.LessOrEqual(t, size, bytes)
					require.True(t, bytes < 1<<20 || len(page) == min(limit, len(ids)-len(got)), "a page is shorter than it may be")
					got = append(got, threadIDs(page)...)
					after = page[len(page)-1].ID
				}
				require.Equal(t, ids, got)

				var keys []string
				for last := (&store.Item{}); ; {
					page, err := mover(t, b).ItemsAfter(ctx, last.Namespace, last.Key, limit, bytes)
					require.NoError(t, err)
					if len(page) == 0 {
						break
					}
					size := 0
					for _, i := range page {
						last = i
						require.LessOrEqual(t, size, bytes)
						size += len(i.Value)
						keys = append(keys, i.Key)
					}
				}
				require.Equal(t, names, keys)
			}
		}
	},
	"logs are moved by bytes": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1), newThread(2))
		var events []*eventstore.Event
		for n := range 60 {
			size := 10
			if n%4 == 0 {
				size = 400_000
			}
			events = append(events, &eventstore.Event{
				Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: fmt.Sprint(n), Digest: bytes.Repeat([]byte{byte(n)}, 16),
				Content: raw(`{"type":"human","content":"` + fmt.Sprint(n) + strings.Repeat("x", size) + `"}`), Metadata: raw(`{}`), CreatedAt: at(n),
			})
		}
		write(t, b, func(tx run.Tx) error { return tx.AppendEvents(threadID(1), events) })
		log, err := mover(t, b).Log(ctx, threadID(1))
		require.NoError(t, err)
		write(t, b, func(tx run.Tx) error {
			later := *events[1]
			later.Seq, later.MessageID = 0, "later"
			return tx.AppendEvents(threadID(1), []*eventstore.Event{&later})
		})
		require.NoError(t, mover(t, b).PutLog(ctx, threadID(2), log))
		want, err := eventReader(t, b).Events(ctx, threadID(1), 0, len(events)) // without the one that came later
		require.NoError(t, err)
		require.Len(t, want, len(events))
		got, err := eventReader(t, b).Events(ctx, threadID(2), 0, 0)
		require.NoError(t, err)
		for _, e := range got {
			e.Thread = threadID(1)
		}
		require.Equal(t, digests(want), digests(got))

		// A log that is not there any more is none that may be kept.
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			err := tx.RemoveThread(threadID(1))
			for more := true; more && err == nil; {
				more, err = tx.DeleteRemains(threadID(1), 0)
			}
			return err
		}))
		insertThreads(t, b, newThread(3))
		require.Error(t, mover(t, b).PutLog(ctx, threadID(3), log))
		got, err = eventReader(t, b).Events(ctx, threadID(3), 0, 0)
		require.NoError(t, err)
		require.Empty(t, got)
	},
}
