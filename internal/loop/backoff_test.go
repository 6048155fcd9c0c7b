package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/loop"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	wait := loop.NewBackoff(10*time.Millisecond, 50*time.Millisecond)
	for round := range 2 {
		for i, want := range []time.Duration{10, 20, 40, 50, 50} {
			want *= time.Millisecond
			require.InDelta(t, want, wait.Next(), float64(want/2+1), "wait %d of round %d", i, round)
		}
		wait.Reset()
	}
}

func TestBackoffSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wait, began := loop.NewBackoff(time.Minute, time.Minute), time.Now()
		require.True(t, wait.Sleep(ctx))
		require.InDelta(t, time.Minute, time.Since(began), float64(30*time.Second+1))
		cancel()
		require.False(t, wait.Sleep(ctx))
	})
}
