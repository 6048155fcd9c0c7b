package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
)

// Runs begin in the order in which they came, also when a new one comes at the moment at which a job becomes free.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	const runs = 60
	began := make(chan id.Run, runs)
	end := make(chan struct{})
	w := newWorld(t, map[string]script{"work": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		began <- inv.Run
		select {
		case <-end:
		case <-ctx.Done():
		}
		return nil
	}}}, func(o *service.Options) { o.Jobs = 1 })
	var want, got []id.Run
	create := func(i int) {
		req := request("work")
		th := id.Thread("")
		if i%2 == 0 {
			th = w.thread()
		}
		r, err := w.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		want = append(want, r.ID)
	}
	next := func() {
		select {
		case r := <-began:
			got = append(got, r)
		case <-time.After(time.Minute):
			t.Fatalf("run %d did not begin", len(got))
		}
	}
	for i := range runs / 2 {
		create(i)
	}
	for i := range runs / 2 {
		next()
		end <- struct{}{}
		create(i)
	}
	for range runs / 2 {
		next()
		end <- struct{}{}
	}
	require.Equal(t, want, got)
}

// One that waits without having been written begins before those that come later, and behind the queue.
func TestWaitingForAJob(t *testing.T) {
	t.Parallel()
	began := make(chan string, 8)
	end := make(chan struct{})
	w := newWorld(t, map[string]script{"work": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		began <- string(inv.Input)
		select {
		case <-end:
		case <-ctx.Done():
		}
		emit("values", string(inv.Input))
		return nil
	}}}, func(o *service.Options) { o.Jobs = 1 })
	req := func(n int) run.Request {
		r := request("work")
		r.Input = fmt.Appendf(nil, `{"n":%d}`, n)
		return r
	}
	_, err := w.runs.Create(t.Context(), w.thread(), req(1))
	require.NoError(t, err)
	require.Equal(t, `{"n":1}`, <-began)
	_, err = w.runs.Create(t.Context(), w.thread(), req(2))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, f, err := w.runs.BeginWait(t.Context(), "", req(3)) // waits, and is queued at last
		if err == nil {
			_, err = f.Result(t.Context())
			f.Close(false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	end <- struct{}{}
	require.Equal(t, `{"n":2}`, <-began)
	end <- struct{}{}
	require.Equal(t, `{"n":3}`, <-began)
	end <- struct{}{}
	wg.Wait()
}

// How long runs take when there are more clients than jobs.
func BenchmarkOverload(b *testing.B) {
	const clients, jobs = 256, 50
	work := script{stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		emit("values", `{"n":1}`)
		return nil
	}}
	for _, kind := range []string{"stateless", "threads"} {
		b.Run(kind, func(b *testing.B) {
			w := newWorld(b, map[string]script{"work": work}, func(o *service.Options) { o.Jobs = jobs })
			var mu sync.Mutex
			var waits []time.Duration
			var wg sync.WaitGroup
			left := make(chan struct{}, b.N)
			for range b.N {
				left <- struct{}{}
			}
			close(left)
			for range clients {
				wg.Go(func() {
					th := id.Thread("")
					if kind == "threads" {
						th = w.thread()
					}
					for range left {
						start := time.Now()
						_, f, err := w.runs.BeginWait(b.Context(), th, request("work"))
						if err == nil {
							_, err = f.Result(b.Context())
							f.Close(false)
						}
						if err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						waits = append(waits, time.Since(start))
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			slices.Sort(waits)
			p := func(q float64) float64 { return waits[int(q*float64(len(waits)-1))].Seconds() * 1000 }
			b.ReportMetric(p(.5), "p50-ms")
			b.ReportMetric(p(.99), "p99-ms")
		})
	}
}
