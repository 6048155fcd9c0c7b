package thread

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
)

func TestTurnsComeInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q turns
		const th = id.Thread("t")
		require.NoError(t, q.take(t.Context(), th))
		require.NoError(t, q.take(t.Context(), "another"), "threads do not wait for each other")
		var order []int
		for i := range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if err := q.take(ctx, th); err != nil {
					return
				}
				order = append(order, i)
				q.leave(th)
			}()
			synctest.Wait()
			if i == 2 {
				cancel() // its client has gone
				synctest.Wait()
			}
			defer cancel()
		}
		q.leave(th)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 3, 4}, order)
		q.leave("another")
		require.Empty(t, q.waiting, "nothing is left of threads that are not updated")
	})
}

// A turn that arrives while its waiter gives up passes to the next.
func TestTurnsAreNotLost(t *testing.T) {
	t.Parallel()
	const th = id.Thread("t")
	for range 200 {
		var q turns
		require.NoError(t, q.take(t.Context(), th))
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 2)
		go func() {
			err := q.take(ctx, th)
			if err == nil {
				q.leave(th)
			}
			done <- err
		}()
		go func() {
			err := q.take(t.Context(), th)
			if err == nil {
				q.leave(th)
			}
			done <- err
		}()
		go cancel(gone)
		q.leave(th)
		for range 2 {
			if err := <-done; err != nil {
				require.ErrorIs(t, err, gone)
			}
		}
		require.Empty(t, q.waiting)
	}
}

func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q turns
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, q.take(ctx, "t"))
		for range maxWaiting {
			go func() { _ = q.take(ctx, "t") }()
		}
		synctest.Wait()
		require.True(t, fault.Is(q.take(ctx, "t"), fault.Unavailable))
		cancel()
		synctest.Wait()
		q.leave("t")
		require.Empty(t, q.waiting)
	})
}
