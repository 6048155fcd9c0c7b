package agent

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
)

// forModel returns a conversation in the form of models. Content that no model understands, such as another one's reasoning,
// is omitted.
func forModel(system *message.Message, messages []message.Message) ([]llms.MessageContent, error) {
	out := make([]llms.MessageContent, 0, len(messages)+1)
	if system != nil {
		messages = append([]message.Message{*system}, messages...)
	}
	for _, m := range messages {
		c, err := toContent(m)
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func toContent(m message.Message) (llms.MessageContent, error) {
	c := llms.MessageContent{Role: llms.ChatMessageTypeGeneric}
	switch m.Type {
	case message.TypeSystem, message.TypeSystemChunk:
		c.Role = llms.ChatMessageTypeSystem
	case message.TypeHuman, message.TypeHumanChunk:
		c.Role = llms.ChatMessageTypeHuman
	case message.TypeAI, message.TypeAIChunk:
		c.Role = llms.ChatMessageTypeAI
	case message.TypeTool, message.TypeToolChunk:
		c.Role = llms.ChatMessageTypeTool
		c.Parts = []llms.ContentPart{llms.ToolCallResponse{ToolCallID: m.ToolCallID, Name: m.Name, Content: toolText(m.Content)}}
		return c, nil
	case message.TypeChat, message.TypeChatChunk:
		switch m.Role {
		case "user", "human":
			c.Role = llms.ChatMessageTypeHuman
		case "assistant", "ai":
			c.Role = llms.ChatMessageTypeAI
		case "system", "developer":
			c.Role = llms.ChatMessageTypeSystem
		}
	default:
		return c, fmt.Errorf("a %s message cannot be sent to a model", m.Type)
	}
	var err error
	if c.Parts, err = contentParts(m.Content); err != nil {
		return c, err
	}
	for _, call := range m.ToolCalls {
		c.Parts = append(c.Parts, llms.ToolCall{ID: call.ID, Type: "function", FunctionCall: &llms.FunctionCall{Name: call.Name, Arguments: string(orEmpty(call.Args))}})
	}
	// Models refuse a call without a result, and these have one: their error.
	for _, call := range m.InvalidToolCalls {
		if call.ID != "" {
			args := call.Args
			if !json.Valid([]byte(args)) {
				args = string(jsonObject("arguments", args))
			}
			c.Parts = append(c.Parts, llms.ToolCall{ID: call.ID, Type: "function", FunctionCall: &llms.FunctionCall{Name: call.Name, Arguments: args}})
		}
	}
	if len(c.Parts) == 0 {
		c.Parts = []llms.ContentPart{llms.TextContent{}}
	}
	return c, nil
}

func jsonObject(key, value string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{key: value})
	return raw
}

// toolText returns the content of a tool message as text, the only form that models accept there.
func toolText(c message.Content) string {
	if c.Blocks == nil {
		return c.Text
	}
	var b strings.Builder
	for _, raw := range c.Blocks {
		v := gjson.ParseBytes(raw)
		switch {
		case v.Type == gjson.String:
			b.WriteString(v.Str)
		case v.Get("type").Str == "text":
			b.WriteString(v.Get("text").String())
		default:
			b.Write(raw)
		}
	}
	return b.String()
}

// contentParts reads text and content blocks: those of OpenAI (image_url, input_audio, file) and LangChain's own (image, audio, file
// with url or base64).
func contentParts(c message.Content) ([]llms.ContentPart, error) {
	if c.Blocks == nil {
		if c.Text == "" {
			return nil, nil
		}
		return []llms.ContentPart{llms.TextContent{Text: c.Text}}, nil
	}
	var parts []llms.ContentPart
	for _, raw := range c.Blocks {
		v := gjson.ParseBytes(raw)
		if v.Type == gjson.String {
			parts = append(parts, llms.TextContent{Text: v.Str})
			continue
		}
		switch kind := v.Get("type").Str; kind {
		case "text":
			parts = append(parts, llms.TextContent{Text: v.Get("text").String()})
		case "image_url":
			image := v.Get("image_url")
			url := image.String()
			if image.IsObject() {
				url = image.Get("url").String()
			}
			parts = append(parts, llms.ImageURLContent{URL: url, Detail: image.Get("detail").String()})
		case "image", "audio", "file", "video":
			part, err := dataPart(kind, v)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		case "reasoning", "thinking", "tool_use", "tool_call", "tool_call_chunk", "redacted_thinking", "non_standard", "refusal":
			// The calls are in tool_calls.
		default:
			return nil, fmt.Errorf("a content block of type %q cannot be sent to a model", kind)
		}
	}
	return parts, nil
}

func dataPart(kind string, v gjson.Result) (llms.ContentPart, error) {
	mime := v.Get("mime_type").String()
	data := v.Get("base64").String()
	url := v.Get("url").String()
	if source := v.Get("source"); source.IsObject() { // Anthropic's form
		mime, data, url = source.Get("media_type").String(), source.Get("data").String(), source.Get("url").String()
	} else if data == "" {
		data = v.Get("data").String()
	}
	if data == "" {
		if kind == "image" && url != "" {
			return llms.ImageURLContent{URL: url}, nil
		}
		return nil, fmt.Errorf("a content block of type %q has no data", kind)
	}
	if mime == "" {
		mime = map[string]string{"image": "image/png", "audio": "audio/wav", "file": "application/pdf", "video": "video/mp4"}[kind]
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("a content block of type %q: its data is no base64: %w", kind, err)
	}
	return llms.BinaryContent{MIMEType: mime, Data: raw}, nil
}

// usageOf returns the usage in the form of messages.
func usageOf(u *llm.Usage) *message.Usage {
	if u == nil {
		return nil
	}
	out := &message.Usage{InputTokens: int64(u.Input), OutputTokens: int64(u.Output), TotalTokens: int64(u.Total)}
	if u.CacheRead > 0 {
		out.InputDetails = json.RawMessage(fmt.Sprintf(`{"cache_read":%d}`, u.CacheRead))
	}
	if u.Reasoning > 0 {
		out.OutputDetails = json.RawMessage(fmt.Sprintf(`{"reasoning":%d}`, u.Reasoning))
	}
	return out
}
