package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
)

// A page of 50 rows of long threads: the log costs the page, the transcript also the fold of its
// entries.
func BenchmarkPages(b *testing.B) {
	ctx := context.Background()
	for _, size := range []int{100, 1_000, 10_000} {
		s := openBench(b, "normal")
		name := id.Thread(fmt.Sprint("t", size))
		const turns = 50
		for from := 0; from < size; from += turns {
			require.NoError(b, s.write(ctx, func(tx *Tx) error {
				events := make([]*eventstore.Event, 0, 2*turns)
				for n := from; n < from+turns; n++ {
					events = append(events, event(eventstore.TypeRunStart), &eventstore.Event{
						Run: id.Run(fmt.Sprint("r", n/10)), Type: eventstore.TypeAI, Category: "message", Content: make([]byte, 1000), CreatedAt: event("").CreatedAt,
					})
				}
				return tx.AppendEvents(name, events)
			}))
		}
		require.NoError(b, s.write(ctx, func(tx *Tx) error {
			// One splice into an empty list, of as many runs of one entry; see eventstore's node.go.
			data := binary.AppendUvarint([]byte{1, 0, 0}, uint64(size))
			for range size {
				data = append(binary.AppendVarint(data, 1), 1<<1)
			}
			data[len(binary.AppendUvarint([]byte{1, 0, 0}, uint64(size)))] = 2 << 1 // the first begins at 2
			n := &eventstore.Node{Stamp: 1, Data: append(data, 0, 0)}
			if err := tx.PutNode(name, n); err != nil {
				return err
			}
			return tx.PutTranscriptRow(&eventstore.Row{Thread: name, Checkpoint: "c", Node: n.ID, Stamp: n.Stamp})
		}))
		for kind, page := range map[string]func(context.Context, eventstore.PageQuery) (*eventstore.Page, error){"log": s.LogPage, "messages": s.MessagePage} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if p, err := page(ctx, eventstore.PageQuery{Thread: name, After: eventstore.Seq(size), Limit: 50}); err != nil || len(p.Rows) != 50 {
						b.Fatal(err, len(p.Rows))
					}
				}
			})
		}
		b.Run(fmt.Sprintf("transcript/%d", size), func(b *testing.B) {
			var ranges []eventstore.Range
			for n := range size {
				ranges = append(ranges, eventstore.Range{From: eventstore.Seq(2*n + 2), To: eventstore.Seq(2*n + 2)})
			}
			for b.Loop() {
				if err := s.EachContent(ctx, name, ranges, func(*eventstore.Event) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
