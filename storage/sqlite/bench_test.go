package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/storage/storagetest"
	"understudy/thread"
)

func benchThread(n int) *thread.Thread {
	now := time.UnixMicro(1_700_000_000_000_000 + int64(n)).UTC()
	return &thread.Thread{
		ID: id.Thread(fmt.Sprintf("%08x-0000-7000-8000-%012d", uint32(n)*2654435761, n)), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now,
		Metadata: json.RawMessage(fmt.Sprintf(`{"graph_id":"agent","assistant_id":"fe096781-5601-53d2-b2f6-0d3403f7e9ca","user":"user-%d","ten":%d}`,
			n%100, n%1000)),
		Config: json.RawMessage(`{}`), Status: thread.Idle,
	}
}

func openBench(b *testing.B, synchronous string) *Store {
	b.Helper()
	s, err := Open(context.Background(), Options{Dir: b.TempDir(), Synchronous: synchronous})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// One write: a thread row is updated, with its index of metadata.
func BenchmarkWrite(b *testing.B) {
	for _, synchronous := range []string{"full", "normal"} {
		b.Run(synchronous+"/serial", func(b *testing.B) {
			s := openBench(b, synchronous)
			ctx := context.Background()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				if err := s.write(ctx, func(tx *Tx) error { return tx.InsertThread(benchThread(n)) }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(synchronous+"/parallel", func(b *testing.B) {
			s := openBench(b, synchronous)
			ctx := context.Background()
			next := make(chan int, 256)
			go func() {
				defer close(next)
				for n := range b.N {
					next <- n
				}
			}()
			b.ReportAllocs()
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := <-next
					if err := s.write(ctx, func(tx *Tx) error { return tx.InsertThread(benchThread(n)) }); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func fillThreads(b *testing.B, s *Store, total int) {
	b.Helper()
	for n := 0; n < total; {
		require.NoError(b, s.write(context.Background(), func(tx *Tx) error {
			for end := min(n+5000, total); n < end; n++ {
				if err := tx.InsertThread(benchThread(n)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// THREADS=1000000 asks for a larger table than the default of 10,000.
func BenchmarkSearch(b *testing.B) {
	total := 10_000
	if text := os.Getenv("THREADS"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	s := openBench(b, "normal")
	fillThreads(b, s, total)
	ctx := context.Background()
	for _, q := range []struct {
		name  string
		query thread.Query
	}{
		{"metadata", thread.Query{Metadata: json.RawMessage(`{"user":"user-7"}`)}},
		{"rare", thread.Query{Metadata: json.RawMessage(`{"ten":7}`)}},
		{"common", thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent"}`)}},
		{"two", thread.Query{Metadata: json.RawMessage(`{"graph_id":"agent","user":"user-7"}`)}},
		{"created", thread.Query{Metadata: json.RawMessage(`{"user":"user-7"}`), SortBy: "created_at"}},
		{"all", thread.Query{}},
		{"status", thread.Query{Status: thread.Idle}},
	} {
		q.query.Limit = 10
		b.Run(q.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					got, err := s.SearchThreads(ctx, q.query)
					if err != nil || len(got) != 10 {
						b.Errorf("%d threads, %v", len(got), err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "searches/s")
		})
	}
	b.Run("get", func(b *testing.B) {
		t := benchThread(77).ID
		for b.Loop() {
			if _, err := s.Thread(ctx, t); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A checkpoint of a conversation: some channels, of which the messages grow.
func benchPut(n, messages int) *checkpointer.Put {
	versions := map[string]string{}
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key:      checkpointer.Key{Thread: "thread", ID: id.Checkpoint(fmt.Sprintf("1f0%013d", n))},
		Parent:   id.Checkpoint(fmt.Sprintf("1f0%013d", n-1)),
		Metadata: json.RawMessage(`{"source":"loop","step":1,"parents":{},"thread_id":"thread","run_id":"run","graph_id":"agent"}`),
		Run:      "run", Tasks: json.RawMessage(`[{"id":"t","name":"model","path":["__pregel_pull","model"],"subgraph":false}]`), Shape: "digest",
	}}
	for i := range 6 {
		versions[fmt.Sprintf("channel_%d", i)] = "1"
	}
	v := fmt.Sprintf("%032d.0.1", n)
	versions["messages"], versions["branch:to:model"] = v, v
	p.Blobs = []checkpointer.Blob{
		{Channel: "messages", Version: v, Type: "msgpack", Data: bytes.Repeat([]byte("x"), 250*messages)},
		{Channel: "branch:to:model", Version: v, Type: "empty"},
	}
	text, _ := json.Marshal(versions)
	p.Data = json.RawMessage(`{"v":4,"ts":"2025-01-01T00:00:00+00:00","channel_values":{},"channel_versions":` + string(text) + `}`)
	return p
}

func BenchmarkPut(b *testing.B) {
	for _, messages := range []int{10, 100, 1000} {
		b.Run(strconv.Itoa(messages), func(b *testing.B) {
			s := openBench(b, "full")
			ctx := context.Background()
			b.ReportAllocs()
			b.SetBytes(int64(250 * messages))
			n := 0
			for b.Loop() {
				n++
				if err := s.write(ctx, func(tx *Tx) error {
					p := benchPut(n, messages)
					return errorOf(tx.PutCheckpoint(p), tx.PutWrites(p.Key, []checkpointer.Write{{TaskID: "t", Channel: "messages", Type: "msgpack", Data: p.Blobs[0].Data[:250]}}))
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func BenchmarkLoad(b *testing.B) {
	s := openBench(b, "normal")
	ctx := context.Background()
	require.NoError(b, s.write(ctx, func(tx *Tx) error {
		for n := range 400 {
			if err := tx.PutCheckpoint(benchPut(n, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
	root := ""
	b.Run("head", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.LoadCheckpoint(ctx, checkpointer.Key{Thread: "thread"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("history100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.ListCheckpoints(ctx, checkpointer.List{Thread: "thread", NS: &root, Limit: 100}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The life of a run in the queue: inserted, claimed, ended; with others waiting.
func BenchmarkQueue(b *testing.B) {
	s := openBench(b, "normal")
	ctx := context.Background()
	fillThreads(b, s, 1000)
	newRun := func(n, t int) *run.Run {
		return &run.Run{
			ID: id.Run(fmt.Sprintf("run-%09d", n)), Thread: benchThread(t).ID, Status: run.Pending, CreatedAt: time.UnixMicro(int64(n + 1)), UpdatedAt: time.UnixMicro(1),
			Metadata: json.RawMessage(`{}`), Kwargs: run.Arguments{Arguments: graph.Arguments{Input: json.RawMessage(`{"messages":[{"role":"user","content":"hello"}]}`)}},
		}
	}
	require.NoError(b, s.write(ctx, func(tx *Tx) error {
		for n := range 5000 {
			if err := tx.InsertRun(newRun(n, n%1000)); err != nil {
				return err
			}
		}
		return nil
	}))
	n := 5000
	b.ReportAllocs()
	for b.Loop() {
		n++
		if err := s.write(ctx, func(tx *Tx) error {
			if err := tx.InsertRun(newRun(n, n%1000)); err != nil {
				return err
			}
			r, err := tx.DueRun(time.Now())
			if err != nil {
				return err
			}
			r.Status = run.Running
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			r.Status = run.Success
			return tx.UpdateRun(r)
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// A semantic search among 100,000 items.
func BenchmarkNearest(b *testing.B) {
	s, err := Open(b.Context(), Options{Dir: b.TempDir(), Synchronous: "normal"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	storagetest.BenchmarkNearest(b, s.Items(), 100_000)
}

// fullThread adds a thread with events of so many bytes.
func fullThread(ctx context.Context, s *Store, t id.Thread, size int) error {
	return s.write(ctx, func(tx *Tx) error {
		row := benchThread(1)
		row.ID = t
		if err := tx.InsertThread(row); err != nil {
			return err
		}
		e := event("message")
		e.Content = fmt.Appendf(nil, `{"content":%q}`, strings.Repeat("x", size))
		return tx.AppendEvents(t, []*eventstore.Event{e})
	})
}
