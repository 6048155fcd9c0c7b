package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/llm"
	"understudy/graph/agent/scripted"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

func must(m agent.Middleware, err error) agent.Middleware {
	if err != nil {
		panic(err)
	}
	return m
}

func condensing(t *testing.T, o agent.SummarizationOptions) *world {
	t.Helper()
	if o.Model.LLM == nil {
		o.Model = model(t, `[{"when":"(?s)<messages>(.*)</messages>","content":"about$1"}]`)
	}
	return setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{must(agent.Summarization(o))}})
}

func TestSummarization(t *testing.T) {
	t.Parallel()
	w := condensing(t, agent.SummarizationOptions{Trigger: []agent.Size{{Messages: 6}}, Keep: agent.Size{Messages: 2}})
	for i := range 2 {
		w.ask(fmt.Sprintf("say %d", i+1))
	}
	events, err := w.stream(w.invocation(says("say 3"), "custom", "updates", "values"))
	require.NoError(t, err)
	require.NotContains(t, nodes(events), "", "five messages are too few")
	require.Equal(t, "human: say 1\nai: w0\nhuman: say 2\nai: w0 w1\nhuman: say 3\nai: w0 w1 w2", talk(gjson.ParseBytes(lastOf(events, "values"))))

	events, err = w.stream(w.invocation(says("say 4"), "custom", "updates", "values", "messages-tuple"))
	require.NoError(t, err)
	const summary = "about\n<message type=\"human\">say 1</message>\n<message type=\"ai\">w0</message>\n<message type=\"human\">say 2</message>\n" +
		"<message type=\"ai\">w0 w1</message>\n<message type=\"human\">say 3</message>"
	state := gjson.ParseBytes(lastOf(events, "values"))
	require.Equal(t, "human: Here is a summary of the conversation to date:\n\n"+summary+"\nai: w0 w1 w2\nhuman: say 4\nai: w0 w1 w2 w3", talk(state))
	require.Equal(t, `{"lc_source":"summarization"}`, state.Get("messages.0.additional_kwargs").Raw)
	require.JSONEq(t, string(encode(map[string]any{"type": "summarization", "summary": summary, "replaced_count": 5})), string(lastOf(events, "custom")))
	require.Equal(t, []string{summary}, w.saves.words, "the words reach whoever records")
	// What the node returns is what LangChain's returns: all removed, the summary, what is kept.
	var update gjson.Result
	for _, e := range events {
		if u := gjson.GetBytes(e.Data, `SummarizationMiddleware\.before_model.messages`); e.Name == "updates" && u.IsArray() {
			update = u
		}
	}
	require.Equal(t, `["remove","human","ai","human"]`, update.Get("#.type").Raw)
	require.Equal(t, "__remove_all__", update.Get("0.id").Str)
	for _, e := range events {
		if e.Name != "messages" {
			continue
		}
		pair := gjson.ParseBytes(e.Data).Array()
		if pair[1].Get("langgraph_node").Str == "SummarizationMiddleware.before_model" && pair[0].Get("type").Str == "AIMessageChunk" {
			require.Equal(t, "summarization", pair[1].Get("lc_source").Str)
		}
	}

	// An earlier summary that is folded into the next does not count.
	w.ask("say 1")
	events, err = w.stream(w.invocation(says("say 2"), "custom"))
	require.NoError(t, err)
	require.EqualValues(t, 4, gjson.GetBytes(lastOf(events, "custom"), "replaced_count").Int())
}

func lastOf(events []graph.Event, name string) json.RawMessage {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Name == name {
			return events[i].Data
		}
	}
	return nil
}

