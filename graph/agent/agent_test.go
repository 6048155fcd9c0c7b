package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

func TestLoop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, ask string
		want      string
	}{
		{"no tool", "say 2", "human: say 2\nai: w0 w1"},
		{"a tool", `call search {"q": "x"}`, `human: call search {"q": "x"}` + "\nai:  [search{\"q\":\"x\"}]\ntool: Found 10 results for x\nai: tool said: Found 10 results for x"},
		{"two calls", "twice", "human: twice\nai:  [search{\"q\":\"a\"}] [search{\"q\":\"b\"}]\ntool: Found 10 results for a\ntool: Found 10 results for b\nai: tool said: Found 10 results for b"},
		{"arguments missing", `call search {}`, "human: call search {}\nai:  [search{}]\ntool: Error invoking tool 'search' with kwargs {} with error:\n q: Field required\n Please fix the error and try again. (error)\n" +
			"ai: tool said: Error invoking tool 'search' with kwargs {} with error:\n q: Field required\n Please fix the error and try again."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, agent.Options{Tools: []agent.Tool{search}})
			if diff := cmp.Diff(tt.want, talk(w.ask(tt.ask))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The chunks of a model's answer, as LangChain's look on the wire.
func TestMessageStream(t *testing.T) {
	t.Parallel()
	w := setup(t, agent.Options{Tools: []agent.Tool{search}, Prompt: "Be brief."})
	events, err := w.stream(w.invocation(says(`call search {"q": "x"}`), "messages-tuple"))
	require.NoError(t, err)
	ids := map[string]string{}
	var got []string
	for _, e := range events {
		require.Equal(t, "messages", e.Name)
		pair := gjson.ParseBytes(e.Data).Array()
		m, meta := pair[0], pair[1]
		id := m.Get("id").Str
		if _, known := ids[id]; !known {
			ids[id] = fmt.Sprintf("<%d>", len(ids))
		}
		require.Equal(t, "agent", meta.Get("lc_agent_name").Str)
		got = append(got, meta.Get("langgraph_node").Str+" "+meta.Get("ls_integration").Str+" "+strings.ReplaceAll(m.Raw, id, ids[id]))
	}
	chunk := func(id, content, rest string) string {
		return fmt.Sprintf(`model langchain_chat_model {"content":%q,"additional_kwargs":{},"response_metadata":{},"type":"AIMessageChunk","name":null,"id":%q,%s`, content, id, rest)
	}
	const plain = `"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[],"chunk_position":null}`
	const last = `"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[],"chunk_position":"last"}`
	counted := func(id, reason string, in, out int) string {
		return strings.Replace(chunk(id, "", fmt.Sprintf(`"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d},"tool_call_chunks":[],"chunk_position":null}`, in, out, in+out)),
			`"response_metadata":{}`, fmt.Sprintf(`"response_metadata":{"finish_reason":%q,"model_name":"fake","model_provider":"scripted"}`, reason), 1)
	}
	want := []string{
		chunk("<0>", "", `"tool_calls":[{"name":"search","args":{"q":"x"},"id":"call_1","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null,`+
			`"tool_call_chunks":[{"name":"search","args":"{\"q\": \"x\"}","id":"call_1","index":0,"type":"tool_call_chunk"}],"chunk_position":null}`),
		counted("<0>", "tool_calls", 2, 1), chunk("<0>", "", last),
		`tools langchain_create_agent {"content":"Found 10 results for x","additional_kwargs":{},"response_metadata":{},"type":"tool","name":"search","id":"<1>","tool_call_id":"call_1","artifact":null,"status":"success"}`,
	}
	for i, word := range strings.Split("tool said: Found 10 results for x", " ") {
		if i > 0 {
			word = " " + word
		}
		want = append(want, chunk("<2>", word, plain))
	}
	want = append(want, counted("<2>", "stop", 4, 7), chunk("<2>", "", last))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for id, name := range ids {
		if name != "<1>" {
			require.Regexp(t, `^lc_run--[0-9a-f-]{36}$`, id)
		}
	}
}

func TestToolResults(t *testing.T) {
	t.Parallel()
	type args struct {
		Tool string `json:"tool"`
		Args string `json:"args"`
	}
	results := map[string]func(ctx context.Context) (any, error){
		"text":    func(context.Context) (any, error) { return "hi", nil },
		"object":  func(context.Context) (any, error) { return map[string]any{"a": []int{1, 2}, "b": "<ü>"}, nil },
		"nothing": func(context.Context) (any, error) { return nil, nil },
		"message": func(context.Context) (any, error) {
			return message.Message{Content: message.Text("mine"), Status: "error"}, nil
		},
		"failure":  func(context.Context) (any, error) { return nil, pregel.Errorf("ValueError", "it's %s", "broken") },
		"plain":    func(context.Context) (any, error) { return nil, errors.New("broken") },
		"panic":    func(context.Context) (any, error) { panic("no") },
		"bad":      func(context.Context) (any, error) { return func() {}, nil },
		"state":    func(ctx context.Context) (any, error) { return len(agent.Messages(agent.StateOf(ctx))), nil },
		"call":     func(ctx context.Context) (any, error) { return agent.CallOf(ctx).ID, nil },
		"silent":   func(context.Context) (any, error) { return &pregel.Command{Update: pregel.Values{"note": "x"}}, nil },
		"emitting": func(ctx context.Context) (any, error) { return "ok", pregel.Emit(ctx, map[string]int{"half": 50}) },
		"command": func(ctx context.Context) (any, error) {
			answer := message.Tool("noted", agent.CallOf(ctx).ID)
			return &pregel.Command{Update: pregel.Values{"note": "kept", "messages": []message.Message{answer}}}, nil
		},
		"list": func(ctx context.Context) (any, error) {
			return []any{&pregel.Command{Update: pregel.Values{"note": "both"}}, message.Tool("and this", agent.CallOf(ctx).ID)}, nil
		},
	}
	anything := agent.MustTool("any", "Does it.", func(ctx context.Context, a args) (any, error) { return results[a.Tool](ctx) })
	tests := []struct{ tool, want, note string }{
		{"text", "tool: hi", ""},
		{"object", `tool: {"a": [1, 2], "b": "<ü>"}`, ""},
		{"nothing", "tool: null", ""},
		{"message", "tool: mine (error)", ""},
		{"failure", `tool: Error: ValueError("it's broken")` + "\n Please fix your mistakes. (error)", ""},
		{"plain", "tool: Error: RuntimeError('broken')\n Please fix your mistakes. (error)", ""},
		{"panic", "tool: Error: RuntimeError('tool any panicked: no')\n Please fix your mistakes. (error)", ""},
		{"bad", "tool: Error: RuntimeError('tool any: its result: json: unsupported type: func()')\n Please fix your mistakes. (error)", ""},
		{"state", "tool: 2", ""},
		{"call", "tool: call_1", ""},
		{"silent", "tool: Error: ValueError(\"Expected to have a matching ToolMessage in Command.update for tool 'any', got none for call call_1\")\n Please fix your mistakes. (error)", ""},
		{"emitting", "tool: ok", ""},
		{"command", "tool: noted", "kept"},
		{"list", "tool: and this", "both"},
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			w := setup(t, agent.Options{Tools: []agent.Tool{anything}, State: map[string]pregel.Channel{"note": pregel.LastValue()}})
			state := w.ask("use " + tt.tool)
			lines := strings.Split(talk(state), "\nai: ")
			_, got, _ := strings.Cut(lines[1], "\n")
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.note, state.Get("note").String())
		})
	}
	t.Run("errors that fail the run", func(t *testing.T) {
		t.Parallel()
		w := setup(t, agent.Options{Tools: []agent.Tool{anything}, FailOnToolError: true})
		_, err := w.stream(w.invocation(says("use failure"), "values"))
		require.ErrorContains(t, err, "it's broken")
	})
	t.Run("custom events", func(t *testing.T) {
		t.Parallel()
		w := setup(t, agent.Options{Tools: []agent.Tool{anything}})
		events, err := w.stream(w.invocation(says("use emitting"), "custom"))
		require.NoError(t, err)
		require.Len(t, events, 1)
		require.JSONEq(t, `{"half":50}`, string(events[0].Data))
	})
}

