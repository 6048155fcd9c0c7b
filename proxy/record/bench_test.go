package record_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkCatchUp reads a conversation of so many turns for the first time, four checkpoints a turn.
func BenchmarkCatchUp(b *testing.B) {
	for _, turns := range []int{20, 200} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			u := newUpstream()
			x := u.thread("t1")
			for n := range turns {
				u.run(x, x.head(), n, 0)
			}
			body := []byte(x.state(x.head(), true))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				w := setupOn(b, u)
				u.bytes, u.asked = 0, nil
				b.StartTimer()
				w.State(b.Context(), w.call, x.id, true, body)
				b.StopTimer()
				b.ReportMetric(float64(u.bytes), "answer-bytes/op")
				b.ReportMetric(float64(len(u.requests())), "requests/op")
				b.StartTimer()
			}
		})
	}
}

// BenchmarkState shows the state of a recorded thread.
func BenchmarkState(b *testing.B) {
	for _, condensed := range []bool{false, true} {
		b.Run(fmt.Sprintf("messages=400/condensed=%v", condensed), func(b *testing.B) {
			w := setup(b)
			x := w.u.thread("t1")
			for n := range 200 {
				keep := 0
				if condensed && n%20 == 19 {
					keep = 4
				}
				w.u.run(x, x.head(), n, keep)
			}
			body := []byte(x.state(x.head(), true))
			require.NotEmpty(b, w.State(b.Context(), w.call, x.id, true, body))
			b.ReportAllocs()
			for b.Loop() {
				w.State(b.Context(), w.call, x.id, true, body)
			}
		})
	}
}

// BenchmarkEvent passes the `values` events of a run on a thread of 400 messages.
func BenchmarkEvent(b *testing.B) {
	w := setup(b)
	x := w.u.thread("t1")
	for n := range 200 {
		w.u.run(x, x.head(), n, 0)
	}
	list := slices.Clone(x.head().Messages)
	w.state(b, x)
	run, _ := w.Begin(b.Context(), w.call, x.id, []byte(`{"assistant_id":"g","stream_mode":"values"}`))
	run.Event(b.Context(), "metadata", []byte(`{"run_id":"r9"}`))
	data := []byte(x.values(append(list, human("new")), ""))
	run.Event(b.Context(), "values", data)
	for b.Loop() {
		run.Event(b.Context(), "values", data)
	}
	run.End(b.Context())
}
