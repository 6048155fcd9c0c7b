// Package bridgetest is the test suite for implementations of bridge.Bridge.
package bridgetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
)

// Run runs the suite. open returns an empty bridge, which the suite closes.
func Run(t *testing.T, open func(t *testing.T, opts bridge.Options) bridge.Bridge) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"OffsetsAreUniqueAndAscend", offsets},
		{"LiveOnly", liveOnly},
		{"ReplayThenLive", replayThenLive},
		{"ReplayDoesNotWait", replayEnds},
		{"EphemeralIsNotReplayed", ephemeral},
		{"ThreadsAreApart", threadsApart},
		{"ClockGoesBack", clockGoesBack},
		{"Advance", advance},
		{"ForgetRun", forgetRun},
		{"ForgetThread", forgetThread},
		{"ForgetThreadBefore", forgetThreadBefore},
		{"TokensGoFirst", tokensGoFirst},
		{"RunningRunGoesLast", runningRunGoesLast},
		{"GapOfRunningRunIsTold", gapOfRunningRun},
		{"BytesAreBounded", bytesBounded},
		{"Expires", expires},
		{"SlowSubscriberIsDropped", slowSubscriber},
		{"LaggingSubscriberIsNotDropped", laggingSubscribers},
		{"LargeBatchIsNotSlowness", largeBatch},
		{"NextEndsWithContext", contextEnds},
		{"CloseEndsSubscriptions", closeEnds},
		{"ExactlyOnceUnderConcurrency", concurrency},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			w.now.Store(1_700_000_000_000)
			w.opts = bridge.Options{Now: func() time.Time { return time.UnixMilli(w.now.Load()) }}
			w.open = func() bridge.Bridge {
				b := open(t, w.opts)
				t.Cleanup(func() { _ = b.Close() })
				return b
			}
			c.test(t, w)
		})
	}
}

// world is the clock of a case and the options of its bridge, which can be changed before open.
type world struct {
	now  atomic.Int64
	opts bridge.Options
	open func() bridge.Bridge
}

const (
	thread = id.Thread("11111111-0000-7000-8000-000000000001")
	runA   = id.Run("aaaaaaaa-0000-7000-8000-000000000001")
	runB   = id.Run("bbbbbbbb-0000-7000-8000-000000000002")
)

func kept(run id.Run, event string) *bridge.Record {
	return &bridge.Record{Run: run, Event: event, Kept: true}
}

func token(run id.Run, event string) *bridge.Record {
	return &bridge.Record{Run: run, Event: event, Kept: true, Kind: bridge.Token}
}

func end(run id.Run) *bridge.Record {
	return &bridge.Record{Run: run, Event: "end", Kept: true, Kind: bridge.Terminal}
}

func passing(run id.Run, event string) *bridge.Record { return &bridge.Record{Run: run, Event: event} }

func publish(t *testing.T, b bridge.Bridge, records ...*bridge.Record) {
	t.Helper()
	require.NoError(t, b.Publish(t.Context(), thread, records))
}

func subscribe(t *testing.T, b bridge.Bridge, after *bridge.Offset) bridge.Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), thread, after)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// all is the offset below every other.
func all() *bridge.Offset { return &bridge.Offset{} }

// events reads until n records have come.
func events(t *testing.T, s bridge.Subscription, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got := []string{}
	for len(got) < n {
		records, err := s.Next(ctx)
		require.NoError(t, err, "after %v", got)
		require.NotEmpty(t, records)
		for _, r := range records {
			got = append(got, r.Event)
		}
	}
	return got
}

// replayed returns what a new subscriber is replayed: what it gets before a record published now.
func replayed(t *testing.T, b bridge.Bridge, after *bridge.Offset) []string {
	t.Helper()
	s := subscribe(t, b, after)
	defer s.Close()
	publish(t, b, passing("", "now"))
	var got []string
	for {
		for _, e := range events(t, s, 1) {
			if e == "now" {
				return got
			}
			got = append(got, e)
		}
	}
}

func offsets(t *testing.T, w *world) {
	b := w.open()
	var last bridge.Offset
	for range 100 {
		rs := []*bridge.Record{passing(runA, "x"), kept(runA, "y"), token(runA, "z")}
		publish(t, b, rs...)
		for _, r := range rs {
			require.Positive(t, r.Offset.Compare(last), "%v after %v", r.Offset, last)
			require.Equal(t, w.now.Load(), r.Offset.MS)
			last = r.Offset
		}
	}
	w.now.Add(5)
	r := passing(runA, "x")
	r.Attempt = 1
	publish(t, b, r)
	require.Equal(t, w.now.Load(), r.Offset.MS)
}

