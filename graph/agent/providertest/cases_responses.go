package providertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// responsesCases: the Responses API.
func responsesCases() []*Case {
	hello := Stream(Items(Written(0, "msg_1", "Hel", "lo")))
	sum := Stream(Items(Calling(0, "fc_1", "call_1", "1+1")))
	two := []Turn{{Says: "hi"}, {Says: "again"}}
	// As models think: before each call, and before the text.
	thinks := func(secret string) Reply {
		return Stream(Items(Thought(0, "rs_1", secret, "I ", "think"), Written(1, "msg_1", "Look: "), Thought(2, "rs_2", secret, "So"), Calling(3, "fc_r1", "call_1", "1+1"), Thought(4, "rs_3", secret, "And"), Calling(5, "fc_r2", "call_2", "2+2")))
	}
	kinds := func(r *Result, request int) string {
		var out []string
		for _, item := range r.Sent[request].Get("input").Array() {
			kind := item.Get("type").Str
			if kind == "message" {
				kind = item.Get("role").Str
			}
			if id := item.Get("id").Str; id != "" {
				kind += ":" + id
			}
			out = append(out, kind)
		}
		return strings.Join(out, " ")
	}
	// A server that has forgotten, or never knew, what is behind an id.
	forgets := func(_ *http.Request, body gjson.Result) string {
		for _, item := range body.Get("input").Array() {
			if id := item.Get("id").Str; id != "" {
				return "Item with id '" + id + "' not found."
			}
		}
		return ""
	}
	sent := func(path, value string) Rule {
		return func(_ *http.Request, body gjson.Result) string {
			if got := body.Get(path); got.Raw != value {
				return fmt.Sprintf("%s is %s", path, got.Raw)
			}
			return ""
		}
	}
	failed := func(code, message string) string {
		return `{"type":"response.failed","response":{` + about + `,"status":"failed","output":[],"error":{"code":"` + code + `","message":"` + message + `"}}}`
	}
	renamed := strings.NewReplacer(`"item_id":"fc_1"`, `"item_id":"x9"`, `{"id":"fc_1","type":"function_call","call_id":"call_1","name":"calculator","status":"completed"`, `{"id":"x8","type":"function_call","call_id":"call_1","name":"calculator","status":"completed"`)
	bare := func(drop ...string) string { // a stream without some events
		var out []string
		for _, i := range []Item{Thought(0, "rs_1", "", "Hm"), Written(1, "msg_1", "Hel", "lo")} {
			out = append(out, i.Events...)
		}
		out = append(Started(), append(out, Ended("completed", "null"))...)
		return named(slices.DeleteFunc(out, func(e string) bool { return slices.Contains(drop, gjson.Get(e, "type").Str) })...)
	}
	answered := func(r *Result) error {
		m := r.Last()
		return first(want("reasoning", m.Get(`content.#(type=="reasoning").summary.0.text`).Str, "Hm"), want("blocks", m.Get("content.#").Int(), 2), want("id", m.Get("content.1.id").Str, "msg_1"))
	}
	const pdf = "JVBERi0="
	all := []*Case{
		{Name: "text", Replies: []Reply{hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}, Check: func(r *Result) error {
			m := r.Last()
			return first(want("usage", m.Get("usage_metadata").Raw, `{"input_tokens":10,"output_tokens":7,"total_tokens":17,"input_token_details":{"cache_read":4},"output_token_details":{"reasoning":3}}`),
				want("reason", m.Get("response_metadata.finish_reason").Str, "stop"), want("id", m.Get("response_metadata.id").Str, "resp_1"), want("sent", kinds(r, 1), "user assistant:msg_1 user"))
		}},
		{Name: "tools", Agent: calculator, Replies: []Reply{sum, hello}, Turns: two, Want: Want{Answer: "Hello", Tools: "2", Calls: 3}, Check: func(r *Result) error {
			return want("sent", kinds(r, 2), "user function_call:fc_1 function_call_output assistant:msg_1 user")
		}},
		{Name: "reasoning", Agent: calculator, Replies: []Reply{thinks(""), hello}, Turns: two, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 3}, Check: func(r *Result) error {
			return want("sent", kinds(r, 2), "user reasoning:rs_1 assistant:msg_1 reasoning:rs_2 function_call:fc_r1 reasoning:rs_3 function_call:fc_r2 function_call_output function_call_output assistant:msg_1 user")
		}},
		{
			Name: "not-stored", Name2: "gpt-5-codex", Model: object{"extra_body": object{"store": false}}, Agent: calculator, Replies: []Reply{thinks("SEALED"), hello}, Turns: two, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 3},
			Rules: []Rule{sent("include", `["reasoning.encrypted_content"]`)}, Check: func(r *Result) error {
				return first(want("sent", kinds(r, 2), "user reasoning:rs_1 assistant reasoning:rs_2 function_call reasoning:rs_3 function_call function_call_output function_call_output assistant user"),
					want("reasoning", r.Sent[2].Get("input.1.encrypted_content").Str, "SEALED"))
			},
		},
		{
			Name: "not-stored-not-sealed", Model: object{"extra_body": object{"store": false}}, Agent: calculator, Replies: []Reply{thinks(""), hello}, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 2},
			Check: func(r *Result) error {
				return first(want("sent", kinds(r, 1), "user assistant function_call function_call function_call_output function_call_output"), want("include", r.Sent[0].Get("include").Raw, ""))
			},
		},
		{Name: "forgotten", Agent: calculator, Replies: []Reply{thinks(""), hello}, Rules: []Rule{forgets}, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 3}, Check: func(r *Result) error {
			return want("sent", kinds(r, 2), "user assistant function_call function_call function_call_output function_call_output")
		}},
		{Name: "no-sealed-content", Name2: "o3", Model: object{"extra_body": object{"store": false}}, Replies: []Reply{hello}, Rules: []Rule{func(_ *http.Request, body gjson.Result) string {
			if body.Get("include").Exists() {
				return "Encrypted content is not supported with this model."
			}
			return ""
		}}, Want: Want{Answer: "Hello", Calls: 2}},
		{
			Name: "call-not-made", Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":"x"},{"type":"ai","content":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"a","arguments":"{}"},` +
				`{"type":"text","text":"Stopped."},{"type":"reasoning","id":"rs_2","summary":[]}]},{"type":"human","content":"hi"}]}`}}, Want: Want{Answer: "Hello", Calls: 1}, Check: func(r *Result) error {
				return want("sent", kinds(r, 0), "user assistant user")
			},
		},
		{
			Name: "settings", Name2: "gpt-5.1", Model: object{"max_tokens": 9, "temperature": 0.5, "extra_body": object{"reasoning_effort": "low", "reasoning": object{"summary": "auto"}, "verbosity": "low", "stream_options": nil}}, Replies: []Reply{hello}, Want: Want{Answer: "Hello", Calls: 1},
			Rules: []Rule{sent("max_output_tokens", "9"), sent("temperature", ""), sent("reasoning.effort", `"low"`), sent("reasoning.summary", `"auto"`), sent("text.verbosity", `"low"`)},
		},
		{Name: "forced", Agent: schema, Replies: []Reply{Stream(strings.ReplaceAll(Items(Calling(0, "fc_1", "call_1", "1+1")), `"name":"calculator"`, `"name":"Sum"`))}, Rules: []Rule{sent("tool_choice", `"required"`)}, Want: Want{Error: "1+1", Calls: 10}},
		{Name: "one-piece", Agent: calculator, Replies: []Reply{JSON(200, Response("completed", "null", Thought(0, "rs_1", "", "Hm").Whole, Calling(1, "fc_r1", "call_1", "1+1").Whole)), JSON(200, Response("completed", "null", Written(0, "msg_1", "Hello").Whole))}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "only-the-end", Agent: calculator, Replies: []Reply{Stream(named(Ended("completed", "null", Calling(0, "fc_1", "call_1", "1+1")))), hello}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "no-pieces", Replies: []Reply{Stream(bare("response.output_text.delta", "response.output_text.done", "response.reasoning_summary_text.delta", "response.reasoning_summary_part.added"))}, Want: Want{Answer: "Hello"}, Check: answered},
		{Name: "no-items", Replies: []Reply{Stream(bare("response.output_item.added", "response.content_part.added"))}, Want: Want{Answer: "Hello"}, Check: answered},
		{Name: "nothing-done", Replies: []Reply{Stream(bare("response.output_item.done"))}, Want: Want{Answer: "Hello"}, Check: answered},
		{Name: "done-alone", Replies: []Reply{Stream(bare("response.completed") + Data(Done))}, Want: Want{Answer: "Hello"}, Check: answered},
		{Name: "ids-change", Agent: calculator, Replies: []Reply{Stream(renamed.Replace(Items(Calling(0, "fc_1", "call_1", "1+1")))), hello}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "open-reasoning", Replies: []Reply{Stream(named(append(Started(), `{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":0,"content_index":0,"delta":"Hm, "}`, `{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":0,"content_index":0,"delta":"ok"}`,
			`{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hello"}`, Ended("completed", "null"))...))}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("reasoning", r.Last().Get("content.0.content.0.text").Str, "Hm, ok")
		}},
		{Name: "odd", Replies: []Reply{Stream(named(append(Started(), `{"type":"keepalive","sequence_number":3}`, `{"type":"response.output_item.added","output_index":"x","item":7}`, `{"type":"response.function_call_arguments.delta","delta":"{"}`, `{"type":"response.output_text.delta","delta":{"a":1}}`,
			`{"type":"response.sung","delta":"la"}`, `{"type":"codex.rate_limits"}`, `{"type":"response.output_text.annotation.added","annotation":null}`, `[]`, `{`)...) + Items(Written(0, "msg_1", "Hello")))}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "refusal", Replies: []Reply{Stream(named(append(Started(), `{"type":"response.refusal.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"No"}`, `{"type":"response.refusal.done","item_id":"msg_1","output_index":0,"content_index":0,"refusal":"No."}`, Ended("completed", "null"))...))}, Turns: two, Check: func(r *Result) error {
			return first(want("refusal", r.Last().Get("content.0.refusal").Str, "No."), want("sent", r.Sent[1].Get("input.1.content.0.refusal").Str, "No."))
		}},
		{Name: "limit", Replies: []Reply{Stream(named(append(append(Started(), Written(0, "msg_1", "Once").Events...), Ended("incomplete", `{"reason":"max_output_tokens"}`))...))}, Want: Want{Calls: 1}, Check: func(r *Result) error {
			return want("reason", r.Last().Get("response_metadata.finish_reason").Str, "length")
		}},
		{Name: "filtered", Replies: []Reply{Stream(named(append(Started(), Ended("incomplete", `{"reason":"content_filter"}`))...))}, Check: func(r *Result) error {
			return want("reason", r.Last().Get("response_metadata.finish_reason").Str, "content_filter")
		}},
		{Name: "busy", Replies: []Reply{JSON(429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, Soon...), Stream(named(append(Started(), failed("rate_limit_exceeded", "slow"))...)), hello}, Want: Want{Answer: "Hello", Calls: 3}},
		{Name: "error-event", Replies: []Reply{Stream(named(append(Started(), `{"type":"error","code":"server_error","message":"oops","param":null}`)...)), Stream(named(`{"type":"error","error":{"type":"server_error","code":null,"message":"oops"}}`)), hello}, Want: Want{Answer: "Hello", Calls: 3}},
		{Name: "failed", Model: object{"retries": 0}, Replies: []Reply{Stream(named(append(Started(), failed("server_error", "It broke"))...))}, Want: Want{Error: "It broke", Calls: 1}},
		{Name: "failed-within", Replies: []Reply{Stream(named(append(append(Started(), Written(0, "msg_1", "Hel").Events[:3]...), failed("server_error", "It broke"))...))}, Want: Want{Error: "It broke", Calls: 1}},
		{Name: "failed-silently", Model: object{"retries": 0}, Replies: []Reply{Stream(named(append(Started(), `{"type":"response.failed","response":{"error":null}}`)...))}, Want: Want{Error: "failed", Calls: 1}},
		{Name: "too-long", Model: object{"retries": 0}, Replies: []Reply{Stream(named(append(Started(), failed("context_length_exceeded", "Your input exceeds the context window"))...))}, Want: Want{Error: "context window", Calls: 1}},
		{Name: "not-found", Replies: []Reply{JSON(404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`)}, Want: Want{Error: "404 Not Found", Calls: 1}},
		{Name: "still-working", Model: object{"retries": 0}, Replies: []Reply{JSON(200, Response("queued", "null"))}, Want: Want{Error: "queued", Calls: 1}},
		{Name: "chat-in-place", Model: object{"retries": 0}, Replies: []Reply{Answer("Hello")}, Want: Want{Error: "no answer", Calls: 1}},
		{Name: "cut", Replies: []Reply{Cut(named(append(Started(), Written(0, "msg_1", "Hel").Events[:3]...)...))}, Want: Want{Error: "the connection ended before the answer did", Calls: 1}},
		{Name: "cut-in-a-call", Agent: calculator, Replies: []Reply{Cut(named(append(Started(), Calling(0, "fc_1", "call_1", "1+1").Events[:2]...)...))}, Want: Want{Error: "the connection ended before the answer did", Calls: 1}},
		{Name: "cut-before-the-end", Replies: []Reply{Cut(named(append(Started(), Written(0, "msg_1", "Hello").Events...)...))}, Want: Want{Error: "the connection ended before the answer did", Calls: 1}},
		{Name: "cut-at-first", Replies: []Reply{Cut(named(Started()...)), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "cut-after-the-end", Replies: []Reply{Cut(Items(Written(0, "msg_1", "Hello")))}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "silent", Model: object{"idle_timeout": "100ms"}, Replies: []Reply{Hang(named(append(Started(), Written(0, "msg_1", "Hel").Events[:3]...)...))}, Want: Want{Error: "silent for too long", Calls: 1}},
		{Name: "content", Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":[{"type":"text","text":"see"},{"type":"image","base64":"AQID","mime_type":"image/png"},{"type":"image_url","image_url":{"url":"https://x.test/a.png","detail":"low"}},{"type":"file","base64":"` + pdf + `","mime_type":"application/pdf","filename":"a.pdf"},{"type":"file","url":"https://x.test/b.pdf"},{"type":"file","file_id":"file-1"}]}]}`}}, Want: Want{Answer: "Hello", Calls: 1}, Check: func(r *Result) error {
			c := r.Sent[0].Get("input.0.content")
			return first(want("image", c.Get("1.image_url").Str, "data:image/png;base64,AQID"), want("detail", c.Get("2.detail").Str, "low"), want("file", c.Get("3.filename").Str, "a.pdf"), want("address", c.Get("4.file_url").Str, "https://x.test/b.pdf"), want("id", c.Get("5.file_id").Str, "file-1"))
		}},
		{Name: "sound", Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":[{"type":"audio","base64":"AQID","mime_type":"audio/wav"}]}]}`}}, Want: Want{Error: "the Responses API takes no audio"}},
		{Name: "images-of-tools", Model: object{"images": true}, Agent: calculator, Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":"x"},{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}]},{"type":"tool","content":[{"type":"text","text":"see"},{"type":"image","base64":"AQID","mime_type":"image/png"}],"tool_call_id":"call_1"}]}`}}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("output", r.Sent[0].Get("input.2.output.1.image_url").Str, "data:image/png;base64,AQID")
		}},
	}
	// Threads that began with another API, and those that continue with one.
	const of = `{"messages":[{"type":"human","content":"x"},%s,{"type":"tool","content":"2","tool_call_id":"call_1"},{"type":"human","content":"hi"}]}`
	here := `{"type":"ai","content":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm","index":0}],"index":0},{"type":"text","text":"Look","id":"msg_1","index":1},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"calculator","arguments":"{}","index":2}],"tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"openai"}}`
	there := map[string]string{
		"anthropic": `{"type":"ai","content":[{"type":"thinking","thinking":"Hm","signature":"S"},{"type":"text","text":"Look"},{"type":"tool_use","id":"call_1","name":"calculator","input":{}}],"tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"anthropic"}}`,
		"chat":      `{"type":"ai","content":"Look","additional_kwargs":{"reasoning_content":"Hm"},"tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"openai"}}`,
		"v1":        `{"type":"ai","content":[{"type":"reasoning","reasoning":"Hm","id":"lc_1"},{"type":"text","text":"Look","id":"lc_2"}],"tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"openai","output_version":"v1"}}`,
	}
	for name, m := range there {
		all = append(all, &Case{Name: "after-" + name, Agent: calculator, Replies: []Reply{hello}, Turns: []Turn{{Input: fmt.Sprintf(of, m)}}, Want: Want{Answer: "Hello", Calls: 1}, Check: func(r *Result) error {
			return want("sent", kinds(r, 0), "user assistant function_call function_call_output user")
		}})
	}
	for _, c := range all {
		c.Name = "responses-" + c.Name
		if c.Model == nil {
			c.Model = object{}
		}
		c.Model["use_responses_api"] = true
	}
	all = append(all,
		&Case{Name: "chat-after-responses", Agent: calculator, Replies: []Reply{Answer("Hello")}, Turns: []Turn{{Input: fmt.Sprintf(of, here)}}, Want: Want{Answer: "Hello", Calls: 1}},
		&Case{Name: "anthropic-after-responses", Provider: "anthropic", Agent: calculator, Replies: []Reply{Claude("end_turn", Text(0, "Hello"))}, Turns: []Turn{{Input: fmt.Sprintf(of, here)}}, Want: Want{Answer: "Hello", Calls: 1}})
	for _, c := range all {
		c.Line = 14
	}
	return all
}
