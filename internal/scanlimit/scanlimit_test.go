package scanlimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/internal/scanlimit"
)

func wait(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scanlimit.New(2, time.Minute)
		began := time.Now()
		err := l.Do(t.Context(), "give a prefix", wait)
		require.ErrorIs(t, err, scanlimit.ErrOverBudget)
		require.True(t, fault.Is(err, fault.Unprocessable))
		require.ErrorContains(t, err, "give a prefix")
		require.Equal(t, time.Minute, time.Since(began))

		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(left)
		require.ErrorIs(t, l.Do(ctx, "", wait), left)
		own := errors.New("own")
		require.ErrorIs(t, l.Do(t.Context(), "", func(context.Context) error { return own }), own)
		// What belongs to a scan needs no place of its own.
		one := scanlimit.New(1, time.Minute)
		require.NoError(t, one.Do(t.Context(), "", func(ctx context.Context) error {
			return one.Do(ctx, "", func(context.Context) error { return nil })
		}))
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scanlimit.New(1, time.Minute)
		done := make(chan error)
		const asked = 40
		for range asked {
			go func() { done <- l.Do(t.Context(), "", wait) }()
		}
		kinds := map[fault.Kind]int{}
		for range asked {
			err := <-done
			require.Error(t, err)
			kinds[fault.KindOf(err)]++
		}
		// Two have their turn at most: the others do not wait longer than one takes.
		require.LessOrEqual(t, kinds[fault.Unprocessable], 2)
		require.Positive(t, kinds[fault.Unprocessable])
		require.Equal(t, asked, kinds[fault.Unprocessable]+kinds[fault.Unavailable])
		require.NoError(t, l.Do(t.Context(), "", func(context.Context) error { return nil }))
	})
}
