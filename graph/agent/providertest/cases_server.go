package providertest

import (
	"fmt"
	"strings"
)

// serverCases: nothing that a provider sends hurts the server or its data.
func serverCases() []*Case {
	long := strings.Repeat("x", 300_000)
	deep := strings.Repeat("[", 6<<20) // a check that goes down as deep as this ends the process
	history := `{"messages":[{"type":"human","content":"before"},` +
		`{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{"expression":"1+1"},"id":"` + strings.Repeat("i", 60) + `"},{"name":"do it, now","args":{},"id":"functions.x:0"}],` +
		`"invalid_tool_calls":[{"name":"calculator","args":"[1,2]","id":"bad1","error":null},{"name":"","args":"{}","id":"bad2","error":null},{"name":"calculator","args":"{\"a","id":"bad3","error":null}]},` +
		`{"type":"tool","content":"2","tool_call_id":"` + strings.Repeat("i", 60) + `"},{"type":"tool","content":"no","status":"error","tool_call_id":"functions.x:0"},{"type":"human","content":"hi"}]}`
	other := `{"messages":[{"type":"human","content":"before"},{"type":"ai","content":[{"type":"thinking","thinking":"Hm","signature":"S","index":0},{"type":"text","text":"ok","index":1},` +
		`{"type":"tool_use","id":"toolu_1","name":"calculator","input":{},"partial_json":"{}","index":2},{"type":"web_search_tool_result","tool_use_id":"s","content":[],"index":3},{"type":"hologram","index":4}],` +
		`"tool_calls":[{"name":"calculator","args":{},"id":"toolu_1"}],"response_metadata":{"model_provider":"anthropic"}},{"type":"tool","content":"2","tool_call_id":"toolu_1"},` +
		`{"type":"ai","content":"","additional_kwargs":{"reasoning_content":"Well"},"response_metadata":{"model_provider":"deepseek"}},{"type":"human","content":"hi"}]}`
	cases := []*Case{
		{Line: 1, Name: "anthropic-index-below-zero", Provider: "anthropic", Replies: []Reply{Claude("end_turn", Text(-1, "Hel", "lo"))}, Want: Want{Answer: "Hello"}},
		{Line: 1, Name: "anthropic-delta-without-block", Provider: "anthropic", Replies: []Reply{Stream(Events(append([]string{
			Start,
			`{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"Hi"}}`, `{"type":"content_block_delta","index":-9,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
			`{"type":"content_block_delta"}`, `{"type":"content_block_stop","index":99}`, `{"type":"content_block_start","index":1e300}`,
		}, End("end_turn")...)...))}, Want: Want{Answer: "Hi"}},
		{Line: 1, Name: "deep-event", Replies: []Reply{Stream(Data(deep, Says("Hi"), Finish("stop"), Done))}, Want: Want{Answer: "Hi"}},
		{Line: 1, Name: "deep-answer", Model: object{"retries": 0}, Replies: []Reply{JSON(200, `{"error":`+deep)}, Want: Want{Error: "read answer"}},
		{Line: 1, Name: "deep-refusal", Replies: []Reply{JSON(400, `{"error":`+deep)}, Want: Want{Error: "400 Bad Request"}},
		{Line: 1, Name: "deep-arguments", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", deep)), Finish("tool_calls"), Done)), Answer("Hi")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hi"}},
		{Line: 1, Name: "deep-event-anthropic", Provider: "anthropic", Replies: []Reply{Stream(Events(append([]string{Start, deep}, append(Text(0, "Hi"), End("end_turn")...)...)...))}, Want: Want{Answer: "Hi"}},
		{
			Line: 1, Name: "anthropic-message-in-stream", Provider: "anthropic", Replies: []Reply{Stream(Events(append([]string{Start, `{"type":"message"}`, `{"type":"message","content":{}}`}, append(Text(0, "Hi"), End("end_turn")...)...)...))},
			Want: Want{Answer: "Hi"},
		},
		{
			Line: 1, Name: "anthropic-error-in-stream", Provider: "anthropic", Model: object{"retries": 0}, Replies: []Reply{Stream(Events(Start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))},
			Want: Want{Error: "Overloaded", Calls: 1},
		},
		{Line: 1, Name: "anthropic-long-lines", Provider: "anthropic", Replies: []Reply{Claude("end_turn", Text(0, long))}, Want: Want{Answer: long}},
		{Line: 2, Name: "format-in-prose", Agent: schema, Replies: []Reply{Answer("It is seven.")}, Want: Want{Error: "It is seven.", Calls: 3}},
		{Line: 2, Name: "format-in-prose-anthropic", Provider: "anthropic", Agent: schema, Replies: []Reply{Claude("end_turn", Text(0, "It is seven."))}, Want: Want{Error: "It is seven.", Calls: 3}},
		{
			Line: 2, Name: "format-in-prose-thinking", Provider: "anthropic", Model: object{"extra_body": object{"thinking": object{"type": "enabled", "budget_tokens": 9000}}}, Agent: schema,
			Replies: []Reply{Claude("end_turn", Think(0, "S", "Hm"), Text(1, "It is seven."))}, Want: Want{Error: "It is seven.", Calls: 3},
		},
		{
			Line: 2, Name: "format-second-try", Agent: schema, Replies: []Reply{Answer("Well."), Stream(Data(Calls(Piece("0", "c1", "Sum", `{"sum":7}`)), Finish("tool_calls"), Done))}, Want: Want{Calls: 2},
			Check: func(r *Result) error {
				n := r.Sent[1].Get("messages.#").Int()
				return first(want("the answer", r.State.Get("structured_response").Raw, `{"sum":7}`), want("the last role", r.Sent[1].Get(fmt.Sprintf("messages.%d.role", n-1)).Str, "user"))
			},
		},
		{
			Line: 2, Name: "format-as-text", Agent: schema, Replies: []Reply{Answer("```json\n{\"sum\": 7}\n```")}, Want: Want{Calls: 1},
			Check: func(r *Result) error {
				return want("the answer", r.State.Get("structured_response").Raw, `{"sum":7}`)
			},
		},
		{Line: 2, Name: "format-never-right", Agent: schema, Replies: []Reply{Stream(Data(Calls(Piece("0", "", "Sum", `{"sum":"many"}`)), Finish("tool_calls"), Done))}, Want: Want{Error: "many", Calls: 10}},
		{Line: 3, Name: "down", Down: true, Model: object{"retries": 0}, Replies: []Reply{Answer("")}, Want: Want{Error: "no answer from the model"}},
		{Line: 3, Name: "down-anthropic", Down: true, Provider: "anthropic", Model: object{"retries": 0}, Replies: []Reply{Answer("")}, Want: Want{Error: "no answer from the model"}},
		{Line: 3, Name: "error-has-the-key", Replies: []Reply{JSON(401, `{"error":{"message":"Incorrect API key provided: `+Secret+`, see https://user:`+Secret+`@x.test/a?key=`+Secret+`"}}`)}, Want: Want{Error: "Incorrect API key provided"}},
		{Line: 3, Name: "page-has-the-key", Replies: []Reply{Body(502, "text/html", "<title>GET /?key="+Secret+" failed</title>")}, Model: object{"retries": 0}, Want: Want{Error: "HTML page"}},
		{Line: 3, Name: "redirect-has-the-key", Replies: []Reply{Redirect(302, "https://elsewhere.test/login?key="+Secret)}, Want: Want{Error: "redirects to https://elsewhere.test/login", Calls: 1}},
		{Line: 3, Name: "cut-with-key", Model: object{"retries": 0}, Replies: []Reply{Cut("")}, Want: Want{Error: "no answer from the model"}},
	}
	for _, provider := range []string{"openai", "anthropic", "mistralai", "deepseek", "googleai"} {
		answer := Answer("Hello")
		model := object{}
		if provider == "anthropic" {
			answer = Claude("end_turn", Text(0, "Hello"))
		}
		cases = append(cases,
			&Case{Line: 5, Name: "history-" + provider, Provider: provider, Name2: "gemini-3-pro", Model: model, Agent: calculator, Replies: []Reply{answer}, Turns: []Turn{{Input: history}}, Want: Want{Answer: "Hello", Calls: 1}},
			&Case{Line: 5, Name: "other-model-" + provider, Provider: provider, Name2: "gemini-3-pro", Agent: calculator, Replies: []Reply{answer}, Turns: []Turn{{Input: other}}, Want: Want{Answer: "Hello", Calls: 1}},
			&Case{Line: 5, Name: "no-tools-any-more-" + provider, Provider: provider, Name2: "gemini-3-pro", Replies: []Reply{answer}, Turns: []Turn{{Input: other}}, Want: Want{Answer: "Hello", Calls: 1}})
	}
	return append(cases, summaryCases()...)
}

// summaryCases: a conversation is never lost to a summary.
func summaryCases() []*Case {
	condense := object{"middleware": object{"summarization": object{"trigger": object{"messages": 3}, "keep": object{"messages": 1}}}}
	turns := []Turn{{Says: "one"}, {Says: "two"}}
	kept := func(summary bool) func(r *Result) error {
		return func(r *Result) error {
			last := r.Sent[len(r.Sent)-1].Get("messages").Raw // people see all messages in either case
			return first(want("the report", strings.Contains(r.Stream, "summarization_failed"), !summary),
				want("the summary", strings.Contains(last, "short"), summary), want("the first message", strings.Contains(last, `"one"`), !summary))
		}
	}
	overflow := func(message string) Reply {
		return JSON(400, `{"error":{"message":`+quote(message)+`,"type":"invalid_request_error"}}`)
	}
	hello := Answer("Hello")
	cases := []*Case{
		{Name: "summary", Replies: []Reply{hello, Answer("short"), hello}, Check: kept(true)},
		{Name: "summary-empty", Replies: []Reply{hello, Answer(" "), hello}, Check: kept(false)},
		{Name: "summary-cut-off", Replies: []Reply{hello, Stream(Data(Says("half"), Finish("length"), Done)), hello}, Check: kept(false)},
		{Name: "summary-refused", Replies: []Reply{hello, JSON(403, `{"error":{"message":"no"}}`), hello}, Check: kept(false)},
		{Name: "summary-cut-off-anthropic", Provider: "anthropic", Replies: []Reply{Claude("end_turn", Text(0, "Hello")), Claude("max_tokens", Text(0, "half")), Claude("end_turn", Text(0, "Hello"))}, Check: kept(false)},
	}
	for name, text := range map[string]string{
		"openai":    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
		"gemini":    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
		"vllm":      "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
		"groq":      "Please reduce the length of the messages or completion.",
		"llama-cpp": "the request exceeds the available context size, try increasing it",
		"xai":       "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
	} {
		cases = append(cases, &Case{Name: "summary-overflow-" + name, Replies: []Reply{hello, overflow(text), Answer("short"), hello}, Check: kept(true)})
	}
	cases = append(cases, &Case{Name: "summary-overflow-anthropic", Provider: "anthropic", Check: kept(true), Replies: []Reply{
		Claude("end_turn", Text(0, "Hello")),
		JSON(400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 201355 tokens > 200000 maximum"}}`), Claude("end_turn", Text(0, "short")), Claude("end_turn", Text(0, "Hello")),
	}})
	long := overflow("prompt is too long")
	cases = append(cases, &Case{Name: "summary-overflow-always", Replies: []Reply{hello, long, long, long, long, hello}, Check: func(r *Result) error {
		return first(kept(false)(r), want("the advice", strings.Contains(r.Stream, "What the middleware summarization reads is too long for its model"), true))
	}})
	for _, c := range cases {
		c.Line, c.Agent, c.Turns, c.Want = 4, condense, turns, Want{Answer: "Hello"}
	}
	return cases
}
