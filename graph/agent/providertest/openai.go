package providertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// Data writes events of OpenAI's wire: each is the JSON of one.
func Data(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// Delta is an event with a delta of the first choice.
func Delta(delta string) string {
	return `{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

// Finish is the event that ends the first choice.
func Finish(reason string) string {
	return fmt.Sprintf(`{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

// Says is the delta of a text.
func Says(text string) string { return Delta(`{"content":` + quote(text) + `}`) }

// Calls is a delta with pieces of tool calls.
func Calls(calls ...string) string {
	return Delta(`{"tool_calls":[` + strings.Join(calls, ",") + `]}`)
}

// Piece is a piece of a tool call; members are further members of it.
func Piece(index, id, name, arguments string, members ...string) string {
	function := `"arguments":` + quote(arguments)
	if name != "" {
		function = `"name":` + quote(name) + `,` + function
	}
	out := `"function":{` + function + `}`
	if index != "" {
		out = `"index":` + index + `,` + out
	}
	if id != "-" {
		out = `"id":` + quote(id) + `,` + out
	}
	for _, m := range members {
		out += "," + m
	}
	return "{" + out + "}"
}

// Done is the last event.
const Done = "[DONE]"

// Answer is a whole stream of a text.
func Answer(text string) Reply { return Stream(Data(Says(text), Finish("stop"), Done)) }

// Rules of providers that speak OpenAI's wire.

func openAIRules(_ *http.Request, body gjson.Result) string {
	pending := map[string]bool{}
	for i, m := range body.Get("messages").Array() {
		role := m.Get("role").Str
		if role != "tool" && len(pending) > 0 {
			return fmt.Sprintf("messages[%d]: an assistant message with tool_calls must be followed by tool messages", i)
		}
		if refusal := openAIContent(m); refusal != "" {
			return fmt.Sprintf("messages[%d].content: %s", i, refusal)
		}
		for _, c := range m.Get("tool_calls").Array() {
			id, name, args := c.Get("id").Str, c.Get("function.name").Str, c.Get("function.arguments")
			switch {
			case id == "" || len(id) > 40:
				return fmt.Sprintf("messages[%d].tool_calls.id: %q is empty or longer than 40", i, id)
			case name == "" || len(name) > 64 || strings.ContainsAny(name, " ./:"):
				return fmt.Sprintf("messages[%d].tool_calls.function.name: %q does not match pattern", i, name)
			case args.Type != gjson.String || !gjson.Valid(args.Str) || !gjson.Parse(args.Str).IsObject():
				return fmt.Sprintf("messages[%d].tool_calls.function.arguments: no JSON object: %s", i, args.Raw)
			case pending[id]:
				return fmt.Sprintf("messages[%d].tool_calls.id: %q twice", i, id)
			}
			pending[id] = true
		}
		if role == "tool" {
			if id := m.Get("tool_call_id").Str; !pending[id] {
				return fmt.Sprintf("messages[%d]: tool message without a call: %q", i, id)
			}
			delete(pending, m.Get("tool_call_id").Str)
		}
	}
	if len(pending) > 0 {
		return "the last tool calls have no results"
	}
	return ""
}

// openAIContent returns why the content of a message is refused.
func openAIContent(m gjson.Result) string {
	if !m.Get("content").IsArray() {
		return ""
	}
	for _, p := range m.Get("content").Array() {
		file := p.Get("file")
		switch kind := p.Get("type").Str; {
		case kind == "text" && p.Get("text").Type == gjson.String, kind == "image_url" && p.Get("image_url.url").Str != "":
		case kind == "input_audio" && p.Get("input_audio.data").Str != "" && strings.Contains("wav mp3", p.Get("input_audio.format").Str):
		case kind == "file" && strings.HasPrefix(file.Get("file_data").Str, "data:application/pdf;base64,") && file.Get("filename").Str != "":
		case kind == "file" && strings.HasPrefix(file.Get("file_id").Str, "file-") && len(file.Map()) == 1:
		default:
			return "Invalid value: " + p.Raw
		}
	}
	return ""
}

// textAndImages is the rule of providers that take no other content.
func textAndImages(_ *http.Request, body gjson.Result) string {
	for _, kind := range body.Get("messages.#.content|@flatten.#.type").Array() {
		if kind.Str != "text" && kind.Str != "image_url" {
			return "unknown content type " + kind.Str
		}
	}
	return ""
}

// onlyKnown is the rule of providers that refuse members that they do not know.
func onlyKnown(members ...string) Rule {
	return func(_ *http.Request, body gjson.Result) (refusal string) {
		body.Get("messages").ForEach(func(_, m gjson.Result) bool {
			m.ForEach(func(k, _ gjson.Result) bool {
				known := strings.Contains(" role content tool_calls tool_call_id name refusal ", " "+k.Str+" ")
				for _, name := range members {
					known = known || name == k.Str
				}
				if !known {
					refusal = "extra inputs are not permitted: " + k.Str
				}
				return refusal == ""
			})
			for _, call := range m.Get("tool_calls").Array() {
				if call.Get("extra_content").Exists() && !slices.Contains(members, "extra_content") {
					refusal = "extra inputs are not permitted: tool_calls.extra_content"
				}
			}
			return refusal == ""
		})
		return refusal
	}
}

func bearer(r *http.Request, _ gjson.Result) string {
	if r.Header.Get("Authorization") != "Bearer "+Secret {
		return "no key"
	}
	return ""
}

// deepSeek wants the thoughts before a call returned.
func deepSeek(_ *http.Request, body gjson.Result) string {
	for i, m := range body.Get("messages").Array() {
		if m.Get("role").Str == "assistant" && m.Get("tool_calls").Exists() && m.Get("reasoning_content").Type != gjson.String {
			return fmt.Sprintf("Missing `reasoning_content` field in the assistant message at message index %d", i)
		}
	}
	return ""
}

// gemini3 wants the signature of the first call of each step returned.
func gemini3(_ *http.Request, body gjson.Result) string {
	for i, m := range body.Get("messages").Array() {
		if call := m.Get("tool_calls.0"); call.Exists() && call.Get("extra_content.google.thought_signature").Str == "" {
			return fmt.Sprintf("Function call is missing a thought_signature in functionCall parts, message %d", i)
		}
	}
	return ""
}

func mistral(_ *http.Request, body gjson.Result) (refusal string) {
	if body.Get("stream_options").Exists() {
		return "Extra inputs are not permitted: stream_options"
	}
	for _, m := range body.Get("messages").Array() {
		for _, c := range m.Get("tool_calls").Array() {
			if id := c.Get("id").Str; len(id) != 9 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
				return "Tool call id was " + id + " but must be a-z, A-Z, 0-9, with a length of 9."
			}
		}
	}
	return ""
}

func azure(r *http.Request, body gjson.Result) string {
	switch {
	case r.Header.Get("Api-Key") != Secret || r.Header.Get("Authorization") != "":
		return "Access denied due to invalid subscription key"
	case body.Get("max_tokens").Exists():
		return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
	case r.URL.Query().Get("api-version") == "":
		return "Missing api-version"
	}
	return ""
}