func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// A tool call and its result stay together, wherever the cut falls.
func TestSummarizationKeepsCallsWhole(t *testing.T) {
	t.Parallel()
	for keep := 1; keep <= 4; keep++ {
		w := condensing(t, agent.SummarizationOptions{Trigger: []agent.Size{{Messages: 5}}, Keep: agent.Size{Messages: keep}, Quiet: true})
		w.ask("say 1")
		state := w.ask("twice") // human, call, two results: the model is called with six messages
		var open []string
		for _, m := range state.Get("messages").Array() {
			switch m.Get("type").Str {
			case "ai":
				for _, c := range m.Get("tool_calls").Array() {
					open = append(open, c.Get("id").Str)
				}
			case "tool":
				require.Contains(t, open, m.Get("tool_call_id").Str, "keep %d: %s", keep, talk(state))
			}
		}
		require.Contains(t, talk(state), "Here is a summary")
	}
}

func TestSummarizationTriggers(t *testing.T) {
	t.Parallel()
	short := agent.Model{LLM: model(t, `[{"content":"short"}]`).LLM, Provider: "scripted", MaxInputTokens: 100}
	tests := []struct {
		name    string
		trigger []agent.Size
		keep    agent.Size
		want    bool
		kept    int // messages behind the summary
	}{
		{"few messages", []agent.Size{{Messages: 4}}, agent.Size{Messages: 1}, false, 0},
		{"messages", []agent.Size{{Messages: 3}}, agent.Size{Messages: 1}, true, 2},
		{"tokens", []agent.Size{{Tokens: 60}}, agent.Size{Messages: 1}, true, 2},
		{"too few tokens", []agent.Size{{Tokens: 600}}, agent.Size{Messages: 1}, false, 0},
		{"both", []agent.Size{{Tokens: 60, Messages: 3}}, agent.Size{Messages: 1}, true, 2},
		{"one of both", []agent.Size{{Tokens: 60, Messages: 30}}, agent.Size{Messages: 1}, false, 0},
		{"any", []agent.Size{{Messages: 30}, {Tokens: 60}}, agent.Size{Messages: 1}, true, 2},
		{"fraction", []agent.Size{{Fraction: 0.6}}, agent.Size{Messages: 1}, true, 2},
		{"keep tokens", []agent.Size{{Messages: 3}}, agent.Size{Tokens: 20}, true, 3},
		{"keep all tokens", []agent.Size{{Messages: 3}}, agent.Size{Tokens: 2000}, false, 0},
		{"keep a fraction", []agent.Size{{Messages: 3}}, agent.Size{Fraction: 0.2}, true, 3},
		{"nothing is small enough", []agent.Size{{Messages: 3}}, agent.Size{Tokens: 1}, true, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := condensing(t, agent.SummarizationOptions{Model: short, Trigger: tt.trigger, Keep: tt.keep})
			w.ask(strings.Repeat("long ", 50))
			got := talk(w.ask("say 1"))
			require.Equal(t, tt.want, strings.HasPrefix(got, "human: Here is a summary of the conversation to date:\n\nshort"), got)
			if tt.want {
				require.Equal(t, tt.kept, strings.Count(got, "\nai: ")+strings.Count(got, "\nhuman: "), got)
			}
		})
	}
	m := model(t, `[{}]`)
	for want, o := range map[string]agent.SummarizationOptions{
		"Model is required":   {},
		"no trigger":          {Model: m},
		"max_input_tokens":    {Model: m, Trigger: []agent.Size{{Fraction: 0.5}}},
		"at most 1":           {Model: short, Trigger: []agent.Size{{Fraction: 2}}},
		"write messages":      {Model: m, Trigger: []agent.Size{{}}},
		"more than 0":         {Model: m, Trigger: []agent.Size{{Messages: -1}}},
		"keep: write one of":  {Model: m, Trigger: []agent.Size{{Messages: 1}}, Keep: agent.Size{Messages: 1, Tokens: 1}},
		"has no {messages}":   {Model: m, Trigger: []agent.Size{{Messages: 1}}, Prompt: "x"},
		"trigger: write mess": {Model: m, Trigger: []agent.Size{{Messages: 1}, {}}},
	} {
		_, err := agent.Summarization(o)
		require.ErrorContains(t, err, want)
	}
}

