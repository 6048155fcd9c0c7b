package pregel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/id"
)

// single is a graph of one node.
func single(t testing.TB, fn func(context.Context, counted) (any, error), options ...pregel.NodeOption) *pregel.Graph {
	t.Helper()
	g, err := pregel.NewStateGraph[counted]().AddNode("a", fn, options...).AddEdge(pregel.START, "a").
		Compile(pregel.WithLimits(pregel.Limits{CancelGrace: 50 * time.Millisecond}))
	require.NoError(t, err)
	return g
}

// A run that is cancelled ends its nodes at once, and its error is the cause.
func TestCancel(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan struct{})
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	cause := errors.New("nobody wants it")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		<-started
		cancel(cause)
	}()
	m := &memory{}
	var got error
	for _, err := range g.Stream(ctx, invocation(m, `{"n":1}`, "values")) {
		got = err
	}
	require.ErrorIs(t, got, cause)
	<-ended
	// Earlier steps remain: the run can resume.
	head, err := m.Load(context.Background(), checkpointer.Key{Thread: testThread})
	require.NoError(t, err)
	require.Equal(t, "a", gjson.GetBytes(head.Tasks, "0.name").Str)
	require.Len(t, head.Writes, 0)
}

// A node that does not heed its context is given up after the grace; what it does later is refused.
func TestCancelOfStubbornNode(t *testing.T) {
	t.Parallel()
	started, release, after := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		close(started)
		<-release
		after <- pregel.Emit(ctx, "late")
		return pregel.Values{"n": 2}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-started
		cancel()
	}()
	var got error
	for _, err := range g.Stream(ctx, invocation(&memory{}, `{"n":1}`, "values", "custom")) {
		got = err
	}
	require.ErrorIs(t, got, context.Canceled)
	close(release)
	require.NoError(t, <-after)
}

// The consumer may stop at any event; nothing of the run keeps running.
func TestConsumerStops(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		defer close(ended)
		_ = pregel.Emit(ctx, "begun")
		<-ctx.Done()
		return nil, ctx.Err()
	})
	for _, err := range g.Stream(context.Background(), invocation(&memory{}, `{"n":1}`, "custom")) { // a node that has not begun by then never does
		require.NoError(t, err)
		break
	}
	<-ended
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, pregel.WithTimeout(time.Millisecond))
	_, err := collect(t, g, invocation(nil, `{"n":1}`, "values"))
	var f *graph.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, "NodeTimeoutError", f.Type)
	require.Contains(t, f.Message, "'a'")
}

// Each attempt has its own time, and a timeout is worth another attempt.
func TestTimeoutAndRetry(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int64
	g := single(t, func(ctx context.Context, s counted) (any, error) {
		info, ok := pregel.Info(ctx)
		assert.True(t, ok)
		assert.EqualValues(t, attempts.Add(1), info.Attempt)
		if info.Attempt == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return pregel.Values{"n": s.N + 1}, nil
	}, pregel.WithTimeout(20*time.Millisecond), pregel.WithRetry(pregel.RetryPolicy{InitialInterval: 1, NoJitter: true}))
	out, err := pregel.Invoke[counted](context.Background(), g, pregel.Values{"n": 1})
	require.NoError(t, err)
	require.Equal(t, counted{N: 2}, out.State)
}

// A panic is the error of its task. Its text may contain secrets, so only the log has it.
func TestPanic(t *testing.T) {
	t.Parallel()
	g := single(t, func(context.Context, counted) (any, error) { panic("the secret") })
	m := &memory{}
	_, err := collect(t, g, invocation(m, `{"n":1}`, "values"))
	var f *graph.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, "An internal error occurred", f.Message)
	require.Contains(t, f.Detail, "the secret")
	require.Contains(t, f.Detail, "run_test.go")
	head, err := m.Load(context.Background(), checkpointer.Key{Thread: testThread})
	require.NoError(t, err)
	require.Equal(t, "__error__", head.Writes[0].Channel)
}

