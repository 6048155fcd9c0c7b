package storagetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

var errBoom = errors.New("boom")

var writeCases = map[string]func(*testing.T, Backend){
	"an error undoes all of it": func(t *testing.T, b Backend) {
		err := b.Threads.Write(ctx, func(tx thread.Tx) error {
			if err := tx.InsertThread(newThread(1)); err != nil {
				return err
			}
			if _, err := tx.Thread(threadID(1)); err != nil {
				return fmt.Errorf("a transaction does not see what it wrote: %w", err)
			}
			return errBoom
		})
		require.ErrorIs(t, err, errBoom)
		_, err = b.Threads.Thread(ctx, threadID(1))
		isKind(t, err, fault.NotFound)
	},
	"a panic undoes all of it and is an error": func(t *testing.T, b Backend) {
		err := b.Threads.Write(ctx, func(tx thread.Tx) error {
			if err := tx.InsertThread(newThread(1)); err != nil {
				return err
			}
			panic("ouch")
		})
		require.ErrorContains(t, err, "ouch")
		insertThreads(t, b, newThread(1))
	},
	"a failed statement leaves the transaction usable": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			if err := tx.InsertThread(newThread(1)); !fault.Is(err, fault.Conflict) {
				return fmt.Errorf("not a conflict: %w", err)
			}
			return tx.InsertThread(newThread(2))
		}))
		_, err := b.Threads.Thread(ctx, threadID(2))
		require.NoError(t, err)
	},
	"concurrent writers: failures undo themselves alone": func(t *testing.T, b Backend) {
		const writers, each = 16, 20
		var wg sync.WaitGroup
		errs := make([]error, writers*each)
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					n := w*each + i
					errs[n] = b.Threads.Write(ctx, func(tx thread.Tx) error {
						if err := tx.InsertThread(newThread(n)); err != nil {
							return err
						}
						switch n % 4 {
						case 1:
							return errBoom
						case 2:
							panic(errBoom)
						}
						return nil
					})
				}
			})
		}
		wg.Wait()
		list, err := b.Threads.Threads(ctx, thread.Query{})
		require.NoError(t, err)
		require.Len(t, list, writers*each/2)
		for n, err := range errs {
			_, there := b.Threads.Thread(ctx, threadID(n))
			if n%4 == 0 || n%4 == 3 {
				require.NoError(t, err)
				require.NoError(t, there)
			} else {
				require.ErrorContains(t, err, "boom")
				isKind(t, there, fault.NotFound)
			}
		}
	},
	"concurrent writers do not lose updates": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 10 {
					if err := b.Threads.Write(ctx, func(tx thread.Tx) error {
						th, err := tx.Thread(threadID(1))
						if err != nil {
							return err
						}
						th.StreamHigh++
						return tx.UpdateThread(th)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		th, err := b.Threads.Thread(ctx, threadID(1))
		require.NoError(t, err)
		require.EqualValues(t, 100, th.StreamHigh)
	},
	"readers see committed rows only, and do not wait": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			th := newThread(1)
			th.Status = thread.Busy
			if err := tx.UpdateThread(th); err != nil {
				return err
			}
			// Read in the middle of the transaction, as another goroutine would.
			seen, err := b.Threads.Thread(ctx, threadID(1))
			if err == nil && seen.Status != thread.Idle {
				err = fmt.Errorf("a reader sees status %s before the commit", seen.Status)
			}
			return err
		}))
		th, err := b.Threads.Thread(ctx, threadID(1))
		require.NoError(t, err)
		require.Equal(t, thread.Busy, th.Status)
	},
	"a cancelled context": func(t *testing.T, b Backend) {
		cancelled, cancel := context.WithCancelCause(ctx)
		cancel(errBoom)
		require.ErrorIs(t, b.Threads.Write(cancelled, func(thread.Tx) error { panic("must not run") }), errBoom)
		_, err := b.Threads.Thread(cancelled, threadID(1))
		require.ErrorIs(t, err, errBoom)
		_, err = b.Threads.Threads(cancelled, thread.Query{})
		require.ErrorIs(t, err, errBoom)
	},
	"a context that ends after the write began": func(t *testing.T, b Backend) {
		cancelled, cancel := context.WithCancel(ctx)
		err := b.Threads.Write(cancelled, func(tx thread.Tx) error {
			cancel()
			return tx.InsertThread(newThread(1))
		})
		_, there := b.Threads.Thread(ctx, threadID(1))
		// Either is right; that the answer is true is what counts.
		require.Equal(t, err == nil, there == nil, "write: %v, read: %v", err, there)
	},
	"what was written survives a restart": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		insertRuns(t, b, newRun(1, 1))
		b = b.reopen(t)
		_, err := b.Threads.Thread(ctx, threadID(1))
		require.NoError(t, err)
		require.NoError(t, b.Runs.Write(ctx, func(tx run.Tx) error {
			_, err := tx.DueRun(at(1))
			return err
		}))
	},
}