// A summary that failed, is empty or cut off does not take the place of the conversation, which continues with all of it.
func TestSummarizationFails(t *testing.T) {
	t.Parallel()
	models := map[string]agent.Model{
		"down": model(t, `[{"error":"down"}]`), "nothing": model(t, `[{"content":" \n"}]`), "thoughts alone": model(t, `[{"content":"<think>Well"}]`),
	}
	for _, reason := range []string{"length", "model_length", "max_tokens", "model_context_window_exceeded", "content_filter", "refusal", "error"} {
		models[reason] = agent.Model{LLM: &finishes{reason: reason}}
		models[reason+" of Claude"] = agent.Model{LLM: &finishes{reason: reason}, Provider: "anthropic"}
	}
	for name, m := range models {
		w := condensing(t, agent.SummarizationOptions{Model: m, Trigger: []agent.Size{{Messages: 2}}, Keep: agent.Size{Messages: 1}, Log: slog.New(slog.DiscardHandler)})
		w.ask("say 1")
		events, err := w.stream(w.invocation(says("say 2"), "values", "custom"))
		require.NoError(t, err, name)
		require.Equal(t, "human: say 1\nai: w0\nhuman: say 2\nai: w0 w1", talk(gjson.ParseBytes(lastOf(events, "values"))), name)
		require.Equal(t, "summarization_failed", gjson.GetBytes(lastOf(events, "custom"), "type").Str, name)
	}
}

// A summary that is too long for the model is written from less, until it fits.
func TestSummarizationOverflow(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"prompt is too long: 201355 tokens > 200000 maximum", "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
		"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", "Please reduce the length of the messages or completion.",
		"the request exceeds the available context size, try increasing it", "Your input exceeds the context window of this model.",
	} {
		m := &finishes{reason: "stop", overflows: 3, said: said}
		w := condensing(t, agent.SummarizationOptions{Model: agent.Model{LLM: m}, Trigger: []agent.Size{{Messages: 2}}, Keep: agent.Size{Messages: 1}, MaxTokens: -1})
		w.ask("say 400")
		require.Contains(t, talk(w.ask("say 2")), "summary of the conversation to date:\n\nshort", said)
		require.Len(t, m.lengths, 4)
		for i := 1; i < len(m.lengths); i++ {
			require.Less(t, m.lengths[i], m.lengths[i-1])
		}
	}
}

// finishes is a model that answers "short", after it refused some questions as too long.
type finishes struct {
	llms.Model
	reason    string
	overflows int
	said      string
	lengths   []int
}

func (m *finishes) StreamChunks(_ context.Context, messages []llms.MessageContent, _ ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	return func(yield func(llm.Chunk, error) bool) {
		m.lengths = append(m.lengths, len(fmt.Sprint(messages)))
		if len(m.lengths) <= m.overflows {
			yield(llm.Chunk{}, &llm.Error{Status: 400, Message: m.said})
			return
		}
		yield(llm.Chunk{Content: "short", FinishReason: m.reason}, nil)
	}
}

func approving(t *testing.T, tools map[string]agent.Approval) *world {
	t.Helper()
	other := agent.MustTool("lookup", "", func(_ context.Context, a searchArgs) (any, error) { return "Looked up " + a.Q, nil })
	return setup(t, agent.Options{Tools: []agent.Tool{search, other}, Middleware: []agent.Middleware{must(agent.HumanInTheLoop(tools))}})
}