func TestUnknownTool(t *testing.T) {
	t.Parallel()
	// A model may make up tools; this one does although it was never offered.
	made := model(t, `[{"from":"tool","when":"(?s)(.*)","content":"$1"},{"tool_calls":[{"id":"c","name":"search"}]}]`)
	other := agent.MustTool("lookup", "", func(context.Context, struct{}) (any, error) { return "", nil })
	w := setup(t, agent.Options{Model: made, Tools: []agent.Tool{other, search}, Middleware: []agent.Middleware{{
		Name: "renamed", WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			out, err := next(ctx, r)
			for i := range out.Messages[0].ToolCalls {
				out.Messages[0].ToolCalls[i].Name = "find"
			}
			return out, err
		},
	}}})
	require.Contains(t, talk(w.ask("x")), "tool: Error: find is not a valid tool, try one of [lookup, search]. (error)")
}

func TestDirectTool(t *testing.T) {
	t.Parallel()
	direct := search
	direct.Direct = true
	w := setup(t, agent.Options{Tools: []agent.Tool{direct}})
	require.True(t, strings.HasSuffix(talk(w.ask(`call search {"q": "x"}`)), "\ntool: Found 10 results for x"))
}

// Hooks run in LangChain's order, in nodes with its names.
func TestHooks(t *testing.T) {
	t.Parallel()
	hook := func() agent.Hook {
		return agent.Hook{Run: func(context.Context, pregel.Values) (any, error) { return nil, nil }}
	}
	var wraps []string
	made := func(name string) agent.Middleware {
		return agent.Middleware{
			Name: name, BeforeAgent: hook(), BeforeModel: hook(), AfterModel: hook(), AfterAgent: hook(),
			WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
				wraps = append(wraps, name+" model")
				return next(ctx, r)
			},
			WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
				wraps = append(wraps, name+" tool")
				return next(ctx, r)
			},
		}
	}
	w := setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{made("A"), made("B")}})
	events, err := w.stream(w.invocation(says(`call search {"q": "x"}`), "updates"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"A.before_agent", "B.before_agent",
		"A.before_model", "B.before_model", "model", "B.after_model", "A.after_model", "tools",
		"A.before_model", "B.before_model", "model", "B.after_model", "A.after_model",
		"B.after_agent", "A.after_agent",
	}, nodes(events))
	require.Equal(t, []string{"A model", "B model", "A tool", "B tool", "A model", "B model"}, wraps)
}

