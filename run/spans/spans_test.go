package spans

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/run"
)

// table is what a database does with batches.
type table map[int64]*run.SpanBatch

func (t table) PutSpans(_ id.Run, b *run.SpanBatch) error {
	if had := t[b.Number]; had == nil || b.Spans >= had.Spans {
		t[b.Number] = b
	}
	return nil
}

func (table) DeleteSpans(time.Time, int) (int, error) { return 0, nil }

func (t table) bodies() (out [][]byte) {
	for _, b := range slices.SortedFunc(func(yield func(*run.SpanBatch) bool) {
		for _, b := range t {
			if !yield(b) {
				return
			}
		}
	}, func(a, b *run.SpanBatch) int { return cmp.Compare(a.Number, b.Number) }) {
		out = append(out, b.Body)
	}
	return out
}

// testClock is a clock that ticks with each look.
type testClock struct{ at time.Time }

func (c *testClock) now() time.Time {
	c.at = c.at.Add(time.Millisecond)
	return c.at
}

func newTestRecorder(c *testClock, o Options) *Recorder {
	o.Now, o.Log, o.Store = c.now, slog.New(slog.DiscardHandler), true
	if o.Context == nil {
		o.Context = context.Background()
	}
	r := NewRecorder(o)
	r.skew = 0
	return r
}

// Whatever spans there are, and whenever they are stored, with transactions that are repeated, that overtake each other or whose commit is not noticed: a reader finds
// each span once, as it ended, and before that as it is.
func TestSpansAreKeptOnce(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(200) {
		keptOnce(t, rand.New(rand.NewPCG(seed, 1)))
	}
}

func keptOnce(t *testing.T, r *rand.Rand) {
	t.Helper()
	c := &testClock{time.UnixMicro(1_000_000_000).UTC()}
	row := &run.Run{ID: "r", Graph: "g", Status: run.Running, CreatedAt: c.now(), StartedAt: c.now(), Attempt: 1}
	rec := newTestRecorder(c, Options{Attempt: 1, Began: row.StartedAt, Graph: "g", Policy: Policy{Level: Content}})
	stored, want := table{}, map[string]Span{}
	var open []uint64
	last := uint64(0)
	var late []func()
	for range r.IntN(60) {
		switch r.IntN(6) {
		case 0, 1:
			last++
			parent := uint64(0)
			if len(open) > 0 && r.IntN(2) == 0 {
				parent = open[r.IntN(len(open))]
			}
			b := graph.SpanBegin{ID: last, Parent: parent, Kind: []graph.SpanKind{graph.NodeSpan, graph.ModelSpan, graph.ToolSpan}[r.IntN(3)], Name: fmt.Sprint("n", r.IntN(3)), NS: "ns", Node: "n1", Step: r.IntN(3), At: c.now()}
			if r.IntN(2) == 0 {
				b.Input = &graph.SpanContent{JSON: json.RawMessage([]string{`{"a":1}`, "{\n \"<\u2028\": [1]}", `null`}[r.IntN(3)]), Cut: r.IntN(2) == 0}
			}
			open = append(open, last)
			rec.begin(b)
			want[rec.ident(last)] = Span{ID: rec.ident(last), Parent: rec.ident(parent), Attempt: 1, Kind: b.Kind, Name: b.Name, NS: "ns", Node: "n1", Step: b.Step, Start: b.At, Status: graph.SpanRunning, Input: b.Input}
		case 2:
			if len(open) == 0 {
				continue
			}
			i := r.IntN(len(open))
			e := graph.SpanEnd{ID: open[i], At: c.now(), Status: graph.SpanSuccess}
			if r.IntN(2) == 0 {
				e.Status, e.Error = graph.SpanError, &graph.Failure{Type: "E", Message: "m", Detail: "d"}
			}
			if r.IntN(2) == 0 {
				e.Model, e.Message, e.Usage, e.First = "m", "id", &graph.SpanUsage{Input: 1, Output: 2, Total: 3, Cached: 4}, e.At
				e.Output = &graph.SpanContent{JSON: json.RawMessage(`"x"`)}
			}
			open = slices.Delete(open, i, i+1)
			rec.end(e)
			s := want[rec.ident(e.ID)]
			s.End, s.First, s.Status, s.Error, s.Model, s.Message, s.Usage, s.Output = e.At, e.First, e.Status, e.Error, e.Model, e.Message, e.Usage, e.Output
			want[s.ID] = s
		case 3: // a save
			batch := rec.Batch()
			if r.IntN(2) == 0 {
				require.NoError(t, batch.Put(stored, "r"))
			} else {
				late = append(late, func() { _ = batch.Put(stored, "r") })
				continue
			}
			if r.IntN(3) > 0 { // else the commit is not noticed
				rec.Stored(batch)
			}
		case 4:
			c.at = c.at.Add(time.Minute)
			rec.NoteOpen()
		case 5:
			for _, fn := range late {
				fn()
			}
			late = nil
		}
		got := graphSpans(t, row, stored, rec.Now())
		require.Equal(t, want, got, "while it runs")
	}
	// A transaction may find that a cancel came first.
	status := []graph.SpanStatus{graph.SpanSuccess, graph.SpanCancelled, graph.SpanError}[r.IntN(3)]
	require.NoError(t, rec.Last(status, &graph.Failure{Type: "E", Detail: "d"}).Put(stored, "r", graph.SpanSuccess, nil))
	row.Status, row.EndedAt = run.Success, c.now()
	for ident, s := range want {
		if s.End.IsZero() {
			s.Status = graph.SpanCancelled
			want[ident] = s
		}
	}
	got := graphSpans(t, row, stored, nil)
	for ident, s := range got {
		if want[ident].End.IsZero() {
			s.End = time.Time{}
			got[ident] = s
		}
	}
	require.Equal(t, want, got)
}

