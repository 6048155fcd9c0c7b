package providertest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// The Responses API: its events, and what it refuses.

// Item is an item of a response: the events between which it comes, and what it is as a whole.
type Item struct {
	Events []string
	Whole  string
}

const about = `"id":"resp_1","object":"response","created_at":1,"model":"gpt-x-1"`

// Started are the events with which a response begins.
func Started() []string {
	return []string{
		`{"type":"response.created","response":{` + about + `,"status":"in_progress","output":[],"error":null,"usage":null}}`,
		`{"type":"response.in_progress","response":{` + about + `,"status":"in_progress","output":[],"error":null,"usage":null}}`,
	}
}

// Ended is the event that ends a response; how is its status, details those of one that is incomplete.
func Ended(how, details string, items ...Item) string {
	var whole []string
	for _, i := range items {
		whole = append(whole, i.Whole)
	}
	return `{"type":"response.` + how + `","response":` + Response(how, details, whole...) + `}`
}

// Response is a whole response.
func Response(how, details string, items ...string) string {
	return `{` + about + `,"status":"` + how + `","output":[` + strings.Join(items, ",") + `],"error":null,"incomplete_details":` + details +
		`,"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":17}}`
}

// Written is an item with a text that comes in pieces.
func Written(index int, id string, pieces ...string) Item {
	at := fmt.Sprintf(`"item_id":%q,"output_index":%d,"content_index":0`, id, index)
	whole := `{"id":` + quote(id) + `,"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":` + quote(strings.Join(pieces, "")) + `,"annotations":[]}]}`
	all := []string{
		fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"id":%q,"type":"message","status":"in_progress","role":"assistant","content":[]}}`, index, id),
		`{"type":"response.content_part.added",` + at + `,"part":{"type":"output_text","text":"","annotations":[]}}`,
	}
	for _, p := range pieces {
		all = append(all, `{"type":"response.output_text.delta",`+at+`,"delta":`+quote(p)+`}`)
	}
	return Item{append(all, `{"type":"response.output_text.done",`+at+`,"text":`+quote(strings.Join(pieces, ""))+`}`, done(index, whole)), whole}
}

func done(index int, whole string) string {
	return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, index, whole)
}

// Thought is an item of reasoning with a summary; secret is its encrypted content, "": it has none.
func Thought(index int, id, secret string, pieces ...string) Item {
	text := strings.Join(pieces, "")
	whole := `{"id":` + quote(id) + `,"type":"reasoning","summary":[{"type":"summary_text","text":` + quote(text) + `}]`
	if secret != "" {
		whole += `,"encrypted_content":` + quote(secret)
	}
	whole += "}"
	at := fmt.Sprintf(`"item_id":%q,"output_index":%d,"summary_index":0`, id, index)
	all := []string{
		fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"id":%q,"type":"reasoning","summary":[]}}`, index, id),
		`{"type":"response.reasoning_summary_part.added",` + at + `,"part":{"type":"summary_text","text":""}}`,
	}
	for _, p := range pieces {
		all = append(all, `{"type":"response.reasoning_summary_text.delta",`+at+`,"delta":`+quote(p)+`}`)
	}
	return Item{append(all, `{"type":"response.reasoning_summary_text.done",`+at+`,"text":`+quote(text)+`}`, done(index, whole)), whole}
}