func TestJumps(t *testing.T) {
	t.Parallel()
	end := agent.Middleware{Name: "M", BeforeModel: agent.Hook{CanJump: []string{agent.JumpEnd}, Run: func(context.Context, pregel.Values) (any, error) {
		return pregel.Values{agent.JumpTo: agent.JumpEnd, "messages": []message.Message{message.AI("no")}}, nil
	}}}
	w := setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{end}})
	require.Equal(t, "human: x\nai: no", talk(w.ask("x")))

	again := agent.Middleware{Name: "M", AfterModel: agent.Hook{CanJump: []string{agent.JumpModel}, Run: func(_ context.Context, s pregel.Values) (any, error) {
		if len(agent.Messages(s)) > 2 {
			return nil, nil
		}
		return pregel.Values{agent.JumpTo: agent.JumpModel}, nil
	}}}
	w = setup(t, agent.Options{Middleware: []agent.Middleware{again}})
	require.Equal(t, "human: say 1\nai: w0\nai: w0 w1 w2", talk(w.ask("say 1")))
}

func TestStructuredOutput(t *testing.T) {
	t.Parallel()
	type weather struct {
		City    string  `json:"city"`
		Degrees float64 `json:"degrees"`
	}
	format, err := agent.FormatOf[weather]("Weather", "What it is like.")
	require.NoError(t, err)
	script := `[{"when":"^good","tool_calls":[{"id":"c1","name":"Weather","args":{"city":"Rome","degrees":20.5}}]},
		{"when":"^twice","tool_calls":[{"id":"c1","name":"Weather","args":{"city":"Rome","degrees":1}},{"id":"c2","name":"Weather","args":{"city":"Bonn","degrees":1}}]},
		{"when":"^bad","tool_calls":[{"id":"c1","name":"Weather","args":{"city":"Rome"}}]},
		{"from":"tool","tool_calls":[{"id":"c3","name":"Weather","args":{"city":"Rome","degrees":3}}]}]`
	for _, tools := range [][]agent.Tool{nil, {search}} {
		o := agent.Options{Model: model(t, script), ResponseFormat: format, Tools: tools}
		w := setup(t, o)
		state := w.ask("good")
		require.JSONEq(t, `{"city":"Rome","degrees":20.5}`, state.Get("structured_response").Raw)
		require.Equal(t, "human: good\nai:  [Weather{\"city\":\"Rome\",\"degrees\":20.5}]\ntool: Returning structured response: {'city': 'Rome', 'degrees': 20.5}", talk(state))
		state = setup(t, o).ask("bad")
		require.JSONEq(t, `{"city":"Rome","degrees":3}`, state.Get("structured_response").Raw)
		require.Contains(t, talk(state), "tool: Error: Failed to parse structured output for tool 'Weather': degrees: Field required.\n Please fix your mistakes.")
		require.Contains(t, talk(setup(t, o).ask("twice")), "Model incorrectly returned multiple structured responses (Weather, Weather) when only one is expected.")
	}
	strict := *format
	strict.Strict = true
	w := setup(t, agent.Options{Model: model(t, script), ResponseFormat: &strict})
	_, err = w.stream(w.invocation(says("bad"), "values"))
	require.ErrorContains(t, err, "StructuredOutputValidationError")
}

