package changes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/id"
	"understudy/thread"
	"understudy/thread/changes"
)

// rows has the threads that begin with "mine" for callers with a filter, and all for others.
type rows struct{ err error }

func (r rows) Threads(ctx context.Context, q thread.Query) (list []*thread.Thread, err error) {
	for _, t := range q.IDs {
		if access.Reach(ctx, access.Threads) == nil || strings.HasPrefix(string(t), "mine") {
			list = append(list, &thread.Thread{ID: t})
		}
	}
	return list, r.err
}

func hub() *changes.Hub {
	h := changes.NewHub(slog.New(slog.DiscardHandler))
	h.Rows = rows{}
	return h
}

func follow(t *testing.T, ctx context.Context, h *changes.Hub) *changes.Follower { //nolint:revive // the test comes first
	t.Helper()
	f, err := h.Follow(ctx)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

func narrow(t *testing.T) context.Context {
	t.Helper()
	filter, err := access.ParseFilter([]byte(`{"owner":"me"}`))
	require.NoError(t, err)
	return access.Narrow(t.Context(), access.Threads, filter)
}

// A reader gets what changes once, gathered for a moment, and a change of another thread not at all when that is out of reach.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := hub()
		all, mine := follow(t, t.Context(), h), follow(t, narrow(t), h)
		h.Add([]changes.Change{{Thread: "mine1"}, {Thread: "theirs"}, {Thread: "theirs", Run: "r0"}})
		h.Heard([]changes.Change{{Thread: "mine1", Run: "r1"}, {Thread: "mine1"}})
		b, err := all.Next(t.Context())
		require.NoError(t, err)
		slices.Sort(b.Threads)
		slices.Sort(b.Runs)
		require.Equal(t, changes.Batch{Threads: []id.Thread{"mine1", "theirs"}, Runs: []id.Run{"r0", "r1"}}, b)
		b, err = mine.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, changes.Batch{Threads: []id.Thread{"mine1"}, Runs: []id.Run{"r1"}}, b)

		began := time.Now()
		h.Add([]changes.Change{{Thread: "mine2"}})
		_, err = all.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, changes.Pace, time.Since(began), "batches are paced")

		// What is not in reach wakes no reader, and a heartbeat loses nothing.
		h.Add([]changes.Change{{Thread: "theirs"}})
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = mine.Next(limited)
		cancel()
		require.NoError(t, err, "mine2 is left")
		limited, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = mine.Next(limited)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		h.Add([]changes.Change{{Thread: "mine3"}})
		short, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		_, err = mine.Next(short)
		if err == nil {
			return // it was ready
		}
		b, err = mine.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []id.Thread{"mine3"}, b.Threads)
	})
}

// However much changes while a reader is away, little is kept for it.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := hub()
		f := follow(t, t.Context(), h)
		for n := range 10_000 {
			h.Add([]changes.Change{{Thread: id.Thread(fmt.Sprint(n))}})
		}
		b, err := f.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, changes.Batch{All: true}, b)
		h.Heard(nil)
		b, err = f.Next(t.Context())
		require.NoError(t, err)
		require.True(t, b.All)
	})
}

// Two servers hear of each other's changes, not of their own, and readers of both end with them.
func TestServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := hub(), hub()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		tells := 0
		tell := func(to *changes.Hub) changes.Send {
			return func(_ context.Context, list []changes.Change) error {
				if tells++; tells == 1 {
					return errors.New("away")
				}
				to.Heard(list)
				return nil
			}
		}
		group.Go(func() { _ = one.Run(ctx, tell(two)) })
		group.Go(func() { _ = two.Run(ctx, tell(one)) })
		synctest.Wait()
		f1, f2 := follow(t, t.Context(), one), follow(t, t.Context(), two)
		one.Add([]changes.Change{{Thread: "lost"}})
		_, err := f1.Next(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		for n := range 100 {
			one.Add([]changes.Change{{Thread: "t", Run: id.Run(fmt.Sprint(n))}})
		}
		b, err := f2.Next(t.Context())
		require.NoError(t, err)
		require.Len(t, b.Runs, 100)
		time.Sleep(time.Minute)
		require.Equal(t, 2, tells, "one message for all of them, and none after it")
		b, err = f1.Next(t.Context())
		require.NoError(t, err)
		require.Len(t, b.Runs, 100)
		one.Add([]changes.Change{{Thread: "last"}})
		cancel()
		group.Wait()
		b, err = f1.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []id.Thread{"last"}, b.Threads)
		for _, f := range []*changes.Follower{f1, f2, follow(t, t.Context(), one)} {
			_, err = f.Next(t.Context())
			require.ErrorIs(t, err, io.EOF)
		}
	})
}