func liveOnly(t *testing.T, w *world) {
	b := w.open()
	publish(t, b, kept(runA, "before"))
	s := subscribe(t, b, nil)
	publish(t, b, kept(runA, "a"), passing(runB, "b"))
	publish(t, b, token(runA, "c"))
	require.Equal(t, []string{"a", "b", "c"}, events(t, s, 3))
	require.Equal(t, bridge.NoGap, s.Gap(""))
}

func replayThenLive(t *testing.T, w *world) {
	b := w.open()
	first := kept(runA, "a")
	publish(t, b, first, passing(runB, "gone"), token(runA, "b"), end(runA))
	whole, rest := subscribe(t, b, all()), subscribe(t, b, &first.Offset)
	publish(t, b, passing(runB, "c"))
	require.Equal(t, []string{"a", "b", "end", "c"}, events(t, whole, 4))
	require.Equal(t, []string{"b", "end", "c"}, events(t, rest, 3))
}

func ephemeral(t *testing.T, w *world) {
	b := w.open()
	s := subscribe(t, b, nil)
	failed := kept(runA, "error")
	failed.Ephemeral = true
	publish(t, b, kept(runA, "a"), failed, end(runA))
	require.Equal(t, []string{"a", "error", "end"}, events(t, s, 3))
	require.Equal(t, []string{"a", "end"}, replayed(t, b, all()))
}

func threadsApart(t *testing.T, w *world) {
	b := w.open()
	s := subscribe(t, b, all())
	require.NoError(t, b.Publish(t.Context(), "other", []*bridge.Record{kept(runB, "x")}))
	publish(t, b, kept(runA, "a"))
	require.Equal(t, []string{"a"}, events(t, s, 1))
}

func clockGoesBack(t *testing.T, w *world) {
	b := w.open()
	before := passing(runA, "a")
	publish(t, b, before)
	w.now.Add(-60_000)
	after := passing(runA, "b")
	publish(t, b, after)
	require.Positive(t, after.Offset.Compare(before.Offset))
}

func advance(t *testing.T, w *world) {
	b := w.open()
	mark := w.now.Load() + 1000
	b.Advance(thread, mark)
	b.Advance(thread, mark-500)
	r := passing(runA, "a")
	publish(t, b, r)
	require.Greater(t, r.Offset.MS, mark)
	w.now.Add(10_000)
	r = passing(runA, "b")
	publish(t, b, r)
	require.Equal(t, w.now.Load(), r.Offset.MS)
}

func forgetRun(t *testing.T, w *world) {
	b := w.open()
	publish(t, b, kept(runA, "a"), kept(runB, "b"), end(runA), end(runB))
	require.NoError(t, b.Forget(t.Context(), thread, runA))
	require.NoError(t, b.Forget(t.Context(), thread, "unknown"))
	require.NoError(t, b.Forget(t.Context(), "unknown", runA))
	require.Equal(t, []string{"b", "end"}, replayed(t, b, all()))
}

func forgetThread(t *testing.T, w *world) {
	b := w.open()
	before := kept(runA, "a")
	publish(t, b, before, kept(runB, "b"))
	deleted := passing("", "deleted")
	publish(t, b, deleted)
	require.NoError(t, b.ForgetThread(t.Context(), thread, deleted.Offset))
	require.NoError(t, b.ForgetThread(t.Context(), "unknown", deleted.Offset))
	require.Empty(t, replayed(t, b, all()))
	after := kept(runA, "c")
	publish(t, b, after)
	require.Positive(t, after.Offset.Compare(before.Offset))
	require.Equal(t, []string{"c"}, replayed(t, b, all()))
}

// Runs of a thread that was created with the ID of a deleted one stay, although the old one is forgotten later.
func forgetThreadBefore(t *testing.T, w *world) {
	b := w.open()
	publish(t, b, kept(runA, "a"), end(runA))
	deleted := passing("", "deleted")
	publish(t, b, deleted, kept(runB, "b"))
	require.NoError(t, b.ForgetThread(t.Context(), thread, deleted.Offset))
	require.Equal(t, []string{"b"}, replayed(t, b, all()))
	publish(t, b, kept(runB, "c"), end(runB))
	require.Equal(t, []string{"b", "c", "end"}, replayed(t, b, all()))
	require.NoError(t, b.ForgetThread(t.Context(), thread, deleted.Offset))
	require.Equal(t, []string{"b", "c", "end"}, replayed(t, b, all()))
	require.NoError(t, b.Forget(t.Context(), thread, runB))
	require.Empty(t, replayed(t, b, all()))
}

