package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/tmc/langchaingo/llms"
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
	ToolCalls  []sentCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type sentCall struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Function llms.FunctionCall `json:"function"`
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
	if !c.opts.NoUsage {
		r.StreamOptions = map[string]bool{"include_usage": true}
	}
	// OpenAI's reasoning models refuse the old name, most others know no other.
	if c.azure || strings.HasPrefix(c.url, DefaultBaseURL+"/") {
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
	}
	for i, m := range messages {
		var err error
		if r.Messages, err = appendMessage(r.Messages, m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	body, err := json.Marshal(r)
	if err != nil || len(c.opts.Extra) == 0 {
		return body, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	maps.Copy(members, c.opts.Extra)
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

// appendMessage writes a message; tool results are messages of their own.
func appendMessage(list []message, m llms.MessageContent) ([]message, error) {
	switch m.Role {
	case llms.ChatMessageTypeSystem:
		return appendContent(list, "system", m.Parts)
	case llms.ChatMessageTypeHuman, llms.ChatMessageTypeGeneric:
		return appendContent(list, "user", m.Parts)
	case llms.ChatMessageTypeAI:
		return appendContent(list, "assistant", m.Parts)
	case llms.ChatMessageTypeTool, llms.ChatMessageTypeFunction:
		for _, p := range m.Parts {
			result, ok := p.(llms.ToolCallResponse)
			if !ok {
				return nil, fmt.Errorf("%T is no result of a tool", p)
			}
			list = append(list, message{Role: "tool", Content: result.Content, ToolCallID: result.ToolCallID})
		}
		return list, nil
	}
	return nil, fmt.Errorf("role %q is not known", m.Role)
}

func appendContent(list []message, role string, parts []llms.ContentPart) ([]message, error) {
	out := message{Role: role}
	var texts []string
	var content []any
	plain := true
	for _, p := range parts {
		switch p := p.(type) {
		case llms.TextContent:
			texts = append(texts, p.Text)
			content = append(content, map[string]any{"type": "text", "text": p.Text})
		case llms.ImageURLContent:
			plain = false
			image := map[string]string{"url": p.URL}
			if p.Detail != "" {
				image["detail"] = p.Detail
			}
			content = append(content, map[string]any{"type": "image_url", "image_url": image})
		case llms.BinaryContent:
			plain = false
			content = append(content, binary(p))
		case llms.ToolCall:
			if p.FunctionCall == nil {
				return nil, fmt.Errorf("tool call %s has no function", p.ID)
			}
			out.ToolCalls = append(out.ToolCalls, sentCall{ID: p.ID, Type: "function", Function: *p.FunctionCall})
		default:
			return nil, fmt.Errorf("%T cannot be sent as %s", p, role)
		}
	}
	switch {
	case !plain:
		out.Content = content
	case len(texts) > 0 || len(out.ToolCalls) == 0:
		out.Content = strings.Join(texts, "")
	}
	return append(list, out), nil
}

// binary is data as the wire has it: images by URL, sound and files by kind.
func binary(p llms.BinaryContent) any {
	data := base64.StdEncoding.EncodeToString(p.Data)
	switch kind, format, _ := strings.Cut(p.MIMEType, "/"); kind {
	case "image":
		return map[string]any{"type": "image_url", "image_url": map[string]string{"url": "data:" + p.MIMEType + ";base64," + data}}
	case "audio":
		return map[string]any{"type": "input_audio", "input_audio": map[string]string{"data": data, "format": strings.TrimPrefix(format, "x-")}}
	}
	return map[string]any{"type": "file", "file": map[string]string{"filename": "file", "file_data": "data:" + p.MIMEType + ";base64," + data}}
}
