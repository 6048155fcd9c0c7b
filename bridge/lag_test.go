package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/seedtest"
)

// reader is one that reads when it likes, and comes back from where it was.
type reader struct {
	sub  bridge.Subscription
	next int // the record it is to get
	last bridge.Offset
}

// However publishing, reading, leaving and coming back follow each other, each reader gets each record once, in order, from memory or disk.
func TestLaggingReaders(t *testing.T) {
	for seed := range seedtest.Seeds(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			m := bridge.NewMemory(bridge.Options{LagBytes: 1 << 20, Records: 100_000, Bytes: 1 << 30, Dir: t.TempDir()})
			defer m.Close()
			var readers []*reader
			published := 0
			var last bridge.Offset
			read := func(r *reader) {
				records, err := r.sub.Next(t.Context())
				require.NoError(t, err)
				for _, rec := range records {
					require.Equal(t, fmt.Sprint(r.next), rec.Event)
					require.Positive(t, rec.Offset.Compare(r.last))
					r.next++
					r.last = rec.Offset
				}
			}
			subscribe := func(r *reader, after *bridge.Offset) {
				sub, err := m.Subscribe(t.Context(), "t", after)
				require.NoError(t, err)
				r.sub = sub
			}
			publish := func() {
				var batch []*bridge.Record
				for range 1 + rnd.IntN(20) {
					batch = append(batch, &bridge.Record{Run: "r", Kept: true, Event: fmt.Sprint(published), Data: make([]byte, rnd.IntN(20_000))})
					published++
				}
				require.NoError(t, m.Publish(t.Context(), "t", batch))
				last = batch[len(batch)-1].Offset
			}
			for range 300 {
				switch rnd.IntN(10) {
				case 0:
					if len(readers) < 6 {
						r := &reader{next: published, last: last}
						subscribe(r, nil)
						readers = append(readers, r)
					}
				case 1:
					if n := len(readers); n > 0 {
						r := readers[rnd.IntN(n)]
						r.sub.Close()
						subscribe(r, &r.last)
					}
				case 2:
					if n := len(readers); n > 3 {
						i := rnd.IntN(n)
						readers[i].sub.Close()
						readers[i] = readers[n-1]
						readers = readers[:n-1]
					}
				case 3: // what was delivered before is read first, and nothing after it
					if rnd.IntN(4) > 0 {
						continue
					}
					m.Interrupt("t", bridge.Offset{MS: 1 << 60})
					until := published
					publish()
					for _, r := range readers {
						for r.next < until {
							read(r)
							require.LessOrEqual(t, r.next, until)
						}
						_, err := r.sub.Next(t.Context())
						require.ErrorIs(t, err, bridge.ErrInterrupted)
						subscribe(r, &r.last)
					}
				case 4, 5:
					if n := len(readers); n > 0 {
						if r := readers[rnd.IntN(n)]; r.next < published {
							read(r)
						}
					}
				default:
					publish()
					if memory, _ := bridge.Held(m, "t"); memory > 1<<19 || rnd.IntN(3) == 0 {
						synctest.Wait() // for what goes to disk
					}
				}
			}
			for _, r := range readers {
				for r.next < published {
					read(r)
				}
				r.sub.Close()
			}
			memory, disk := bridge.Held(m, "t")
			require.Zero(t, memory+disk, "everything is given back")
		})
	}
}

