package redis

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/redistest"
)

// start starts an instance, and ends it with the test.
func start(t *testing.T, url string) *Bridge {
	t.Helper()
	b, err := New(Options{URL: url})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = b.Close()
	})
	return b
}

func TestAbove(t *testing.T) {
	t.Parallel()
	of := func(ms ...int64) (out []*bridge.Record) {
		for _, ms := range ms {
			out = append(out, &bridge.Record{Offset: bridge.Offset{MS: ms}})
		}
		return out
	}
	for _, c := range []struct{ in, want []int64 }{
		{nil, nil},
		{[]int64{3, 4}, []int64{3, 4}},
		{[]int64{1, 2, 3}, []int64{3}},
		{[]int64{1, 2}, nil},
		{[]int64{3, 4, 3, 4, 5}, []int64{3, 4, 5}},
		{[]int64{3, 2, 3, 4}, []int64{3, 4}},
	} {
		in := of(c.in...)
		require.Equal(t, of(c.want...), append([]*bridge.Record(nil), above(in, bridge.Offset{MS: 2})...))
		require.Equal(t, of(c.in...), in)
	}
}

// A stream is left by its last reader while another subscribes, who has found it further back: it is read anew from there, and what the other has been
// given before does not come again.
func TestLeftWhileSubscribing(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{true, false} {
		b := start(t, redistest.Start(t).URL)
		next := func(s bridge.Subscription) (got []string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			records, err := s.Next(ctx)
			require.NoError(t, err)
			for _, r := range records {
				got = append(got, r.Event)
			}
			return got
		}
		publish := func(event string) {
			require.NoError(t, b.Publish(t.Context(), "t", []*bridge.Record{{Run: "r", Event: event}}))
		}
		first, err := b.Subscribe(t.Context(), "t", nil)
		require.NoError(t, err)
		late := &subscription{b: b, thread: "t"} // as open does it
		live, err := b.local.Subscribe(t.Context(), "t", nil)
		require.NoError(t, err)
		late.at, _, err = b.reader.look(t.Context(), "t", nil)
		require.NoError(t, err)
		late.live, late.given = live, late.at.last
		publish("1")
		require.Equal(t, []string{"1"}, next(first))
		if taken {
			require.Equal(t, []string{"1"}, next(late))
		}
		first.Close()
		require.True(t, live.(bridge.Beginner).Begin(late.at.last))
		b.reader.add("t", late.at)
		late.read = true
		require.NoError(t, b.reader.wake(t.Context()))
		publish("2")
		var got []string
		for len(got) == 0 || got[len(got)-1] != "2" {
			got = append(got, next(late)...)
		}
		if taken {
			require.Equal(t, []string{"2"}, got)
		} else {
			require.Equal(t, []string{"1", "2"}, got)
		}
		late.Close()
	}
}

// leaves calls a function once, before the reader is notified of a stream.
type leaves struct{ leave func() }

func (l *leaves) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (l *leaves) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (l *leaves) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if leave := l.leave; leave != nil && cmds[0].Name() == "xadd" {
			l.leave = nil
			leave()
		}
		return next(ctx, cmds)
	}
}

// A subscriber that had a stream added may leave before the reader is notified: others that have joined do not wait for
// it.
func TestFirstLeaves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := start(t, server.URL)
	for deadline := time.Now().Add(time.Minute); server.Info("blocked_clients") == "0"; time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "the reader does not wait")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var second bridge.Subscription
	b.client.AddHook(&leaves{leave: func() {
		var err error
		second, err = b.Subscribe(t.Context(), "t", nil)
		require.NoError(t, err)
		cancel()
	}})
	began := time.Now()
	if first, err := b.Subscribe(ctx, "t", nil); err == nil {
		first.Close()
	}
	require.NoError(t, b.Publish(t.Context(), "t", []*bridge.Record{{Run: "r", Event: "1"}}))
	_, err := second.Next(t.Context())
	require.NoError(t, err)
	require.Less(t, time.Since(began), readBlock/2)
	second.Close()
}