// graphSpans are the spans that a graph reported, by ID.
func graphSpans(t *testing.T, row *run.Run, stored table, live []Span) map[string]Span {
	t.Helper()
	list, err := Of(row, stored.bodies(), live)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(list, func(a, b Span) int { return a.Start.Compare(b.Start) }))
	out := map[string]Span{}
	for _, s := range list {
		if s.Kind != graph.QueueSpan && s.Kind != graph.AttemptSpan {
			out[s.ID] = s
		}
	}
	return out
}

func TestAttemptsAndQueue(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0).UTC() }
	shown := func(r *run.Run, bodies ...[]byte) (out []string) {
		list, err := Of(r, bodies, nil)
		require.NoError(t, err)
		for _, s := range list {
			end := "…"
			if !s.End.IsZero() {
				end = fmt.Sprint(s.End.Unix())
			}
			out = append(out, fmt.Sprintf("%s %s %d-%s %s", s.ID, s.Kind, s.Start.Unix(), end, s.Status))
		}
		return out
	}
	body := func(attempt, began int, list ...Span) []byte {
		return encode(attempt, at(began), list)
	}
	require.Equal(t, []string{"q1 queue 1-… running"}, shown(&run.Run{Status: run.Pending, CreatedAt: at(1)}))
	require.Equal(t, []string{"q1 queue 1-4 cancelled"}, shown(&run.Run{Status: run.Interrupted, CreatedAt: at(1), EndedAt: at(4)}))
	require.Equal(t, []string{"q1 queue 1-2 success", "1 attempt 2-5 error"},
		shown(&run.Run{Status: run.Timeout, Attempt: 1, CreatedAt: at(1), StartedAt: at(2), EndedAt: at(5)}), "not recorded")
	open := Span{ID: "1.1", Parent: "1", Attempt: 1, Kind: graph.NodeSpan, Name: "n", Start: at(3), Status: graph.SpanRunning}
	require.Equal(t, []string{"q1 queue 1-2 success", "1 attempt 2-… running", "1.1 node 3-… running"},
		shown(&run.Run{Status: run.Running, Attempt: 1, CreatedAt: at(1), StartedAt: at(2)}, body(1, 2, open)), "as another server sees it")
	// Its server died, and the next one continues.
	require.Equal(t, []string{"q1 queue 1-2 success", "1 attempt 2-3 lost", "1.1 node 3-3 lost", "2 attempt 9-… running"},
		shown(&run.Run{Status: run.Running, Attempt: 2, CreatedAt: at(1), StartedAt: at(2)}, body(1, 2, open), body(2, 9)))
	// Its worker died, so the attempt has an end, and the run waits again.
	ended := Span{ID: "1", Attempt: 1, Kind: graph.AttemptSpan, Name: "g", Start: at(2), End: at(4), Status: graph.SpanLost}
	require.Equal(t, []string{"q1 queue 1-2 success", "1 attempt 2-4 lost", "q2 queue 4-… running"},
		shown(&run.Run{Status: run.Pending, Attempt: 1, CreatedAt: at(1), StartedAt: at(2)}, body(1, 2, ended)))
	_, err := Of(&run.Run{}, [][]byte{[]byte("{")}, nil)
	require.Error(t, err)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	c := &testClock{time.Unix(1000, 0).UTC()}
	rec := newTestRecorder(c, Options{Attempt: 1, Policy: Policy{Level: Content}})
	big := &graph.SpanContent{JSON: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
	for n := range uint64(maxSpans + 10) {
		b := graph.SpanBegin{ID: n + 1, Kind: graph.ToolSpan, Name: "t", At: c.now()}
		if n < 20 {
			b.Input = big
		}
		rec.begin(b)
		rec.end(graph.SpanEnd{ID: n + 1, At: c.now(), Status: graph.SpanSuccess})
	}
	rec.Saved(c.now(), 1, nil)
	stored := table{}
	require.NoError(t, rec.Last(graph.SpanSuccess, nil).Put(stored, "r", graph.SpanSuccess, nil))
	list, err := Of(&run.Run{Status: run.Success, Attempt: 1}, stored.bodies(), nil)
	require.NoError(t, err)
	require.Len(t, list, maxSpans+1)
	bytes := 0
	for _, s := range list {
		if s.Kind == graph.AttemptSpan {
			require.Equal(t, 11, s.Dropped)
		}
		if s.Input != nil {
			bytes += len(s.Input.JSON)
		}
	}
	require.LessOrEqual(t, bytes, maxContent+100)
}

