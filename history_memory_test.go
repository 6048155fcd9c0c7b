package understudy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
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
	srv, err := New(Config{Settings: c})
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
	th := id.NewThread()
	_, err := srv.threads.Create(t.Context(), thread.New{ID: th, Metadata: json.RawMessage(`{"graph_id":"g"}`)})
	require.NoError(t, err)
	saver := thread.NewSaver(srv.rows.Threads(), nil, nil)
	parent, list := id.Checkpoint(""), []string{}
	const shape = `{"out":["messages"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"json","data":"W10="}}}}`
	for n := range steps {
		cp := id.Checkpoint(fmt.Sprintf("1f000000-0000-6%03x-8000-%012x", n>>12, n))
		list = append(list, fmt.Sprintf(`{"type":"human","id":"%08d","content":%q}`, n, strings.Repeat("all work and no play ", size/21)))
		require.NoError(t, saver.Save(t.Context(), graph.Save{Put: &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: th, ID: cp}, Parent: parent, Run: "run",
				Data:     fmt.Appendf(nil, `{"v":4,"id":%q,"ts":"2026-01-01T00:00:00Z","channel_values":{},"channel_versions":{"messages":"%08d"}}`, cp, n),
				Metadata: fmt.Appendf(nil, `{"source":"loop","step":%d,"parents":{}}`, n), Tasks: json.RawMessage(`[]`), Shape: "shape",
			},
			Blobs:     []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprintf("%08d", n), Type: "json", Data: []byte("[" + strings.Join(list, ",") + "]")}},
			ShapeJSON: json.RawMessage(shape),
		}}))
		parent = cp
	}
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

// However long histories are, and however slowly they are read, the memory that they take is bounded.
func TestMemoryOfLongHistories(t *testing.T) {
	srv := serving(t, nil)
	th := longThread(t, srv, 400, 1000) // an answer of some 80 MB
	var bytes atomic.Int64
	most := peak(func() {
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				res, err := http.Post(srv.url()+"/threads/"+string(th)+"/history", "application/json", strings.NewReader(`{"limit":1000}`))
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
	require.Greater(t, bytes.Load(), int64(250<<20))
	require.Less(t, most, uint64(200<<20))
}