func TestPanicsElsewhere(t *testing.T) {
	t.Parallel()
	boom := func(context.Context, counted) (any, error) { panic("boom") }
	fine := func(context.Context, counted) (any, error) { return nil, nil }
	branch, err := pregel.NewStateGraph[counted]().AddNode("a", fine).AddConditionalEdges(pregel.START, boom, "a").Compile()
	require.NoError(t, err)
	fold, err := pregel.NewStateGraph[pregel.Values](pregel.WithChannel("n", pregel.Reducer(func(int, int) int { panic("boom") }))).
		AddNode("a", func(context.Context, pregel.Values) (any, error) { return pregel.Values{"n": 1}, nil }).AddEdge(pregel.START, "a").Compile()
	require.NoError(t, err)
	for _, g := range []*pregel.Graph{branch, fold} {
		_, err := collect(t, g, invocation(&memory{}, `{"n":1}`, "values"))
		var f *graph.Failure
		require.ErrorAs(t, err, &f)
	}
}

// Ten thousand Sends run in bounded memory: as many work at once as may.
func TestManySends(t *testing.T) {
	const many = 10_000
	var now, most atomic.Int64
	g, err := pregel.NewStateGraph[pregel.Values](pregel.WithChannel("sum", pregel.Add()), pregel.WithChannel("i", pregel.LastValue())).
		AddNode("work", func(_ context.Context, s pregel.Values) (any, error) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			runtime.Gosched()
			now.Add(-1)
			return pregel.Values{"sum": 1}, nil
		}).
		AddConditionalEdges(pregel.START, func(context.Context, pregel.Values) (any, error) {
			sends := make([]pregel.Send, many)
			for i := range sends {
				sends[i] = pregel.Send{Node: "work", Arg: pregel.Values{"i": i}}
			}
			return sends, nil
		}, "work").
		Compile(pregel.WithLimits(pregel.Limits{PerRun: 32}))
	require.NoError(t, err)
	m := &memory{}
	inv := invocation(m, `{"i":0}`, "values")
	inv.Durability = "exit"
	events, err := collect(t, g, inv)
	require.NoError(t, err)
	require.EqualValues(t, many, gjson.GetBytes(events[len(events)-1].Data, "sum").Int())
	require.LessOrEqual(t, most.Load(), int64(32))
}