func TestHumanInTheLoop(t *testing.T) {
	t.Parallel()
	const rejected = "User rejected the tool call for `search` with id call_1. The tool was not executed. Do not retry this tool call unless the user explicitly requests it."
	const notice = "Note: a human reviewer replaced this tool call before it ran. The call recorded in your message is the one you produced, not the one that executed. " +
		"This was intentional and authorized. Do not re-issue your original call. Executed instead: "
	tests := []struct{ name, decision, tool string }{
		{"approve", `{"type":"approve"}`, "tool: Found 10 results for x"},
		{"reject", `{"type":"reject"}`, "tool: " + rejected + " (error)"},
		{"reject with a reason", `{"type":"reject","message":"no"}`, "tool: User rejected the tool call for `search` with reason: no (error)"},
		{"respond", `{"type":"respond","message":"mine"}`, "tool: mine"},
		{"edit", `{"type":"edit","edited_action":{"name":"search","args":{"q":"y"}}}`, "tool: " + notice + "search with arguments {\"q\": \"y\"}.\n\nTool response:\nFound 10 results for y"},
		{"another tool", `{"type":"edit","edited_action":{"name":"lookup","args":{"q":"y"}}}`, "tool: " + notice + "lookup with arguments {\"q\": \"y\"}.\n\nTool response:\nLooked up y"},
		{"a tool that is not there", `{"type":"edit","edited_action":{"name":"find","args":{}}}`, "tool: Error: ValueError(\"Reviewer edited tool call 'call_1' to 'find', which is not an available tool. Available tools: lookup, search.\")\n Please fix your mistakes. (error)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := approving(t, map[string]agent.Approval{"search": {}})
			events, err := w.stream(w.invocation(says(`call search {"q": "x"}`), "updates"))
			require.NoError(t, err)
			asked := gjson.GetBytes(lastOf(events, "updates"), "__interrupt__.0.value")
			require.Equal(t, `{"action_requests":[{"name":"search","args":{"q":"x"},"description":"Tool execution requires approval\n\nTool: search\nArgs: {'q': 'x'}"}],`+
				`"review_configs":[{"action_name":"search","allowed_decisions":["approve","edit","reject","respond"]}]}`, asked.Raw)
			state := w.last(w.resume(`{"decisions":[`+tt.decision+`]}`, "values"))
			_, got, _ := strings.Cut(talk(state), "[search{\"q\":\"x\"}]\n")
			got, _, _ = strings.Cut(got, "\nai: ")
			require.Equal(t, tt.tool, got)
		})
	}
}

func TestHumanInTheLoopBatch(t *testing.T) {
	t.Parallel()
	asked := func() *world {
		w := approving(t, map[string]agent.Approval{"search": {
			Decisions: []string{agent.Approve, agent.Reject}, Description: "Look.",
			When: func(c message.ToolCall, _ pregel.Values) bool { return c.ID != "call_9" },
		}})
		_, err := w.stream(w.invocation(says("twice"), "updates"))
		require.NoError(t, err)
		return w
	}
	for answer, want := range map[string]string{
		`{"decisions":[{"type":"approve"}]}`: "ValueError: Number of human decisions (1) does not match number of hanging tool calls (2).",
		`"yes"`:                              "ValueError: resume with",
		`{"decisions":[{"type":"approve"},{"type":"edit"}]}`:      "Decision type 'edit' is not allowed for tool 'search'. Expected one of ['approve', 'reject']",
		`{"decisions":[{"type":"approve"},{"type":"telepathy"}]}`: "Decision type 'telepathy' is not allowed",
	} {
		w := asked()
		_, err := w.stream(w.resume(answer, "updates"))
		require.ErrorContains(t, err, want)
	}
	w := asked()
	state := w.last(w.resume(`{"decisions":[{"type":"reject","message":"no"},{"type":"approve"}]}`, "values"))
	require.Equal(t, "human: twice\nai:  [search{\"q\":\"a\"}] [search{\"q\":\"b\"}]\ntool: User rejected the tool call for `search` with reason: no (error)\n"+
		"tool: Found 10 results for b\nai: tool said: Found 10 results for b", talk(state))

	_, err := agent.HumanInTheLoop(nil)
	require.ErrorContains(t, err, "names no tool")
	_, err = agent.HumanInTheLoop(map[string]agent.Approval{"x": {Decisions: []string{"shrug"}}})
	require.ErrorContains(t, err, `"shrug" is no decision`)
}

