package bridge_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/bridge"
	"understudy/bridge/bridgetest"
	"understudy/id"
	"understudy/internal/seedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	bridgetest.Run(t, func(_ *testing.T, opts bridge.Options) bridge.Bridge { return bridge.NewMemory(opts) })
}

// Threads without readers and kept records use no memory, and their offsets still continue.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := bridge.NewMemory(bridge.Options{TTL: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		swept := make(chan error)
		go func() { swept <- m.Run(ctx) }()
		last := map[id.Thread]bridge.Offset{}
		for i := range 100 {
			thread := id.Thread(fmt.Sprint(i))
			r := &bridge.Record{Run: "r", Kept: i%2 == 0, Kind: bridge.Terminal}
			require.NoError(t, m.Publish(t.Context(), thread, []*bridge.Record{r}))
			last[thread] = r.Offset
		}
		require.Equal(t, 100, bridge.Topics(m))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, 50, bridge.Topics(m), "those that keep something")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, bridge.Topics(m))
		for thread, before := range last {
			r := &bridge.Record{}
			require.NoError(t, m.Publish(t.Context(), thread, []*bridge.Record{r}))
			require.Positive(t, r.Offset.Compare(before))
		}
		cancel()
		require.ErrorIs(t, <-swept, context.Canceled)
	})
}

func TestIdleSubscribersAreCheap(t *testing.T) {
	m := bridge.NewMemory(bridge.Options{})
	before := goroutinesAndHeap()
	subs := make([]bridge.Subscription, 5000)
	for i := range subs {
		s, err := m.Subscribe(t.Context(), id.Thread(fmt.Sprint(i)), nil)
		require.NoError(t, err)
		subs[i] = s
	}
	after := goroutinesAndHeap()
	perSub := (after.heap - before.heap) / int64(len(subs))
	t.Logf("%d bytes each", perSub)
	require.Equal(t, before.goroutines, after.goroutines)
	require.Less(t, perSub, int64(1500))
	for _, s := range subs {
		s.Close()
	}
}

type usage struct {
	goroutines int
	heap       int64
}

func goroutinesAndHeap() usage {
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return usage{runtime.NumGoroutine(), int64(ms.HeapAlloc)}
}

func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{0, 1, 16, 1000} {
		for _, keep := range []bool{false, true} {
			b.Run(fmt.Sprintf("subscribers=%d/kept=%v", subscribers, keep), func(b *testing.B) {
				m := bridge.NewMemory(bridge.Options{})
				var readers sync.WaitGroup
				for range subscribers {
					s, err := m.Subscribe(b.Context(), "t", nil)
					require.NoError(b, err)
					readers.Go(func() {
						defer s.Close()
						for {
							if _, err := s.Next(context.Background()); err != nil {
								return
							}
						}
					})
				}
				data := []byte(`{"messages":[{"type":"AIMessageChunk","content":"hello"}]}`)
				b.ReportAllocs()
				for b.Loop() {
					r := &bridge.Record{Run: "r", Kind: bridge.Token, Kept: keep, Event: "messages", Data: data}
					_ = m.Publish(b.Context(), "t", []*bridge.Record{r})
				}
				_ = m.Close()
				readers.Wait()
			})
		}
	}
}

// Records of a stream that is kept elsewhere keep their offsets. An interruption ends those who wait for what is missing, and no others.
func TestDeliver(t *testing.T) {
	t.Parallel()
	m := bridge.NewMemory(bridge.Options{})
	open := func(thread id.Thread, at int64) bridge.Subscription {
		s, err := m.Subscribe(t.Context(), thread, nil)
		require.NoError(t, err)
		require.True(t, s.(bridge.Beginner).Begin(bridge.Offset{MS: at}))
		return s
	}
	before, after, elsewhere := open("t", 5), open("t", 7), open("u", 5)
	record := &bridge.Record{Offset: bridge.Offset{MS: 8, N: 3}, Kept: true}
	m.Interrupt("t", bridge.Offset{MS: 7})
	m.Deliver("t", []*bridge.Record{record})
	m.Deliver("nobody", []*bridge.Record{record})
	_, err := before.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	require.ErrorIs(t, err, bridge.ErrSlow)
	require.False(t, before.(bridge.Beginner).Begin(bridge.Offset{}))
	got, err := after.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, []*bridge.Record{record}, got)
	late, err := m.Subscribe(t.Context(), "t", &bridge.Offset{})
	require.NoError(t, err)
	m.Interrupt("", bridge.Offset{MS: 9})
	for _, s := range []bridge.Subscription{after, elsewhere, late} {
		_, err := s.Next(t.Context())
		require.ErrorIs(t, err, bridge.ErrInterrupted, "nothing of it was kept for replay")
		s.Close()
	}
}

