package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/redistest"
	"understudy/internal/seedtest"
	"understudy/storage/postgres/migratedtest"
)

// floods is a graph that emits as many events as its input says, as fast as it can, and then its values. Only Stream is used.
type floods struct {
	graph.Graph

	said chan struct{} // takes one value per run, when all was emitted
}

func (f floods) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		var input struct{ N int }
		if err := json.Unmarshal(inv.Input, &input); err != nil {
			yield(graph.Event{}, err)
			return
		}
		for i := range input.N {
			data := fmt.Appendf(nil, `{"i":%d,"pad":"%s"}`, i, strings.Repeat("x", 500))
			if !yield(graph.Event{Name: "custom", Data: data}, nil) {
				return
			}
		}
		yield(graph.Event{Name: "values", Data: fmt.Appendf(nil, `{"n":%d}`, input.N)}, nil)
		select {
		case f.said <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// A client that reads is never cut, however much faster the graph is: it gets every event once, in order. A wait gets its result.
func TestSlowReadersAreNotCut(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	checkSlowReaders(t, map[string]string{"data": data})
}

func TestSlowReadersAreNotCutOverRedis(t *testing.T) {
	t.Parallel()
	checkSlowReaders(t, map[string]string{"database-url": migratedtest.Database(t), "redis-url": redistest.Start(t).URL, "data": t.TempDir()})
}

func checkSlowReaders(t *testing.T, flags map[string]string) {
	t.Helper()
	flags["port"] = "0"
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	srv, err := New(t.Context(), Config{Settings: settings})
	require.NoError(t, err)
	const events = 50_000
	streams, waits := 2, 2 // a run of each path, before a landing
	if seedtest.InFull() {
		streams, waits = 6, 6
	}
	graphs := floods{said: make(chan struct{}, streams+waits)}
	require.NoError(t, srv.Register("g", "", graphs))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	post := func(path, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.url()+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp
	}

	var group sync.WaitGroup
	for range waits {
		group.Go(func() {
			resp := post("/runs/wait", `{"assistant_id":"g","input":{"n":20000},"stream_mode":["values","custom"]}`)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || strings.TrimSpace(string(text)) != `{"n":20000}` {
				t.Errorf("wait: %q, %v", text, err)
			}
		})
	}
	group.Wait()
	for range waits {
		<-graphs.said
	}

	path := [2]string{"/runs/stream", "/threads/%s/runs/stream"}
	var open []*http.Response
	for i := range streams {
		at := path[i%2]
		if i%2 == 1 {
			resp := post("/threads", "{}")
			var thread struct {
				ID string `json:"thread_id"`
			}
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&thread))
			resp.Body.Close()
			at = fmt.Sprintf(at, thread.ID)
		}
		open = append(open, post(at, fmt.Sprintf(`{"assistant_id":"g","input":{"n":%d},"stream_mode":["custom"]}`, events)))
	}
	said := make(chan struct{}) // all that the graphs emit
	for _, resp := range open {
		group.Go(func() {
			defer resp.Body.Close()
			next := 0
			for lines := bufio.NewScanner(hesitant{resp.Body, said}); ; {
				if !lines.Scan() {
					if lines.Err() != nil || next != events {
						t.Errorf("stream: cut after %d events: %v", next, lines.Err())
					}
					return
				}
				if event, ok := strings.CutPrefix(lines.Text(), `data: {"i":`); ok {
					if !strings.HasPrefix(event, fmt.Sprint(next, ",")) {
						t.Errorf("stream: %.20s in place of %d", event, next)
						return
					}
					next++
				}
			}
		})
	}
	for range streams { // the graphs do not wait for their readers
		select {
		case <-graphs.said:
		case <-time.After(5 * time.Minute):
			t.Fatal("a graph waits for its reader")
		}
	}
	close(said)
	group.Wait()
	cancel()
	require.NoError(t, <-ended)
}

// hesitant reads slowly until hurry is closed, but fast enough that the server does not drop it. The server can write again only once the kernel opens the TCP window,
// which takes a sixteenth of the receive buffer, up to some hundred kilobytes.
type hesitant struct {
	io.Reader

	hurry <-chan struct{}
}

func (h hesitant) Read(b []byte) (int, error) {
	select {
	case <-h.hurry:
	case <-time.After(100 * time.Millisecond):
		b = b[:min(len(b), 16<<10)]
	}
	return h.Reader.Read(b)
}