// A reader that lags by 50,000 records costs disk, not memory.
func TestLagIsNotInMemory(t *testing.T) {
	m := bridge.NewMemory(bridge.Options{Dir: t.TempDir()})
	defer m.Close()
	slow, err := m.Subscribe(t.Context(), "t", nil)
	require.NoError(t, err)
	defer slow.Close()
	before := goroutinesAndHeap().heap
	const records = 50_000
	for i := range records {
		require.NoError(t, m.Publish(t.Context(), "t", []*bridge.Record{{Run: "r", Event: fmt.Sprint(i), Data: make([]byte, 2000)}}))
		if memory, _ := bridge.Held(m, "t"); memory > 32<<20 { // a test must not depend on how fast the disk of a busy machine is
			require.Eventually(t, func() bool { memory, _ := bridge.Held(m, "t"); return memory <= 4<<20 }, 2*time.Minute, time.Millisecond)
		}
	}
	require.Eventually(t, func() bool { memory, _ := bridge.Held(m, "t"); return memory <= 4<<20 }, 2*time.Minute, time.Millisecond)
	memory, disk := bridge.Held(m, "t")
	require.Greater(t, disk, int64(90<<20))
	heap := goroutinesAndHeap().heap - before
	t.Logf("lag of %d records: %d KiB of records in memory, heap +%d KiB, %d MiB on disk", records, memory>>10, heap>>10, disk>>20)
	require.Less(t, heap, int64(16<<20))
	for i := 0; i < records; {
		got, err := slow.Next(t.Context())
		require.NoError(t, err)
		for _, r := range got {
			require.Equal(t, fmt.Sprint(i), r.Event)
			i++
		}
	}
}

// A reader that is further behind than may go to disk is dropped, also the only one, and the stream continues.
func TestLagIsBounded(t *testing.T) {
	for _, readers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			m := bridge.NewMemory(bridge.Options{LagBytes: 1 << 20, SpillBytes: 1 << 18, Dir: t.TempDir()})
			defer m.Close()
			for range 3 {
				subs := make([]bridge.Subscription, readers)
				for i := range subs {
					var err error
					subs[i], err = m.Subscribe(t.Context(), "t", nil)
					require.NoError(t, err)
				}
				for range 100 {
					require.NoError(t, m.Publish(t.Context(), "t", []*bridge.Record{{Run: "r", Data: make([]byte, 20_000)}}))
					synctest.Wait()
					memory, disk := bridge.Held(m, "t")
					require.Less(t, memory, int64(1<<18))
					require.LessOrEqual(t, disk, int64(1<<18))
				}
				for _, s := range subs {
					_, err := s.Next(t.Context())
					require.ErrorIs(t, err, bridge.ErrSlow)
				}
			}
		})
	}
}

// Without a disk, readers are dropped when their unread records exceed the memory limit. Other readers and the publisher
// continue.
func TestLagWithoutADisk(t *testing.T) {
	t.Parallel()
	m := bridge.NewMemory(bridge.Options{LagBytes: 1 << 16, Dir: filepath.Join(t.TempDir(), "none")})
	defer m.Close()
	slow, err := m.Subscribe(t.Context(), "t", nil)
	require.NoError(t, err)
	quick, err := m.Subscribe(t.Context(), "t", nil)
	require.NoError(t, err)
	for i := range 1000 {
		require.NoError(t, m.Publish(t.Context(), "t", []*bridge.Record{{Run: "r", Event: fmt.Sprint(i), Data: make([]byte, 1000)}}))
		got, err := quick.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), got[0].Event)
	}
	_, err = slow.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrSlow)
	memory, _ := bridge.Held(m, "t")
	require.Zero(t, memory)
}

func BenchmarkPublishWithLaggingReader(b *testing.B) {
	for _, lagging := range []bool{false, true} {
		b.Run(fmt.Sprintf("lagging=%v", lagging), func(b *testing.B) {
			m := bridge.NewMemory(bridge.Options{Dir: b.TempDir(), SpillBytes: 1 << 40})
			quick, err := m.Subscribe(b.Context(), "t", nil)
			require.NoError(b, err)
			if lagging {
				_, err := m.Subscribe(b.Context(), "t", nil)
				require.NoError(b, err)
			}
			data := make([]byte, 200)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					if _, err := quick.Next(context.Background()); err != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				_ = m.Publish(b.Context(), "t", []*bridge.Record{{Run: "r", Kind: bridge.Token, Event: "messages", Data: data}})
			}
			b.StopTimer()
			_ = m.Close()
			<-done
		})
	}
}
