package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/internal/callids"
	"understudy/graph/agent/llm"
)

type request struct {
	Model               string    `json:"model,omitempty"`
	Messages            []message `json:"messages"`
	Stream              bool      `json:"stream"`
	StreamOptions       any       `json:"stream_options,omitempty"`
	Tools               []tool    `json:"tools,omitempty"`
	ToolChoice          any       `json:"tool_choice,omitempty"`
	MaxTokens           int       `json:"max_tokens,omitempty"`
	MaxCompletionTokens int       `json:"max_completion_tokens,omitempty"`
	Temperature         float64   `json:"temperature,omitempty"`
	TopP                float64   `json:"top_p,omitempty"`
	Stop                []string  `json:"stop,omitempty"`
	Seed                int       `json:"seed,omitempty"`
	FrequencyPenalty    float64   `json:"frequency_penalty,omitempty"`
	PresencePenalty     float64   `json:"presence_penalty,omitempty"`
	ResponseFormat      any       `json:"response_format,omitempty"`
}

type message struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"` // text, parts, or null
	Reasoning  *string    `json:"reasoning_content,omitempty"`
	Details    any        `json:"reasoning_details,omitempty"`
	ToolCalls  []sentCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type sentCall struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Function llms.FunctionCall `json:"function"`
	Extra    json.RawMessage   `json:"extra_content,omitempty"`
}

type tool struct {
	Type     string                   `json:"type"`
	Function *llms.FunctionDefinition `json:"function"`
}

