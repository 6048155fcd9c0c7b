package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/postgrestest"
	"understudy/thread"
)

func TestUpdatesQueueUpAcrossInstances(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	a, b := open(t, Options{URL: address}).Threads().(thread.SharedQueue), open(t, Options{URL: address}).Threads().(thread.SharedQueue)
	const th, lapse = id.Thread("t"), time.Hour
	enter := func(q thread.SharedQueue, th id.Thread, lapse time.Duration) int64 {
		t.Helper()
		place, err := q.Enqueue(t.Context(), th, lapse)
		require.NoError(t, err)
		return place
	}
	front := func(q thread.SharedQueue, th id.Thread, place int64) bool {
		t.Helper()
		first, err := q.Front(t.Context(), th, place, lapse)
		require.NoError(t, err)
		return first
	}
	first, second, third := enter(a, th, lapse), enter(b, th, lapse), enter(a, th, lapse)
	require.True(t, front(a, th, first))
	require.False(t, front(b, th, second))
	require.True(t, front(b, "other", enter(b, "other", lapse)), "threads do not wait for each other")
	require.NoError(t, a.Dequeue(t.Context(), th, second), "one who waits may leave")
	require.False(t, front(a, th, third))
	require.NoError(t, a.Dequeue(t.Context(), th, first))
	require.True(t, front(a, th, third))
	require.NoError(t, a.Dequeue(t.Context(), th, third))

	// The holder of the first place is gone, and its place has lapsed.
	lost := enter(a, th, -time.Second)
	next := enter(b, th, lapse)
	require.True(t, front(b, th, next))
	_, err := a.Front(t.Context(), th, lost, lapse)
	require.True(t, fault.Is(err, fault.NotFound), "it is swept by those who come later: %v", err)

	// A place that is about to lapse is kept by one that asks.
	require.NoError(t, b.Dequeue(t.Context(), th, next))
	short := enter(a, th, -time.Second)
	require.True(t, front(a, th, short))
	require.False(t, front(b, th, enter(b, th, lapse)))
}
