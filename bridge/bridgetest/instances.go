package bridgetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
)

// RunInstances runs the suite for a bridge that several servers share, each with its own options. open prepares an empty environment and returns a
// function that connects to it; the suite closes the bridges.
func RunInstances(t *testing.T, open func(t *testing.T) func(t *testing.T, opts bridge.Options) bridge.Bridge) {
	for _, c := range []struct {
		name string
		test func(*testing.T, func(bridge.Options) bridge.Bridge)
	}{
		{"RecordsArriveWhole", arriveWhole},
		{"ReplayAnywhere", replayAnywhere},
		{"HandedOver", handedOver},
		{"BothPublish", bothPublish},
		{"NumbersStay", numbersStay},
		{"ForgetAnywhere", forgetAnywhere},
		{"GapIsToldAnywhere", gapAnywhere},
		{"ExpiresAnywhere", expiresAnywhere},
		{"OneCloses", oneCloses},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			enter := open(t)
			c.test(t, func(opts bridge.Options) bridge.Bridge {
				b := enter(t, opts)
				t.Cleanup(func() { _ = b.Close() })
				return b
			})
		})
	}
}

// settled waits until other servers see all that b has published: they have what its own subscriber has received.
func settled(t *testing.T, b bridge.Bridge) {
	t.Helper()
	s := subscribe(t, b, nil)
	defer s.Close()
	publish(t, b, passing("", "settled"))
	until(t, s, "settled")
}

// until reads up to an event, which may come together with others.
func until(t *testing.T, s bridge.Subscription, event string) {
	t.Helper()
	for !slices.Contains(events(t, s, 1), event) {
	}
}

func arriveWhole(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a, b := enter(bridge.Options{}), enter(bridge.Options{})
	live := subscribe(t, b, nil)
	all := []*bridge.Record{
		{Run: runA, Event: "values|child:1", Data: []byte("{\"a\":\"\u2028\\r\\n\x00\"}"), Kept: true, Checkpoint: "c", Ahead: true},
		{Run: runA, Event: "messages", Data: []byte(`[]`), Kept: true, Kind: bridge.Token, Summarizer: true},
		{Run: "", Event: "state_update", Data: []byte(`{}`)},
		{Run: runA, Event: "error", Data: []byte(`{}`), Kept: true, Ephemeral: true},
		{Run: runA, Event: "end", Data: []byte(`null`), Kept: true, Kind: bridge.Terminal},
	}
	publish(t, a, all...)
	var got []*bridge.Record
	for len(got) < len(all) {
		records, err := live.Next(t.Context())
		require.NoError(t, err)
		got = append(got, records...)
	}
	require.Empty(t, cmp.Diff(all, got))
}

func replayAnywhere(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a, b := enter(bridge.Options{}), enter(bridge.Options{})
	first := kept(runA, "a")
	publish(t, a, first, token(runA, "b"), passing(runB, "gone"), end(runA))
	settled(t, a)
	require.Equal(t, []string{"a", "b", "end"}, replayed(t, b, all()))
	require.Equal(t, []string{"b", "end"}, replayed(t, enter(bridge.Options{}), &first.Offset), "an instance that came later")
}

// handedOver: a run resumes on another server, whose clock is behind. Its subscribers see every record once, in order.
func handedOver(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a := enter(bridge.Options{})
	b := enter(bridge.Options{Now: func() time.Time { return time.Now().Add(-time.Minute) }})
	live := subscribe(t, a, nil)
	last := kept(runA, "a")
	publish(t, a, last)
	settled(t, a)
	b.Advance(thread, last.Offset.MS)
	r := kept(runA, "b")
	publish(t, b, r, end(runA))
	require.Positive(t, r.Offset.Compare(last.Offset))
	require.Equal(t, []string{"a", "settled", "b", "end"}, events(t, live, 4))
	require.Equal(t, []string{"b", "end"}, events(t, subscribe(t, a, &last.Offset), 2))
}

