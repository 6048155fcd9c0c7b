package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/jsonplus"
	"understudy/run"
	"understudy/thread"
)

// serving starts a server on a data folder, without graphs.
func serving(t *testing.T, settings map[string]string) *Server {
	t.Helper()
	flags := map[string]string{"port": "0", "data": t.TempDir(), "synchronous": "normal", "log-level": "error"}
	for name, v := range settings {
		flags[name] = v
	}
	c, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	srv, err := New(t.Context(), Config{Settings: c})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return srv
}

// longThread saves a thread as a graph leaves it that adds a message with each step.
func longThread(t *testing.T, srv *Server, steps, size int) id.Thread {
	t.Helper()
	return savedThread(t, srv, steps, 1, size)
}

// savedThread is longThread with so many messages in each step.
func savedThread(t *testing.T, srv *Server, steps, perStep, size int) id.Thread {
	t.Helper()
	return grownThread(t, srv, slices.Repeat([]int{perStep}, steps), size)
}

// grownThread is longThread with as many messages in each step as it says.
func grownThread(t *testing.T, srv *Server, steps []int, size int) id.Thread {
	t.Helper()
	th := id.NewThread()
	_, err := srv.threads.Create(t.Context(), thread.New{ID: th, Metadata: json.RawMessage(`{"graph_id":"g"}`)})
	require.NoError(t, err)
	saves := saver.New(srv.rows.Threads(), nil, nil)
	parent, list := id.Checkpoint(""), []string{}
	const shape = `{"out":["messages"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"json","data":"W10="}}}}`
	for n, perStep := range steps {
		cp := id.Checkpoint(fmt.Sprintf("1f000000-0000-6%03x-8000-%012x", n>>12, n))
		for range perStep {
			list = append(list, fmt.Sprintf(`{"type":"human","id":"%08d","content":%q}`, len(list), strings.Repeat("all work and no play ", size/21)))
		}
		packed, err := jsonplus.AppendState(nil, []byte("["+strings.Join(list, ",")+"]"))
		require.NoError(t, err)
		require.NoError(t, saves.Save(t.Context(), graph.Save{Put: &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: th, ID: cp}, Parent: parent, Run: "run",
				Data:     fmt.Appendf(nil, `{"v":4,"id":%q,"ts":"2026-01-01T00:00:00Z","channel_values":{},"channel_versions":{"messages":"%08d"}}`, cp, n),
				Metadata: fmt.Appendf(nil, `{"source":"loop","step":%d,"parents":{}}`, n), Tasks: json.RawMessage(`[]`), Shape: "shape",
			},
			Blobs:     []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprintf("%08d", n), Type: jsonplus.TypeMsgpack, Data: packed}},
			ShapeJSON: json.RawMessage(shape),
		}}))
		parent = cp
	}
	require.NoError(t, srv.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		row, err := tx.Thread(th)
		if err != nil {
			return err
		}
		row.Head = parent
		return tx.UpdateThread(row)
	}))
	return th
}

// peak samples the memory that the Go runtime holds for live objects and garbage while fn runs.
func peak(fn func()) uint64 {
	debug.FreeOSMemory()
	var most atomic.Uint64
	over, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		every := time.NewTicker(2 * time.Millisecond)
		defer every.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
			select {
			case <-every.C:
			case <-over:
				return
			}
		}
	}()
	fn()
	close(over)
	<-sampled
	return most.Load()
}

