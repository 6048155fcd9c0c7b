package eventstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
)

// long saves a conversation of n turns as an agent with a tool now and then has it, without recording: input, question, answer.
func (d database) long(thread id.Thread, n int) (bytes int) {
	d.t.Helper()
	const text = "The quick brown fox jumps over the lazy dog, and the dog does not mind. "
	var list [][]byte
	var parent id.Checkpoint
	version, count := "", 0
	save := func(tx run.Tx, source string, ms ...message) error {
		c := id.Checkpoint(fmt.Sprintf("%08d", count))
		count++
		p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: thread, ID: c}, Parent: parent, Run: "r"}}
		if len(ms) > 0 {
			for _, m := range ms {
				list = append(list, m.pack(nil))
			}
			version = "v" + string(c)
			data := items(list...)
			bytes += len(data)
			p.Blobs = []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: data}}
		}
		p.Data = fmt.Appendf(nil, `{"v":4,"ts":"2025-01-01T00:00:00Z","channel_versions":{"messages":%q},"channel_values":{},"versions_seen":{"model":{"a":"1"}}}`, version)
		p.Metadata = fmt.Appendf(nil, `{"source":%q,"step":%d}`, source, count)
		parent = c
		return tx.PutCheckpoint(p)
	}
	for from := 0; from < n; from += 50 {
		require.NoError(d.t, d.Runs().Write(context.Background(), func(tx run.Tx) error {
			for i := from; i < min(from+50, n); i++ {
				if err := save(tx, "input"); err != nil {
					return err
				}
				if err := save(tx, "loop", human(fmt.Sprint("h", i), strings.Repeat(text, 2))); err != nil {
					return err
				}
				if err := save(tx, "loop", ai(fmt.Sprint("a", i), strings.Repeat(text, 6))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return bytes
}

func BenchmarkBackfill(b *testing.B) {
	for _, turns := range []int{200, 1000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			d := open(b)
			var peak uint64
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				thread := id.Thread(fmt.Sprint("t", i))
				b.SetBytes(int64(d.long(thread, turns)))
				f := eventstore.NewBackfiller(d)
				runtime.GC()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				b.StartTimer()
				if err := f.Ensure(context.Background(), thread, ""); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				runtime.ReadMemStats(&after)
				peak = max(peak, after.HeapSys-min(before.HeapSys, after.HeapSys))
				b.StartTimer()
			}
			b.ReportMetric(float64(3*turns), "checkpoints")
			b.ReportMetric(float64(peak)/(1<<20), "MiB-grown")
		})
	}
}

// Nothing is missing: known from before, or looked up for the first time since the start.
func BenchmarkEnsure(b *testing.B) {
	d := open(b)
	d.long("t", 1000)
	f := eventstore.NewBackfiller(d)
	require.NoError(b, f.Ensure(context.Background(), "t", ""))
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Ensure(context.Background(), "t", ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first/checkpoints=3000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := eventstore.NewBackfiller(d).Ensure(context.Background(), "t", ""); err != nil {
				b.Fatal(err)
			}
		}
	})
}
