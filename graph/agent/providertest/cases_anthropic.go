package providertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// anthropicCases: the Messages API and what it refuses.
func anthropicCases() []*Case {
	thinking := object{"extra_body": object{"thinking": object{"type": "enabled", "budget_tokens": 2000}}}
	hello := Claude("end_turn", Text(0, "Hel", "lo"))
	sum := Claude("tool_use", Use(0, "toolu_1", `{"expression":`, `"1+1"}`))
	two := []Turn{{Says: "hi"}, {Says: "again"}}
	meta := func(field, value string) func(*Result) error {
		return func(r *Result) error {
			return want(field, r.Last().Get("response_metadata."+field).Str, value)
		}
	}
	content := func(r *Result, request int, path string) gjson.Result {
		return r.Sent[request].Get("messages." + path)
	}
	png := "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	searched := Claude("end_turn", Block(0, `{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}`),
		Block(1, `{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[]}`), Block(2, `{"type":"text","text":"","citations":[]}`,
			`{"type":"text_delta","text":"Hello"}`, `{"type":"citations_delta","citation":{"type":"web_search_result_location","url":"u"}}`))
	given := func(messages string) []Turn { return []Turn{{Input: `{"messages":` + messages + `}`}} }
	// A step of a turn with its result, and one that Claude thought before.
	const step = `{"type":"ai","content":[{"type":"text","text":"so"}],"tool_calls":[{"name":"calculator","args":{},"id":"toolu_7"}],"response_metadata":{"model_provider":"anthropic"}},{"type":"tool","content":"2","tool_call_id":"toolu_7"}`
	thought := strings.Replace(step, `[{"type":"text"`, `[{"type":"thinking","thinking":"Hm","signature":"SIG"},{"type":"text"`, 1)
	all := []*Case{
		{Name: "text", Replies: []Reply{hello}, Want: Want{Answer: "Hello", Calls: 1}, Check: func(r *Result) error {
			m := r.Last()
			return first(want("content", m.Get("content").Raw, `"Hello"`), want("model", m.Get("response_metadata.model_name").Str, "claude-x-1"),
				want("provider", m.Get("response_metadata.model_provider").Str, "anthropic"), want("usage", m.Get("usage_metadata").Raw,
					`{"input_tokens":18,"output_tokens":20,"total_tokens":38,"input_token_details":{"cache_creation":5,"cache_read":3}}`))
		}},
		{
			Name: "settings", Model: object{"extra_body": object{"top_k": 3, "max_tokens": nil, "metadata": object{"user_id": "u"}}, "max_tokens": 77}, Replies: []Reply{hello},
			Rules: []Rule{func(r *http.Request, body gjson.Result) string {
				if r.Header.Get("X-Team") != Secret || r.URL.Query().Get("key") != Secret || body.Get("top_k").Int() != 3 || body.Get("metadata.user_id").Str != "u" {
					return "headers, query or extra_body are missing"
				}
				return ""
			}}, Want: Want{Error: "max_tokens: field required"},
		},
		{Name: "key-as-bearer", Model: object{"api_key_header": "authorization"}, Replies: []Reply{hello}, Want: Want{Answer: "Hello"}},
		{
			Name: "busy", Replies: []Reply{JSON(429, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, Soon...), JSON(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Soon...), hello},
			Want: Want{Answer: "Hello", Calls: 3},
		},
		{Name: "busy-no-retries", Model: object{"retries": 0}, Replies: []Reply{JSON(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Soon...)}, Want: Want{Error: "529 Overloaded", Calls: 1}},
		{Name: "overloaded-in-stream", Replies: []Reply{Stream(Events(Start, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)), hello}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "tools", Agent: calculator, Replies: []Reply{sum, hello}, Want: Want{Answer: "Hello", Calls: 2, Tools: "2"}, Check: func(r *Result) error {
			return first(want("content", r.Last().Get("content.0.text").Str, "Hello"), want("schema", r.Sent[0].Get("tools.0.input_schema.type").Str, "object"))
		}},
		{
			Name: "tools-with-thinking", Model: thinking, Agent: calculator, Replies: []Reply{
				Claude("tool_use", Think(0, "SIG", "Hm ", "ok"), Text(1, "Let me see"), Use(2, "toolu_1", `{"expression":"1+1"}`)), Claude("end_turn", Text(0, "Hello")),
			},
			Want: Want{Answer: "Hello", Calls: 2, Tools: "2"}, Check: func(r *Result) error {
				return first(want("returned", content(r, 1, "1.content.0").Raw, `{"signature":"SIG","thinking":"Hm ok","type":"thinking"}`), want("max_tokens", r.Sent[0].Get("max_tokens").Int(), 10192))
			},
		},
		{
			Name: "redacted-thinking", Model: thinking, Agent: calculator, Replies: []Reply{
				Claude("tool_use", Block(0, `{"type":"redacted_thinking","data":"XX"}`), Use(1, "toolu_1", `{"expression":"1+1"}`)), Claude("end_turn", Block(0, `{"type":"redacted_thinking","data":"YY"}`), Text(1, "Hello")),
			},
			Turns: two, Want: Want{Answer: "Hello", Calls: 3}, Check: func(r *Result) error {
				return first(want("returned", content(r, 1, "1.content.0").Raw, `{"data":"XX","type":"redacted_thinking"}`), want("again", content(r, 2, "3.content.0.data").Str, "YY"))
			},
		},
		{
			Name: "thinking-after-another-model", Model: thinking, Agent: calculator, Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":"x"},
			{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"openai"}},{"type":"tool","content":"2","tool_call_id":"call_1"}]}`}},
			Want: Want{Answer: "Hello"}, Check: func(r *Result) error { return want("thinking", r.Sent[0].Get("thinking").Exists(), false) },
		},
		{
			Name: "thinking-at-the-first-step-alone", Model: thinking, Agent: calculator, Replies: []Reply{
				Claude("tool_use", Think(0, "SIG", "Hm"), Use(1, "toolu_1", `{"expression":"1+1"}`)), Claude("tool_use", Use(0, "toolu_2", `{"expression":"2+2"}`)), Claude("tool_use", Use(0, "toolu_3", `{"expression":"3+3"}`)), hello,
			},
			Turns: two, Want: Want{Answer: "Hello", Calls: 5, Tools: "2,4,6"}, Check: func(r *Result) error {
				for i, q := range r.Sent {
					if q.Get("thinking.type").Str != "enabled" {
						return fmt.Errorf("request %d has no thinking", i)
					}
				}
				return want("returned", content(r, 3, "1.content.0.signature").Str, "SIG")
			},
		},
		{
			Name: "thinking-in-the-turn-of-another-model", Model: thinking, Agent: calculator, Replies: []Reply{hello}, Turns: append(given(`[{"type":"human","content":"x"},`+
				`{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"call_1"}],"response_metadata":{"model_provider":"openai"}},{"type":"tool","content":"2","tool_call_id":"call_1"},`+thought+`]`), Turn{Says: "again"}),
			Want: Want{Answer: "Hello", Calls: 2}, Check: func(r *Result) error {
				return first(want("thinking", r.Sent[0].Get("thinking").Exists(), false), want("the next turn", r.Sent[1].Get("thinking").Exists(), true))
			},
		},
		{
			Name: "thinking-unasked", Agent: calculator, Model: object{"headers": object{"x-thinks": "always"}}, Rules: []Rule{keepsThinking}, Replies: []Reply{
				Claude("tool_use", Think(0, "SIG", "Hm"), Use(1, "toolu_1", `{"expression":"1+1"}`)), Claude("tool_use", Block(0, `{"type":"redacted_thinking","data":"XX"}`), Use(1, "toolu_2", `{"expression":"2+2"}`)), hello,
			},
			Turns: two, Want: Want{Answer: "Hello", Tools: "2,4", Calls: 4}, Check: func(r *Result) error {
				return first(want("the first", content(r, 2, "1.content.0.signature").Str, "SIG"), want("the second", content(r, 2, "3.content.0.data").Str, "XX"))
			},
		},
		{Name: "thinking-unasked-without-tools", Rules: []Rule{keepsThinking}, Replies: []Reply{Claude("end_turn", Think(0, "SIG", "Hm"), Text(1, "Hello"))}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "blank", Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":" \n"}]}`, Error: "the last message has no text"}, {Says: "hi"}, {Input: `{"messages":[{"type":"human","content":""}]}`, Error: "the last message has no text"}, {Says: "hi"}}, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "blank-blocks", Replies: []Reply{hello}, Turns: []Turn{{Input: `{"messages":[{"type":"human","content":[{"type":"text","text":" "}]}]}`, Error: "the last message has no text"}, {Says: "hi"}}, Want: Want{Answer: "Hello", Calls: 1}},
		{Name: "blank-after-a-person", Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},{"type":"human","content":""}]`), Want: Want{Answer: "Hello", Calls: 1}},
		{
			Name: "thinking-turned-off", Agent: calculator, Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},` + thought + `]`), Want: Want{Answer: "Hello"},
			Check: func(r *Result) error {
				return want("blocks", content(r, 0, "1.content.#.type").Raw, `["text","tool_use"]`)
			},
		},
		{
			Name: "thinking-and-a-person-between-results", Model: thinking, Agent: calculator, Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},` + thought + `,{"type":"human","content":"hurry"},` + strings.ReplaceAll(step, "toolu_7", "toolu_8") + `]`),
			Want: Want{Answer: "Hello"}, Check: func(r *Result) error { return want("thinking", r.Sent[0].Get("thinking").Exists(), false) },
		},
		{Name: "thinking-alone", Model: thinking, Agent: calculator, Replies: []Reply{Claude("max_tokens", Think(0, "SIG", "Hm")), hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}, Check: func(r *Result) error {
			return want("messages", content(r, 1, "#").Int(), 1)
		}},
		{Name: "thinking-last", Model: thinking, Agent: calculator, Replies: []Reply{Claude("max_tokens", Text(0, "So"), Think(1, "SIG", "Hm"), Block(2, `{"type":"redacted_thinking","data":"XX"}`)), hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}, Check: func(r *Result) error {
			return want("blocks", content(r, 1, "1.content.#.type").Raw, `["text"]`)
		}},
		{Name: "person-between-results", Agent: calculator, Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"a"},{"name":"calculator","args":{},"id":"b"}]},
			{"type":"human","content":"first"},{"type":"tool","content":"1","tool_call_id":"a"},{"type":"human","content":"second"},{"type":"tool","content":"2","tool_call_id":"b"}]`), Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return first(want("blocks", content(r, 0, "2.content.#.type").Raw, `["tool_result","tool_result","text","text"]`), want("order", content(r, 0, "2.content.#.text").Raw, `["first","second"]`))
		}},
		{Name: "image-in-an-error", Agent: calculator, Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},{"type":"ai","content":"","tool_calls":[{"name":"calculator","args":{},"id":"a"},{"name":"calculator","args":{},"id":"b"}]},
			{"type":"tool","status":"error","content":[{"type":"text","text":"see "},{"type":"image","base64":"` + png + `","mime_type":"image/png"}],"tool_call_id":"a"},{"type":"tool","status":"error","content":" ","tool_call_id":"b"}]`), Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("text", content(r, 0, "2.content.0.content").Str, "see [image]")
		}},
		{Name: "parallel", Agent: calculator, Replies: []Reply{Claude("tool_use", Use(0, "a", `{"expression":"1+1"}`), Use(1, "b", `{"expression":"2+2"}`)), hello}, Want: Want{Answer: "Hello", Tools: "2,4"}, Check: func(r *Result) error {
			return first(want("messages", r.Sent[1].Get("messages.#").Int(), 3), want("results", content(r, 1, "2.content.#").Int(), 2))
		}},
		{Name: "parallel-interleaved", Agent: calculator, Replies: []Reply{Stream(Events(append([]string{
			Start,
			Use(0, "a")[0], Use(1, "b")[0], Use(1, "b", `{"expression":`)[1], Use(0, "a", `{"expression":"1+1"}`)[1], Use(1, "b", `"2+2"}`)[1],
		}, End("tool_use")...)...)), hello}, Want: Want{Answer: "Hello", Tools: "2,4"}},
		{Name: "failed-tool", Agent: calculator, Replies: []Reply{Claude("tool_use", Use(0, "a", `{"expression":"1/0"}`)), hello}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("is_error", content(r, 1, "2.content.0.is_error").Bool(), true)
		}},
		{Name: "empty-after-tools", Agent: calculator, Replies: []Reply{sum, Claude("end_turn"), hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 3}},
		{Name: "refusal", Replies: []Reply{Claude("refusal")}, Check: meta("stop_reason", "refusal")},
		{Name: "pause", Replies: []Reply{Claude("pause_turn", Text(0, "wait"))}, Want: Want{Answer: "wait"}, Check: meta("stop_reason", "pause_turn")},
		{Name: "cut-in-a-call", Agent: calculator, Replies: []Reply{Claude("max_tokens", Text(0, "so"), Use(1, "a", `{"expression":"1+`)), hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}, Check: func(r *Result) error {
			return first(want("invalid", r.State.Get("messages.1.invalid_tool_calls.0.args").Str, `{"expression":"1+`), want("calls", r.State.Get("messages.1.tool_calls.#").Int(), 0))
		}},
		{
			Name: "unknown-blocks", Agent: calculator, Replies: []Reply{Claude("end_turn", Block(0, `{"type":"hologram","x":1}`, `{"type":"hologram_delta"}`), Text(1, "Hello"), []string{`{"type":"weather_report"}`})}, Turns: two,
			Want: Want{Answer: "Hello"}, Check: func(r *Result) error { return want("block", r.Last().Get("content.0.type").Str, "hologram") },
		},
		{Name: "web-search", Agent: calculator, Replies: []Reply{searched}, Turns: two, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return first(want("query", content(r, 1, "1.content.0.input.query").Str, "x"), want("citation", content(r, 1, "1.content.2.citations.0.url").Str, "u"))
		}},
		{Name: "web-search-of-the-settings", Model: object{"extra_body": object{"tools": []any{object{"type": "web_search_20250305", "name": "web_search"}}}}, Replies: []Reply{Claude("end_turn", Text(0, "So: "),
			Block(1, `{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query":"x"}}`), Block(2, `{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[]}`), Text(3, "Hello"))}, Turns: two, Want: Want{Answer: "So: Hello"}, Check: func(r *Result) error {
			return first(want("query", content(r, 1, "1.content.1.input.query").Str, "x"), want("result", content(r, 1, "1.content.2.type").Str, "web_search_tool_result"))
		}},
		{Name: "web-search-of-an-unknown-model", Replies: []Reply{hello}, Turns: given(`[{"type":"human","content":"x"},{"type":"ai","content":[{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}},
			{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[]},{"type":"text","text":"found"}]},{"type":"human","content":"y"}]`), Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			return want("blocks", content(r, 0, "1.content.#.type").Raw, `["text"]`)
		}},
		{Name: "web-search-cut-off", Agent: calculator, Replies: []Reply{Claude("max_tokens", Think(0, "SIG", "Hm"), Block(1, `{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}}`)), hello}, Turns: two, Want: Want{Answer: "Hello", Calls: 2}},
		{Name: "forced-tool", Agent: schema, Replies: []Reply{Claude("tool_use", Block(0, `{"type":"tool_use","id":"a","name":"Sum","input":{"sum":7}}`))}, Want: Want{Calls: 1}, Check: func(r *Result) error {
			return first(want("choice", r.Sent[0].Get("tool_choice.type").Str, "any"), want("answer", r.State.Get("structured_response.sum").Int(), 7))
		}},
		{
			Name: "forced-tool-with-thinking", Model: thinking, Agent: schema, Replies: []Reply{Claude("tool_use", Think(0, "S", "Hm"), Block(1, `{"type":"tool_use","id":"a","name":"Sum","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"sum\":7}"}`))},
			Want: Want{Calls: 1}, Check: func(r *Result) error {
				return first(want("choice", r.Sent[0].Get("tool_choice.type").Str, "auto"), want("answer", r.State.Get("structured_response.sum").Int(), 7))
			},
		},
		{Name: "images-and-documents", Replies: []Reply{hello}, Want: Want{Answer: "Hello"}, Turns: []Turn{{Input: `{"messages":[{"role":"user","content":[{"type":"text","text":"see","cache_control":{"type":"ephemeral"}},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}},{"type":"image","url":"https://x.test/a.png"},{"type":"image","base64":"` + png + `","mime_type":"image/png"},
			{"type":"file","base64":"JVBERi0=","mime_type":"application/pdf"},{"type":"file","url":"https://x.test/a.pdf"},{"type":"text-plain","text":"words"},{"type":"file","file_id":"file_1"},
			{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"},"title":"T","citations":{"enabled":true}},{"type":"text","text":" "}]}]}`}}, Check: func(r *Result) error {
			var kinds []string
			for _, b := range content(r, 0, "0.content").Array() {
				kinds = append(kinds, b.Get("type").Str+":"+b.Get("source.type").Str)
			}
			return first(want("parts", strings.Join(kinds, " "), "text: image:base64 image:url image:base64 document:base64 document:url document:text document:file document:text"),
				want("cache", content(r, 0, "0.content.0.cache_control.type").Str, "ephemeral"), want("title", content(r, 0, "0.content.8.title").Str, "T"))
		}},
		{Name: "caching", Model: object{"prompt_caching": "1h"}, Agent: object{"tools": []string{"calculator"}, "prompt": "Be brief."}, Replies: []Reply{sum, hello}, Want: Want{Answer: "Hello"}, Check: func(r *Result) error {
			for i, q := range r.Sent {
				if n := strings.Count(q.Raw, `"cache_control"`); n != 3 || q.Get("system.0.cache_control.ttl").Str != "1h" || !q.Get("tools.0.cache_control").Exists() {
					return fmt.Errorf("request %d has %d marks: %s", i, n, q.Raw)
				}
			}
			return nil
		}},
		{
			Name: "in-one-piece", Agent: calculator, Replies: []Reply{JSON(200, `{"id":"m","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"a","name":"calculator","input":{"expression":"1+1"}}],
			"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}`), JSON(200, `{"id":"m","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}`)},
			Want: Want{Answer: "Hello", Tools: "2"},
		},
		{Name: "input-at-once", Agent: calculator, Replies: []Reply{Claude("tool_use", Block(0, `{"type":"tool_use","id":"a","name":"calculator","input":{"expression":"1+1"}}`)), hello}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "ids-of-a-gateway", Agent: calculator, Replies: []Reply{Claude("tool_use", Use(0, "functions.calculator:0", `{"expression":"1+1"}`)), hello}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "no-ids", Agent: calculator, Replies: []Reply{Claude("tool_use", Use(0, "", `{"expression":"1+1"}`)), hello}, Want: Want{Answer: "Hello", Tools: "2"}},
		{Name: "no-message-stop", Replies: []Reply{Stream(Events(append(append([]string{Start}, Text(0, "Hello")...), End("end_turn")[0])...))}, Want: Want{Answer: "Hello"}},
		{Name: "cut", Model: object{"retries": 0}, Replies: []Reply{Stream(Events(append([]string{Start}, Text(0, "Hello")...)...))}, Want: Want{Error: "the connection ended before the answer did"}},
		{Name: "error-after-the-answer", Replies: []Reply{Stream(Events(append(append([]string{Start}, Text(0, "Hello")...), End("end_turn")[0], `{"type":"error","error":{"type":"api_error","message":"late"}}`)...))}, Want: Want{Answer: "Hello"}},
		{Name: "odd-types", Agent: calculator, Replies: []Reply{Stream(Events(Start, `{"type":"content_block_start","index":"0","content_block":{"type":"text","text":null}}`,
			`{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"Hello"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}`, `[1]`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2.0,"input_tokens":"x","server_tool_use":null}}`, `{"type":"message_stop"}`))}, Want: Want{Answer: "Hello"}},
	}
	for _, c := range all {
		c.Line, c.Name, c.Provider = 6, "claude-"+c.Name, "anthropic"
	}
	return all
}