func TestLevels(t *testing.T) {
	t.Parallel()
	now := time.Now
	require.Nil(t, NewRecorder(Options{Policy: Policy{Level: Off}, Store: true, Now: now}))
	require.Nil(t, NewRecorder(Options{Policy: Policy{Level: Content}, Now: now}), "a temporary run, not exported")
	var none *Recorder
	require.Nil(t, none.Tracing())
	none.NoteOpen()
	require.NoError(t, none.Batch().Put(nil, "r"))
	require.NoError(t, none.Last(graph.SpanSuccess, nil).Put(nil, "r", graph.SpanSuccess, nil))
	none.Saved(time.Time{}, 1, nil)
	none.Close(graph.SpanSuccess)
	require.Empty(t, none.Now())
	require.Equal(t, 0, NewRecorder(Options{Policy: Policy{Level: Timings}, Store: true, Now: now}).Tracing().Content)
	require.Equal(t, DefaultBytes, NewRecorder(Options{Policy: Policy{Level: Content}, Store: true, Now: now}).Tracing().Content)
}

// Exported spans have the parents that the graph reported, and content only when it is wanted.
func TestExport(t *testing.T) {
	t.Parallel()
	for _, level := range []Level{Off, Timings, Content} {
		seen := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test")
		ctx, attempt := tracer.Start(t.Context(), "run g")
		c := &testClock{time.Unix(1000, 0).UTC()}
		rec := newTestRecorder(c, Options{Attempt: 1, Policy: Policy{Level: level}, Tracer: tracer, Context: ctx, Thread: "t", User: "ada", Graph: "g", Input: json.RawMessage(`{"messages":"secret input"}`)})
		begin := func(n, parent uint64, kind graph.SpanKind, name, input string) {
			rec.begin(graph.SpanBegin{ID: n, Parent: parent, Kind: kind, Name: name, Node: "agent", At: c.now(), Provider: "p", Input: &graph.SpanContent{JSON: json.RawMessage(input)}})
		}
		begin(1, 0, graph.NodeSpan, "agent", `{}`)
		begin(2, 1, graph.ModelSpan, "m", `[{"type":"human","content":"secret question"},{"type":"tool","content":"secret result","tool_call_id":"c"}]`)
		rec.end(graph.SpanEnd{
			ID: 2, At: c.now(), First: c.now(), Status: graph.SpanSuccess, Model: "m-1", Usage: &graph.SpanUsage{Input: 5, Output: 6, Total: 11, Cached: 4},
			Output: &graph.SpanContent{JSON: json.RawMessage(`{"type":"ai","content":[{"type":"text","text":"secret answer"}],"tool_calls":[{"name":"f","args":{"x":1},"id":"c"}]}`)},
		})
		begin(3, 1, graph.ToolSpan, "f", `{"x":"secret"}`)
		rec.end(graph.SpanEnd{ID: 3, At: c.now(), Status: graph.SpanError, Error: &graph.Failure{Type: "ValueError"}})
		rec.end(graph.SpanEnd{ID: 1, At: c.now(), Status: graph.SpanSuccess, Output: &graph.SpanContent{JSON: json.RawMessage(`{"messages":["secret output"]}`)}})
		rec.Close(graph.SpanLost)
		attempt.End()
		byName, parents := map[string]sdk.ReadOnlySpan{}, map[string]string{}
		for _, s := range seen.Ended() {
			byName[s.Name()] = s
			parents[s.SpanContext().SpanID().String()] = s.Name()
		}
		require.Len(t, byName, 4)
		for name, parent := range map[string]string{"node agent": "run g", "chat m": "node agent", "execute_tool f": "node agent"} {
			require.Equal(t, parent, parents[byName[name].Parent().SpanID().String()], name)
		}
		attributes := func(name string) map[string]string {
			out := map[string]string{}
			for _, a := range byName[name].Attributes() {
				out[string(a.Key)] = a.Value.String()
			}
			return out
		}
		model := attributes("chat m")
		for key, want := range map[string]string{
			"operation.name": "chat", "response.model": "m-1", "usage.input_tokens": "5", "usage.output_tokens": "6", "usage.cache_read.input_tokens": "4",
			"provider.name": "p", "conversation.id": "t",
		} {
			require.Equal(t, want, model["gen_ai."+key], key)
		}
		// What Phoenix and Langfuse read: the conversation and the user of each span, what it is, tokens, and of a turn what was said and answered.
		turn := attributes("run g")
		for key, want := range map[string]string{"openinference.span.kind": "AGENT", "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "g", "gen_ai.conversation.id": "t"} {
			require.Equal(t, want, turn[key], key)
		}
		for name, kind := range map[string]string{"run g": "AGENT", "node agent": "CHAIN", "chat m": "LLM", "execute_tool f": "TOOL"} {
			require.Equal(t, []string{"t", "ada", kind}, []string{attributes(name)["session.id"], attributes(name)["user.id"], attributes(name)["openinference.span.kind"]}, name)
		}
		for key, want := range map[string]string{"model_name": "m-1", "provider": "p", "token_count.prompt": "5", "token_count.completion": "6", "token_count.total": "11"} {
			require.Equal(t, want, model["llm."+key], key)
		}
		require.Equal(t, "ValueError", attributes("execute_tool f")["error.type"])
		all := fmt.Sprint(turn, model, attributes("execute_tool f"), attributes("node agent"))
		require.Equal(t, level == Content, strings.Contains(all, "secret"), "%s: %s", level, all)
		if level == Content {
			require.JSONEq(t, `[{"role":"user","parts":[{"type":"text","content":"secret question"}]},{"role":"tool","parts":[{"type":"tool_call_response","id":"c","response":"secret result"}]}]`,
				model["gen_ai.input.messages"])
			require.Equal(t, []string{`{"messages":"secret input"}`, `{"messages":["secret output"]}`}, []string{turn["input.value"], turn["output.value"]})
			for key, want := range map[string]string{
				"input_messages.0.message.role": "user", "input_messages.0.message.content": "secret question", "input_messages.1.message.role": "tool",
				"input_messages.1.message.content": "secret result", "input_messages.1.message.tool_call_id": "c", "output_messages.0.message.content": "secret answer",
				"output_messages.0.message.tool_calls.0.tool_call.function.name": "f", "output_messages.0.message.tool_calls.0.tool_call.function.arguments": `{"x":1}`,
			} {
				require.Equal(t, want, model["llm."+key], key)
			}
			require.JSONEq(t, `[{"role":"assistant","parts":[{"type":"text","content":"secret answer"},{"type":"tool_call","id":"c","name":"f","arguments":{"x":1}}]}]`, model["gen_ai.output.messages"])
		}
	}
}

