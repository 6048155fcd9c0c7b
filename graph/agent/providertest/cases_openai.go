package providertest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// providerCases: providers of OpenAI's wire that want something of their own.
func providerCases() []*Case {
	hello := Answer("Hello")
	call := func(members ...string) string {
		return Calls(Piece("0", "call_1", "calculator", `{"expression":"1+1"}`, members...), Piece("1", "call_2", "calculator", `{"expression":"2+2"}`))
	}
	sums := Stream(Data(call(), Finish("tool_calls"), Done))
	signed := func(at string) Reply {
		return Stream(Data(call(`"extra_content":{"`+at+`":{"thought_signature":"SIG"}}`), Finish("tool_calls"), Done))
	}
	two := []Turn{{Says: "hi"}, {Says: "again"}}
	tokens := func(name string) func(r *Result) error {
		return func(r *Result) error { return want(name, r.Sent[0].Get(name).Int(), 9) }
	}
	returned := func(path, value string) func(r *Result) error {
		return func(r *Result) error { return want(path, r.Sent[1].Get("messages.1."+path).String(), value) }
	}
	all := []*Case{
		{
			Name: "deepseek", Provider: "deepseek", Agent: calculator, Replies: []Reply{Stream(Data(Delta(`{"reasoning_content":"Let me "}`), Delta(`{"reasoning_content":"see"}`), call(), Finish("tool_calls"), Done)), hello},
			Turns: two, Want: Want{Answer: "Hello", Tools: "2,4"}, Check: returned("reasoning_content", "Let me see"),
		},
		{Name: "deepseek-without-thoughts", Provider: "deepseek", Agent: calculator, Replies: []Reply{sums, hello}, Want: Want{Answer: "Hello", Tools: "2,4"}},
		{
			Name: "moonshot", Model: object{"return_reasoning": true, "extra_body": object{"stream_options": nil}}, Provider: "xai", Agent: calculator, Rules: []Rule{deepSeek},
			Replies: []Reply{Stream(Data(Delta(`{"reasoning_content":"Hm"}`), call(), Finish("tool_calls"), Done)), hello}, Want: Want{Answer: "Hello"}, Check: returned("reasoning_content", "Hm"),
		},
		{
			Name: "gemini", Provider: "googleai", Name2: "gemini-3-pro", Agent: calculator, Replies: []Reply{signed("google"), hello}, Turns: two, Want: Want{Answer: "Hello", Tools: "2,4"},
			Check: returned("tool_calls.0.extra_content.google.thought_signature", "SIG"),
		},
		{Name: "gemini-without-signature", Provider: "googleai", Name2: "gemini-3-pro", Agent: calculator, Replies: []Reply{sums, hello}, Want: Want{Answer: "Hello", Tools: "2,4"}},
		{Name: "gemini-2", Provider: "googleai", Name2: "gemini-2.5-flash", Agent: calculator, Replies: []Reply{signed("google"), hello}, Want: Want{Answer: "Hello", Tools: "2,4"}},
		{Name: "vertex", Agent: calculator, Replies: []Reply{signed("vertex"), hello}, Want: Want{Answer: "Hello"}, Check: returned("tool_calls.0.extra_content.vertex.thought_signature", "SIG")},
		{
			Name: "mistral", Provider: "mistralai", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "abcDEF123", "calculator", `{"expression":"1+1"}`)), Finish("tool_calls"), Done)), hello}, Want: Want{Answer: "Hello", Tools: "2"},
			Check: returned("tool_calls.0.id", "abcDEF123"),
		},
		{
			Name: "mistral-thinks", Provider: "mistralai", Replies: []Reply{Stream(Data(Delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]}`), Delta(`{"content":[{"type":"text","text":"Hello"}]}`), Finish("stop"), Done))},
			Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
				return want("reasoning", r.Last().Get("additional_kwargs.reasoning_content").Str, "Hm")
			},
		},
		{Name: "azure", Provider: "azure_openai", Model: object{"max_tokens": 9, "query": object{"api-version": "2024-10-21"}}, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}, Check: tokens("max_completion_tokens")},
		{
			Name: "gateway-of-azure", Provider: "openai", Model: object{"max_tokens": 9, "max_completion_tokens": true, "api_key_header": "api-key", "query": object{"api-version": "1"}}, Replies: []Reply{hello},
			Rules: []Rule{azure}, Want: Want{Error: "no key"}, Check: tokens("max_completion_tokens"),
		}, // of OpenAI's own rule
		{Name: "max-tokens", Model: object{"max_tokens": 9}, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}, Check: tokens("max_tokens")},
		{Name: "azure-old-name", Provider: "azure_openai", Model: object{"max_tokens": 9, "max_completion_tokens": false, "query": object{"api-version": "1"}}, Replies: []Reply{hello}, Want: Want{Error: "'max_tokens' is not supported"}},
		{Name: "member-removed", Model: object{"extra_body": object{"stream_options": nil, "top_k": 3}}, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}, Rules: []Rule{func(_ *http.Request, body gjson.Result) string {
			if body.Get("stream_options").Exists() || body.Get("top_k").Int() != 3 {
				return "stream_options: extra inputs are not permitted"
			}
			return ""
		}}},
		{
			Name: "openrouter", Provider: "openrouter", Agent: calculator, Replies: []Reply{Stream(": OPENROUTER PROCESSING\n\n" + Data(Delta(`{"reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"H","index":0}]}`),
				Delta(`{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","signature":"S","index":0}]}`), call(), Finish("tool_calls"), Done)), hello}, Want: Want{Answer: "Hello"},
			Check: returned("reasoning_details", `[{"type":"reasoning.text","text":"Hm","index":0,"signature":"S"}]`),
		},
		{Name: "bearer-in-its-own-header", Model: object{"api_key_header": "authorization"}, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}},
		{Name: "ollama", Provider: "ollama", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "call_x1", "calculator", `{"expression":"1+1"}`)), Calls(Piece("0", "call_x2", "calculator", `{"expression":"2+2"}`)), Finish("tool_calls"), Done)), hello}, Want: Want{Answer: "Hello", Tools: "2,4"}},
		{
			Name: "groq", Provider: "groq", Replies: []Reply{Stream(Data(Says("Hello"), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}}`, Done))}, Want: Want{Answer: "Hello"},
			Check: func(r *Result) error {
				return want("usage", r.Last().Get("usage_metadata.total_tokens").Int(), 4)
			},
		},
	}
	const results = `{"messages":[{"type":"human","content":"x"},{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"},{"name":"calculator","args":{},"id":"call_2"}]},
		{"type":"tool","content":[{"type":"text","text":"see"},{"type":"image","base64":"AQID","mime_type":"image/png"}],"tool_call_id":"call_1"},
		{"type":"tool","content":[{"type":"image_url","image_url":{"url":"https://x.test/a.png"}}],"tool_call_id":"call_2"}]}`
	for name, seen := range map[string]string{"openai": "[]", "mistralai": "[]", "images": `["data:image/png;base64,AQID","https://x.test/a.png"]`} {
		c := &Case{Name: "images-of-tools-" + name, Provider: name, Agent: calculator, Replies: []Reply{hello}, Turns: []Turn{{Input: results}, {Says: "again"}}, Want: Want{Answer: "Hello", Tools: "see,"}, Check: func(r *Result) error {
			var urls []string
			for _, u := range r.Sent[1].Get("messages.4.content.#.image_url.url").Array() {
				urls = append(urls, u.Raw)
			}
			return first(want("text", r.Sent[1].Get("messages.2.content").Str, "see[image]"), want("images", "["+strings.Join(urls, ",")+"]", seen))
		}}
		if name == "images" {
			c.Provider, c.Model = "openai", object{"images": true}
		}
		all = append(all, c)
	}
	// A thread that began with Gemini: others refuse its signatures.
	for _, name := range []string{"mistralai", "deepseek", "groq", "azure_openai", "openrouter"} {
		c := &Case{Name: "gemini-then-" + strings.ReplaceAll(name, "_", "-"), Provider: name, Agent: calculator, Replies: []Reply{hello}, Want: Want{Answer: "Hello", Calls: 1}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":"x"},
			{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"google_genai"},
			"additional_kwargs":{"tool_call_extra_content":{"call_1":{"google":{"thought_signature":"SIG"}}}}},{"type":"tool","content":"2","tool_call_id":"call_1"}]}`}}}
		if name == "azure_openai" {
			c.Model = object{"query": object{"api-version": "1"}}
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Line = 7
		if c.Name == "gateway-of-azure" {
			c.Provider, c.Rules, c.Want = "groq", []Rule{azure}, Want{Answer: "Hello"}
		}
	}
	return all
}