// However long an answer is, and however slowly it is read, the memory that it takes is bounded: eight clients at a time read all they may, which is more than
// 300 MB. What is read at a time and its garbage is less; twelve clients take as much as eight.
func TestMemoryOfLongAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, method, path, body string
		prepare                  func(t *testing.T, srv *Server) id.Thread
	}{
		{"history", "POST", "/threads/%s/history", `{"limit":1000}`, func(t *testing.T, srv *Server) id.Thread {
			return longThread(t, srv, 300, 1000) // an answer of some 45 MB
		}},
		{"messages", "GET", "/threads/%s/messages?limit=1000", "", func(t *testing.T, srv *Server) id.Thread {
			return savedThread(t, srv, 1, 40, 1<<20)
		}},
		{"events", "GET", "/threads/%s/events?limit=1000", "", func(t *testing.T, srv *Server) id.Thread {
			return savedThread(t, srv, 1, 40, 1<<20)
		}},
		{"search", "POST", "/threads/search", `{"limit":1000}`, func(t *testing.T, srv *Server) (last id.Thread) {
			for range 20 {
				last = longThread(t, srv, 1, 2<<20)
			}
			return last
		}},
		{"search of threads with large metadata", "POST", "/threads/search", `{"limit":1000}`, func(t *testing.T, srv *Server) id.Thread {
			for range 40 {
				put(t, srv, "POST", "/threads", fmt.Sprintf(`{"metadata":{"x":%q}}`, strings.Repeat("x", 1_000_000)))
			}
			return ""
		}},
		{"runs", "GET", "/threads/%s/runs?limit=1000", "", func(t *testing.T, srv *Server) id.Thread {
			th := longThread(t, srv, 1, 1)
			require.NoError(t, srv.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
				for range 40 {
					input := fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 1<<20))
					if err := tx.InsertRun(&run.Run{ID: id.NewRun(), Thread: th, Status: run.Success, Kwargs: run.Arguments{Arguments: graph.Arguments{Input: input}}}); err != nil {
						return err
					}
				}
				return nil
			}))
			return th
		}},
		{"items", "POST", "/store/items/search", `{"namespace_prefix":["a"],"limit":1000}`, func(t *testing.T, srv *Server) id.Thread {
			for n := range 40 {
				put(t, srv, "PUT", "/store/items", fmt.Sprintf(`{"namespace":["a"],"key":"%d","value":{"x":%q}}`, n, strings.Repeat("x", 1<<20)))
			}
			return ""
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := serving(t, nil)
			path := strings.Replace(tt.path, "%s", string(tt.prepare(t, srv)), 1)
			var bytes atomic.Int64
			most := peak(func() {
				var g errgroup.Group
				for range 8 {
					g.Go(func() error {
						req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.url()+path, strings.NewReader(tt.body))
						if err != nil {
							return err
						}
						req.Header.Set("Content-Type", "application/json")
						if tt.name != "history" { // one is enough: compression takes long
							req.Header.Set("Accept-Encoding", "identity")
						}
						res, err := http.DefaultClient.Do(req)
						if err != nil {
							return err
						}
						defer func() { _ = res.Body.Close() }()
						n, err := io.Copy(io.Discard, res.Body)
						bytes.Add(n)
						return err
					})
				}
				require.NoError(t, g.Wait())
			})
			t.Logf("%d MB in answers, %d MB of heap", bytes.Load()>>20, most>>20)
			require.Greater(t, bytes.Load(), int64(300<<20))
			require.Less(t, most, uint64(400<<20))
		})
	}
}

// put sends a request that succeeds.
func put(t *testing.T, srv *Server, method, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	require.NoError(t, res.Body.Close())
	require.Less(t, res.StatusCode, 300)
}

// Clients that stop reading hold about one large entry each of a history, and all of them together no more than the budget.
func TestMemoryOfSlowHistories(t *testing.T) {
	srv := serving(t, nil)
	th := grownThread(t, srv, append([]int{2000}, slices.Repeat([]int{1}, 14)...), 2000) // entries of 4 MB
	var answers []*http.Response
	defer func() {
		for _, res := range answers {
			_ = res.Body.Close()
		}
	}()
	refused := 0
	read := func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.url()+"/threads/"+string(th)+"/history", strings.NewReader(`{"limit":1000}`))
		require.NoError(t, err)
		req.Header.Set("Accept-Encoding", "identity") // what is compressed takes less
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		answers = append(answers, res)
		if res.StatusCode == http.StatusServiceUnavailable {
			refused++
			return
		}
		require.Equal(t, http.StatusOK, res.StatusCode)
		_, err = io.CopyN(io.Discard, res.Body, 6<<20) // into the second entry
		require.NoError(t, err)
	}
	for _, readers := range []int{15, 60} {
		most := peak(func() {
			for len(answers) < readers {
				read()
			}
		})
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("%d MB of heap for %d readers, of whom %d were put off, %d MB at most", m.HeapAlloc>>20, readers, refused, most>>20)
		require.Less(t, m.HeapAlloc, uint64(256<<20+128<<20))
		require.Equal(t, readers > 15, refused > 0)
	}
}
