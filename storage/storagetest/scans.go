package storagetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/internal/scanlimit"
	"understudy/store"
	"understudy/thread"
)

// fillItems makes items of some namespaces.
func fillItems(t testing.TB, b Backend, n int) {
	t.Helper()
	for first := 0; first < n; first += 1000 {
		var list []*store.Item
		for i := first; i < min(first+1000, n); i++ {
			list = append(list, item(fmt.Sprint("n", i%7), fmt.Sprint(i), fmt.Sprintf(`{"n":%d,"text":"%0200d"}`, i, i), i))
		}
		require.NoError(t, b.Items.Apply(ctx, list))
	}
}

var scanCases = map[string]func(*testing.T, Backend){
	// Searches that take all there is of their share leave the rest to everybody else.
	"scans leave room for reads": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		fillItems(t, b, 10)
		held, cancel := context.WithCancel(ctx)
		defer cancel()
		const many = 24
		done := make(chan error, many)
		for range many {
			go func() {
				done <- b.Threads.Scan(held, "", func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
		}
		// Some have begun, the others wait, and what is more than can wait was refused.
		limited, end := context.WithTimeout(ctx, 20*time.Second)
		defer end()
		for range 3 {
			_, err := b.Threads.Thread(limited, threadID(1))
			require.NoError(t, err)
			_, err = b.Items.Items(limited, store.Search{Prefix: []string{"n1"}, Limit: 1})
			require.NoError(t, err)
			_, err = b.Threads.Threads(limited, thread.Query{Limit: 10})
			require.NoError(t, err)
			_, err = b.Threads.Threads(limited, thread.Query{Metadata: raw(`{"user":"u"}`), Limit: 10})
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { // when those above have begun
			short, stop := context.WithTimeoutCause(ctx, 50*time.Millisecond, errBoom)
			defer stop()
			_, err := b.Items.Items(short, store.Search{Filter: raw(`{"n":-1}`), Limit: 1})
			return errors.Is(err, errBoom) || fault.Is(err, fault.Unavailable)
		}, 20*time.Second, time.Millisecond, "the share is taken")
		cancel()
		for range many {
			err := <-done
			require.True(t, errors.Is(err, context.Canceled) || fault.Is(err, fault.Unavailable), err)
		}
		found, err := b.Items.Items(ctx, store.Search{Filter: raw(`{"n":3}`), Limit: 1})
		require.NoError(t, err)
		require.Len(t, found, 1)
	},
	"a scan ends with its context": func(t *testing.T, b Backend) {
		fillItems(t, b, 10_000)
		search := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			for { // as often as it takes for the end to come in the middle
				if _, err := b.Items.Items(ctx, store.Search{Filter: raw(`{"n":-1}`), Limit: 10}); err != nil {
					return time.Since(began), err
				}
			}
		}
		limited, cancel := context.WithTimeoutCause(ctx, 30*time.Millisecond, errBoom)
		defer cancel()
		took, err := search(limited)
		require.ErrorIs(t, err, errBoom)
		t.Logf("ended after %v", took-30*time.Millisecond)
		require.Less(t, took, 5*time.Second)
		_, err = b.Threads.CountThreads(ctx, thread.Query{})
		require.NoError(t, err, "the connection is as good as before")
	},
}

// RunScans checks the limits of searches. open returns a storage with that search timeout; 0 means
// the default.
func RunScans(t *testing.T, open func(t *testing.T, budget time.Duration) Backend) {
	for name, test := range scanCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, 0))
		})
	}
	t.Run("a scan that takes too long says how to narrow it", func(t *testing.T) {
		t.Parallel()
		b := open(t, time.Millisecond)
		fillItems(t, b, 12_000)
		for _, q := range []store.Search{{Filter: raw(`{"n":-1}`), Limit: 10}, {Limit: 10, Offset: 11_999}} {
			_, err := b.Items.Items(ctx, q)
			for n := 0; err == nil && n < 100; n++ { // on a busy machine a scan may end before its timer is heard
				_, err = b.Items.Items(ctx, q)
			}
			isKind(t, err, fault.Unprocessable)
			require.ErrorIs(t, err, scanlimit.ErrOverBudget)
			require.ErrorContains(t, err, "namespace_prefix")
		}
		list, err := b.Items.Items(ctx, store.Search{Prefix: []string{"n1"}, Limit: 10})
		require.NoError(t, err, "what an index answers has no such bound")
		require.Len(t, list, 10)
	})
}