// However long a conversation is and however many tools are called, no attribute is lost: a span has 128 at most.
func TestExportOfLongConversations(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test")
	ctx, attempt := tracer.Start(t.Context(), "run g")
	c := &testClock{time.Unix(1000, 0).UTC()}
	long := strings.Repeat("é", DefaultBytes)
	rec := newTestRecorder(c, Options{Attempt: 1, Policy: Policy{Level: Content}, Tracer: tracer, Context: ctx, Thread: "t", User: "u", Input: json.RawMessage(`"` + long + `"`)})
	calls := strings.Repeat(`{"name":"f","args":{},"id":"c"},`, 100) + `{"name":"f","args":{},"id":"c"}`
	answer := `{"type":"ai","content":"a","tool_calls":[` + calls + `]}`
	result := `{"type":"tool","content":"r","tool_call_id":"c"}`
	input := "[" + strings.Repeat(answer+","+strings.Repeat(result+",", 100), 3) + answer + "]"
	rec.begin(graph.SpanBegin{ID: 1, Kind: graph.ModelSpan, Name: "m", Provider: "p", Node: "n", NS: "n:1", At: c.now(), Input: &graph.SpanContent{JSON: json.RawMessage(input)}})
	rec.end(graph.SpanEnd{
		ID: 1, At: c.now(), Status: graph.SpanError, Model: "m", Message: "id", Usage: &graph.SpanUsage{Input: 1}, Error: &graph.Failure{Type: "E"},
		Output: &graph.SpanContent{JSON: json.RawMessage(answer)},
	})
	rec.Close(graph.SpanSuccess)
	attempt.End()
	for _, s := range seen.Ended() {
		require.Zero(t, s.DroppedAttributes(), s.Name())
		require.LessOrEqual(t, len(s.Attributes()), 128, s.Name())
		for _, a := range s.Attributes() {
			if s.Name() == "run g" && a.Key == "input.value" {
				require.Equal(t, `"`+long[:DefaultBytes-2], a.Value.AsString())
			}
		}
	}
}