// bothPublish: two servers publish to one thread, one of them with a clock that is behind. Readers of both see one order, in which offsets grow.
func bothPublish(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	const each = 200
	a := enter(bridge.Options{})
	b := enter(bridge.Options{Now: func() time.Time { return time.Now().Add(-10 * time.Second) }})
	subs := []bridge.Subscription{subscribe(t, a, all()), subscribe(t, b, all())}
	var wg sync.WaitGroup
	for name, x := range map[string]bridge.Bridge{"a": a, "b": b} {
		wg.Go(func() {
			for i := range each {
				publish(t, x, kept(runA, fmt.Sprint(name, " ", i)))
			}
		})
	}
	wg.Wait()
	var orders [2][]string
	for i, s := range subs {
		var last bridge.Offset
		seen := map[string]int{}
		for len(orders[i]) < 2*each {
			records, err := s.Next(t.Context())
			require.NoError(t, err)
			for _, r := range records {
				require.Positive(t, r.Offset.Compare(last))
				last = r.Offset
				var name string
				var n int
				_, err := fmt.Sscan(r.Event, &name, &n)
				require.NoError(t, err)
				require.Equal(t, seen[name], n)
				seen[name]++
				orders[i] = append(orders[i], r.Event)
			}
		}
	}
	require.Equal(t, orders[0], orders[1])
}

// numbersStay: numbered records come behind those of a server whose clock is ahead. They get higher offsets, which still say which records they are.
func numbersStay(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a := enter(bridge.Options{})
	b := enter(bridge.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	live := subscribe(t, a, nil)
	var want []string
	for attempt := 1; attempt <= 3; attempt++ {
		for index := int64(1); index <= 40; index++ {
			if index%7 == 0 {
				publish(t, b, passing("", "another"))
				settled(t, b)
			}
			name := fmt.Sprint(attempt, " ", index)
			r := &bridge.Record{Run: runA, Event: name, Attempt: attempt, Index: index, Kept: index%2 == 0}
			publish(t, a, r)
			want = append(want, name)
		}
	}
	settled(t, a)
	var got []string
	var last bridge.Offset
	for len(got) < len(want) {
		records, err := live.Next(t.Context())
		require.NoError(t, err)
		for _, r := range records {
			require.Positive(t, r.Offset.Compare(last))
			last = r.Offset
			attempt, index, ok := r.Offset.Position()
			require.Equal(t, r.Run == runA, ok, "%s %s", r.Event, r.Offset)
			if ok {
				require.Equal(t, r.Event, fmt.Sprint(attempt, " ", index))
				require.Equal(t, []any{attempt, index}, []any{r.Attempt, r.Index})
				got = append(got, r.Event)
			}
		}
	}
	require.Equal(t, want, got)
}

func forgetAnywhere(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a, b := enter(bridge.Options{}), enter(bridge.Options{})
	live := subscribe(t, b, nil)
	publish(t, a, kept(runA, "a"), kept(runB, "b"), end(runA), end(runB))
	require.Equal(t, []string{"a", "b", "end", "end"}, events(t, live, 4))
	require.NoError(t, b.Forget(t.Context(), thread, runA))
	settled(t, b)
	require.Equal(t, []string{"b", "end"}, replayed(t, a, all()))
	// A thread is deleted: subscribers on other servers receive its end, although kept records are removed at once.
	deleted := &bridge.Record{Event: "deleted", Ephemeral: true}
	publish(t, a, deleted)
	require.NoError(t, a.ForgetThread(t.Context(), thread, deleted.Offset))
	until(t, live, "deleted")
	settled(t, a)
	require.Empty(t, replayed(t, b, all()))
}

func gapAnywhere(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a, b := enter(bridge.Options{Records: 8}), enter(bridge.Options{})
	for i := range 20 {
		publish(t, a, token(runA, fmt.Sprint(i)))
	}
	settled(t, a)
	s := subscribe(t, b, all())
	require.Equal(t, bridge.TokenGap, s.Gap(runA))
	require.Equal(t, bridge.TokenGap, s.Gap(""))
	require.Equal(t, bridge.NoGap, s.Gap(runB))
}

func expiresAnywhere(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	a, b := enter(bridge.Options{}), enter(bridge.Options{Now: later})
	publish(t, a, kept(runA, "a"))
	settled(t, a)
	require.Equal(t, []string{"a"}, replayed(t, b, all()), "its run continues")
	publish(t, a, end(runA))
	settled(t, a)
	require.Empty(t, replayed(t, b, all()), "an hour after its end")
}

func oneCloses(t *testing.T, enter func(bridge.Options) bridge.Bridge) {
	a, b := enter(bridge.Options{}), enter(bridge.Options{})
	s := subscribe(t, b, nil)
	publish(t, a, kept(runA, "a"))
	require.Equal(t, []string{"a"}, events(t, s, 1))
	require.NoError(t, a.Close())
	publish(t, b, kept(runA, "b"))
	require.Equal(t, []string{"b"}, events(t, s, 1))
}