// body writes the request.
func (c *Client) body(messages []llms.MessageContent, options []llms.CallOption) ([]byte, error) {
	var opts llms.CallOptions
	for _, o := range options {
		o(&opts)
	}
	r := request{
		Model: c.opts.Model, Stream: true, Temperature: opts.Temperature, TopP: opts.TopP, Stop: opts.StopWords, Seed: opts.Seed,
		FrequencyPenalty: opts.FrequencyPenalty, PresencePenalty: opts.PresencePenalty,
	}
	if opts.Model != "" {
		r.Model = opts.Model
	}
	if !c.opts.Quirks.NoUsage {
		r.StreamOptions = map[string]bool{"include_usage": true}
	}
	if *c.opts.Quirks.MaxCompletionTokens {
		r.MaxCompletionTokens = opts.MaxTokens
	} else {
		r.MaxTokens = opts.MaxTokens
	}
	if opts.JSONMode || opts.ResponseMIMEType == "application/json" {
		r.ResponseFormat = map[string]string{"type": "json_object"}
	}
	for _, t := range opts.Tools {
		r.Tools = append(r.Tools, tool{Type: "function", Function: t.Function})
	}
	if len(r.Tools) > 0 {
		r.ToolChoice = toolChoice(opts.ToolChoice)
		if c.opts.Quirks.TextCalls { // streams with tools lose their choices
			r.Stream, r.StreamOptions = false, nil
		}
	}
	w := writer{quirks: c.opts.Quirks, own: c.own, tools: map[string]bool{}}
	for _, t := range opts.Tools {
		w.tools[t.Function.Name] = true
	}
	for i, m := range messages {
		if err := w.message(m); err != nil {
			return nil, llm.InMessage(i, err)
		}
	}
	w.show()
	r.Messages = w.list
	body, err := json.Marshal(r)
	if err != nil || len(c.opts.Extra) == 0 {
		return body, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	for name, value := range c.opts.Extra {
		if string(value) == "null" {
			delete(members, name)
		} else {
			members[name] = value
		}
	}
	return json.Marshal(members)
}

// toolChoice accepts LangChain's "any" and names of tools in addition to the API's values.
func toolChoice(choice any) any {
	name, ok := choice.(string)
	if !ok {
		return choice
	}
	switch name {
	case "":
		return nil
	case "any":
		return "required"
	case "auto", "none", "required":
		return name
	}
	return llms.ToolChoice{Type: "function", Function: &llms.FunctionReference{Name: name}}
}

// writer writes the messages of a request.
type writer struct {
	quirks Quirks
	own    bool            // the server is OpenAI's or Azure's
	tools  map[string]bool // names of the request's tools
	list   []message
	images []any // of the tool messages at the end of list
}

// message writes a message; tool results are messages of their own.
func (w *writer) message(m llms.MessageContent) error {
	if m.Role != llms.ChatMessageTypeTool && m.Role != llms.ChatMessageTypeFunction {
		w.show()
	}
	switch m.Role {
	case llms.ChatMessageTypeSystem:
		return w.content("system", m.Parts)
	case llms.ChatMessageTypeHuman, llms.ChatMessageTypeGeneric:
		return w.content("user", m.Parts)
	case llms.ChatMessageTypeAI:
		return w.content("assistant", m.Parts)
	case llms.ChatMessageTypeTool, llms.ChatMessageTypeFunction:
		for _, p := range m.Parts {
			result, rich, err := llm.Result(p)
			if err != nil {
				return err
			}
			w.list = append(w.list, message{Role: "tool", Content: result.Content, ToolCallID: w.id(result.ToolCallID)})
			if w.quirks.ToolImages {
				w.images = append(w.images, images(rich.Content)...)
			}
		}
		return nil
	}
	return fmt.Errorf("role %q is not known", m.Role)
}

// show writes the images of the results before: no message may stand between those.
func (w *writer) show() {
	if len(w.images) > 0 {
		text := map[string]any{"type": "text", "text": "Images of the tool results above:"}
		w.list = append(w.list, message{Role: "user", Content: append([]any{text}, w.images...)})
		w.images = nil
	}
}

// images returns the images of parts as the API has them.
func images(parts []llms.ContentPart) (out []any) {
	for _, p := range parts {
		if rich, ok := p.(llm.Part); ok {
			p = rich.ContentPart
		}
		switch p := p.(type) {
		case llms.ImageURLContent:
			out = append(out, imageURL(p))
		case llms.BinaryContent:
			if kind, block := binary(p, ""); kind == "image" {
				out = append(out, block)
			}
		}
	}
	return out
}

func imageURL(p llms.ImageURLContent) map[string]any {
	image := map[string]string{"url": p.URL}
	if p.Detail != "" {
		image["detail"] = p.Detail
	}
	return map[string]any{"type": "image_url", "image_url": image}
}

// maxID is how long ids of tool calls may be.
const maxID = 40

// id returns the id of a tool call as the provider accepts it: a thread may have calls of other providers.
func (w *writer) id(id string) string {
	if w.quirks.ShortIDs {
		return callids.Short(id)
	}
	return callids.Fit(id, maxID)
}

func (w *writer) content(role string, parts []llms.ContentPart) error {
	out := message{Role: role}
	var texts []string
	var content []any
	plain := true
	replaced := false // the last part is a text of ours, which stands on a line of its own
	for _, p := range parts {
		rich, ok := p.(llm.Part)
		if ok {
			w.rich(&out, rich)
			if p = rich.ContentPart; p == nil && (rich.Block == nil || rich.Optional) {
				continue
			}
		}
		switch p := p.(type) {
		case llms.TextContent:
			if replaced {
				texts = append(texts, "\n")
			}
			replaced = false
			texts = append(texts, p.Text)
			content = append(content, textPart(p.Text))
		case nil, llms.ImageURLContent, llms.BinaryContent:
			block, reason := w.data(p, rich)
			if reason != "" {
				text, err := rich.Without(reason)
				if err != nil {
					return err
				}
				block = textPart(text)
			}
			if text, ok := block["text"].(string); ok {
				if len(texts) > 0 {
					texts = append(texts, "\n")
				}
				replaced = true
				texts = append(texts, text)
			} else {
				plain = false
			}
			content = append(content, block)
		case llms.ToolCall:
			if p.FunctionCall == nil {
				return fmt.Errorf("tool call %s has no function", p.ID)
			}
			call := sentCall{ID: w.id(p.ID), Type: "function", Function: *p.FunctionCall}
			if w.quirks.ReturnExtra {
				call.Extra = rich.Extra
			}
			if !w.tools[call.Function.Name] {
				call.Function.Name = callids.Name(call.Function.Name)
			}
			if call.Extra == nil && w.quirks.Signatures && len(out.ToolCalls) == 0 {
				call.Extra = json.RawMessage(`{"google":{"thought_signature":"skip_thought_signature_validator"}}`)
			}
			out.ToolCalls = append(out.ToolCalls, call)
		default:
			return fmt.Errorf("%T cannot be sent as %s", p, role)
		}
	}
	switch {
	case !plain && role == "assistant": // only text there: a model's own image would be refused
		out.Content = strings.Join(texts, "")
	case !plain:
		out.Content = content
	case len(texts) > 0 || len(out.ToolCalls) == 0:
		out.Content = strings.Join(texts, "")
	}
	if w.quirks.ReturnReasoning && out.Reasoning == nil && len(out.ToolCalls) > 0 {
		out.Reasoning = new(string) // of another model: these providers refuse a call without the member
	}
	w.list = append(w.list, out)
	return nil
}

// rich writes what models want returned of their thoughts.
func (w *writer) rich(out *message, p llm.Part) {
	if p.Reasoning != "" && w.quirks.ReturnReasoning {
		out.Reasoning = &p.Reasoning
	}
	if p.Details != nil && w.quirks.ReturnDetails {
		out.Details = p.Details
	}
}

func textPart(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

// data writes a part that is not text: images by URL, sound and files by kind. reason is why the provider cannot take it.
func (w *writer) data(p llms.ContentPart, rich llm.Part) (block map[string]any, reason string) {
	var kind string
	switch p := p.(type) {
	case llms.ImageURLContent:
		kind, block = "image", imageURL(p)
	case llms.BinaryContent:
		kind, block = binary(p, rich.Name)
	default:
		if rich.Broken != "" {
			return nil, rich.Broken
		}
		if kind, block = native(rich); kind == "" {
			return nil, "an OpenAI-compatible API has no form for it"
		}
	}
	if slices.Contains(w.quirks.Lacks, kind) {
		return nil, "the provider takes no " + kind + "s"
	}
	if kind == "video" && w.own {
		return nil, "OpenAI takes no videos"
	}
	return block, ""
}

// binary is data as the wire has it, and its kind.
func binary(p llms.BinaryContent, name string) (kind string, block map[string]any) {
	data := base64.StdEncoding.EncodeToString(p.Data)
	switch kind, format, _ := strings.Cut(p.MIMEType, "/"); kind {
	case "image":
		return kind, map[string]any{"type": "image_url", "image_url": map[string]string{"url": "data:" + p.MIMEType + ";base64," + data}}
	case "audio":
		return kind, map[string]any{"type": "input_audio", "input_audio": map[string]string{"data": data, "format": audioFormat(format)}}
	case "video":
		return kind, file(p.MIMEType, data, name)
	}
	return "file", file(p.MIMEType, data, name)
}

func file(mime, data, name string) map[string]any {
	return map[string]any{"type": "file", "file": map[string]string{"filename": cmp.Or(name, "file"), "file_data": "data:" + mime + ";base64," + data}}
}

// audioFormat returns the API's name for a subtype of audio.
func audioFormat(subtype string) string {
	switch subtype = strings.TrimPrefix(subtype, "x-"); subtype {
	case "mpeg":
		return "mp3"
	case "wave", "vnd.wave":
		return "wav"
	}
	return subtype
}

// native writes a block that has no form in langchaingo: OpenAI's own, references to its files, and blocks of Anthropic that it can take.
// kind is "" for others.
func native(rich llm.Part) (kind string, block map[string]any) {
	if text := llm.BlockText(rich.Block); text != "" {
		if rich.Name != "" && !strings.HasPrefix(text, rich.Name) {
			text = rich.Name + ":\n" + text
		}
		return "text", textPart(text)
	}
	b := gjson.ParseBytes(rich.Block)
	source := b.Get("source")
	id := cmp.Or(b.Get("file.file_id").String(), b.Get("file_id").String(), source.Get("file_id").String())
	if id == "" && b.Get("source_type").Str == "id" {
		id = b.Get("id").String()
	}
	switch kind := b.Get("type").Str; {
	case kind == "input_audio":
		return "audio", map[string]any{"type": kind, kind: json.RawMessage(b.Get(kind).Raw)}
	case (kind == "file" || kind == "document") && id != "" && !strings.HasPrefix(id, "file_"): // Anthropic's IDs begin with file_
		return "file ID", map[string]any{"type": "file", "file": map[string]string{"file_id": id}}
	case kind == "document" && source.Get("type").Str == "base64":
		return "file", file(cmp.Or(source.Get("media_type").Str, "application/pdf"), source.Get("data").Str, rich.Name)
	}
	return "", nil
}