// What a worker sends may not be JSON. It must not keep the others from being read.
func TestContentThatIsNoJSON(t *testing.T) {
	t.Parallel()
	c := &testClock{time.Unix(1000, 0).UTC()}
	rec := newTestRecorder(c, Options{Attempt: 1, Policy: Policy{Level: Content}})
	for i, content := range []string{``, `{`, `NaN`, `1,2`, `{"a":1}`} {
		rec.begin(graph.SpanBegin{ID: uint64(i + 1), Kind: graph.ToolSpan, Name: "t", At: c.now(), Input: &graph.SpanContent{JSON: json.RawMessage(content)}})
	}
	stored := table{}
	require.NoError(t, rec.Last(graph.SpanSuccess, nil).Put(stored, "r", graph.SpanSuccess, nil))
	list, err := Of(&run.Run{Status: run.Success, Attempt: 1}, stored.bodies(), nil)
	require.NoError(t, err)
	var got []string
	for _, s := range list {
		if s.Input != nil {
			got = append(got, fmt.Sprint(string(s.Input.JSON), " ", s.Input.Cut))
		}
	}
	require.Equal(t, []string{"null true", "null true", "null true", "null true", `{"a":1} false`}, got)
}

// BenchmarkLast encodes the spans of a run: without content, and with as much as is kept.
func BenchmarkLast(b *testing.B) {
	for name, content := range map[string]int{"1000 timings": 0, "2000 of 8 KB": 8 << 10} {
		b.Run(name, func(b *testing.B) {
			c := &testClock{time.Unix(1000, 0).UTC()}
			rec := newTestRecorder(c, Options{Attempt: 1, Policy: Policy{Level: Content}})
			text := json.RawMessage(`"` + strings.Repeat("some words ", content/11) + `"`)
			for n := range uint64(1000) {
				begin := graph.SpanBegin{ID: n + 1, Kind: graph.ModelSpan, Name: "model", NS: "agent:1", Node: "agent", At: c.now()}
				end := graph.SpanEnd{ID: n + 1, At: c.now(), Status: graph.SpanSuccess}
				if content > 0 {
					begin.Input, end.Output = &graph.SpanContent{JSON: text}, &graph.SpanContent{JSON: text}
				}
				rec.begin(begin)
				rec.end(end)
			}
			last := rec.Last(graph.SpanSuccess, nil)
			for _, in := range []string{"before", "within"} {
				b.Run(in+" the transaction", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if in == "before" {
							rec.Last(graph.SpanSuccess, nil)
						} else {
							_ = last.Put(table{}, "r", graph.SpanCancelled, nil)
						}
					}
				})
			}
		})
	}
}