func TestModelCallLimit(t *testing.T) {
	t.Parallel()
	run := setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{must(agent.ModelCallLimit(agent.CallLimits{Run: 1}))}})
	const over = "human: twice\nai:  [search{\"q\":\"a\"}] [search{\"q\":\"b\"}]\ntool: Found 10 results for a\ntool: Found 10 results for b\nai: Model call limits exceeded: run limit (1/1)"
	require.Equal(t, over, talk(run.ask("twice")))
	require.True(t, strings.HasSuffix(talk(run.ask("say 1")), "\nhuman: say 1\nai: w0"), "the next run counts anew")

	thread := setup(t, agent.Options{Middleware: []agent.Middleware{must(agent.ModelCallLimit(agent.CallLimits{Thread: 1, Exit: agent.ExitError}))}})
	thread.ask("say 1")
	_, err := thread.stream(thread.invocation(says("say 2"), "values"))
	require.ErrorContains(t, err, "ModelCallLimitExceededError")
	for want, l := range map[string]agent.CallLimits{"write a limit": {}, `"continue"; write one of "end", "error"`: {Run: 1, Exit: agent.ExitContinue}, "write a limit: ": {Run: -1}} {
		_, err := agent.ModelCallLimit(l)
		require.ErrorContains(t, err, want)
	}
}

func TestToolCallLimit(t *testing.T) {
	t.Parallel()
	limited := func(tool string, l agent.CallLimits) *world {
		return setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{must(agent.ToolCallLimit(tool, l))}})
	}
	const head = "human: twice\nai:  [search{\"q\":\"a\"}] [search{\"q\":\"b\"}]\n"
	require.Equal(t, head+"tool: Tool call limit exceeded. Do not call 'search' again. (error)\ntool: Found 10 results for a\nai: tool said: Found 10 results for a",
		talk(limited("search", agent.CallLimits{Run: 1}).ask("twice")))
	require.Equal(t, head+"tool: Tool call limit exceeded. Do not make additional tool calls. (error)\n"+
		"tool: Execution stopped before this tool call could run because another tool call in the same batch exceeded the limit. (error)\n"+
		"ai: Tool call limit reached: run limit exceeded (2/1 calls).", talk(limited("", agent.CallLimits{Run: 1, Exit: agent.ExitEnd}).ask("twice")))
	w := limited("", agent.CallLimits{Thread: 1, Exit: agent.ExitError})
	_, err := w.stream(w.invocation(says("twice"), "values"))
	require.ErrorContains(t, err, "ToolCallLimitExceededError")
	w = limited("other", agent.CallLimits{Run: 1})
	require.Contains(t, talk(w.ask("twice")), "tool: Found 10 results for b", "other tools do not count")
	w = limited("", agent.CallLimits{Thread: 3})
	w.ask("twice")
	require.Equal(t, 1, strings.Count(talk(w.ask("twice")), "Do not make additional tool calls. (error)"), "one is left for the thread")
	_, err = agent.ToolCallLimit("", agent.CallLimits{Thread: 1, Run: 2})
	require.ErrorContains(t, err, "run (2) is more than thread (1)")
}

func TestTitle(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	titled := func(script string) *world {
		o := agent.TitleOptions{Model: model(t, script), MaxLen: 20, Log: slog.New(slog.NewTextHandler(&log, nil))}
		return setup(t, agent.Options{Middleware: []agent.Middleware{must(agent.Title(o))}})
	}
	w := titled(`[{"when": "(?s)User: say 1\nAssistant: w0", "content": "\"Counting\nto one\""}]`)
	events, err := w.stream(w.invocation(says("say 1"), "values", "messages-tuple"))
	require.NoError(t, err)
	require.Equal(t, "Counting to one", gjson.GetBytes(lastOf(events, "values"), "title").Str)
	for _, e := range events {
		require.NotContains(t, string(e.Data), `"langgraph_node":"TitleMiddleware.after_agent"`, "nobody sees its tokens")
	}
	require.Equal(t, "Counting to one", w.ask("say 2").Get("title").Str, "it stays")
	require.Empty(t, log.String())
	require.Equal(t, "What is this all ab…", titled(`[{"error": "down"}]`).ask("What is this all about, please?").Get("title").Str)
	require.Regexp(t, `level=WARN msg="no title written; .*" error=down\n$`, log.String())
	_, err = agent.Title(agent.TitleOptions{})
	require.ErrorContains(t, err, "Model is required")
	_, err = agent.Title(agent.TitleOptions{Model: model(t, `[{}]`), Prompt: "x"})
	require.ErrorContains(t, err, "{conversation}")
}

