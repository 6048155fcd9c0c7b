package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"understudy/graph"
)

func BenchmarkStream(b *testing.B) {
	p := start(b, options(b))
	b.Run("echo", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			drain(b, p.Graph("echo"), invocation(newMemory(), `{"n":1}`, "values"))
		}
	})
	b.Run("echo_temporary", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			inv := invocation(newMemory(), `{"n":1}`, "values")
			inv.Temporary = true
			drain(b, p.Graph("echo"), inv)
		}
	})
	b.Run("echo_16", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				drain(b, p.Graph("echo"), invocation(newMemory(), `{"n":1}`, "values"))
			}
		})
	})
	for _, streams := range []int{1, 16} {
		b.Run(fmt.Sprintf("tokens_%d", streams), func(b *testing.B) {
			b.ReportAllocs()
			const words = 500
			events := 0
			var mu sync.Mutex
			begun := time.Now()
			for b.Loop() {
				var all sync.WaitGroup
				for range streams {
					all.Go(func() {
						inv := invocation(newMemory(), fmt.Sprintf(`{"messages":[{"type":"human","content":"%d","id":"h"}]}`, words), "messages-tuple")
						n := drain(b, p.Graph("tokens_only"), inv)
						mu.Lock()
						events += n
						mu.Unlock()
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(events)/time.Since(begun).Seconds(), "tokens/s")
		})
	}
	b.Run("messages_400", func(b *testing.B) {
		b.ReportAllocs()
		list := make([]map[string]any, 400)
		for i := range list {
			list[i] = map[string]any{"type": "human", "content": "a message of some length, as people write them", "id": fmt.Sprint("h", i)}
		}
		list[399]["content"] = "1"
		input, err := json.Marshal(map[string]any{"messages": list})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			drain(b, p.Graph("tokens"), invocation(newMemory(), string(input), "values"))
		}
	})
}

func drain(b *testing.B, g graph.Graph, inv graph.Invocation) (n int) {
	for _, err := range g.Stream(context.Background(), inv) {
		if err != nil {
			b.Error(err)
			return n
		}
		n++
	}
	return n
}