func TestBuiltIns(t *testing.T) {
	t.Parallel()
	run := func(w *world, name, args string) (string, error) {
		tool, ok := agent.BuiltIn(name)
		require.True(t, ok)
		m, err := agent.New(agent.Options{Tools: []agent.Tool{tool}, Model: model(t, fmt.Sprintf(`[{"from":"tool","when":"(?s)(.*)","content":"$1"},{"tool_calls":[{"name":%q,"args":%s}]}]`, name, args))})
		require.NoError(t, err)
		w.agent, w.saves = m, &memory{}
		state := w.ask("go")
		return state.Get("messages.2.content").Str, nil
	}
	w := setup(t, agent.Options{})
	for expression, want := range map[string]string{
		"(3 + 4) * 6": "42", "1/3": "0.333333333333", "0.1+0.2": "0.3", "7 % 4": "3", "-2*-3": "6", "1,000 × 2": "2000", "2/4": "0.5",
		"123456789012345678901234567890 + 1": "123456789012345678901234567891",
	} {
		got, err := run(w, "calculator", fmt.Sprintf(`{"expression":%q}`, expression))
		require.NoError(t, err)
		require.Equal(t, want, got, expression)
	}
	for _, bad := range []string{"1/0", "1 % 0", "1e999999999", "os.Exit(1)", "1 +", "2 << 3", "0x1p99999", `"a"`, strings.Repeat("1+", 600) + "1"} {
		got, err := run(w, "calculator", fmt.Sprintf(`{"expression":%q}`, bad))
		require.NoError(t, err)
		require.Contains(t, got, "Please fix your mistakes", bad)
	}
	got, _ := run(w, "current_time", `{"timezone":"Europe/Berlin"}`)
	require.Regexp(t, `^\w+, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0[12]:00 CES?T$`, got)
	got, _ = run(w, "current_time", `{"timezone":"Moon"}`)
	require.Contains(t, got, `no time zone "Moon"`)
	got, _ = run(w, "recall", `{}`)
	require.Equal(t, "Nothing is remembered yet.", got)
	got, _ = run(w, "remember", `{"key":"name","fact":"Called Ada."}`)
	require.Equal(t, "Remembered.", got)
	require.Equal(t, []string{"memories", "me"}, w.store.space)
	got, _ = run(w, "recall", `{}`)
	require.Equal(t, "name: Called Ada.", got)
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	m := model(t, `[{}]`)
	ok := func(context.Context, message.ToolCall) (any, error) { return nil, nil }
	for want, o := range map[string]agent.Options{
		"Model is required":                                 {},
		"tool x has no function":                            {Model: m, Tools: []agent.Tool{{Name: "x"}}},
		`two tools are named "x"`:                           {Model: m, Tools: []agent.Tool{{Name: "x", Run: ok}, {Name: "x", Run: ok}}},
		"tool x: its schema":                                {Model: m, Tools: []agent.Tool{{Name: "x", Run: ok, Schema: json.RawMessage(`{"type":3}`)}}},
		`every middleware needs a name of its own`:          {Model: m, Middleware: []agent.Middleware{{Name: "a"}, {Name: "a"}}},
		"the response format needs a name":                  {Model: m, ResponseFormat: &agent.ResponseFormat{}},
		`a tool and the response format are both named "x"`: {Model: m, Tools: []agent.Tool{{Name: "x", Run: ok}}, ResponseFormat: &agent.ResponseFormat{Name: "x", Schema: json.RawMessage(`{}`)}},
	} {
		_, err := agent.New(o)
		require.ErrorContains(t, err, want)
	}
	_, err := agent.NewTool("x", "", func(context.Context, string) (any, error) { return nil, nil })
	require.ErrorContains(t, err, "have to be a struct")
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	w := setup(t, agent.Options{Tools: []agent.Tool{search}})
	raw, err := w.agent.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	require.NoError(t, err)
	s := gjson.ParseBytes(raw)
	require.Equal(t, `["messages"]`, s.Get("input_schema.required").Raw)
	require.Equal(t, []string{"messages"}, keysOf(s.Get("input_schema.properties")))
	require.Equal(t, []string{"messages", "structured_response"}, keysOf(s.Get("output_schema.properties")))
	raw, err = w.agent.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "graph"})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"__start__", "model", "tools", "__end__"}, strings.Fields(strings.NewReplacer(`[`, " ", `]`, " ", `"`, " ", ",", " ").Replace(gjson.GetBytes(raw, "nodes.#.id").Raw)))
}