func tokensGoFirst(t *testing.T, w *world) {
	w.opts.Records = 8
	b := w.open()
	var last *bridge.Record
	for i := range 10 {
		last = token(runA, fmt.Sprint("t", i))
		publish(t, b, last)
		if i%5 == 0 {
			publish(t, b, kept(runA, fmt.Sprint("r", i)))
		}
	}
	s := subscribe(t, b, all())
	require.Equal(t, bridge.TokenGap, s.Gap(runA))
	require.Equal(t, bridge.TokenGap, s.Gap(""))
	require.Equal(t, bridge.NoGap, s.Gap(runB))
	got := replayed(t, b, all())
	require.LessOrEqual(t, len(got), 8)
	require.Contains(t, got, "r0")
	require.Contains(t, got, "r5")
	require.Equal(t, "t9", got[len(got)-1])
	require.Equal(t, bridge.NoGap, subscribe(t, b, &last.Offset).Gap(""), "nothing above it was dropped")
	require.Equal(t, bridge.NoGap, subscribe(t, b, nil).Gap(""), "asked for nothing")
}

func runningRunGoesLast(t *testing.T, w *world) {
	w.opts.Records = 8
	b := w.open()
	publish(t, b, kept(runB, "running"))
	for i := range 4 {
		publish(t, b, kept(runA, fmt.Sprint("a", i)))
	}
	publish(t, b, end(runA))
	for i := range 6 {
		publish(t, b, kept(runB, fmt.Sprint("b", i)))
	}
	require.Subset(t, replayed(t, b, all()), []string{"running", "b0", "b1", "b2", "b3", "b4", "b5"})
	s := subscribe(t, b, all())
	require.Equal(t, bridge.RecordGap, s.Gap(runA))
	require.Equal(t, bridge.NoGap, s.Gap(runB))
}

func gapOfRunningRun(t *testing.T, w *world) {
	w.opts.Records = 8
	b := w.open()
	for i := range 20 {
		publish(t, b, kept(runA, fmt.Sprint(i)))
	}
	s := subscribe(t, b, all())
	require.Equal(t, bridge.RecordGap, s.Gap(runA))
	require.Equal(t, bridge.RecordGap, s.Gap(""))
	got := replayed(t, b, all())
	require.Equal(t, "19", got[len(got)-1])
	require.LessOrEqual(t, len(got), 8)
	require.NoError(t, b.Forget(t.Context(), thread, runA))
	require.Equal(t, bridge.NoGap, subscribe(t, b, all()).Gap(""), "what was forgotten on purpose is not missed")
}

func bytesBounded(t *testing.T, w *world) {
	w.opts.Bytes = 64 << 10
	b := w.open()
	for i := range 100 {
		r := kept(runA, fmt.Sprint(i))
		r.Data = make([]byte, 4<<10)
		publish(t, b, r)
	}
	got := replayed(t, b, all())
	require.Less(t, len(got), 17)
	require.Equal(t, "99", got[len(got)-1])
}

func expires(t *testing.T, w *world) {
	w.opts.TTL = time.Minute
	b := w.open()
	publish(t, b, kept(runA, "a"), kept(runB, "b"), end(runA))
	w.now.Add(2 * time.Minute.Milliseconds())
	require.Equal(t, []string{"a", "b", "end"}, replayed(t, b, all()), "a kept run of the thread continues")
	publish(t, b, end(runB))
	w.now.Add(time.Minute.Milliseconds() - 1)
	require.Equal(t, []string{"a", "b", "end", "end"}, replayed(t, b, all()))
	w.now.Add(1)
	require.Empty(t, replayed(t, b, all()))
	require.Equal(t, bridge.NoGap, subscribe(t, b, all()).Gap(""))
}

// slowSubscriber: only a reader with more unread records than memory and disk may hold is dropped.
func slowSubscriber(t *testing.T, w *world) {
	w.opts.LagBytes, w.opts.SpillBytes, w.opts.Dir = 16<<10, 32<<10, t.TempDir()
	b := w.open()
	slow, quick := subscribe(t, b, nil), subscribe(t, b, nil)
	for i := range 200 {
		r := kept(runA, fmt.Sprint(i))
		r.Data = make([]byte, 1<<10)
		publish(t, b, r)
		require.Equal(t, []string{fmt.Sprint(i)}, events(t, quick, 1))
	}
	_, err := slow.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrSlow)
	again := subscribe(t, b, all())
	require.Len(t, events(t, again, 200), 200, "it comes back and misses nothing")
}

// laggingSubscribers: readers that read are never dropped, however far behind; each gets every record once, in order.
func laggingSubscribers(t *testing.T, w *world) {
	w.opts.Dir = t.TempDir()
	b := w.open()
	s := subscribe(t, b, nil)
	const records = 3000
	var want []string
	for i := range records {
		r := passing(runA, fmt.Sprint(i))
		r.Data = make([]byte, 4<<10)
		publish(t, b, r)
		want = append(want, r.Event)
		if i%100 == 99 { // the publisher waits for this reader; the other one reads only at the end
			other := subscribe(t, b, nil)
			publish(t, b, passing(runB, "mark"))
			want = append(want, "mark")
			require.Equal(t, []string{"mark"}, events(t, other, 1))
			other.Close()
		}
	}
	require.Equal(t, want, events(t, s, len(want)))
}