// A subgraph that waits for its own nodes continues although its parents occupy all workers.
func TestWorkersAreNotUsedUp(t *testing.T) {
	t.Parallel()
	inner := loopGraph(t, 3)
	g := pregel.NewStateGraph[pregel.Values](pregel.WithChannel("n", pregel.Add()))
	for i := range 4 {
		name := fmt.Sprintf("sub%d", i)
		g.AddNode(name, func(ctx context.Context, s pregel.Values) (any, error) {
			out, err := pregel.Invoke[json.RawMessage](ctx, inner, pregel.Values{"n": 0})
			return out.State, err
		})
		g.AddEdge(pregel.START, name)
	}
	out, err := pregel.Invoke[json.RawMessage](context.Background(), g.MustCompile(pregel.WithLimits(pregel.Limits{PerRun: 1})), pregel.Values{"n": 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":13}`, string(out.State))
}

// Tasks that others call run although there is one worker only.
func TestCallsWithOneWorker(t *testing.T) {
	t.Parallel()
	double := pregel.NewTask("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	twice := pregel.NewTask("twice", func(ctx context.Context, n int) (int, error) { return double.Call(ctx, n) })
	g, err := pregel.NewEntrypoint("main", func(ctx context.Context, n int) (int, error) {
		sum := 0
		var futures []*pregel.Future[int]
		for i := range n {
			futures = append(futures, twice.Start(ctx, i))
		}
		for _, f := range futures {
			v, err := f.Get()
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	}, pregel.WithLimits(pregel.Limits{PerRun: 1}))
	require.NoError(t, err)
	out, err := pregel.Invoke[int](context.Background(), g, 20)
	require.NoError(t, err)
	require.Equal(t, 380, out.State)
}

// Values are not shown before their checkpoint is committed, and name it.
func TestHold(t *testing.T) {
	t.Parallel()
	m := &memory{}
	release := make(chan struct{})
	m.fail = func(sv graph.Save) error {
		<-release
		return nil
	}
	g := echoGraph(t)
	var held []graph.Event
	for e, err := range g.Stream(context.Background(), invocation(m, `{"n":1}`, "values")) {
		require.NoError(t, err)
		require.NotNil(t, e.Hold)
		select {
		case <-e.Hold:
			t.Error("shown before its checkpoint is committed")
		default:
		}
		if held = append(held, e); len(held) == 2 {
			close(release)
			for _, h := range held {
				<-h.Hold
			}
		}
	}
	require.Equal(t, m.order[2].ID, held[1].Checkpoint)
	require.Equal(t, m.order[1].ID, held[0].Checkpoint)
}

// A failed save fails the run: nothing is saved after it, and the graph stops.
func TestSaveFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, durability string
		err              error
		check            func(t *testing.T, err error)
	}{
		{"broken", "async", errors.New("the disk is full"), func(t *testing.T, err error) {
			var f *graph.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, "An internal error occurred", f.Message)
			require.Contains(t, f.Detail, "disk")
		}},
		{"broken, exit", "exit", errors.New("the disk is full"), func(t *testing.T, err error) {
			var f *graph.Failure
			require.ErrorAs(t, err, &f)
		}},
		{"fenced", "async", graph.ErrFenced, func(t *testing.T, err error) { require.ErrorIs(t, err, graph.ErrFenced) }},
		{"fenced, sync", "sync", graph.ErrFenced, func(t *testing.T, err error) { require.ErrorIs(t, err, graph.ErrFenced) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &memory{}
			saved := 0
			m.fail = func(sv graph.Save) error {
				if sv.Put == nil {
					return nil
				}
				if saved++; saved == 2 || tt.durability == "exit" {
					return tt.err
				}
				require.Less(t, saved, 2, "saved after a failure")
				return nil
			}
			inv := invocation(m, `{"n":0}`, "values")
			inv.Durability = tt.durability
			var got error
			for e, err := range loopGraph(t, 1000).Stream(context.Background(), inv) {
				if err != nil {
					got = err
				}
				_ = e
			}
			tt.check(t, got)
		})
	}
}

// The tokens of a model are shown once, and the message that they make is not shown again.
func TestMessages(t *testing.T) {
	t.Parallel()
	g, err := pregel.NewStateGraph[conversation]().AddNode("speak", func(ctx context.Context, s conversation) (any, error) {
		call := pregel.StartModel(ctx, pregel.ModelInfo{Metadata: json.RawMessage(`{"ls_provider":"test"}`)})
		assert.True(t, call.Wanted())
		call.Chunk(message.AIChunk("Hel"))
		call.Chunk(message.AIChunk("lo"))
		answer := call.End(message.AI("Hello"))
		quiet := pregel.StartModel(ctx, pregel.ModelInfo{Tags: []string{"nostream"}})
		assert.False(t, quiet.Wanted())
		quiet.Chunk(message.AIChunk("secret"))
		quiet.End(message.AI("secret"))
		return conversation{Messages: []message.Message{answer, message.Tool("found", "c").WithID("t1")}}, nil
	}).AddEdge(pregel.START, "speak").Compile()
	require.NoError(t, err)
	input := `{"messages":[{"role":"user","content":"hi","id":"h1"}]}`
	events, err := collect(t, g, invocation(&memory{}, input, "messages-tuple"))
	require.NoError(t, err)
	var texts []string
	for _, e := range events {
		require.Equal(t, "messages", e.Name)
		doc := gjson.ParseBytes(e.Data)
		texts = append(texts, doc.Get("0.type").Str+" "+doc.Get("0.content").Str)
		require.Equal(t, "speak", doc.Get("1.langgraph_node").Str)
		require.EqualValues(t, 1, doc.Get("1.langgraph_step").Int())
	}
	require.Equal(t, []string{"AIMessageChunk Hel", "AIMessageChunk lo", "tool found"}, texts)
	require.Equal(t, "test", gjson.GetBytes(events[0].Data, "1.ls_provider").Str)

	events, err = collect(t, g, invocation(&memory{}, input, "messages"))
	require.NoError(t, err)
	var names []string
	for _, e := range events {
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"messages/metadata", "messages/partial", "messages/partial", "messages/metadata", "messages/complete"}, names)
	require.Equal(t, "Hello", gjson.GetBytes(events[2].Data, "0.content").Str)
	require.Equal(t, "ai", gjson.GetBytes(events[2].Data, "0.type").Str)
}

