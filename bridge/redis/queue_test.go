package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A publisher whose run is cancelled while it waits for room stops waiting. The others wait on: Redis has not failed.
func TestCancelledPublisherLeavesOthersWaiting(t *testing.T) {
	t.Parallel()
	q := &queue{b: &Bridge{opts: Options{QueueBytes: 10, Outage: time.Hour}, closed: make(chan struct{})}, bytes: 11}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	q.mu.Lock()
	q.awaitRoom(cancelled)
	require.False(t, q.stuck)
	q.mu.Unlock()

	done := make(chan struct{})
	go func() {
		defer close(done)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.awaitRoom(context.Background())
	}()
	require.Eventually(t, func() bool { // it waits
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.room != nil
	}, time.Minute, time.Millisecond)
	select {
	case <-done:
		require.Fail(t, "it did not wait for room")
	default:
	}
	q.mu.Lock()
	q.bytes = 0
	q.roomier()
	q.mu.Unlock()
	<-done
}