// timeoutCases: what counts as life, and what is kept.
func timeoutCases() []*Case {
	short := object{"timeout": "400ms", "idle_timeout": "400ms"}
	const pause = 150 * time.Millisecond
	whole := Data(Says("Hello"), Finish("stop"))
	claude := append(append([]string{Start}, Text(0, "Hello")...), End("end_turn")[0])
	all := []*Case{
		{Name: "comments", Model: short, Replies: []Reply{Then(pause, ": one\n\n", ": two\n\n", ": three\n\n", ": four\n\n", whole)}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "empty-deltas", Model: short, Replies: []Reply{Then(pause, Data(Delta(`{}`)), Data(Delta(`{"content":""}`)), Data(Delta(`{}`)), Data(Delta(`{}`)), whole)}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "pings", Provider: "anthropic", Model: short, Replies: []Reply{Then(pause, Events(Start), Events(`{"type":"ping"}`), Events(`{"type":"ping"}`), Events(`{"type":"ping"}`), Events(claude[1:]...))}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "silent-at-first", Model: object{"timeout": "100ms"}, Replies: []Reply{Hang("")}, Want: Want{Error: "did not begin to answer in time", Calls: 1}},
		{Name: "headers-then-silent", Model: object{"timeout": "100ms"}, Replies: []Reply{Hang("\n")}, Want: Want{Calls: 1, Error: "silent"}},
		{Name: "silent-within", Model: object{"idle_timeout": "100ms"}, Replies: []Reply{Hang(Data(Says("Hel")))}, Want: Want{Error: "silent for too long", Calls: 1}},
		{Name: "silent-at-first-claude", Provider: "anthropic", Model: object{"timeout": "100ms"}, Replies: []Reply{Hang("")}, Want: Want{Error: "did not begin to answer in time", Calls: 1}},
		{Name: "silent-after-the-answer", Model: object{"idle_timeout": "100ms"}, Replies: []Reply{Hang(whole)}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "cut-after-the-answer", Replies: []Reply{Cut(whole)}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "cut-after-the-answer-claude", Provider: "anthropic", Replies: []Reply{Cut(Events(claude...))}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "error-after-the-answer", Replies: []Reply{Stream(whole + Data(`{"error":{"message":"late"}}`))}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "garbage-after-the-answer", Replies: []Reply{Stream(whole + "<html>")}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "cut-within", Replies: []Reply{Cut(Data(Says("Hel")))}, Want: Want{Error: "the connection ended before the answer did", Calls: 1}},
		{Name: "cut-in-a-call", Agent: calculator, Replies: []Reply{Cut(Data(Calls(Piece("0", "a", "calculator", `{"expr`))))}, Want: Want{Error: "the connection ended before the answer did", Calls: 1}},
	}
	for _, c := range all {
		c.Line = 8
		if c.Name == "headers-then-silent" {
			c.Model = object{"timeout": "100ms", "idle_timeout": "100ms"}
		}
	}
	return all
}