// Traces in Langfuse have the names and tags that DeerFlow gives them: the agent, the deployment and the model. What the client says of a run wins, and nothing else of what it
// says is sent.
func TestLangfuse(t *testing.T) {
	t.Parallel()
	const named = `{"langfuse_trace_name":"mine","langfuse_tags":["a","b"],"langfuse_session_id":"s","langfuse_user_id":"u","other":"secret"}`
	for _, tt := range []struct {
		environment, asked, config, metadata string
		want                                 map[string]string
	}{
		{"", ``, ``, ``, map[string]string{"trace.name": "g"}},
		{"prod", `{"model_name":"m","agent_name":"cook"}`, `{"configurable":{"model_name":"other"}}`, `{"other":"secret"}`, map[string]string{"trace.name": "cook", "trace.tags": `["env:prod","model:m"]`}},
		{"", `{}`, `{"configurable":{"model_name":"m","agent_name":"cook"}}`, `{"langfuse_tags":"no list"}`, map[string]string{"trace.name": "cook", "trace.tags": `["model:m"]`}},
		{"prod", `{"model_name":"m"}`, ``, named, map[string]string{"trace.name": "mine", "trace.tags": `["a","b"]`, "session.id": "s", "user.id": "u"}},
		{"prod", ``, ``, `{"langfuse_tags":[]}`, map[string]string{"trace.name": "g"}},
		{
			"", `{"agent_name":{"k":"secret"},"model_name":["secret"]}`, ``, `{"langfuse_trace_name":{"k":"secret"},"langfuse_tags":[{"k":"secret"},"a"]}`,
			map[string]string{"trace.name": "g", "trace.tags": `["a"]`},
		},
		{"", `{"agent_name":"` + strings.Repeat("x", 300) + `"}`, ``, ``, map[string]string{"trace.name": strings.Repeat("x", maxLabel)}},
	} {
		for _, langfuse := range []*Langfuse{nil, {Environment: tt.environment}} {
			exported := tracetest.NewSpanRecorder()
			tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(exported)).Tracer("")
			ctx, span := tracer.Start(t.Context(), "run g")
			r := NewRecorder(Options{
				Graph: "g", Now: time.Now, Log: slog.New(slog.DiscardHandler), Tracer: tracer, Context: ctx, Policy: Policy{Langfuse: langfuse},
				Asked: json.RawMessage(tt.asked), Config: json.RawMessage(tt.config), Metadata: json.RawMessage(tt.metadata),
			})
			require.NotNil(t, r)
			span.End()
			got := map[string]string{}
			for _, a := range exported.Ended()[0].Attributes() {
				require.NotContains(t, a.Value.String(), "secret")
				if key, ok := strings.CutPrefix(string(a.Key), "langfuse."); ok {
					got[key] = a.Value.String()
				}
			}
			if langfuse == nil {
				require.Empty(t, got)
			} else {
				require.Equal(t, tt.want, got)
			}
		}
	}
}
