package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
)

// talk is the list of a conversation: that many messages of about 700 bytes.
func talk(messages int) []byte {
	items := make([][]byte, messages)
	for i := range items {
		items[i] = msgp.AppendString(nil, fmt.Sprintf("message %d: %0680d", i, i))
	}
	return joined(items)
}

func talkPut(n, messages int) *checkpointer.Put {
	p := benchPut(n, 1)
	p.Blobs[0].Data = talk(messages)
	return p
}

// A step of a long thread: one message more than the step before.
func BenchmarkStep(b *testing.B) {
	for _, layout := range []string{layoutCompact, layoutLangGraph} {
		for _, messages := range []int{10, 100, 400, 1000} {
			b.Run(layout+"/"+strconv.Itoa(messages), func(b *testing.B) {
				s := openBenchLayout(b, layout)
				ctx := context.Background()
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					p := talkPut(n, messages+n)
					n++
					b.StartTimer()
					if err := s.write(ctx, func(tx *Tx) error { return tx.PutCheckpoint(p) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkList(b *testing.B) {
	for _, layout := range []string{layoutCompact, layoutLangGraph} {
		s := openBenchLayout(b, layout)
		ctx := context.Background()
		for n := range 400 {
			require.NoError(b, s.write(ctx, func(tx *Tx) error { return tx.PutCheckpoint(talkPut(n, n+1)) }))
		}
		b.Run(layout+"/head", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.LoadCheckpoint(ctx, checkpointer.Key{Thread: "thread"}); err != nil {
					b.Fatal(err)
				}
			}
		})
		root := ""
		b.Run(layout+"/history100", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ListCheckpoints(ctx, checkpointer.List{Thread: "thread", NS: &root, Limit: 100}); err != nil {
					b.Fatal(err)
				}
			}
		})
		shown := checkpointer.NewSnapshots(s, nil)
		b.Run(layout+"/state", func(b *testing.B) {
			for b.Loop() {
				if _, err := shown.State(ctx, checkpointer.Key{Thread: "thread"}, false); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(layout+"/shown100", func(b *testing.B) {
			for b.Loop() {
				if _, err := shown.History(ctx, checkpointer.List{Thread: "thread", NS: &root, Limit: 100}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func openBenchLayout(b *testing.B, layout string) *Store {
	b.Helper()
	s, err := Open(context.Background(), Options{Dir: b.TempDir(), Synchronous: "normal", Layout: layout})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}
