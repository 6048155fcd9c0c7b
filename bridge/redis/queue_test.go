package redis

import (
	"context"
	"errors"
	"strings"
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

// The advice for an operator depends on what Redis says.
func TestRemedy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"WRONGPASS invalid username-password pair or user is disabled.", "correct user and password in --redis-url / REDIS_URI"},
		{"NOAUTH Authentication required.", "correct user and password in --redis-url / REDIS_URI"},
		{"NOPERM User x has no permissions to run the 'xadd' command", "the rights of the user in Redis"},
		{"READONLY You can't write against a read only replica.", "name the primary"},
		{"MISCONF Redis is configured to save RDB snapshots", "give its disk room"},
		{"OOM command not allowed when used memory > 'maxmemory'.", "Redis is full"},
		{"ERR Protocol error: unauthenticated multibulk length", "correct user and password in --redis-url / REDIS_URI"},
		{"ERR unknown command", "look at the log of Redis"},
	} {
		if got := remedy(reply(test.text)); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.text, got)
		}
	}
	for _, text := range []string{`redis: can't parse "HTTP/1.1 400 Bad Request"`, `redis: invalid reply: "HTTP/1.1 400 Bad Request"`} {
		if got := remedy(errors.New(text)); !strings.Contains(got, "is not Redis") {
			t.Error(got)
		}
	}
	if got := remedy(errors.New("connect: connection refused")); !strings.Contains(got, "start Redis") {
		t.Error(got)
	}
}

// reply is an error that Redis sent.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}
