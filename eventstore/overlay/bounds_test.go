package overlay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/internal/seedtest"
	"understudy/thread"
)

// grow saves checkpoints as a graph leaves them that adds messages, and at times condenses all but the last ones or begins anew.
func (w *world) grow(rnd *rand.Rand, steps int) {
	var list []msg
	for n := range steps {
		switch k := rnd.IntN(12); {
		case k == 0 && len(list) > 6:
			list = append(ms(fmt.Sprintf("S%d", n)), list[len(list)-1-rnd.IntN(3):]...)
		case k == 1 && rnd.IntN(4) == 0:
			list = nil // a reset
		}
		for i := range 1 + rnd.IntN(3) {
			list = append(slices.Clone(list), msg{[]string{"human", "ai"}[i%2], fmt.Sprintf("m%d-%d", n, i), fmt.Sprintf("%0*d", rnd.IntN(200), n)})
		}
		w.save(list)
	}
}

// with is the thread service with other settings.
func (w *world) with(change func(*overlay.Settings)) *thread.Service {
	s := overlay.Defaults()
	change(&s)
	o := w.threads.Options
	o.Overlay = overlay.New(w.rows, overlay.Config{Settings: s})
	return thread.NewService(o)
}

func found(ctx context.Context, t *testing.T, s *thread.Service) json.RawMessage {
	t.Helper()
	q := thread.Search{Query: thread.Query{Limit: 10}}
	page, _, err := s.Search(ctx, q)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.NoError(t, s.Show(ctx, q, page[0]))
	return page[0].Values
}

// Lists of threads show the first and the last 20 messages of a conversation with condensed ones, each as the whole transcript has it.
func TestListsOfThreadsShowTheFirstAndTheLastMessages(t *testing.T) {
	t.Parallel()
	raw := func(values []byte) (list []string) {
		for _, m := range gjson.GetBytes(values, "messages").Array() {
			list = append(list, m.Raw)
		}
		return list
	}
	shortened := 0
	for seed := range uint64(12) {
		w := setup(t)
		w.grow(rand.New(rand.NewPCG(seed, 1)), 5+int(seed)*4)
		for _, form := range []overlay.Markers{overlay.AttachedMarkers, overlay.SystemMarkers, overlay.NoMarkers} {
			s := w.with(func(s *overlay.Settings) { s.Markers = form })
			v, err := s.Get(t.Context(), w.thread)
			require.NoError(t, err)
			graph := found(choose(t.Context(), false), t, s)
			whole := raw(v.Values)
			var want, last []string
			messages := 0
			for _, m := range slices.Backward(whole) {
				marks := gjson.Get(m, "type").String() == "system"
				if messages == 20 && !marks {
					break
				}
				if last = append(last, m); !marks {
					messages++
				}
			}
			slices.Reverse(last)
			want = whole
			first := slices.IndexFunc(whole, func(m string) bool { return gjson.Get(m, "type").String() != "system" }) + 1
			if len(raw(graph)) < len(whole) && first+len(last) < len(whole) {
				want = append(slices.Clone(whole[:first]), last...)
				shortened++
			}
			require.Equal(t, want, raw(found(t.Context(), t, s)), "seed %d, markers %s", seed, form)
			require.Equal(t, string(v.Values), string(found(t.Context(), t, w.with(func(s *overlay.Settings) { s.Markers, s.FullThreads = form, true }))))
			yes := true
			require.Equal(t, string(v.Values), string(found(overlay.With(t.Context(), overlay.Choice{Overlay: &yes, Full: true}), t, s)))
		}
	}
	require.Greater(t, shortened, 5)
}

func TestListsOfThreadsThatWereNotCondensedAreWhole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var list []msg
	for i := range 60 {
		list = append(list, msg{"human", fmt.Sprint("h", i), "text"})
	}
	w.save(list)
	require.Equal(t, string(w.state(choose(t.Context(), false), "")), string(found(t.Context(), t, w.threads)))
}

// For every bound: the entries that fit are those without it, byte for byte, and those that do not are the graph's.
func TestBoundOfAHistory(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(6) {
		w := setup(t)
		w.grow(rand.New(rand.NewPCG(seed, 2)), 60)
		q := thread.HistoryQuery{Thread: w.thread, Limit: 50}
		read := func(max int64, ctx context.Context) (list []*checkpointer.Snapshot, entries int, partial bool) {
			t.Helper()
			h, err := w.with(func(s *overlay.Settings) { s.MaxBytes = max }).ReadHistory(ctx, q)
			require.NoError(t, err)
			defer h.Close()
			early, earlyPartial, decided := 0, false, false
			for {
				n, is, known, err := h.Partial(ctx)
				require.NoError(t, err)
				if known && !decided {
					early, earlyPartial, decided = n, is, true
				}
				snap, err := h.Next(ctx)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				list = append(list, snap)
			}
			entries, partial, known, err := h.Partial(ctx)
			require.NoError(t, err)
			require.True(t, known)
			require.Equal(t, earlyPartial, partial, "what the head of an answer says holds in the end")
			if partial {
				require.Equal(t, early, entries)
			}
			return list, entries, partial
		}
		whole, _, partial := read(0, t.Context())
		require.False(t, partial)
		graph, _, _ := read(0, choose(t.Context(), false))
		bounds := []int64{1, 1 << 30}
		sum := int64(0)
		for _, snap := range whole {
			sum += int64(len(snap.Values))
			bounds = append(bounds, sum-1, sum, sum+1)
		}
		for _, bound := range bounds {
			used, fit, left, counted := int64(0), len(whole), false, 0
			for i := range whole {
				if used < bound {
					counted = i + 1
				}
				is := gjson.GetBytes(whole[i].Values, "messages.#").Int() > gjson.GetBytes(graph[i].Values, "messages.#").Int()
				if used += int64(len(whole[i].Values)); is && used > bound && !left {
					fit, left = i, true
				}
			}
			got, entries, partial := read(bound, t.Context())
			require.Equal(t, left, partial, "bound %d", bound)
			if partial {
				require.Equal(t, min(fit, counted), entries, "bound %d", bound)
			}
			require.Len(t, got, len(whole))
			for i, snap := range got {
				want := whole[i]
				if i >= fit && gjson.GetBytes(want.Values, "messages.#").Int() > gjson.GetBytes(graph[i].Values, "messages.#").Int() {
					want = graph[i]
				}
				require.Equal(t, string(want.Values), string(snap.Values), "entry %d, bound %d", i, bound)
			}
		}
		yes := true
		full, _, partial := read(1, overlay.With(t.Context(), overlay.Choice{Overlay: &yes, Full: true}))
		require.False(t, partial)
		require.Equal(t, whole, full)
	}
}