// What a node gets from its context.
func TestContext(t *testing.T) {
	t.Parallel()
	type user struct {
		Name string `json:"name"`
	}
	g := single(t, func(ctx context.Context, s counted) (any, error) {
		u, err := pregel.ContextOf[user](ctx)
		if err != nil {
			return nil, err
		}
		info, _ := pregel.Info(ctx)
		assert.Equal(t, id.Thread(testThread), info.Thread)
		assert.Equal(t, "a", info.Node)
		assert.JSONEq(t, `{"configurable":{"k":1}}`, string(info.Config))
		assert.Nil(t, pregel.StoreOf(ctx))
		return pregel.Values{"n": len(u.Name)}, nil
	})
	inv := invocation(nil, `{"n":1}`, "values")
	inv.Context = json.RawMessage(`{"name":"Ada"}`)
	inv.Config.Config = json.RawMessage(`{"configurable":{"k":1}}`)
	events, err := collect(t, g, inv)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":3}`, string(events[len(events)-1].Data))
}

func TestOutside(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, err := pregel.Interrupt[string](ctx, "x")
	require.Error(t, err)
	require.NoError(t, pregel.Emit(ctx, "x"))
	require.Nil(t, pregel.StoreOf(ctx))
	_, ok := pregel.Info(ctx)
	require.False(t, ok)
	_, err = pregel.NewTask("t", func(context.Context, int) (int, error) { return 1, nil }).Call(ctx, 1)
	require.Error(t, err)
	call := pregel.StartModel(ctx, pregel.ModelInfo{})
	require.False(t, call.Wanted())
	call.Chunk(message.AIChunk("x"))
	require.Equal(t, call.ID(), call.End(message.AI("x")).ID)
}

// Mistakes name what they are about.
func TestCompileErrors(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, counted) (any, error) { return nil, nil }
	type bad struct {
		X int `graph:"x,reducer=nonsense"`
	}
	for name, tt := range map[string]struct {
		err  func() error
		want string
	}{
		"edge to nowhere": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", fn).AddEdge(pregel.START, "a").AddEdge("a", "b").Compile()
			return err
		}, "`b`"},
		"unknown reducer": {func() error { _, err := pregel.NewStateGraph[bad]().Compile(); return err }, "nonsense"},
		"condition": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", fn).AddConditionalEdges(pregel.START, fn, "b").Compile()
			return err
		}, "'b'"},
		"join": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", fn).AddEdge(pregel.START, "a").AddJoin([]string{"a", "b"}, "a").Compile()
			return err
		}, "'b'"},
		"cache": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", fn, pregel.WithCachePolicy(pregel.CachePolicy{})).AddEdge(pregel.START, "a").Compile()
			return err
		}, "`a`"},
		"no function": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", nil).AddEdge(pregel.START, "a").Compile()
			return err
		}, "`a`"},
		"breakpoint": {func() error {
			_, err := pregel.NewStateGraph[counted]().AddNode("a", fn).AddEdge(pregel.START, "a").Compile(pregel.InterruptBefore("z"))
			return err
		}, "`z`"},
		"several at a time": {func() error { _, err := pregel.NewStateGraph[counted]().AddEdge("x", "y").Compile(); return err }, "entrypoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tt.err(), tt.want)
		})
	}
}

// Input that does not fit is the run's error, not a panic.
func TestBadInput(t *testing.T) {
	t.Parallel()
	g := echoGraph(t)
	for _, input := range []string{`{"n":"text"}`, `[1]`, `"text"`, `5`, `{"n":{"a":[]}}`, `true`} {
		_, err := collect(t, g, invocation(&memory{}, input, "values"))
		var f *graph.Failure
		require.ErrorAs(t, err, &f, input)
		require.NotContains(t, f.Detail, "goroutine", input)
	}
	inv := invocation(&memory{}, "", "values")
	for _, command := range []string{`{"goto":5}`, `{"goto":[{"x":1}]}`, `{"update":5}`, `{"resume":1,"update":"x"}`, `{"goto":"nowhere"}`, `[]`} {
		inv.Command = json.RawMessage(command)
		_, err := collect(t, g, inv)
		if err != nil {
			var f *graph.Failure
			require.ErrorAs(t, err, &f, command)
			require.NotContains(t, f.Detail, "goroutine", command)
		}
	}
}

