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
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/id"
	"understudy/internal/fault"
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
	if err := checked(at); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("no Python with langgraph: %s: %v", at, err)
		}
		tb.Skipf("SKIPPED: no Python with langgraph (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
	}
	return at
}

var (
	checking sync.Mutex
	checks   = map[string]error{} // by program
)

// checked reports whether a Python has langgraph. Each is asked once.
func checked(at string) error {
	checking.Lock()
	defer checking.Unlock()
	err, ok := checks[at]
	if !ok {
		err = exec.Command(at, "-c", "import langgraph, langchain_core").Run()
		checks[at] = err
	}
	return err
}

var testGraphs = []string{
	"echo", "builder", "asking", "nested", "fan", "failing", "waiting", "spinning", "refusing", "dying", "leaving", "talking", "tokens",
	"tokens_only", "pouring", "contextual", "functional", "memory", "kinds", "calling", "tasks", "traced", "unsaved", "strictly",
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

// run runs a pool until the test ends.
func run(tb testing.TB, o python.Options, prepare ...func(*python.Pool)) *python.Pool {
	tb.Helper()
	p := python.New(o)
	for _, f := range prepare {
		f(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the pool ended with %v", err)
		}
	})
	return p
}

// start is run, and waits until a worker is ready.
func start(tb testing.TB, o python.Options, prepare ...func(*python.Pool)) *python.Pool {
	tb.Helper()
	p := run(tb, o, prepare...)
	waiting, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	if err := p.Ready(waiting); err != nil {
		tb.Fatal(err)
	}
	return p
}

type got struct{ name, ns, data string }

