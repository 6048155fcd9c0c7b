package overlay_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/thread"
)

// long saves a thread of n messages, in steps, of which the last two are in the list.
func long(b *testing.B, n, step int) *world {
	w := setup(b)
	var all []msg
	for i := range n {
		kind := "human"
		if i%2 == 1 {
			kind = "ai"
		}
		all = append(all, msg{kind, fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), strings.Repeat("all work and no play ", 10)})
	}
	for i := step; i <= n; i += step {
		w.save(all[:i])
	}
	w.save(append(ms("Sum"), all[n-2:]...))
	return w
}

// What the overlay of 10,000 messages costs on top of what is read without it: warm, and as the first one after a start.
func BenchmarkOverlay(b *testing.B) {
	w := long(b, 10_000, 1000)
	raw := w.state(choose(b.Context(), false), "")
	read := func(o *overlay.Overlay) json.RawMessage {
		r := o.Read(w.thread, o.Look(b.Context(), "g", overlay.State))
		defer r.Done()
		values, err := r.Values(b.Context(), w.at, raw, overlay.RecordView)
		require.NoError(b, err)
		return values
	}
	b.Run("messages=10000/warm", func(b *testing.B) {
		b.SetBytes(int64(len(read(w.overlay))))
		b.ReportAllocs()
		for b.Loop() {
			read(w.overlay)
		}
	})
	b.Run("messages=10000/cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(overlay.New(w.rows, overlay.Config{Settings: overlay.Defaults()}))
		}
	})
}

func BenchmarkState(b *testing.B) {
	for _, n := range []int{400, 10_000} {
		w := long(b, n, 100)
		for name, on := range map[string]bool{"overlay": true, "raw": false} {
			ctx := choose(b.Context(), on)
			b.Run(fmt.Sprintf("messages=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.state(ctx, "")
				}
			})
		}
	}
}

// A history of 100 checkpoints on 400 messages.
func BenchmarkHistory(b *testing.B) {
	w := long(b, 400, 4)
	for name, on := range map[string]bool{"overlay": true, "raw": false} {
		ctx := choose(b.Context(), on)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				list, err := w.threads.History(ctx, thread.HistoryQuery{Thread: w.thread, Limit: 100})
				require.NoError(b, err)
				require.Len(b, list, 100)
			}
		})
	}
	b.Run("condensed", func(b *testing.B) {
		w := setup(b)
		var list []msg
		for i := range 400 {
			list = append(list, msg{"human", fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), strings.Repeat("all work and no play ", 10)})
		}
		w.save(list[:310])
		for i := 310; i < 400; i++ {
			w.save(append(ms("Sum"), list[300:i+1]...))
		}
		for range 10 {
			w.save(append(ms("Sum"), list[300:]...))
		}
		b.ReportAllocs()
		for b.Loop() {
			got, err := w.threads.History(b.Context(), thread.HistoryQuery{Thread: w.thread, Limit: 100})
			require.NoError(b, err)
			require.Len(b, got, 100)
		}
	})
}

// A list of 100 threads with 1 MB of state each, with what the studio extracts to name them: the goal is 100 ms.
func BenchmarkExtract(b *testing.B) {
	text := func(n int) string { return strings.Repeat("all work and no play ", n/21) }
	conversation := func(n, size int) (list []msg) {
		for i := range n {
			list = append(list, msg{[]string{"human", "ai"}[i%2], fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), text(size)})
		}
		return list
	}
	for name, states := range map[string][][]msg{
		"1,000 messages": {conversation(1_000, 1_000)},
		"10 messages":    {conversation(10, 100_000)},
		"condensed":      {conversation(1_000, 1_000), append(ms("Sum"), conversation(1_000, 1_000)[980:]...)},
	} {
		w := setup(b)
		for range 100 {
			w.thread, w.at = id.NewThread(), ""
			w.make(w.thread)
			for _, list := range states {
				w.save(list)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := thread.Search{Query: thread.Query{Limit: 100}, NoValues: true, Extract: map[string]string{"title": "values.title", "first": "values.messages[0].content"}}
				page, _, err := w.threads.Search(b.Context(), q)
				require.NoError(b, err)
				require.Len(b, page, 100)
				for _, v := range page {
					require.NoError(b, w.threads.Show(b.Context(), q, v))
				}
			}
		})
	}
}
