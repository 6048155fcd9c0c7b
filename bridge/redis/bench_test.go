package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/bridge/redis"
	"understudy/id"
	"understudy/internal/redistest"
)

// cpu is how many seconds Redis has worked.
func cpu(b *testing.B, server *redistest.Server) float64 {
	b.Helper()
	var sum float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(server.Info(field), 64)
		require.NoError(b, err)
		sum += v
	}
	return sum
}

var chunk = []byte(`[{"content":"hello ","type":"AIMessageChunk","id":"lc_run--0190","tool_calls":[],"usage_metadata":null},{"langgraph_node":"model","langgraph_step":1}]`)

// BenchmarkPublish publishes tokens as fast as they are sent, on several threads, each of which is read on another instance: until all were read.
func BenchmarkPublish(b *testing.B) {
	for _, threads := range []int{1, 100} {
		for _, keep := range []bool{false, true} {
			b.Run(fmt.Sprintf("threads=%d/kept=%v", threads, keep), func(b *testing.B) {
				server := redistest.Start(b)
				from, to := open(b, redis.Options{URL: server.URL}), open(b, redis.Options{URL: server.URL})
				var readers sync.WaitGroup
				read := make(chan struct{}, threads*64) // bounds how far the publisher is ahead
				for i := range threads {
					s, err := to.Subscribe(b.Context(), id.Thread(strconv.Itoa(i)), nil)
					require.NoError(b, err)
					readers.Go(func() {
						defer s.Close()
						for {
							records, err := s.Next(context.Background())
							if err != nil {
								b.Error(err)
								return
							}
							for _, r := range records {
								if r.Kind == bridge.Terminal {
									return
								}
								<-read
							}
						}
					})
				}
				worked, n := cpu(b, server), 0
				began := time.Now()
				for b.Loop() {
					read <- struct{}{}
					r := &bridge.Record{Run: "r", Kind: bridge.Token, Kept: keep, Event: "messages", Data: chunk}
					_ = from.Publish(b.Context(), id.Thread(strconv.Itoa(n%threads)), []*bridge.Record{r})
					n++
				}
				for i := range threads {
					_ = from.Publish(b.Context(), id.Thread(strconv.Itoa(i)), []*bridge.Record{{Run: "r", Kind: bridge.Terminal, Kept: keep}})
				}
				readers.Wait()
				took := time.Since(began).Seconds()
				b.ReportMetric(float64(n)/took, "records/s")
				b.ReportMetric((cpu(b, server)-worked)/float64(n)*1e6, "redis-µs/record")
			})
		}
	}
}

// BenchmarkPaced publishes 20,000 tokens a second, as 200 runs of 100 tokens a second do. It reports the share of a core that Redis uses, and
// the latency of a record.
func BenchmarkPaced(b *testing.B) {
	const rate, threads = 20_000, 200
	server := redistest.Start(b)
	from, to := open(b, redis.Options{URL: server.URL}), open(b, redis.Options{URL: server.URL})
	var readers sync.WaitGroup
	var mu sync.Mutex
	var late time.Duration
	read := 0
	for i := range threads {
		s, err := to.Subscribe(b.Context(), id.Thread(strconv.Itoa(i)), nil)
		require.NoError(b, err)
		readers.Go(func() {
			defer s.Close()
			for {
				records, err := s.Next(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				now := time.Now()
				for _, r := range records {
					if r.Kind == bridge.Terminal {
						return
					}
					mu.Lock()
					late += now.Sub(time.UnixMilli(r.Offset.MS))
					read++
					mu.Unlock()
				}
			}
		})
	}
	worked, began, n := cpu(b, server), time.Now(), 0
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for b.Loop() { // one is a tenth of a second
		for step := time.Now(); time.Since(step) < 100*time.Millisecond; {
			<-tick.C
			for due := int(time.Since(began).Seconds() * rate); n < due; n++ {
				r := &bridge.Record{Run: "r", Kind: bridge.Token, Kept: true, Event: "messages", Data: chunk}
				_ = from.Publish(b.Context(), id.Thread(strconv.Itoa(n%threads)), []*bridge.Record{r})
			}
		}
	}
	took := time.Since(began).Seconds()
	share := (cpu(b, server) - worked) / took * 100
	for i := range threads {
		_ = from.Publish(b.Context(), id.Thread(strconv.Itoa(i)), []*bridge.Record{{Run: "r", Kind: bridge.Terminal, Kept: true}})
	}
	readers.Wait()
	b.ReportMetric(float64(n)/took, "records/s")
	b.ReportMetric(share, "redis-%cpu")
	b.ReportMetric(float64(late.Microseconds())/float64(max(read, 1)), "µs-late")
}
