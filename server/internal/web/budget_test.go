package web

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever takes, waits and gives up at the same time: no more is used than there is, all who wait get it, and nothing is lost.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	b := &Budget{Limit: 100}
	var wg sync.WaitGroup
	for n := range 16 {
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		wg.Go(func() {
			for range 500 {
				n := 1 + rng.Int64N(40)
				if rng.IntN(30) == 0 {
					n = 150 // more than everything
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(4) == 0 {
					go cancel()
				}
				err := b.Wait(ctx, n)
				cancel()
				if err != nil {
					continue
				}
				if used := b.InUse(); used > max(100, n) {
					t.Errorf("%d is used", used)
				}
				b.Give(n)
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.InUse())
	require.True(t, b.Take(100))
}

func TestBudgetIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	b := &Budget{Limit: 100}
	require.True(t, b.Take(90))
	granted := make(chan int)
	for n, size := range []int64{50, 20, 5} {
		go func() {
			if err := b.Wait(t.Context(), size); err != nil {
				t.Error(err)
			}
			granted <- n
		}()
		require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == n+1 }, time.Minute, time.Millisecond)
	}
	require.False(t, b.Take(5), "it was taken from those who wait")
	require.True(t, b.scarce())
	b.Give(50)
	require.Zero(t, <-granted)
	b.Give(40)
	require.Equal(t, 3, 0+<-granted+<-granted)
	require.False(t, b.scarce())

	// One that gives up does not stop those behind it.
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() { failed <- b.Wait(ctx, 90) }()
	require.Eventually(t, b.scarce, time.Minute, time.Millisecond)
	go func() {
		if err := b.Wait(t.Context(), 5); err != nil {
			t.Error(err)
		}
		granted <- 5
	}()
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == 2 }, time.Minute, time.Millisecond)
	gone := errors.New("gone")
	cancel(gone)
	require.ErrorIs(t, <-failed, gone)
	require.Equal(t, 5, <-granted)
}
