package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
)

// Rows that ascend by seq determine the order of the conversation, whatever was inserted where, and however the pages are read. Later rows do
// not change what a row says, unless something is deleted.
func TestPlacesTellTheOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		tr := &eventstore.Transcript{}
		said := map[eventstore.Seq]eventstore.Place{}
		for seq := eventstore.Seq(1); seq <= 60; seq++ {
			at := len(tr.Entries)
			if r.IntN(3) == 0 {
				at = r.IntN(at + 1)
			}
			tr.Entries = slices.Insert(tr.Entries, at, eventstore.Entry{Seq: seq, Summary: r.IntN(5) == 0})
			if r.IntN(12) == 0 {
				at := r.IntN(len(tr.Entries))
				tr.Entries = slices.Delete(tr.Entries, at, at+1)
				clear(said)
			}
			var rows []eventstore.Place
			q := eventstore.PageQuery{Limit: 1 + r.IntN(20)}
			for more := true; more; {
				var page []eventstore.Place
				page, more = tr.Places(q, nil, nil)
				rows = append(rows, page...)
				if len(rows) > 0 {
					q.After = rows[len(rows)-1].First
				}
			}
			for _, row := range rows {
				if before, ok := said[row.First]; ok {
					require.Equal(t, before, row, "seed %d", seed)
				}
				said[row.First] = row
			}
			require.Equal(t, tr.Entries, byRule(rows), "seed %d", seed)
			arranged := eventstore.Arrange(rows,
				func(p eventstore.Place) eventstore.Seq { return p.First },
				func(p eventstore.Place) (eventstore.Seq, bool) { return p.After, p.Placed })
			require.Equal(t, tr.Entries, entries(arranged), "seed %d", seed)
		}
	}
}

// byRule follows docs/events.md word for word.
func byRule(rows []eventstore.Place) []eventstore.Entry {
	var placed []eventstore.Place
	for _, row := range rows {
		at := len(placed)
		if row.Placed {
			at = 1 + slices.IndexFunc(placed, func(p eventstore.Place) bool { return p.First == row.After })
		}
		placed = slices.Insert(placed, at, row)
	}
	return entries(placed)
}

func entries(places []eventstore.Place) []eventstore.Entry {
	out := []eventstore.Entry{}
	for _, p := range places {
		out = append(out, eventstore.Entry{Seq: p.Now, Summary: p.Summary})
	}
	return out
}

// Threads to which messages are only added have rows that say nothing of places, as before.
func TestRowsInOrderHaveNoPlace(t *testing.T) {
	t.Parallel()
	tr := &eventstore.Transcript{}
	for seq := range eventstore.Seq(30) {
		tr.Entries = append(tr.Entries, eventstore.Entry{Seq: seq + 1})
	}
	tr.Entries = slices.Delete(tr.Entries, 10, 15)
	rows, _ := tr.Places(eventstore.PageQuery{Limit: 50}, map[eventstore.Seq]eventstore.Seq{}, nil)
	require.False(t, slices.ContainsFunc(rows, func(p eventstore.Place) bool { return p.Placed }))
}

func TestArrangeWithoutTheRowThatIsNamed(t *testing.T) {
	t.Parallel()
	type row struct{ seq, after eventstore.Seq }
	got := eventstore.Arrange([]row{{3, -1}, {4, 2}, {5, 0}, {6, -1}, {7, 4}},
		func(r row) eventstore.Seq { return r.seq }, func(r row) (eventstore.Seq, bool) { return r.after, r.after >= 0 })
	require.Equal(t, "[{5 0} {3 -1} {4 2} {7 4} {6 -1}]", fmt.Sprint(got))
}

func BenchmarkPlaces(b *testing.B) {
	tr := &eventstore.Transcript{}
	for seq := range eventstore.Seq(10_000) {
		tr.Entries = append(tr.Entries, eventstore.Entry{Seq: seq + 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		tr.Places(eventstore.PageQuery{Limit: 50, After: 5000}, nil, nil)
	}
}