func largeBatch(t *testing.T, w *world) {
	w.opts.LagBytes, w.opts.Dir = 1000, t.TempDir()
	b := w.open()
	s := subscribe(t, b, nil)
	for range 3 {
		batch := make([]*bridge.Record, 100)
		for i := range batch {
			batch[i] = passing(runA, fmt.Sprint(i))
		}
		publish(t, b, batch...)
		require.Len(t, events(t, s, 100), 100)
	}
}

func replayEnds(t *testing.T, w *world) {
	b := w.open()
	require.Zero(t, subscribe(t, b, all()).Head())
	last := passing(runA, "live")
	publish(t, b, kept(runA, "a"), kept(runA, "b"), last)
	for _, after := range []*bridge.Offset{nil, all()} {
		s := subscribe(t, b, after)
		require.Equal(t, last.Offset, s.Head())
		want := []string{"a", "b"}
		if after == nil {
			want = nil
		}
		var got []string
		for {
			records, err := s.Replay(t.Context())
			require.NoError(t, err)
			if len(records) == 0 {
				break
			}
			for _, r := range records {
				got = append(got, r.Event)
			}
		}
		require.Equal(t, want, got)
		last = passing(runA, "c")
		publish(t, b, last)
		require.Equal(t, []string{"c"}, events(t, s, 1))
		s.Close()
		_, err := s.Replay(t.Context())
		require.Error(t, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := subscribe(t, b, all()).Replay(ended)
	require.ErrorIs(t, err, context.Canceled)
}

func contextEnds(t *testing.T, w *world) {
	b := w.open()
	s := subscribe(t, b, nil)
	cause := fmt.Errorf("the client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Next(ctx)
		done <- err
	}()
	cancel(cause)
	require.ErrorIs(t, <-done, cause)
	publish(t, b, passing(runA, "a"))
	require.Equal(t, []string{"a"}, events(t, s, 1), "the subscription continues")
}

func closeEnds(t *testing.T, w *world) {
	b := w.open()
	waiting, ready := subscribe(t, b, nil), subscribe(t, b, nil)
	publish(t, b, passing(runA, "a"))
	events(t, waiting, 1)
	done := make(chan error)
	go func() {
		_, err := waiting.Next(context.WithoutCancel(t.Context()))
		done <- err
	}()
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-done, bridge.ErrClosed)
	require.Equal(t, []string{"a"}, events(t, ready, 1), "what had come before is still given")
	_, err := ready.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrClosed)
	require.ErrorIs(t, b.Publish(t.Context(), thread, []*bridge.Record{passing(runA, "b")}), bridge.ErrClosed)
	_, err = b.Subscribe(t.Context(), thread, nil)
	require.ErrorIs(t, err, bridge.ErrClosed)
	waiting.Close()
	waiting.Close()
}

// concurrency: readers that come at any time, some from the start and some from where another stopped, see every record once.
func concurrency(t *testing.T, w *world) {
	const writers, batches, readers = 4, 100, 8
	w.opts.Now = time.Now
	b := w.open()
	var wg sync.WaitGroup
	read := func() {
		var after bridge.Offset
		seen := make([]int, writers)
		for sub := 0; ; sub++ {
			s, err := b.Subscribe(t.Context(), thread, &after)
			if err != nil {
				t.Error(err)
				return
			}
			for n := 0; n < 3+sub; n++ {
				records, err := s.Next(t.Context())
				if err != nil {
					t.Error(err)
					s.Close()
					return
				}
				for _, r := range records {
					if r.Offset.Compare(after) <= 0 {
						t.Errorf("%v after %v", r.Offset, after)
					}
					after = r.Offset
					if r.Kind == bridge.Terminal {
						s.Close()
						if diff := cmp.Diff([]int{2 * batches, 2 * batches, 2 * batches, 2 * batches}, seen); diff != "" {
							t.Error(diff)
						}
						return
					}
					var writer, i int
					if _, err := fmt.Sscanf(r.Event, "%d %d", &writer, &i); err != nil || i != seen[writer] {
						t.Errorf("%q after %d of this writer", r.Event, seen[writer])
					}
					seen[writer]++
				}
			}
			s.Close()
		}
	}
	var published sync.WaitGroup
	for range readers {
		wg.Go(read)
	}
	for writer := range writers {
		published.Go(func() {
			for i := range batches {
				publish(t, b, kept(runA, fmt.Sprint(writer, " ", 2*i)), kept(runA, fmt.Sprint(writer, " ", 2*i+1)))
			}
		})
	}
	for range readers {
		wg.Go(read)
	}
	published.Wait()
	publish(t, b, end(runA))
	wg.Wait()
}
