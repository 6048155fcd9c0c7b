package bridge_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/bridge"
	"understudy/bridge/bridgetest"
	"understudy/id"
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