func invocation(m *memory, input string, modes ...string) graph.Invocation {
	thread := id.NewThread()
	run := id.NewRun()
	conf, _ := json.Marshal(map[string]any{
		"configurable": map[string]any{
			"thread_id": thread, "run_id": run, "graph_id": "g", "user_id": "", "langgraph_auth_user": nil, "langgraph_auth_user_id": "",
			"langgraph_request_id": "rq", "__request_start_time_ms__": 1,
		},
		"metadata": map[string]any{"mine": 1, "run_attempt": 1, "graph_id": "g"},
	})
	inv := graph.Invocation{
		Config: graph.Config{Thread: thread, Config: conf, Store: m}, Run: run, Attempt: 1, At: checkpointer.Key{Thread: thread},
		Arguments: graph.Arguments{Modes: modes, Durability: "async"},
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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
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

// TestOneWorker shares a pool of one worker: starting one takes longer than most of what is tested.
func TestOneWorker(t *testing.T) {
	t.Parallel()
	p := start(t, options(t))
	for name, test := range map[string]func(*testing.T, *python.Pool){
		"echo": testEcho, "modes": testModes, "messages": testMessages, "interrupt and resume": testInterrupt, "nested": testNested,
		"failures": testFailures, "broken": testBroken, "kinds": testKinds, "factories": testFactories, "context": testContext,
		"store": testStore, "cancel": testCancel, "temporary": testTemporary, "update": testUpdate, "explain": testExplain,
		"describe": testDescribe, "consumer stops": testConsumerStops, "fenced": testFenced, "exit": testExit, "hold": testHold, "huge input": testHugeInput,
		"sys.exit": testSysExit, "slow reader": testSlowReader, "events": testEvents, "goto": testGoto, "calls": testCalls, "spans": testSpans, "spans of errors": testSpanErrors, "content of spans": testSpanContent, "saves": testSaves, "input and its checkpoint": testInputWithItsCheckpoint, "refused saves": testRefusedSaves, "unsaved": testUnsaved, "kinds of errors": testKindsOfErrors,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

func same(tb testing.TB, have []got, want ...got) {
	tb.Helper()
	if diff := cmp.Diff(want, have, cmp.AllowUnexported(got{})); diff != "" {
		tb.Errorf("-want +got\n%s", diff)
	}
}

func sameJSON(tb testing.TB, have, want string) {
	tb.Helper()
	var h, w any
	if err := errors.Join(json.Unmarshal([]byte(have), &h), json.Unmarshal([]byte(want), &w)); err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(w, h); diff != "" {
		tb.Errorf("-want +got\n%s", diff)
	}
}

func must(tb testing.TB, p *python.Pool, name string, inv graph.Invocation) []got {
	tb.Helper()
	events, err := collect(tb, p.Graph(name), inv)
	if err != nil {
		tb.Fatalf("%s: %v (%v)", name, err, events)
	}
	return events
}

func testEcho(t *testing.T, p *python.Pool) {
	for _, name := range []string{"echo", "builder"} {
		m := newMemory()
		inv := invocation(m, `{"n":1}`, "values", "updates")
		same(t, must(t, p, name, inv), got{"values", "", `{"n":1}`}, got{"updates", "", `{"echo":{"n":2}}`}, got{"values", "", `{"n":2}`})
		puts := m.puts("")
		if len(puts) != 3 {
			t.Fatalf("%d checkpoints", len(puts))
		}
		for i, put := range puts {
			if put.Run != inv.Run || put.Thread != inv.Thread || put.Tasks == nil || put.Shape == "" {
				t.Errorf("checkpoint %d: %+v", i, put)
			}
			if i > 0 && put.Parent != puts[i-1].ID {
				t.Errorf("checkpoint %d has parent %s", i, put.Parent)
			}
		}
		want := `{"graph_id":"g","user_id":"","mine":1,"run_attempt":1,"langgraph_version":"V","run_id":"R","thread_id":"T","source":"loop","step":1,"parents":{},"langgraph_auth_user_id":"","langgraph_request_id":"rq"}`
		version, _ := p.Versions()
		have := strings.NewReplacer(string(inv.Run), "R", string(inv.Thread), "T", version, "V").Replace(string(puts[2].Metadata))
		sameJSON(t, have, want)
		// the next run continues from there
		again := invocation(m, `{}`, "values")
		again.Thread, again.At.Thread = inv.Thread, inv.Thread
		again.Config.Config = json.RawMessage(`{}`)
		events := must(t, p, name, again)
		if last := events[len(events)-1]; last.data != `{"n":3}` {
			t.Errorf("then %v", events)
		}
	}
}

func testModes(t *testing.T, p *python.Pool) {
	inv := invocation(newMemory(), `{"topic":"none"}`, "values", "updates", "tasks", "checkpoints")
	events := must(t, p, "failing", inv)
	if have := names(events); have != "checkpoints values checkpoints tasks updates tasks values checkpoints tasks updates tasks values checkpoints" {
		t.Error(have)
	}
	events = must(t, p, "echo", invocation(newMemory(), `{"n":1}`, "debug"))
	var kinds []string
	for _, e := range events {
		var d struct {
			Type    string
			Payload struct{ Checkpoint, ParentCheckpoint map[string]any }
		}
		if err := json.Unmarshal([]byte(e.data), &d); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, d.Type)
		if d.Type == "checkpoint" && len(d.Payload.Checkpoint) != 3 {
			t.Error(e.data)
		}
	}
	if have := strings.Join(kinds, " "); have != "checkpoint checkpoint task task_result checkpoint" {
		t.Error(have)
	}
	events = must(t, p, "fan", invocation(newMemory(), `{}`, "updates"))
	same(t, events, got{"updates", "", `{"plan":{"items":["plan"]}}`}, got{"updates", "", `{"work":{"items":["t2"]}}`},
		got{"updates", "", `{"work":{"items":["t1"]}}`}, got{"updates", "", `{"work":{"items":["t0"]}}`})
	inv = invocation(newMemory(), `{"topic":"none"}`, "values", "updates")
	inv.InterruptBefore = json.RawMessage(`["boom"]`)
	same(t, must(t, p, "failing", inv), got{"values", "", `{"topic":"none","items":[]}`}, got{"updates", "", `{"ok":{"items":["ok"]}}`},
		got{"values", "", `{"topic":"none","items":["ok"]}`}, got{"updates", "", `{"__interrupt__":[]}`})
}

func testMessages(t *testing.T, p *python.Pool) {
	const input = `{"messages":[{"type":"human","content":"2","id":"h1"}]}`
	events := must(t, p, "tokens", invocation(newMemory(), input, "messages-tuple", "messages"))
	if len(events) != 3 {
		t.Fatal(events)
	}
	var chunk []map[string]any
	if err := json.Unmarshal([]byte(events[0].data), &chunk); err != nil {
		t.Fatal(err)
	}
	if chunk[0]["content"] != "w0 " || chunk[0]["type"] != "AIMessageChunk" || chunk[1]["langgraph_node"] != "speak" || chunk[1]["mine"] != 1. {
		t.Error(events[0].data)
	}
	if prefix := `[{"content":"w0 ","additional_kwargs":{},"response_metadata":{},"type":"AIMessageChunk","name":null,"id":"lc_run--`; !strings.HasPrefix(events[0].data, prefix) {
		t.Error(events[0].data)
	}
	if rest := `"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[],"chunk_position":null},{`; !strings.Contains(events[0].data, rest) {
		t.Error(events[0].data)
	}
	events = must(t, p, "tokens", invocation(newMemory(), input, "messages"))
	if have := names(events); have != "messages/metadata messages/partial messages/partial messages/partial" {
		t.Error(have)
	}
	if !strings.HasPrefix(events[2].data, `[{"content":"w0 w1 ","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":"lc_run--`) {
		t.Error(events[2].data)
	}
}

func testInterrupt(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"a"}`, "values", "updates", "custom")
	events := must(t, p, "asking", inv)
	if have := names(events); have != "values updates values custom updates values" {
		t.Fatal(have, events)
	}
	if e := events[4].data; !strings.HasPrefix(e, `{"__interrupt__":[{"value":{"question":"ok?"},"id":"`) || !strings.HasSuffix(e, `","response_schema":null}]}`) {
		t.Error(e)
	}
	again := invocation(m, "", "updates")
	again.Thread, again.At.Thread = inv.Thread, inv.Thread
	again.Command = json.RawMessage(`{"resume":{"yes":[1,null]}}`)
	same(t, must(t, p, "asking", again), got{"updates", "", `{"ask":{"answer":{"yes":[1,null]}}}`})
	// from the old checkpoint, asking once more
	puts := m.puts("")
	again = invocation(m, "", "updates")
	again.Thread, again.At = inv.Thread, puts[1].Key
	events = must(t, p, "asking", again)
	if have := names(events); have != "updates updates" || !strings.HasPrefix(events[0].data, `{"first"`) {
		t.Error(events)
	}
}

func testNested(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{}`, "updates", "messages-tuple")
	inv.Subgraphs = true
	events := must(t, p, "nested", inv)
	if len(events) != 3 || events[0].ns != "" || !strings.HasPrefix(events[1].ns, "child:") || events[2].ns != "" {
		t.Fatal(events)
	}
	ns := events[1].ns
	child := m.puts(ns)
	if len(child) != 2 {
		t.Fatalf("%d checkpoints in %s", len(child), ns)
	}
	if !strings.Contains(string(child[1].Tasks), `"name":"ask"`) || child[1].Shape == m.puts("")[0].Shape {
		t.Errorf("child: %s %s", child[1].Tasks, child[1].Shape)
	}
	var tasks []map[string]any
	root := m.puts("")
	if err := json.Unmarshal(root[len(root)-1].Tasks, &tasks); err != nil || len(tasks) != 1 || tasks[0]["subgraph"] != true || "child:"+tasks[0]["id"].(string) != ns {
		t.Errorf("root: %s", root[len(root)-1].Tasks)
	}
	again := invocation(m, "", "updates")
	again.Thread, again.At.Thread, again.Command = inv.Thread, inv.Thread, json.RawMessage(`{"resume":"deep"}`)
	same(t, must(t, p, "nested", again), got{"updates", "", `{"child":{"items":["before"],"answer":"deep"}}`})
}

func testFailures(t *testing.T, p *python.Pool) {
	for topic, want := range map[string]string{"value": "ValueError: boom", "key": "KeyError: 'boom'", "private": "Private: An internal error occurred"} {
		events, err := collect(t, p.Graph("failing"), invocation(newMemory(), `{"topic":"`+topic+`"}`, "values", "tasks"))
		var f *graph.Failure
		if !errors.As(err, &f) || f.Error() != want || !strings.Contains(f.Detail, "in boom") {
			t.Errorf("%s: %v", topic, err)
		}
		if last := events[len(events)-1]; !strings.Contains(last.data, `"error":{"error":"`+f.Type+`","message":`) || !strings.HasSuffix(last.data, `"result":{},"interrupts":[]}`) {
			t.Errorf("%s: %s", topic, last.data)
		}
	}
}

func testSysExit(t *testing.T, p *python.Pool) {
	_, err := collect(t, p.Graph("leaving"), invocation(newMemory(), `{}`, "values"))
	var f *graph.Failure
	if !errors.As(err, &f) || f.Type != "SystemExit" {
		t.Errorf("got %v", err)
	}
}

func testBroken(t *testing.T, p *python.Pool) {
	for name, want := range map[string]string{"broken": "RuntimeError: this module does not import", "missing": "ValueError: Could not find graph 'nope' in 'graphs'"} {
		if err := p.Problems()[name]; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("problem of %s: %v", name, err)
		}
		_, err := collect(t, p.Graph(name), invocation(newMemory(), `{}`, "values"))
		var f *graph.Failure
		if !errors.As(err, &f) || !strings.HasPrefix(f.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(p.Problems()) != 2 {
		t.Error(p.Problems())
	}
}

// Runs of a graph that does not load go back to the queue when another server serves it, also those that were accepted before it was known, and those that
// have a worker of their own. Graphs that load run here.
func TestRunsOfBrokenGraphsAreLeft(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Bool
	elsewhere.Store(true)
	o := options(t)
	o.Elsewhere = func(string) bool { return elsewhere.Load() }
	p := run(t, o)
	ended := make(chan error)
	for n := range 6 {
		go func() {
			inv := invocation(newMemory(), `{}`, "values")
			inv.Isolated = n%2 == 1
			_, err := collect(t, p.Graph("broken"), inv)
			ended <- err
		}()
	}
	for range 6 {
		if err := <-ended; !errors.Is(err, graph.ErrElsewhere) {
			t.Errorf("the run ended with %v", err)
		}
	}
	if p.Broken("broken") == nil || p.Broken("echo") != nil || p.Broken("of another") != nil {
		t.Error(p.Problems())
	}
	if _, err := collect(t, p.Graph("echo"), invocation(newMemory(), `{}`, "values")); err != nil {
		t.Error(err)
	}
	elsewhere.Store(false)
	var f *graph.Failure
	if _, err := collect(t, p.Graph("broken"), invocation(newMemory(), `{}`, "values")); !errors.As(err, &f) {
		t.Errorf("the run ended with %v", err)
	}
}

func testKinds(t *testing.T, p *python.Pool) {
	for kind, want := range map[string]string{
		"datetime": `"2024-01-02T03:04:05.678901+00:00"`, "date": `"2024-01-02"`, "time": `"03:04:05"`, "timedelta": `60.5`,
		"uuid": `"12345678-1234-5678-1234-567812345678"`, "set": `[7]`, "tuple": `[1,"two"]`, "decimal_int": `12`, "decimal_frac": `1.5`,
		"bytes": `"AP9oaQ=="`, "enum": `"red"`, "pydantic": `{"x":1,"y":0.5}`, "dataclass": `{"a":1,"b":"x"}`, "path": `"a/b"`, "nan": `null`,
		"inf": `null`, "float_whole": `1.0`, "big_int": `9007199254740993`, "huge_int": `1208925819614629174706176`,
		"huge_nested": `{"deep":[1208925819614629174706176,{"x":1180591620717411303424,"y":0.5}],"at":"2024-01-02"}`,
		"int_keys":    `{"1":"one","2":"two"}`, "tuple_keys": `{"[1,2]":3}`, "none": `null`, "unicode": `"héllo ☃ 😀"`, "nul": `"a\ufffdb"`,
		"nuls": `"\ufffd\ufffd\ufffd"`, "backslash": `"a\\u0000b"`, "lone_surrogate": `"a?b"`,
		"message": `{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":"m1"}`,
		"send":    `{"node":"somewhere","args":{"k":1}}`, "complex": `null`, "exception": `{"error":"ValueError","message":"v"}`,
		"private": `{"error":"Private","message":"An internal error occurred"}`,
	} {
		m := newMemory()
		inv := invocation(m, `{"only":"`+kind+`"}`, "updates")
		events, err := collect(t, p.Graph("kinds"), inv)
		if err != nil || len(events) != 2 {
			t.Errorf("%s: %v %v", kind, events, err)
			continue
		}
		if events[0].data != `{"produce":{"value":`+want+`}}` {
			t.Errorf("%s: %s", kind, events[0].data)
		}
		if strings.HasPrefix(kind, "huge") || kind == "nan" || kind == "nul" {
			// what was stored comes back as it was
			again := invocation(m, "", "updates")
			again.Thread, again.At = inv.Thread, m.puts("")[2].Key
			after := must(t, p, "kinds", again)
			if after[0] != events[1] {
				t.Errorf("%s: %v became %v", kind, events[1], after[0])
			}
		}
	}
	// integers of the input stay exact
	events := must(t, p, "kinds", invocation(newMemory(), `{"only":"none","value":[123456789012345678901234567890]}`, "values"))
	if events[0].data != `{"only":"none","value":[123456789012345678901234567890]}` {
		t.Error(events[0].data)
	}
}

func testFactories(t *testing.T, p *python.Pool) {
	inv := invocation(newMemory(), `{}`, "updates")
	inv.Config.Config = json.RawMessage(`{"configurable":{"node":"special"}}`)
	same(t, must(t, p, "factory", inv), got{"updates", "", `{"special":{"n":1}}`})
	m := newMemory()
	same(t, must(t, p, "functional", invocation(m, `4`, "updates", "values")), got{"updates", "", `{"functional":5}`}, got{"values", "", `5`})
	if shape, _ := shapes.Load(m.puts("")[0].Shape); !strings.HasPrefix(string(shape.(json.RawMessage)), `{"out":"__end__",`) {
		t.Errorf("shape %s", shape)
	}
}

func testContext(t *testing.T, p *python.Pool) {
	inv := invocation(newMemory(), `{}`, "updates")
	inv.Context = json.RawMessage(`{"user":"ann","unknown":1}`)
	inv.Config.Config = json.RawMessage(`{"configurable":{"user":"ann","unknown":1,"__context_keys__":["user","unknown"]}}`)
	events := must(t, p, "contextual", inv)
	if want := `{"report":{"answer":{"context":"ann","configurable":["run_id","thread_id","user"],`; !strings.HasPrefix(events[0].data, want) {
		t.Error(events)
	}
	inv = invocation(newMemory(), `{}`, "updates")
	inv.Context = json.RawMessage(`{"user":"bob","other":1}`)
	inv.Config.Config = json.RawMessage(`{"configurable":{"user":"bob","other":1}}`)
	events = must(t, p, "contextual", inv)
	if want := `{"report":{"answer":{"context":"bob","configurable":["other","run_id","thread_id","user"],`; !strings.HasPrefix(events[0].data, want) {
		t.Error(events)
	}
}

func testStore(t *testing.T, p *python.Pool) {
	same(t, must(t, p, "memory", invocation(newMemory(), `{"topic":"a"}`, "updates")),
		got{"updates", "", `{"remember":{"answer":[{"fact":"a"},["a"],[["facts","of"]],"InvalidStateError","a"]}}`})
}

func testCancel(t *testing.T, p *python.Pool) {
	cause := errors.New("cancelled by a test")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	m := newMemory()
	var last error
	for e, err := range p.Graph("waiting").Stream(ctx, invocation(m, `{}`, "updates")) {
		if last = err; err == nil && e.Name == "updates" {
			cancel(cause)
		}
	}
	if !errors.Is(last, cause) {
		t.Errorf("ended with %v", last)
	}
	if len(m.puts("")) != 3 {
		t.Errorf("%d checkpoints", len(m.puts("")))
	}
}

func testConsumerStops(t *testing.T, p *python.Pool) {
	for range p.Graph("waiting").Stream(context.Background(), invocation(newMemory(), `{}`, "updates")) {
		break
	}
}

func testTemporary(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{}`, "values", "updates", "checkpoints")
	inv.Temporary = true
	if have := names(must(t, p, "nested", inv)); have != "updates values updates values" {
		t.Error(have)
	}
	if m.calls != 0 {
		t.Errorf("%d calls of the saver", m.calls)
	}
}

func testExit(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"none"}`, "values")
	inv.Durability = "exit"
	must(t, p, "failing", inv)
	if puts := m.puts(""); len(puts) != 1 || string(puts[0].Tasks) != "[]" {
		t.Errorf("%d checkpoints", len(puts))
	}
}

func testHold(t *testing.T, p *python.Pool) {
	for _, durability := range []string{"async", "sync"} {
		m := newMemory()
		inv := invocation(m, `{"topic":"none"}`, "values", "updates")
		inv.Durability = durability
		release := make(chan struct{})
		m.beforePut = func(put *checkpointer.Put) error {
			<-release
			return nil
		}
		begun := durability == "sync" // there the graph itself waits
		if begun {
			close(release)
		}
		for e, err := range p.Graph("failing").Stream(context.Background(), inv) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Name != "values" || e.Hold == nil {
				continue
			}
			if !begun {
				begun = true
				select {
				case <-e.Hold:
					t.Errorf("%s: %s is shown before its checkpoint is saved", durability, e.Data)
				case <-time.After(20 * time.Millisecond):
				}
				close(release)
			}
			<-e.Hold
			if !holds(m, e.Data) {
				t.Errorf("%s: %s is shown before its checkpoint is saved", durability, e.Data)
			}
		}
		if !begun {
			t.Error("nothing was held")
			close(release)
		}
	}
}

// holds reports whether a checkpoint was saved that came with these values.
func holds(m *memory, values json.RawMessage) bool {
	steps := 0
	for range m.puts("") {
		steps++
	}
	switch string(values) {
	case `{"topic":"none","items":[]}`:
		return steps >= 2
	case `{"topic":"none","items":["ok"]}`:
		return steps >= 3
	}
	return steps >= 4
}

func testFenced(t *testing.T, p *python.Pool) {
	m := newMemory()
	m.beforePut = func(put *checkpointer.Put) error {
		if put.Parent != "" {
			return graph.ErrFenced
		}
		return nil
	}
	if _, err := collect(t, p.Graph("failing"), invocation(m, `{"topic":"none"}`, "values")); !errors.Is(err, graph.ErrFenced) {
		t.Errorf("got %v", err)
	}
}

func testHugeInput(t *testing.T, p *python.Pool) {
	text := strings.Repeat("x", 8<<20)
	m := newMemory()
	events := must(t, p, "failing", invocation(m, `{"topic":"none","items":["`+text+`"]}`, "values"))
	if last := events[len(events)-1]; !strings.Contains(last.data, text) {
		t.Error("the input did not come back")
	}
}

func testUpdate(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"none"}`, "values")
	must(t, p, "failing", inv)
	g := p.Graph("failing")
	ctx := context.Background()
	cfg := graph.Config{Thread: inv.Thread, Config: json.RawMessage(`{"configurable":{"graph_id":"failing"}}`), Saver: m, Store: m}
	at := checkpointer.Key{Thread: inv.Thread}
	key, err := g.Update(ctx, cfg, at, [][]graph.StateUpdate{{{Values: json.RawMessage(`{"items":["mine"]}`), AsNode: "ok"}}})
	if err != nil {
		t.Fatal(err)
	}
	puts := m.puts("")
	put := puts[len(puts)-1]
	if put.Key != key || put.Run != "" || !strings.Contains(string(put.Tasks), `"name":"boom"`) {
		t.Errorf("%+v, key %v", put, key)
	}
	sameJSON(t, string(put.Metadata), `{"graph_id":"failing","thread_id":"`+string(inv.Thread)+`","source":"update","step":3,"parents":{}}`)
	if _, err = g.Update(ctx, cfg, at, [][]graph.StateUpdate{{{AsNode: "boom"}}}); err != nil {
		t.Error(err)
	}
	for node, want := range map[string]string{"nobody": "Node nobody does not exist"} {
		_, err = g.Update(ctx, cfg, at, [][]graph.StateUpdate{{{Values: json.RawMessage(`{}`), AsNode: node}}})
		if unknown := (*graph.UnknownNode)(nil); !errors.As(err, &unknown) || !fault.Is(err, fault.Invalid) || err.Error() != want {
			t.Errorf("%s: %v", node, err)
		}
	}
	_, err = g.Update(ctx, cfg, at, [][]graph.StateUpdate{{{Command: json.RawMessage(`{"update":{"items":["c"]},"goto":"boom"}`), AsNode: "ok"}}})
	if err != nil {
		t.Error(err)
	}
}

func testExplain(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"a"}`, "values")
	must(t, p, "asking", inv)
	ctx := context.Background()
	cfg := graph.Config{Thread: inv.Thread, Saver: m, Store: m}
	puts := m.puts("")
	for _, live := range []bool{false, true} {
		last := puts[len(puts)-1]
		e, err := p.Graph("asking").Explain(ctx, cfg, last.Key, live)
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Values) != `{"topic":"a","items":["first"]}` || len(e.Next) != 1 || e.Next[0] != "ask" || string(e.Tasks) != string(last.Tasks) || e.Shape != last.Shape || e.ShapeJSON == nil {
			t.Errorf("%s %v %s", e.Values, e.Next, e.Tasks)
		}
	}
}

