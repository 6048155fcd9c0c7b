package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
)

// upstream plays a LangGraph Server: it keeps what a test says that it has, and notes what it was asked.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []string          // "METHOD path", in order
	bodies  map[string]string // the last of each
	headers map[string]http.Header
	answer  map[string]string // JSON by "METHOD path"
	status  map[string]int
	streams []func(w http.ResponseWriter, r *http.Request) // of runs, one after the other
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{
		bodies: map[string]string{}, headers: map[string]http.Header{}, status: map[string]int{},
		answer: map[string]string{"POST /threads": `{"values":null}`, "GET /threads/T/runs/U": `{"run_id":"U","status":"success"}`},
	}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + r.URL.Path
	u.mu.Lock()
	u.asked = append(u.asked, key)
	u.bodies[key], u.headers[key] = string(body), r.Header
	answer, status := u.answer[key], u.status[key]
	var stream func(http.ResponseWriter, *http.Request)
	if strings.HasSuffix(key, "/stream") && status == 0 && len(u.streams) > 0 {
		stream, u.streams = u.streams[0], u.streams[1:]
	}
	u.mu.Unlock()
	switch {
	case stream != nil:
		w.Header().Set("Content-Location", "/threads/T/runs/U")
		w.Header().Set("Content-Type", "text/event-stream")
		stream(w, r)
	case status != 0:
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	case answer == "":
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
	default:
		_, _ = io.WriteString(w, answer)
	}
}

func (u *upstream) set(key, answer string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer[key] = answer
}

func (u *upstream) body(key string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bodies[key]
}

func (u *upstream) count(key string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range u.asked {
		if k == key {
			n++
		}
	}
	return n
}

// says is a stream of these events: name, id, data.
func says(events ...[3]string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			fmt.Fprintf(w, "event: %s\r\ndata: %s\r\nid: %s\r\n\r\n: heartbeat\r\n\r\n", e[0], e[2], e[1])
		}
		w.(http.Flusher).Flush()
	}
}

// cut says events and breaks the connection within the next one.
func cut(events ...[3]string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		says(events...)(w, r)
		_, _ = io.WriteString(w, "event: values\r\ndata: {\"half\":")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func checkpointEvent(at, parent, values, next string) string {
	tasks := "[]"
	if next != "" {
		tasks = fmt.Sprintf(`[{"id":"task-%s","name":%q,"interrupts":[],"state":null}]`, at, next)
	}
	up := "null"
	if parent != "" {
		up = fmt.Sprintf(`{"configurable":{"checkpoint_ns":"","checkpoint_id":%q}}`, parent)
	}
	return fmt.Sprintf(`{"config":{"configurable":{"checkpoint_ns":"","run_id":"U","checkpoint_id":%q}},"parent_config":%s,"values":%s,`+
		`"metadata":{"source":"loop","step":1,"parents":{}},"next":[],"tasks":%s}`, at, up, values, tasks)
}

func state(at, parent, values, tasks string) string {
	up := "null"
	if parent != "" {
		up = fmt.Sprintf(`{"checkpoint_ns":"","checkpoint_id":%q}`, parent)
	}
	return fmt.Sprintf(`{"values":%s,"next":[],"tasks":%s,"metadata":{"source":"loop","step":1,"parents":{},"run_id":"U","graph_id":"there","understudy_graph":"here"},`+
		`"created_at":"2026-01-02T03:04:05.000006+00:00","checkpoint":{"thread_id":"T","checkpoint_ns":"","checkpoint_id":%q},"parent_checkpoint":%s}`, values, tasks, at, up)
}

// rows is a graph.Saver that keeps rows as a database would.
type rows struct {
	*checkpointer.Memory
	mu    sync.Mutex
	words []string
	fail  error
}

func newRows() *rows { return &rows{Memory: &checkpointer.Memory{}} }

func (r *rows) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	return r.LoadCheckpoint(ctx, k)
}

func (r *rows) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	return r.ListCheckpoints(ctx, q)
}

func (r *rows) Save(_ context.Context, saves ...graph.Save) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range saves {
		if r.fail != nil {
			return r.fail
		}
		if s.Words != "" {
			r.words = append(r.words, s.Words)
		}
		if s.Put == nil {
			if err := r.PutWrites(s.At, s.Writes); err != nil {
				return err
			}
		} else if err := r.PutCheckpoint(s.Put); err != nil {
			return err
		}
	}
	return nil
}

func invocation(r *rows) graph.Invocation {
	inv := graph.Invocation{
		Config: graph.Config{Thread: "T", Config: json.RawMessage(`{"configurable":{"run_id":"R","graph_id":"here","assistant_id":"A","langgraph_request_id":"Q","__x":1},` +
			`"metadata":{"graph_id":"here","mine":1}}`)},
		Run: "R", Attempt: 1, Arguments: graph.Arguments{Input: json.RawMessage(`{"n":1}`), Modes: []string{"values"}, Durability: "async"},
		At: checkpointer.Key{Thread: "T"},
	}
	if r != nil {
		inv.Saver = r
	}
	return inv
}

func remote(t *testing.T, u *upstream) *Graph {
	t.Helper()
	g, err := New(Options{ID: "here", GraphID: "there", URL: u.URL, Headers: map[string]string{"X-Api-Key": "secret"}})
	require.NoError(t, err)
	return g
}

type seen struct {
	Name, NS, Data string
	At             id.Checkpoint
}

func collect(ctx context.Context, g *Graph, inv graph.Invocation) (out []seen, err error) {
	for e, err := range g.Stream(ctx, inv) {
		if err != nil {
			return out, err
		}
		out = append(out, seen{e.Name, e.NS, string(e.Data), e.Checkpoint})
	}
	return out, nil
}