func keysOf(object gjson.Result) (keys []string) {
	object.ForEach(func(k, _ gjson.Result) bool { keys = append(keys, k.Str); return true })
	return keys
}

// Calls of one answer run at the same time: each of these waits for the other.
func TestParallelCalls(t *testing.T) {
	t.Parallel()
	var met sync.WaitGroup
	met.Add(2)
	meet := agent.MustTool("search", "", func(ctx context.Context, a searchArgs) (any, error) {
		met.Done()
		met.Wait()
		return "met " + a.Q, nil
	})
	w := setup(t, agent.Options{Tools: []agent.Tool{meet}})
	require.Contains(t, talk(w.ask("twice")), "tool: met a\ntool: met b")
}

// A tool may ask a person. It begins again when the answer is there.
func TestInterruptInATool(t *testing.T) {
	t.Parallel()
	asking := agent.MustTool("search", "", func(ctx context.Context, a searchArgs) (any, error) {
		answer, err := pregel.Interrupt[string](ctx, "really "+a.Q+"?")
		if err != nil {
			return nil, err
		}
		return "said " + answer, nil
	})
	w := setup(t, agent.Options{Tools: []agent.Tool{asking}})
	events, err := w.stream(w.invocation(says(`call search {"q": "x"}`), "updates"))
	require.NoError(t, err)
	require.Equal(t, "really x?", gjson.GetBytes(events[len(events)-1].Data, "__interrupt__.0.value").Str)
	require.Contains(t, talk(w.last(w.resume(`"yes"`, "values"))), "tool: said yes\nai: tool said: said yes")
}

// A run that is cancelled in the middle of an answer ends at once, with the cause.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := setup(t, agent.Options{Model: model(t, `{"delay": "1h", "answers": [{"words": "1000"}]}`)})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gone := errors.New("gone")
	go cancel(gone)
	var end error
	for _, err := range w.agent.Stream(ctx, w.invocation(says("x"), "messages-tuple")) {
		end = err
	}
	require.ErrorIs(t, end, gone)
}

// What goes wrong with a model fails the run, and what came before stays.
func TestModelFails(t *testing.T) {
	t.Parallel()
	w := setup(t, agent.Options{Model: model(t, `[{"when": "fail", "content": "I", "error": "out of order"}, {"content": "well"}]`)})
	w.ask("hello")
	_, err := w.stream(w.invocation(says("fail"), "values", "messages-tuple"))
	require.Error(t, err)
	require.Equal(t, "human: hello\nai: well\nhuman: fail\nhuman: again\nai: well", talk(w.ask("again")))
}