// Calling is an item with a call of the calculator, whose arguments come in two pieces.
func Calling(index int, id, call, sum string) Item {
	arguments := `{"expression":"` + sum + `"}`
	head := fmt.Sprintf(`{"id":%q,"type":"function_call","call_id":%q,"name":"calculator",`, id, call)
	whole := head + `"status":"completed","arguments":` + quote(arguments) + "}"
	at := fmt.Sprintf(`"item_id":%q,"output_index":%d`, id, index)
	return Item{[]string{
		fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s"status":"in_progress","arguments":""}}`, index, head),
		`{"type":"response.function_call_arguments.delta",` + at + `,"delta":` + quote(arguments[:9]) + `}`,
		`{"type":"response.function_call_arguments.delta",` + at + `,"delta":` + quote(arguments[9:]) + `}`,
		`{"type":"response.function_call_arguments.done",` + at + `,"arguments":` + quote(arguments) + `}`,
		done(index, whole),
	}, whole}
}

// named writes events of the Responses API, which have their type as name, too.
func named(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("event: " + gjson.Get(e, "type").Str + "\ndata: " + e + "\n\n")
	}
	return b.String()
}

// Items is a stream of a whole response.
func Items(items ...Item) string {
	all := Started()
	for _, i := range items {
		all = append(all, i.Events...)
	}
	return named(append(all, Ended("completed", "null", items...))...)
}

// responsesRules are those of OpenAI's own server.
func responsesRules(r *http.Request, body gjson.Result) string {
	stored := body.Get("store").Raw != "false"
	switch {
	case !strings.HasSuffix(r.URL.Path, "/v1/responses"):
		return "no such path"
	case body.Get("messages").Exists() || body.Get("stream_options").Exists() || body.Get("max_tokens").Exists() || body.Get("max_completion_tokens").Exists() || body.Get("reasoning_effort").Exists():
		return "Unknown parameter of chat completions"
	}
	for _, t := range body.Get("tools").Array() {
		if t.Get("function").Exists() || t.Get("name").Str == "" || !t.Get("strict").Exists() {
			return "Missing required parameter: 'tools[0].name'"
		}
	}
	pending := map[string]bool{}
	items := body.Get("input").Array()
	for i, item := range items {
		id := item.Get("id").Str
		if id != "" && !stored && item.Get("encrypted_content").Str == "" {
			return fmt.Sprintf("Item with id '%s' not found. Items are not persisted when `store` is set to false.", id)
		}
		switch kind := item.Get("type").Str; kind {
		case "message":
			if refusal := inputContent(item, id); refusal != "" {
				return fmt.Sprintf("input[%d]: %s", i, refusal)
			}
		case "reasoning":
			next := gjson.Result{}
			if i+1 < len(items) {
				next = items[i+1]
			}
			if kind := next.Get("type").Str; kind != "function_call" && kind != "reasoning" && (kind != "message" || next.Get("role").Str != "assistant") {
				return fmt.Sprintf("Item '%s' of type 'reasoning' was provided without its required following item.", id)
			}
			if !strings.HasPrefix(id, "rs_") || !item.Get("summary").IsArray() || item.Get("index").Exists() || item.Get("summary.0.index").Exists() {
				return fmt.Sprintf("input[%d]: invalid reasoning", i)
			}
		case "function_call":
			call := item.Get("call_id").Str
			if call == "" || len(call) > 64 || pending[call] || id != "" && !strings.HasPrefix(id, "fc_") || !gjson.Valid(item.Get("arguments").Str) || strings.ContainsAny(item.Get("name").Str, " ./:,") {
				return fmt.Sprintf("input[%d]: invalid function_call: %s", i, item.Raw)
			}
			if strings.HasPrefix(id, "fc_r") && (i == 0 || items[i-1].Get("type").Str != "reasoning") {
				return fmt.Sprintf("Item '%s' of type 'function_call' was provided without its required 'reasoning' item.", id)
			}
			pending[call] = true
		case "function_call_output":
			call := item.Get("call_id").Str
			if !pending[call] {
				return "No tool call found for function call output with call_id " + call
			}
			delete(pending, call)
			for _, p := range item.Get("output").Array() {
				if item.Get("output").IsArray() && p.Get("type").Str != "input_text" && p.Get("type").Str != "input_image" {
					return fmt.Sprintf("input[%d].output: %s", i, p.Raw)
				}
			}
		default:
			return fmt.Sprintf("Invalid value: input[%d].type %q", i, kind)
		}
	}
	if len(pending) > 0 {
		return "No tool output found for function call"
	}
	return ""
}

func inputContent(item gjson.Result, id string) string {
	role := item.Get("role").Str
	for _, p := range item.Get("content").Array() {
		kind := p.Get("type").Str
		switch {
		case role == "assistant" && (kind == "output_text" && p.Get("annotations").IsArray() || kind == "refusal"):
		case role != "assistant" && kind == "input_text" && p.Get("text").Type == gjson.String:
		case role == "user" && kind == "input_image" && p.Get("image_url").Type == gjson.String:
		case role == "user" && kind == "input_file" && (p.Get("file_url").Exists() || p.Get("file_id").Exists() || p.Get("file_data").Exists() && p.Get("filename").Exists()):
		default:
			return "Invalid value: " + p.Raw
		}
	}
	if id != "" && !strings.HasPrefix(id, "msg_") {
		return "Expected an ID that begins with 'msg'"
	}
	return ""
}
