package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// interpreter finds a Python that has langgraph.
func interpreter(tb testing.TB) string {
	tb.Helper()
	at := os.Getenv("UNDERSTUDY_TEST_PYTHON")
	if at == "" {
		root, err := filepath.Abs("../..")
		if err != nil {
			tb.Fatal(err)
		}
		at = filepath.Join(root, ".venv", "bin", "python")
	}
	if err := exec.Command(at, "-c", "import langgraph, langchain_core").Run(); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("no Python with langgraph: %s: %v", at, err)
		}
		tb.Skipf("SKIPPED: no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
	}
	return at
}

var testGraphs = []string{
	"echo", "builder", "asking", "nested", "fan", "failing", "waiting", "spinning", "refusing", "dying", "leaving", "talking", "tokens",
	"tokens_only", "contextual", "functional", "memory", "kinds",
}

func options(tb testing.TB) python.Options {
	tb.Helper()
	dir, err := filepath.Abs("testdata/graphs")
	if err != nil {
		tb.Fatal(err)
	}
	specs := map[string]python.Spec{"factory": {Path: "./graphs.py:make_graph"}, "broken": {Path: "./broken.py:graph"}, "missing": {Path: "graphs:nope"}}
	for _, name := range testGraphs {
		specs[name] = python.Spec{Path: "./graphs.py:" + name}
	}
	return python.Options{
		Python: interpreter(tb), Workers: 1, Dir: dir, Graphs: specs, JobsPerWorker: 10,
		Env:    append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "LANGSMITH_TRACING=false"),
		Logger: slog.New(slog.NewTextHandler(testWriter{tb}, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		os.Stderr.Write(b)
	}
	return len(b), nil
}

// start runs a pool until the test ends.
func start(tb testing.TB, o python.Options) *python.Pool {
	tb.Helper()
	p := python.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the pool ended with %v", err)
		}
	})
	waiting, stop := context.WithTimeout(ctx, 60*time.Second)
	defer stop()
	if err := p.Ready(waiting); err != nil {
		tb.Fatal(err)
	}
	return p
}

var shared struct {
	once sync.Once
	pool *python.Pool
}

type got struct{ name, ns, data string }

func invocation(m *memory, input string, modes ...string) graph.Invocation {
	thread := id.NewThread()
	run := id.NewRun()
	conf, _ := json.Marshal(map[string]any{
		"configurable": map[string]any{"thread_id": thread, "run_id": run, "graph_id": "g", "user_id": "", "langgraph_auth_user": nil, "langgraph_auth_user_id": "",
			"langgraph_request_id": "rq", "__request_start_time_ms__": 1},
		"metadata": map[string]any{"mine": 1, "run_attempt": 1, "graph_id": "g"},
	})
	inv := graph.Invocation{
		Config: graph.Config{Thread: thread, Config: conf, Store: m}, Run: run, Attempt: 1, At: checkpointer.Key{Thread: thread},
		Modes: modes, Durability: "async",
	}
	if m != nil {
		inv.Saver = m
	}
	if input != "" {
		inv.Input = json.RawMessage(input)
	}
	return inv
}

// collect runs to the end. Events that hold are waited for.
func collect(tb testing.TB, g graph.Graph, inv graph.Invocation) ([]got, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out []got
	for e, err := range g.Stream(ctx, inv) {
		if err != nil {
			return out, err
		}
		if !json.Valid(e.Data) {
			tb.Errorf("%s is not JSON: %s", e.Name, e.Data)
		}
		if e.Hold != nil {
			select {
			case <-e.Hold:
			case <-ctx.Done():
				tb.Fatalf("%s %s is held for ever", e.Name, e.Data)
			}
		}
		out = append(out, got{e.Name, e.NS, string(e.Data)})
	}
	return out, nil
}

func names(events []got) string {
	var out []string
	for _, e := range events {
		out = append(out, e.name)
	}
	return strings.Join(out, " ")
}

func TestEcho(t *testing.T) {
	p := start(t, options(t))
	m := newMemory()
	inv := invocation(m, `{"n":1}`, "values", "updates")
	events, err := collect(t, p.Graph("echo"), inv)
	if err != nil {
		t.Fatal(err)
	}
	want := []got{{"values", "", `{"n":1}`}, {"updates", "", `{"echo":{"n":2}}`}, {"values", "", `{"n":2}`}}
	if len(events) != 3 || events[0] != want[0] || events[1] != want[1] || events[2] != want[2] {
		t.Errorf("got %v", events)
	}
	puts := m.puts("")
	if len(puts) != 3 {
		t.Fatalf("%d checkpoints", len(puts))
	}
	for _, put := range puts {
		t.Logf("%s\n %s\n %s\n %s", put.Data, put.Metadata, put.Tasks, put.ShapeJSON)
	}
}

var _ = errors.Is
var _ = strings.Join