// parallelCases: the numberings of parallel calls.
func parallelCases() []*Case {
	const one, other = `{"expression":"1+1"}`, `{"expression":"2+2"}`
	name := "calculator"
	streams := map[string]string{
		"as-openai":                     Data(Calls(Piece("0", "a", name, "")), Calls(Piece("0", "-", "", one[:9])), Calls(Piece("0", "-", "", one[9:])), Calls(Piece("1", "b", name, "")), Calls(Piece("1", "-", "", other))),
		"index-zero-no-id":              Data(Calls(Piece("0", "-", name, one)), Calls(Piece("0", "-", name, other))),
		"index-zero-empty-id":           Data(Calls(Piece("0", "", name, one)), Calls(Piece("0", "", name, other))),
		"index-zero-in-pieces":          Data(Calls(Piece("0", "", name, one[:9])), Calls(Piece("0", "", "", one[9:])), Calls(Piece("0", "", name, other[:7])), Calls(Piece("0", "", "", other[7:]))),
		"index-zero-one-event":          Data(Calls(Piece("0", "", name, one), Piece("0", "", name, other))),
		"index-zero-ids":                Data(Calls(Piece("0", "a", name, one)), Calls(Piece("0", "b", name, other))),
		"no-index":                      Data(Calls(Piece("", "a", name, one), Piece("", "b", name, other))),
		"no-index-no-id":                Data(Calls(Piece("", "-", name, one)), Calls(Piece("", "-", name, other))),
		"index-null":                    Data(Calls(Piece("null", "a", name, one)), Calls(Piece("null", "b", name, other))),
		"index-text":                    Data(Calls(Piece(`"0"`, "a", name, one)), Calls(Piece(`"1"`, "b", name, other))),
		"new-id-without-name":           Data(Calls(Piece("0", "a", name, one[:9])), Calls(Piece("0", "a2", "", one[9:])), Calls(Piece("1", "b", name, other[:9])), Calls(Piece("1", "b2", "", other[9:]))),
		"new-id-with-each-piece":        Data(Calls(Piece("0", "a", name, one[:9])), Calls(Piece("0", "a2", name, one[9:])), Calls(Piece("1", "b", name, other[:9])), Calls(Piece("1", "b2", name, other[9:]))),
		"names-again":                   Data(Calls(Piece("0", "a", name, one[:9])), Calls(Piece("0", "a", name, one[9:])), Calls(Piece("1", "b", name, other))),
		"interleaved":                   Data(Calls(Piece("0", "a", name, "")), Calls(Piece("1", "b", name, "")), Calls(Piece("0", "-", "", one)), Calls(Piece("1", "-", "", other))),
		"from-one":                      Data(Calls(Piece("1", "a", name, one)), Calls(Piece("2", "b", name, other))),
		"below-zero":                    Data(Calls(Piece("-1", "a", name, one)), Calls(Piece("-1", "b", name, other))),
		"huge-index":                    Data(Calls(Piece("1e300", "a", name, one)), Calls(Piece("7", "b", name, other))),
		"arguments-as-object":           Data(Delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"calculator","arguments":` + one + `}},{"index":1,"id":"b","function":{"name":"calculator","arguments":` + other + `}}]}`)),
		"null-members":                  Data(Calls(Piece("0", "a", name, one)), Delta(`{"tool_calls":null,"content":null}`), Delta(`{"tool_calls":[{"index":1,"id":"b","type":null,"function":{"name":"calculator","arguments":null}}]}`), Calls(Piece("1", "-", "", other))),
		"finish-reason-stop-with-calls": Data(Calls(Piece("0", "a", name, one), Piece("1", "b", name, other)), Finish("stop")),
	}
	var all []*Case
	for title, stream := range streams {
		all = append(all, &Case{Line: 9, Name: "parallel-" + title, Agent: calculator, Replies: []Reply{Stream(stream + Data(Finish("tool_calls"), Done)), Answer("Hello")}, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 2}})
	}
	return append(all, &Case{
		Line: 9, Name: "function-call", Agent: calculator, Replies: []Reply{Stream(Data(Delta(`{"function_call":{"name":"calculator","arguments":"{\"expression\":"}}`), Delta(`{"function_call":{"arguments":"\"1+1\"}"}}`), Finish("function_call"), Done)), Answer("Hello")},
		Want: Want{Answer: "Hello", Tools: "2"},
	})
}

// lenientCases: what a decoder of exact types would refuse.
func lenientCases() []*Case {
	usage := func(u string) string { return `{"choices":[],"usage":` + u + `}` }
	total := func(n int) func(*Result) error {
		return func(r *Result) error { return want("usage", r.Last().Get("usage_metadata.total_tokens").Int(), n) }
	}
	said := Data(Says("Hello"), Finish("stop"))
	ndjson := Says("Hel") + "\n" + Says("lo") + "\n" + Finish("stop") + "\n"
	whole := `{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	stream := func(odd ...string) []Reply { return []Reply{Stream(Data(odd...) + said + Data(Done))} }
	all := []*Case{
		{Name: "usage-floats", Replies: stream(usage(`{"prompt_tokens":3.0,"completion_tokens":2.5e0,"total_tokens":5.0}`)), Check: total(5)},
		{Name: "usage-texts", Replies: stream(usage(`{"prompt_tokens":"3","completion_tokens":"2","total_tokens":"5"}`)), Check: total(5)},
		{Name: "usage-null", Replies: stream(usage(`null`), usage(`{"prompt_tokens":null,"completion_tokens":2,"prompt_tokens_details":[],"completion_tokens_details":"x"}`)), Check: total(2)},
		{Name: "usage-list", Replies: stream(usage(`[1]`))},
		{Name: "reasoning-object", Replies: stream(Delta(`{"reasoning":{"effort":"low"}}`), Delta(`{"reasoning_content":{"a":1},"refusal":[]}`))},
		{Name: "index-text", Replies: stream(`{"choices":[{"index":"0","delta":{"content":""}}]}`)},
		{Name: "choices-null", Replies: stream(`{"choices":null}`, `{"choices":{}}`, `{"choices":[null]}`, `{}`)},
		{Name: "detail-null", Replies: stream(`{"detail":null,"choices":[]}`)},
		{Name: "error-empty-object", Replies: stream(`{"error":{},"choices":[]}`)},
		{Name: "error-empty-text", Replies: stream(`{"error":"","choices":[]}`)},
		{Name: "error-null-and-false", Replies: stream(`{"error":null}`, `{"error":false}`)},
		{Name: "content-number", Replies: stream(Delta(`{"content":7}`), Delta(`{"content":{}}`), Delta(`"x"`), Delta(`null`))},
		{Name: "no-json", Replies: stream(`hello`, `[]`, `7`, `{"choices":[`)},
		{Name: "model-number", Replies: stream(`{"model":7,"id":null,"system_fingerprint":{},"service_tier":1,"choices":[]}`)},
		{Name: "stream-labelled-json", Replies: []Reply{Body(200, "application/json", said+Data(Done))}},
		{Name: "json-labelled-stream", Replies: []Reply{Body(200, "text/event-stream", whole)}, Check: total(3)},
		{Name: "json-after-white-space", Replies: []Reply{Body(200, "application/json", "\n\n   \n"+whole)}, Check: total(3)},
		{Name: "json-lines", Replies: []Reply{Body(200, "application/x-ndjson", ndjson)}},
		{Name: "no-label", Replies: []Reply{Body(200, "", said)}},
		{Name: "text-label", Replies: []Reply{Body(200, "text/plain", said)}},
		{Name: "status-201", Replies: []Reply{Body(201, "text/event-stream", said)}},
		{Name: "byte-order-mark", Replies: []Reply{Stream("\ufeff" + said)}},
		{Name: "crlf", Replies: []Reply{Stream(strings.ReplaceAll(said, "\n", "\r\n"))}},
		{Name: "cr", Replies: []Reply{Stream(strings.ReplaceAll(said, "\n", "\r"))}},
		{Name: "no-space", Replies: []Reply{Stream(strings.ReplaceAll(said, "data: ", "data:"))}},
		{Name: "newline-in-arguments", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", "{\n\"expression\":\t\"1+1\n\t\"}")), Finish("tool_calls"), Done)), Answer("Hello")}, Want: Want{Tools: "2"}},
		{Name: "newline-in-arguments-in-pieces", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", "{\"expression\":\"1+")), Calls(Piece("0", "-", "", "1\n")), Calls(Piece("0", "-", "", "\"}")), Finish("tool_calls"), Done)), Answer("Hello")}, Want: Want{Tools: "2"}},
		{Name: "second-choice", Replies: stream(`{"choices":[{"index":1,"delta":{"content":"no"}}]}`)},
	}
	for _, c := range all {
		c.Line, c.Name, c.Want.Answer = 10, "lenient-"+c.Name, "Hello"
	}
	return all
}