// All threads together keep no more than the limit, and a subscription reports a gap whenever records that it asked for were dropped.
func TestWhatAllThreadsKeepIsBounded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		const total = 64 << 10
		m := bridge.NewMemory(bridge.Options{Total: total})
		random := rand.New(rand.NewPCG(seed, 0))
		kept := map[id.Thread][]*bridge.Record{}
		ended := map[id.Run]bool{}
		for range 400 {
			thread := id.Thread(fmt.Sprint(random.IntN(30)))
			r := id.Run(fmt.Sprint(thread, "-", len(kept[thread])/40))
			if random.IntN(20) == 0 {
				require.NoError(t, m.ForgetThread(t.Context(), thread, bridge.Offset{MS: math.MaxInt64}))
				delete(kept, thread)
				continue
			}
			if ended[r] {
				continue
			}
			batch := make([]*bridge.Record, 1+random.IntN(8))
			for i := range batch {
				batch[i] = &bridge.Record{Run: r, Kept: true, Kind: bridge.Kind(random.IntN(2)), Data: make([]byte, random.IntN(2000))}
			}
			if random.IntN(10) == 0 {
				batch[len(batch)-1].Kind, ended[r] = bridge.Terminal, true
			}
			require.NoError(t, m.Publish(t.Context(), thread, batch))
			kept[thread] = append(kept[thread], batch...)
			counted, held := bridge.Kept(m)
			require.Equal(t, held, counted)
			require.LessOrEqual(t, held, int64(total))

			after := bridge.Offset{}
			if n := random.IntN(len(kept[thread]) + 1); n > 0 {
				after = kept[thread][n-1].Offset
			}
			sub, err := m.Subscribe(t.Context(), thread, &after)
			require.NoError(t, err)
			replay, err := sub.Replay(t.Context())
			require.NoError(t, err)
			want := bridge.NoGap
			for _, rec := range kept[thread] {
				switch {
				case rec.Offset.Compare(after) <= 0:
				case len(replay) > 0 && replay[0] == rec:
					replay = replay[1:]
				case rec.Kind == bridge.Token:
					want = max(want, bridge.TokenGap)
				default:
					want = bridge.RecordGap
				}
			}
			require.Empty(t, replay, "each once, in order")
			require.Equal(t, want, sub.Gap(""))
			sub.Close()
		}
		require.NoError(t, m.Close())
	}
}

// Many publishers at once stay within the limit too, but for what each is publishing.
func TestPublishersShareTheLimit(t *testing.T) {
	t.Parallel()
	const total, publishers, batch = 4 << 20, 8, 4 << 10
	m := bridge.NewMemory(bridge.Options{Total: total})
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range 2000 {
				r := &bridge.Record{Run: id.Run(fmt.Sprint(p, i/10)), Kept: true, Data: make([]byte, batch)}
				if i%10 == 9 {
					r.Kind = bridge.Terminal
				}
				assert.NoError(t, m.Publish(t.Context(), id.Thread(fmt.Sprint(p, i/100)), []*bridge.Record{r}))
			}
		})
	}
	all.Wait()
	counted, held := bridge.Kept(m)
	require.Equal(t, held, counted)
	require.LessOrEqual(t, held, int64(total+publishers*2*batch))
	require.Greater(t, held, int64(total/2), "no more is dropped than has to be")
	require.NoError(t, m.Close())
}