func testDescribe(t *testing.T, p *python.Pool) {
	ctx := context.Background()
	for what, want := range map[graph.DescribeWhat]string{
		{Kind: "graph"}: `{"nodes":[{"id":"__start__","type":"runnable","data":{"name":"__start__"}},{"id":"before","type":"runnable","data":{"name":"before"}},{"id":"child","type":"runnable","data":{"name":"child"}},{"id":"__end__"}],` +
			`"edges":[{"source":"__start__","target":"before"},{"source":"before","target":"child"},{"source":"child","target":"__end__"}]}`,
		{Kind: "graph", XRay: -1}:              `{"id":"child:ask","type":"runnable"`,
		{Kind: "graph", XRay: 1}:               `{"id":"child:ask","type":"runnable"`,
		{Kind: "schemas"}:                      `"title":"nested_state","type":"object"},"config_schema":{},"context_schema":null}`,
		{Kind: "subgraphs"}:                    `{"child":{"input_schema":{`,
		{Kind: "subgraphs", Namespace: "none"}: `{}`,
	} {
		have, err := p.Graph("nested").Describe(ctx, graph.Config{}, what)
		if err != nil || !strings.Contains(string(have), want) {
			t.Errorf("%v: %s %v", what, have, err)
		}
	}
}

func testEvents(t *testing.T, p *python.Pool) {
	inv := invocation(newMemory(), `{"n":1}`, "events", "values")
	events := must(t, p, "echo", inv)
	if have := names(events); have != "events values events events events values events" {
		t.Error(have)
	}
	if first := events[0].data; !strings.HasPrefix(first, `{"event":"on_chain_start","data":{"input":{"n":1}},"name":"echo","tags":[],"run_id":"`+string(inv.Run)+`"`) {
		t.Error(first)
	}
	if last := events[len(events)-1].data; !strings.HasPrefix(last, `{"event":"on_chain_end","data":{"output":{"n":2}}`) {
		t.Error(last)
	}
}