// The stream mode events covers the graph, its nodes and models, also those of subgraphs.
func TestEvents(t *testing.T) {
	t.Parallel()
	inner, err := pregel.NewStateGraph[conversation]().AddNode("speak", func(ctx context.Context, s conversation) (any, error) {
		call := pregel.StartModel(ctx, pregel.ModelInfo{Metadata: json.RawMessage(`{"ls_model_name":"m"}`)})
		assert.True(t, call.Wanted())
		call.Chunk(message.AIChunk("hi"))
		return conversation{Messages: []message.Message{call.End(message.AI("hi"))}}, nil
	}).AddEdge(pregel.START, "speak").Compile(pregel.WithName("inner"))
	require.NoError(t, err)
	g, err := pregel.NewStateGraph[conversation]().AddSubgraph("sub", inner).AddEdge(pregel.START, "sub").Compile(pregel.WithName("outer"))
	require.NoError(t, err)
	events, err := collect(t, g, invocation(&memory{}, `{"messages":[{"role":"user","content":"x","id":"1"}]}`, "events"))
	require.NoError(t, err)
	var got []string
	for _, e := range events {
		require.Equal(t, "events", e.Name)
		doc := gjson.ParseBytes(e.Data)
		got = append(got, fmt.Sprintf("%s %s %d", doc.Get("event").Str, doc.Get("name").Str, len(doc.Get("parent_ids").Array())))
	}
	require.Equal(t, []string{
		"on_chain_start outer 0", "on_chain_start sub 1", "on_chain_start inner 2", "on_chain_start speak 3", "on_chat_model_start m 4",
		"on_chat_model_stream m 4", "on_chat_model_end m 4", "on_chain_stream speak 3", "on_chain_end speak 3", "on_chain_end inner 2",
		"on_chain_stream sub 1", "on_chain_end sub 1", "on_chain_end outer 0",
	}, got)
}

func TestDefaultsOfContext(t *testing.T) {
	t.Parallel()
	type user struct {
		Name  string `json:"name" jsonschema:"description=who it is,default=nobody"`
		Level int    `json:"level" jsonschema:"default=3"`
	}
	g, err := pregel.NewStateGraph[counted](pregel.WithContext[user]()).AddNode("a", func(ctx context.Context, _ counted) (any, error) {
		u, err := pregel.ContextOf[user](ctx)
		return pregel.Values{"n": len(u.Name)*10 + u.Level}, err
	}).AddEdge(pregel.START, "a").Compile()
	require.NoError(t, err)
	for context, want := range map[string]string{"": `{"n":63}`, `{"name":"Ada","other":1}`: `{"n":33}`, `{"level":1}`: `{"n":61}`} {
		inv := invocation(nil, `{"n":1}`, "values")
		if context != "" {
			inv.Context = json.RawMessage(context)
		}
		events, err := collect(t, g, inv)
		require.NoError(t, err)
		require.JSONEq(t, want, string(events[len(events)-1].Data), context)
	}
	raw, err := g.Describe(context.Background(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	require.NoError(t, err)
	require.JSONEq(t, `{"properties":{"name":{"default":"nobody","title":"Name","type":"string","description":"who it is"},
		"level":{"default":3,"title":"Level","type":"integer"}},"title":"user","type":"object"}`, gjson.GetBytes(raw, "context_schema").Raw)
}

// A graph is safe for concurrent use.
func TestConcurrentRuns(t *testing.T) {
	t.Parallel()
	g := pipeline(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			m := &memory{}
			inv := invocation(m, fmt.Sprintf(`{"topic":"t%d"}`, i), "values", "updates", "tasks", "custom", "checkpoints", "debug")
			inv.Thread = id.Thread(fmt.Sprint(i))
			for _, err := range g.Stream(context.Background(), inv) {
				assert.NoError(t, err)
			}
			inv.Input, inv.Command = nil, json.RawMessage(`{"resume":"yes"}`)
			var last string
			for e, err := range g.Stream(context.Background(), inv) {
				assert.NoError(t, err)
				if e.Name == "values" {
					last = string(e.Data)
				}
			}
			assert.JSONEq(t, fmt.Sprintf(`{"topic":"t%d","items":["t%d","t%d-0","t%d-1"],"answer":"yes"}`, i, i, i, i), last)
		})
	}
	wg.Wait()
}