// In whatever order records are saved, and whichever of them never are, those that the database lacks can be replayed, and no others once their run is over.
func TestOnlySavedRecordsAreDropped(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		m := bridge.NewMemory(bridge.Options{})
		var want []bridge.Offset
		var saves [][]*bridge.Record
		count := 1 + rnd.IntN(20)
		for i := range count {
			r := &bridge.Record{Run: "r", Kept: true, Stored: rnd.IntN(4) > 0, Data: make([]byte, rnd.IntN(400<<10))}
			if i == count-1 {
				r.Kind, r.Stored = bridge.Terminal, true
			}
			require.NoError(t, m.Publish(t.Context(), "t", []*bridge.Record{r}))
			switch {
			case !r.Stored || rnd.IntN(4) == 0:
				want = append(want, r.Offset)
			case len(saves) > 0 && rnd.IntN(2) == 0:
				saves[len(saves)-1] = append(saves[len(saves)-1], r)
			default:
				saves = append(saves, []*bridge.Record{r})
			}
		}
		rnd.Shuffle(len(saves), func(i, j int) { saves[i], saves[j] = saves[j], saves[i] })
		for _, records := range saves {
			m.Saved("t", records)
		}
		s, err := m.Subscribe(t.Context(), "t", &bridge.Offset{})
		require.NoError(t, err)
		var got []bridge.Offset
		for records, err := s.Replay(t.Context()); len(records) > 0; records, err = s.Replay(t.Context()) {
			require.NoError(t, err)
			for _, r := range records {
				got = append(got, r.Offset)
			}
		}
		s.Close()
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// What the database has is not kept in memory too: nothing of a run that has ended, and of one that runs the newest. Who comes back learns what is missing.
func TestSavedRecordsAreDropped(t *testing.T) {
	t.Parallel()
	m := bridge.NewMemory(bridge.Options{})
	ctx := t.Context()
	publish := func(r *bridge.Record) *bridge.Record {
		r.Run, r.Kept = cmp.Or(r.Run, "r"), true
		require.NoError(t, m.Publish(ctx, "t", []*bridge.Record{r}))
		return r
	}
	kept := func(after bridge.Offset) (n int, gap bridge.Gap) {
		s, err := m.Subscribe(ctx, "t", &after)
		require.NoError(t, err)
		defer s.Close()
		records, err := s.Replay(ctx)
		require.NoError(t, err)
		return len(records), s.Gap("r")
	}
	text := make([]byte, 1<<20)
	var all []*bridge.Record
	for range 8 {
		all = append(all, publish(&bridge.Record{Stored: true, Data: text}))
	}
	publish(&bridge.Record{Run: "other", Data: text}) // the database does not have it
	n, gap := kept(bridge.Offset{})
	require.Equal(t, 9, n)
	require.Equal(t, bridge.NoGap, gap)
	m.Saved("t", all[:4])
	n, gap = kept(bridge.Offset{})
	require.Equal(t, 5, n, "not what is not saved yet")
	require.Equal(t, bridge.RecordGap, gap)
	_, gap = kept(all[3].Offset)
	require.Equal(t, bridge.NoGap, gap)
	m.Saved("t", all[4:])
	n, _ = kept(bridge.Offset{})
	require.Equal(t, 1, n, "only the other's: it takes more than half of what is recent")
	small := publish(&bridge.Record{Stored: true})
	end := publish(&bridge.Record{Stored: true, Kind: bridge.Terminal})
	m.Saved("t", []*bridge.Record{small})
	n, _ = kept(bridge.Offset{})
	require.Equal(t, 2, n, "the end is not saved yet")
	m.Saved("t", []*bridge.Record{end})
	m.Saved("none", []*bridge.Record{end})
	n, gap = kept(bridge.Offset{})
	require.Equal(t, 1, n)
	require.Equal(t, bridge.RecordGap, gap)
	_, gap = kept(end.Offset)
	require.Equal(t, bridge.NoGap, gap)
}