func testGoto(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"none"}`, "values")
	must(t, p, "failing", inv)
	for command, want := range map[string]string{
		`{"goto":"boom","update":{"items":["jump"]}}`:                  `"jump","survived"]}`,
		`{"goto":{"node":"boom","input":{"topic":"none"}}}`:            `"survived"]}`,
		`{"goto":["boom"],"update":[["items",["p"]],["items",["q"]]]}`: `"p","q","survived"]}`,
	} {
		again := invocation(m, "", "values")
		again.Thread, again.At.Thread, again.Command = inv.Thread, inv.Thread, json.RawMessage(command)
		events := must(t, p, "failing", again)
		if last := events[len(events)-1].data; !strings.HasSuffix(last, want) {
			t.Errorf("%s: %s", command, last)
		}
	}
}

// testSlowReader: a reader that is behind loses nothing, and does not delay others.
func testSlowReader(t *testing.T, p *python.Pool) {
	events := 0
	for e, err := range p.Graph("pouring").Stream(context.Background(), invocation(newMemory(), `{}`, "custom")) {
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Data) != 500_002 {
			t.Fatalf("%d bytes", len(e.Data))
		}
		if events++; events%50 == 1 {
			must(t, p, "echo", invocation(newMemory(), `{}`, "values"))
			time.Sleep(50 * time.Millisecond)
		}
	}
	if events != 200 {
		t.Errorf("%d events", events)
	}
}
