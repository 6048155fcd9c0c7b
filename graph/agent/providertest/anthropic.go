package providertest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// Events writes events of Anthropic's wire: each is the JSON of one, whose type names it.
func Events(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", gjson.Get(e, "type").Str, e)
	}
	return b.String()
}

// Start is the first event of an answer.
const Start = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"claude-x-1","stop_reason":null,` +
	`"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":3,"output_tokens":1}}}`

// Block is a block of an answer: how it begins, its deltas, and its end.
func Block(index int, begin string, deltas ...string) (events []string) {
	events = append(events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, begin))
	for _, d := range deltas {
		events = append(events, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, d))
	}
	return append(events, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

// Text is a block of text in pieces.
func Text(index int, pieces ...string) []string {
	var deltas []string
	for _, p := range pieces {
		deltas = append(deltas, `{"type":"text_delta","text":`+quote(p)+`}`)
	}
	return Block(index, `{"type":"text","text":""}`, deltas...)
}

// Think is a block of thinking with a signature.
func Think(index int, signature string, pieces ...string) []string {
	var deltas []string
	for _, p := range pieces {
		deltas = append(deltas, `{"type":"thinking_delta","thinking":`+quote(p)+`}`)
	}
	return Block(index, `{"type":"thinking","thinking":"","signature":""}`, append(deltas, `{"type":"signature_delta","signature":`+quote(signature)+`}`)...)
}

// Use is a call of the calculator, with its input in pieces.
func Use(index int, id string, pieces ...string) []string {
	var deltas []string
	for _, p := range pieces {
		deltas = append(deltas, `{"type":"input_json_delta","partial_json":`+quote(p)+`}`)
	}
	return Block(index, `{"type":"tool_use","id":`+quote(id)+`,"name":"calculator","input":{}}`, deltas...)
}

// End is the end of an answer.
func End(reason string) []string {
	return []string{
		`{"type":"message_delta","delta":{"stop_reason":` + quote(reason) + `,"stop_sequence":null},"usage":{"output_tokens":20}}`,
		`{"type":"message_stop"}`,
	}
}

// Claude is a whole stream.
func Claude(reason string, blocks ...[]string) Reply {
	events := []string{Start, `{"type":"ping"}`}
	for _, b := range blocks {
		events = append(events, b...)
	}
	return Stream(Events(append(events, End(reason)...)...))
}

var callID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// anthropicBlock returns why a block of images or documents is refused.
func anthropicBlock(b gjson.Result) string {
	kind, source := b.Get("type").Str, b.Get("source")
	switch kind {
	case "input_audio", "audio", "image_url", "file", "video", "":
		return "Input tag '" + kind + "' found using 'type' does not match any of the expected tags"
	case "image", "document":
		switch source.Get("type").Str {
		case "base64":
			mimes := map[string]string{"image": "image/jpeg image/png image/gif image/webp", "document": "application/pdf"}
			if mime := source.Get("media_type").Str; mime == "" || !strings.Contains(mimes[kind], mime) {
				return kind + ".source.base64.media_type: Input should be " + mimes[kind]
			}
		case "file":
			if strings.HasPrefix(source.Get("file_id").Str, "file-") {
				return "File not found: " + source.Get("file_id").Str
			}
		case "url", "text", "content":
		default:
			return kind + ".source: " + source.Raw
		}
	}
	return ""
}

// keepsThinking is the rule of providers that think whether or not they are asked: the loop of tool calls at the end has all thoughts.
func keepsThinking(_ *http.Request, body gjson.Result) string {
	messages := body.Get("messages").Array()
	for i := len(messages) - 1; i > 0 && messages[i].Get("content.0.type").Str == "tool_result"; i -= 2 {
		if !strings.Contains(messages[i-1].Get("content.0.type").Str, "thinking") {
			return fmt.Sprintf("messages.%d: thinking is missing", i-1)
		}
	}
	return ""
}

// anthropicRules are what the Messages API refuses.
func anthropicRules(r *http.Request, body gjson.Result) string {
	switch {
	case r.Header.Get("X-Api-Key") != Secret && r.Header.Get("Authorization") != "Bearer "+Secret:
		return "no key"
	case r.Header.Get("Anthropic-Version") == "":
		return "anthropic-version: header is required"
	case !strings.HasSuffix(r.URL.Path, "/v1/messages"):
		return "not found: " + r.URL.Path
	case body.Get("max_tokens").Int() <= 0:
		return "max_tokens: field required"
	case body.Get("temperature").Exists():
		return "temperature is deprecated for this model"
	case body.Get("thinking.type").Str == "enabled" && body.Get("thinking.budget_tokens").Int() >= body.Get("max_tokens").Int():
		return "max_tokens must be greater than thinking.budget_tokens"
	}
	thinking := body.Get("thinking.type").Str == "enabled"
	if kind := body.Get("tool_choice.type").Str; thinking && (kind == "any" || kind == "tool") {
		return "Thinking may not be enabled when tool_choice forces tool use."
	}
	for _, t := range body.Get("tools").Array() {
		if !t.Get("type").Exists() && t.Get("input_schema.type").Str != "object" { // those with a type are executed there
			return "tools.input_schema.type: field required"
		}
	}
	messages := body.Get("messages").Array()
	if len(messages) == 0 {
		return "messages: at least one message is required"
	}
	last, pending := "", map[string]bool{}
	for i, m := range messages {
		role := m.Get("role").Str
		if role == last || i == 0 && role != "user" {
			return fmt.Sprintf("messages.%d: roles must alternate and begin with user", i)
		}
		last = role
		content := m.Get("content").Array()
		if m.Get("content").Type == gjson.String {
			content = nil
		} else if len(content) == 0 {
			return fmt.Sprintf("messages.%d: content must not be empty", i)
		}
		if n := len(content); n > 0 && role == "assistant" && strings.Contains(content[n-1].Get("type").Str, "thinking") {
			return fmt.Sprintf("messages.%d: The final block in an assistant message cannot be `thinking`.", i)
		}
		results := map[string]bool{}
		served := map[string]bool{} // calls that the server executes, without a result so far
		for j, b := range content {
			if refusal := anthropicBlock(b); refusal != "" {
				return fmt.Sprintf("messages.%d.content.%d: %s", i, j, refusal)
			}
			switch kind := b.Get("type").Str; kind {
			case "text":
				if strings.TrimSpace(b.Get("text").Str) == "" {
					return fmt.Sprintf("messages.%d: text content blocks must be non-empty", i)
				}
			case "thinking":
				if b.Get("signature").Str == "" {
					return fmt.Sprintf("messages.%d.content.%d.thinking.signature: Field required", i, j)
				}
			case "tool_use":
				if !callID.MatchString(b.Get("id").Str) || !callID.MatchString(b.Get("name").Str) || !b.Get("input").IsObject() {
					return fmt.Sprintf("messages.%d.content.%d.tool_use: %s", i, j, b.Raw)
				}
				if !body.Get("tools").Exists() {
					return "Requests which include `tool_use` or `tool_result` blocks must define tools."
				}
			case "server_tool_use":
				served[b.Get("id").Str] = true
			case "web_search_tool_result":
				if id := b.Get("tool_use_id").Str; !served[id] {
					return fmt.Sprintf("messages.%d: unexpected `tool_use_id` found in `web_search_tool_result` blocks: %s", i, id)
				}
				delete(served, b.Get("tool_use_id").Str)
			case "tool_result":
				if j > 0 && content[j-1].Get("type").Str != "tool_result" {
					return fmt.Sprintf("messages.%d: `tool_result` blocks must come first", i)
				}
				if b.Get("is_error").Bool() && (b.Get("content").String() == "" || b.Get(`content.#(type!="text")`).Exists()) {
					return fmt.Sprintf("messages.%d.content.%d: if `is_error` is true, content must be of type text and not empty", i, j)
				}
				results[b.Get("tool_use_id").Str] = true
				if !pending[b.Get("tool_use_id").Str] {
					return fmt.Sprintf("messages.%d: unexpected `tool_use_id` found in `tool_result` blocks", i)
				}
			}
			for _, own := range []string{"index", "partial_json"} {
				if b.Get(own).Exists() {
					return fmt.Sprintf("messages.%d.content.%d.%s: Extra inputs are not permitted", i, j, own)
				}
			}
		}
		if len(served) > 0 && i < len(messages)-1 {
			return fmt.Sprintf("messages.%d: `server_tool_use` ids were found without a corresponding result block", i)
		}
		for id := range pending {
			if !results[id] {
				return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, id)
			}
		}
		pending = map[string]bool{}
		for _, b := range content {
			if b.Get("type").Str == "tool_use" {
				pending[b.Get("id").Str] = true
			}
		}
	}
	if last == "assistant" {
		return "This model does not support assistant message prefill. The conversation must end with a user message."
	}
	if r.Header.Get("X-Thinks") == "always" {
		return "" // whether thinking is enabled or not: see keepsThinking
	}
	// The loop of tool calls at the end is one turn.
	kind := ""
	for i := len(messages) - 1; i > 0 && messages[i].Get("content.0.type").Str == "tool_result"; i -= 2 {
		kind = messages[i-1].Get("content.0.type").Str
		if !thinking && body.Get("thinking.type").Str != "adaptive" && strings.Contains(messages[i-1].Get("content.#.type").Raw, "thinking") {
			return "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`."
		}
	}
	if thinking && kind != "" && kind != "thinking" && kind != "redacted_thinking" {
		return "Expected `thinking` or `redacted_thinking`, but found `" + kind + "`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
	}
	return ""
}