// errorCases: errors name their cause, and those that pass are tried again.
func errorCases() []*Case {
	hello := Answer("Hello")
	none := object{"retries": 0}
	all := []*Case{
		{Name: "page-for-an-answer", Replies: []Reply{Body(200, "text/html", "<!doctype html><html><head><title>Sign in</title></head></html>")}, Want: Want{Error: "an HTML page (Sign in)", Calls: 1}},
		{Name: "page-for-a-refusal", Model: none, Replies: []Reply{Body(502, "text/html", "<html><body><h1>Bad &amp; gone</h1>")}, Want: Want{Error: "502 Bad Gateway: the server sent an HTML page (Bad & gone)"}},
		{Name: "page-claude", Provider: "anthropic", Replies: []Reply{Body(200, "text/html", "<title>Sign in</title>")}, Want: Want{Error: "an HTML page (Sign in)"}},
		{Name: "redirect", Replies: []Reply{Redirect(301, "https://x.test/v2/chat?key="+Secret)}, Want: Want{Error: "the server redirects to https://x.test/v2/chat. Set base_url of graphs.errors-redirect.agent.model"}},
		{Name: "redirect-to-another-host", Replies: []Reply{Redirect(307, "https://x.test/v1")}, Want: Want{Error: "the server redirects to https://x.test/v1"}},
		{Name: "redirect-that-keeps-the-request", Replies: []Reply{Redirect(307, "/errors-redirect-that-keeps-the-request/v1/chat"), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "event-error", Model: none, Replies: []Reply{Stream("event: error\ndata: {\"message\":\"no memory\"}\n\n")}, Want: Want{Error: "no memory"}},
		{Name: "event-error-text", Model: none, Replies: []Reply{Stream("event: error\ndata: no memory\n\n")}, Want: Want{Error: "no memory"}},
		{Name: "minimax", Model: none, Replies: []Reply{JSON(200, `{"id":"","choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`)}, Want: Want{Error: "insufficient balance"}},
		{Name: "gemini", Replies: []Reply{JSON(400, `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`)}, Want: Want{Error: "API key not valid."}},
		{Name: "fastapi", Replies: []Reply{JSON(422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`)}, Want: Want{Error: "field required"}},
		{Name: "text", Model: none, Replies: []Reply{Body(503, "text/plain", "upstream connect error")}, Want: Want{Error: "503 Service Unavailable: upstream connect error"}},
		{Name: "text-in-a-stream", Model: none, Replies: []Reply{Stream("data: Internal Server Error\n\n")}, Want: Want{Error: "Internal Server Error"}},
		{Name: "error-as-json", Model: none, Replies: []Reply{JSON(200, `{"error":{"message":"no such model","code":404}}`)}, Want: Want{Error: "no such model"}},
		{Name: "nothing", Model: none, Replies: []Reply{Stream("")}, Want: Want{Error: "the connection ended before the answer did"}},
		{Name: "openrouter", Model: none, Replies: []Reply{Stream(Data(`{"id":"x","error":{"code":502,"message":"Provider returned error","metadata":{"raw":"GPU on fire","provider_name":"p"}},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`))}, Want: Want{Error: "Provider returned error: GPU on fire"}},
		{Name: "busy-in-a-stream", Replies: []Reply{Stream(Data(Delta(`{"role":"assistant","content":""}`), `{"error":{"code":429,"message":"Rate limited"}}`)), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "busy-in-json", Replies: []Reply{JSON(200, `{"error":{"type":"rate_limit_exceeded","message":"slow"}}`), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "busy-after-a-token", Replies: []Reply{Stream(Data(Says("Hel"), `{"error":{"code":429,"message":"Rate limited"}}`)), hello}, Want: Want{Error: "Rate limited", Calls: 1}},
		{Name: "reset", Replies: []Reply{Cut(""), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "reset-after-headers", Replies: []Reply{Cut(": hi\n\n"), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "reset-after-the-role", Replies: []Reply{Cut(Data(Delta(`{"role":"assistant","content":""}`))), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "busy", Replies: []Reply{JSON(429, `{}`, Soon...), JSON(500, `{}`, Soon...), hello}, Want: Want{Answer: "Hello", Calls: 3}},
		{Name: "busy-for-long", Replies: []Reply{JSON(429, `{"error":{"message":"tomorrow"}}`, "Retry-After", "3600")}, Want: Want{Error: "429 Too Many Requests: tomorrow", Calls: 1}},
		{Name: "no-money", Replies: []Reply{JSON(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, Soon...)}, Want: Want{Error: "insufficient_quota", Calls: 1}},
		{Name: "request-id", Replies: []Reply{JSON(400, `{"error":{"message":"no"}}`, "X-Request-Id", "req_7")}, Want: Want{Error: "400 Bad Request: no [request ID req_7]", Calls: 1}},
		{Name: "request-id-claude", Provider: "anthropic", Replies: []Reply{JSON(400, `{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"req_8"}`)}, Want: Want{Error: "400 Bad Request: no (invalid_request_error) [request ID req_8]", Calls: 1}},
		{Name: "bad-request", Replies: []Reply{JSON(400, `{"error":{"message":"no"}}`)}, Want: Want{Error: "400 Bad Request: no", Calls: 1}},
	}
	// Errors with status 200 in forms of which some are known and some are not: the message is shown in any case.
	for i, body := range []string{
		`{"error":{"message":"no luck"}}`, `{"error":"no luck"}`, `[{"error":{"message":"no luck"}}]`, `{"detail":"no luck"}`, `{"detail":[{"msg":"no luck"}]}`, `{"message":"no luck"}`,
		`{"object":"error","message":"no luck"}`, `{"errors":["no luck"]}`, `{"errors":[{"message":"no luck"}]}`, `{"msg":"no luck","code":500,"success":false}`, `{"status":"error","message":"no luck"}`,
		`{"fault":{"faultstring":"no luck"}}`, `{"error":{"error":{"message":"no luck"}}}`, `{"error":[{"message":"no luck"}]}`, `{"promptFeedback":{"blockReason":"no luck"}}`, `{"choices":[],"note":"no luck"}`,
		`"no luck"`, `no luck`, `<html>no luck</html>`,
	} {
		for _, provider := range []string{"openai", "anthropic"} {
			for form, reply := range map[string]Reply{
				"json": JSON(200, body), "text": Body(200, "text/plain", body), "event-error": Stream("event: error\ndata: " + body + "\n\n"), "data": Stream(Data(body)),
			} {
				if form == "data" && strings.Contains(body, "choices") {
					continue // Azure begins its answers so
				}
				all = append(all, &Case{Name: fmt.Sprintf("any-%d-%s-%s", i, form, provider), Provider: provider, Model: none, Replies: []Reply{reply}, Want: Want{Error: "no luck", Calls: 1}})
			}
		}
	}
	nothing := map[string][2]Reply{
		"only-the-end":    {Stream(Data(Done)), Stream(Events(`{"type":"message_stop"}`))},
		"garbage":         {Stream(Data("oops", `"hm"`, "[1]")), Stream(Data("oops", `"hm"`, "[1]"))},
		"garbage-and-end": {Stream(Data("oops", `{"hm":1}`, Done)), Stream(Data("oops", `{"hm":1}`) + Events(`{"type":"message_stop"}`))},
		"one-piece":       {JSON(200, `{"hm":1}`), JSON(200, `{"hm":1}`)},
	}
	for name, replies := range nothing {
		for i, provider := range []string{"openai", "anthropic"} {
			answer := []Reply{Answer("Hello"), Claude("end_turn", Text(0, "Hello"))}[i]
			all = append(all,
				&Case{Name: "nothing-" + name + "-" + provider, Provider: provider, Model: object{"retries": 0}, Replies: []Reply{replies[i]}, Want: Want{Error: "the provider sent no answer. Try again", Calls: 1}},
				&Case{Name: "nothing-again-" + name + "-" + provider, Provider: provider, Replies: []Reply{replies[i], answer}, Want: Want{Answer: "Hello", Calls: 2}})
		}
	}
	all = append(all,
		&Case{Name: "garbage-in-an-answer", Name2: "garbler", Replies: []Reply{Stream(Data(Says("Hel"), "oops {", Says("lo"), Finish("stop"), Done))}, Want: Want{Answer: "Hello", Calls: 1}},
		&Case{Name: "finish-error", Provider: "openrouter", Replies: []Reply{Stream(Data(Says("Hel"), `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","native_finish_reason":"MALFORMED"}]}`, Done))}, Want: Want{Error: "the provider ended the answer with an error (MALFORMED)", Calls: 1}},
		&Case{Name: "finish-error-with-text", Provider: "openrouter", Replies: []Reply{Stream(Data(Says("Hel"), `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"upstream died"}}]}`, Done))}, Want: Want{Error: "upstream died", Calls: 1}},
		&Case{Name: "finish-error-at-once", Provider: "openrouter", Replies: []Reply{Stream(Data(`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}],"error":{"code":503,"message":"upstream died"}}`, Done)), Answer("Hello")}, Want: Want{Answer: "Hello", Calls: 2}})
	usage := func(raw string) Reply {
		return Stream(Data(Says("Hello"), Finish("stop"), `{"choices":[],"usage":`+raw+`}`, Done))
	}
	for name, counts := range map[string][2]string{
		"negative": {`{"prompt_tokens":-5,"completion_tokens":2,"total_tokens":-3}`, "0,2,2"}, "huge": {`{"prompt_tokens":1e300,"completion_tokens":2,"total_tokens":9223372036854775807}`, "0,2,2"},
		"text": {`{"prompt_tokens":"3","completion_tokens":"x","total_tokens":"3"}`, "3,0,3"}, "low-total": {`{"prompt_tokens":3,"completion_tokens":2,"total_tokens":1}`, "3,2,5"},
		"thinking": {`{"prompt_tokens":3,"completion_tokens":2,"total_tokens":50}`, "3,2,50"},
	} {
		all = append(all, &Case{Name: "usage-" + name, Replies: []Reply{usage(counts[0])}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			u := r.Last().Get("usage_metadata")
			return want("usage", u.Get("input_tokens").Raw+","+u.Get("output_tokens").Raw+","+u.Get("total_tokens").Raw, counts[1])
		}})
	}
	all = append(all,
		&Case{Name: "usage-claude", Provider: "anthropic", Replies: []Reply{Stream(Events(append(append([]string{strings.Replace(Start, `"input_tokens":10`, `"input_tokens":-10`, 1)}, Text(0, "Hello")...), strings.Replace(End("end_turn")[0], "20", "1e300", 1), End("end_turn")[1])...))}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("usage", r.Last().Get("usage_metadata.total_tokens").Raw, "9") // 5 and 3 of the cache, and the 1 of the beginning
		}},
		&Case{Name: "empty-body", Model: object{"retries": 0}, Replies: []Reply{JSON(503, "")}, Want: Want{Error: "model openai:m: 503 Service Unavailable. Try again later", Calls: 1}},
		&Case{Name: "empty-body-unknown-status", Model: object{"retries": 0}, Replies: []Reply{JSON(520, "")}, Want: Want{Error: "model openai:m: 520. Try again later", Calls: 1}})
	for _, coding := range []string{"br", "gzip"} {
		all = append(all, &Case{Name: "coding-" + coding, Model: object{"headers": object{"Accept-Encoding": coding}}, Replies: []Reply{Body(200, "text/event-stream", "\x1f\x8b", "Content-Encoding", coding)}, Want: Want{Error: "compressed its answer with " + coding, Calls: 1}})
	}
	all = append(all, &Case{Name: "coding-utf-8", Replies: []Reply{Body(200, "text/event-stream", Data(Says("Hello"), Finish("stop"), Done), "Content-Encoding", "utf-8")}, Want: Want{Answer: "Hello"}})
	for _, c := range all {
		c.Line, c.Name = 11, "errors-"+c.Name
	}
	return all
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// textCases: texts arrive as they were written, and chunks add up to the message.
func textCases() []*Case {
	event := func(raw string) string { return Delta(`{"content":"` + raw + `"}`) }
	title := object{"middleware": object{"title": object{}}}
	named := func(name string) func(*Result) error {
		return func(r *Result) error { return want("title", r.State.Get("title").Str, name) }
	}
	long := strings.Repeat("y", 5000)
	all := []*Case{
		{Name: "surrogates", Replies: []Reply{Stream(Data(event(`a\ud83d`), event(`\ude00b`), event(`\uD83D`), event(`\uDE00`), Finish("stop"), Done))}, Want: Want{Answer: "a😀b😀"}},
		{Name: "surrogate-alone", Replies: []Reply{Stream(Data(event(`a\ud83d`), event(`b\\ud83d`), event(`c`), Finish("stop"), Done))}, Want: Want{Answer: "a\ufffdb\\ud83dc"}},
		{Name: "surrogates-in-reasoning", Replies: []Reply{Stream(Data(Delta(`{"reasoning_content":"\ud83d"}`), Delta(`{"reasoning_content":"\ude00"}`), Says("x"), Finish("stop"), Done))}, Check: func(r *Result) error {
			return want("reasoning", r.Last().Get("additional_kwargs.reasoning_content").Str, "😀")
		}},
		{Name: "surrogates-in-arguments", Agent: calculator, Replies: []Reply{Stream(Data(Delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"calculator","arguments":"{\"expression\":\"1+1\",\"x\":\"\ud83d"}}]}`),
			Delta(`{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}`), Finish("tool_calls"), Done)), Answer("Hello")}, Check: func(r *Result) error {
			return want("argument", r.State.Get("messages.1.tool_calls.0.args.x").Str, "😀")
		}},
		{Name: "surrogates-claude", Provider: "anthropic", Replies: []Reply{Stream(Events(Start, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ude00b"}}`) + Events(End("end_turn")...))}, Want: Want{Answer: "a😀b"}},
		{Name: "null-character", Replies: []Reply{Stream(Data(event(`a\u0000b`), event(`\\u0000`), Delta(`{"reasoning_content":"x\u0000y"}`), Finish("stop"), Done))}, Want: Want{Answer: `ab\u0000`}},
		{Name: "null-character-claude", Provider: "anthropic", Agent: calculator, Replies: []Reply{Claude("end_turn", Text(0, "a\x00b"))}, Want: Want{Answer: "ab"}},
		{Name: "not-utf-8", Agent: calculator, Replies: []Reply{Stream(Data(Delta("{\"content\":\"Hi\xff\",\"reasoning_details\":[{\"a\":\"\xff\"}],\"annotations\":[{\"a\xff\":\"\xc3\"}]}"),
			Delta("{\"tool_calls\":[{\"index\":0,\"id\":\"a\xff\",\"function\":{\"name\":\"calc\xff\",\"arguments\":\"{\\\"a\\\":\\\"\xff\\\"}\"},\"extra_content\":{\"a\":\"\xff\"}}]}"), Finish("tool_calls"), Done)), Answer("Hello\xff")}, Want: Want{Answer: "Hello\ufffd", Calls: 2}},
		{Name: "not-utf-8-in-one-piece", Replies: []Reply{JSON(200, "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"Hi\xff\",\"reasoning_details\":[\"\xff\"]},\"finish_reason\":\"stop\"}]}")}, Want: Want{Answer: "Hi\ufffd"}},
		{Name: "not-utf-8-claude", Provider: "anthropic", Replies: []Reply{Claude("end_\xffturn", Text(0, "Hi"), Block(1, "{\"type\":\"holo\xff\",\"\xff\":\"\xff\"}"))}, Want: Want{Answer: "Hi"}},
		{Name: "deep-details", Replies: []Reply{Stream(Data(Says("Hi"), Delta(`{"reasoning_details":`+nested(950)+`}`), Finish("stop"), Done))}, Want: Want{Answer: "Hi"}},
		{Name: "deep-logprobs", Replies: []Reply{Stream(Data(Says("Hi"), `{"choices":[{"index":0,"delta":{},"logprobs":{"content":`+nested(850)+`}}]}`, Finish("stop"), Done))}, Want: Want{Answer: "Hi"}},
		{Name: "deep-arguments", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", `{"expression":`+nested(5000)+`}`)), Finish("tool_calls"), Done)), Answer("Hello")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hello"}},
		{Name: "deep-arguments-that-are-kept", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", `{"expression":`+nested(890)+`}`)), Finish("tool_calls"), Done)), Answer("Hello")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hello"}},
		{Name: "deep-claude", Provider: "anthropic", Replies: []Reply{Claude("end_turn", Text(0, "Hi"), Block(1, `{"type":"hologram","a":`+nested(5000)+`}`), Block(2, `{"type":"hologram","a":`+nested(850)+`}`))}, Want: Want{Answer: "Hi"}},
		{Name: "cut-in-a-call", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", `{"expression":"1+`)), Finish("length"), Done)), Answer("Hello")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hello"}},
		{Name: "list-as-arguments", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "calculator", `[1]`)), Finish("tool_calls"), Done)), Answer("Hello")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hello"}},
		{Name: "call-without-name", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "a", "", `{}`)), Finish("tool_calls"), Done)), Answer("Hello")}, Turns: []Turn{{Says: "hi"}, {Says: "again"}}, Want: Want{Answer: "Hello"}},
		{Name: "title-of-a-thinker", Agent: title, Replies: []Reply{Answer("Hello"), Answer("<think>\nWhat is this about?\n</think>\n\n\"A greeting\"")}, Check: named("A greeting")},
		{Name: "title-without-first-tag", Agent: title, Replies: []Reply{Answer("Hello"), Answer("Well…</think>A greeting")}, Check: named("A greeting")},
		{Name: "title-empty", Name2: "untitled", Agent: title, Replies: []Reply{Answer("Hello"), Answer(" ")}, Check: named("hi")},
		{Name: "title-cut-in-thoughts", Agent: title, Replies: []Reply{Answer("Hello"), Answer("<think>\nWhat is")}, Check: named("hi")},
		{
			Name: "metadata", Replies: []Reply{Stream(Data(`{"model":"m-1","service_tier":"default","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":{"content":[{"token":"Hel","logprob":-0.5}],"refusal":null}}]}`,
				`{"model":"m-1","service_tier":"default","choices":[{"index":0,"delta":{"content":"lo","annotations":[{"type":"url_citation"}]},"logprobs":{"content":[{"token":"lo","logprob":-0.5}],"refusal":null}}]}`, Finish("stop"), Done))},
			Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
				m := r.Last().Get("response_metadata")
				return first(want("logprobs", m.Get("logprobs.content.#").Int(), 2), want("tier", m.Get("service_tier").Str, "default"), want("annotation", m.Get("annotations.0.type").Str, "url_citation"))
			},
		},
		{Name: "event-too-large", Model: object{"max_event_size": 2000}, Replies: []Reply{Answer(long)}, Want: Want{Error: "more than 2000 bytes. Check what the server sends, or raise max_event_size of", Calls: 1}},
		{Name: "event-large", Model: object{"max_event_size": 9000}, Replies: []Reply{Answer(long)}, Want: Want{Answer: long}},
		{Name: "generated-ids", Agent: calculator, Replies: []Reply{Stream(Data(Calls(Piece("0", "", "calculator", `{"expression":"1+1"}`)), Finish("tool_calls"), Done)), Answer("Hello")}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			if id := r.State.Get("messages.1.tool_calls.0.id").Str; len(id) == 0 || len(id) > 40 {
				return fmt.Errorf("the id is %q", id)
			}
			return nil
		}},
	}
	for _, c := range all {
		c.Line, c.Name = 12, "text-"+c.Name
	}
	return all
}