type oneItem struct{ value json.RawMessage }

func (s *oneItem) Batch(_ context.Context, ops []graph.StoreOp) ([]graph.StoreResult, error) {
	out := make([]graph.StoreResult, len(ops))
	for i, op := range ops {
		switch {
		case op.Put != nil:
			s.value = op.Put.Value
		case op.Get != nil:
			out[i].Item = &graph.StoreItem{Namespace: op.Get.Namespace, Key: op.Get.Key, Value: s.value}
		}
	}
	return out, nil
}

func TestStore(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, s counted) (any, error) {
		results, err := pregel.StoreOf(ctx).Batch(ctx, []graph.StoreOp{
			{Put: &graph.StorePut{Namespace: []string{"n"}, Key: "k", Value: json.RawMessage(`7`)}}, {Get: &graph.StoreGet{Namespace: []string{"n"}, Key: "k"}},
		})
		if err != nil {
			return nil, err
		}
		return json.RawMessage(`{"n":` + string(results[1].Item.Value) + `}`), nil
	})
	out, err := pregel.Invoke[json.RawMessage](context.Background(), g, pregel.Values{"n": 1}, pregel.WithStore(&oneItem{}))
	require.NoError(t, err)
	require.JSONEq(t, `{"n":7}`, string(out.State))
}

// What a checkpoint holds: plain mappings as msgpack maps, messages as extensions, never the type json.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	m := &memory{}
	g := chatGraph(t)
	_, err := collect(t, g, invocation(m, `{"messages":[{"role":"user","content":"hi","id":"h1"}]}`, "values"))
	require.NoError(t, err)
	found := 0
	for _, key := range m.order {
		c, err := m.Load(context.Background(), key)
		require.NoError(t, err)
		for _, b := range c.Blobs {
			require.Equal(t, "msgpack", b.Type)
			if b.Channel == "messages" {
				items, err := b.SplitList()
				require.NoError(t, err)
				for _, item := range items {
					require.GreaterOrEqual(t, item[0], byte(0xc7), "a message is an extension")
					found++
				}
			}
		}
		for _, w := range c.Writes {
			require.Equal(t, "msgpack", w.Type)
		}
		require.Regexp(t, `^\d{32}\.[0-9.e-]{16,}$`, gjson.GetBytes(c.Data, "channel_versions.__start__").Str)
	}
	require.Positive(t, found)
}

// Errors of values that do not fit the state name no types of Go.
func TestErrorsNameNoGoTypes(t *testing.T) {
	type typed struct {
		N    int64   `json:"n"`
		Text string  `json:"text"`
		F    float64 `json:"f"`
		B    bool    `json:"b"`
		To   any     `json:"to"`
	}
	g := pregel.NewStateGraph[typed]()
	g.AddNode("a", func(context.Context, typed) (any, error) { return nil, nil })
	g.AddNode("b", func(context.Context, typed) (any, error) { return &pregel.Command{Goto: 1.5}, nil })
	g.AddEdge(pregel.START, "a")
	g.AddConditionalEdges("a", func(_ context.Context, s typed) (any, error) {
		if s.To == "b" {
			return "b", nil
		}
		return 5, nil
	})
	compiled, err := g.Compile()
	require.NoError(t, err)
	for input, want := range map[string]string{
		`{"n":1.5}`:    "read the input: n: 1.5 is not an integer that fits",
		`{"text":1}`:   "read the input: text: 1 is not text",
		`{"f":"x"}`:    `read the input: f: "x" is not a number`,
		`{"b":[1]}`:    "read the input: b: [1] is not a bool",
		`{}`:           "conditional edges of 'a': a condition returns a node's name, a Send or a list of these, not int",
		`{"to":"b"}`:   "In Command.goto, expected Send/str, got float",
		`{"n":"text"}`: `read the input: n: "text" is not an integer that fits`,
	} {
		_, err := collect(t, compiled, invocation(nil, input))
		var failure *graph.Failure
		require.ErrorAs(t, err, &failure, input)
		require.Equal(t, want, failure.Message, input)
		require.Equal(t, "TypeError", failure.Type, input)
	}
}