func TestRepairToolCalls(t *testing.T) {
	t.Parallel()
	w := setup(t, agent.Options{Tools: []agent.Tool{search}, Middleware: []agent.Middleware{agent.RepairToolCalls()}})
	input := `{"messages": [{"type":"human","content":"a"},{"type":"ai","content":"","tool_calls":[{"name":"search","args":{},"id":"c1","type":"tool_call"},{"name":"search","args":{},"id":"c2","type":"tool_call"}]},
		{"type":"tool","content":"found","tool_call_id":"c2"},{"type":"human","content":"say 1"}]}`
	require.Equal(t, "human: a\nai:  [search{}] [search{}]\ntool: Tool call search with id c1 was not finished: the conversation continued before it could be. (error)\n"+
		"tool: found\nhuman: say 1\nai: w0", talk(w.last(w.invocation(input, "values"))))
	events, err := w.stream(w.invocation(says("say 2"), "updates"))
	require.NoError(t, err)
	require.Equal(t, "null", gjson.GetBytes(events[0].Data, `PatchToolCallsMiddleware\.before_agent`).Raw, "nothing to mend, nothing written")
}

// cutOff is a model whose tool call ends too early, as when it has reached its longest answer.
type cutOff struct{ scripted.Model }

func (m *cutOff) StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	if len(messages) > 1 {
		return m.Model.StreamChunks(ctx, messages, options...)
	}
	return func(yield func(llm.Chunk, error) bool) {
		_ = yield(llm.Chunk{ToolCalls: []llm.ToolCallDelta{{Name: "search", Arguments: `{"q": "lo`}}}, nil) && yield(llm.Chunk{FinishReason: "length"}, nil)
	}
}

// Calls whose arguments could not be read get a result before the model is called again, or no model would take the conversation.
func TestInvalidToolCalls(t *testing.T) {
	t.Parallel()
	after, err := scripted.New(scripted.Script{Answers: []scripted.Answer{{Words: "1"}}})
	require.NoError(t, err)
	w := setup(t, agent.Options{Tools: []agent.Tool{search}, Model: agent.Model{LLM: &cutOff{*after}}})
	state := w.ask("long")
	require.Equal(t, "human: long\nai: ", talk(state))
	require.Equal(t, `{"q": "lo`, state.Get("messages.1.invalid_tool_calls.0.args").Str)
	id := state.Get("messages.1.invalid_tool_calls.0.id").Str
	require.Regexp(t, "^call_", id, "one that the provider did not name has an id")
	state = w.ask("go on")
	require.Equal(t, "human: long\nai: \ntool: Tool call search with id "+id+" could not be executed - arguments were malformed or truncated. (error)\nhuman: go on\nai: w0", talk(state))
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	broken := agent.MustTool("search", "", func(context.Context, searchArgs) (any, error) { return nil, pregel.Errorf("ValueError", "disk") })
	words := agent.ToolErrors(func(err error, c message.ToolCall) string { return c.Name + " broke: " + err.Error() })
	w := setup(t, agent.Options{Tools: []agent.Tool{broken}, Middleware: []agent.Middleware{words}, FailOnToolError: true})
	require.Contains(t, talk(w.ask(`call search {"q": "x"}`)), "tool: search broke: disk (error)")
	silent := agent.ToolErrors(func(error, message.ToolCall) string { return "" })
	w = setup(t, agent.Options{Tools: []agent.Tool{broken}, Middleware: []agent.Middleware{silent}, FailOnToolError: true})
	_, err := w.stream(w.invocation(says(`call search {"q": "x"}`), "values"))
	require.ErrorContains(t, err, "disk")
	w = setup(t, agent.Options{Tools: []agent.Tool{broken}, Middleware: []agent.Middleware{agent.ToolErrors(func(error, message.ToolCall) string { return "x" }, "other")}})
	require.Contains(t, talk(w.ask(`call search {"q": "x"}`)), "tool: Error: ValueError('disk')")
}
