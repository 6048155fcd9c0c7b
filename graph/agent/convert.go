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
		result := llm.Part{ContentPart: llms.ToolCallResponse{ToolCallID: m.ToolCallID, Name: m.Name, Content: toolText(m.Content)}, Failed: m.Status == message.StatusError}
		if m.Content.Blocks != nil {
			if parts, err := contentParts(m.Content); err == nil { // else its text has all of it
				result.Content = parts
			}
		}
		c.Parts = []llms.ContentPart{result}
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
	if c.Role == llms.ChatMessageTypeAI {
		c.Parts = answerParts(m)
	} else if c.Parts, err = contentParts(m.Content); err != nil {
		return c, err
	}
	if len(c.Parts) == 0 {
		c.Parts = []llms.ContentPart{llms.TextContent{}}
	}
	return c, nil
}

// answerParts returns the parts of a model's message, with what its provider wants returned: its thinking, signatures of calls. A thread
// that changed models has blocks that the next one does not know: they are optional.
func answerParts(m message.Message) []llms.ContentPart {
	provider := gjson.GetBytes(m.ResponseMetadata, "model_provider").String()
	kwargs := gjson.ParseBytes(m.AdditionalKwargs)
	var parts []llms.ContentPart
	if r, d := kwargs.Get("reasoning_content"), kwargs.Get("reasoning_details"); r.Type == gjson.String || d.IsArray() {
		p := llm.Part{Reasoning: r.Str, Provider: provider, Optional: true}
		if d.IsArray() {
			p.Details = json.RawMessage(d.Raw)
		}
		parts = append(parts, p)
	}
	if m.Content.Blocks == nil && m.Content.Text != "" {
		parts = append(parts, llms.TextContent{Text: m.Content.Text})
	}
	for _, raw := range m.Content.Blocks {
		p := llm.Part{Block: raw, Provider: provider, Optional: true}
		if v := gjson.ParseBytes(raw); v.Type == gjson.String {
			p = llm.Part{ContentPart: llms.TextContent{Text: v.Str}}
		} else if v.Get("type").Str == "text" {
			p.ContentPart = llms.TextContent{Text: v.Get("text").String()}
		}
		parts = append(parts, p)
	}
	for _, call := range m.ToolCalls {
		p := llm.Part{Provider: provider, ContentPart: toolCall(call.ID, call.Name, string(orEmpty(call.Args)))}
		if extra := kwargs.Get("tool_call_extra_content." + gjson.Escape(call.ID)); extra.IsObject() {
			p.Extra = json.RawMessage(extra.Raw)
		}
		parts = append(parts, p)
	}
	// Models refuse a call without a result, and these have one: their error.
	for _, call := range m.InvalidToolCalls {
		if call.ID == "" {
			continue
		}
		args := call.Args
		if fixed, err := message.Arguments(args); err == nil {
			args = string(fixed)
		} else {
			args = string(jsonObject("arguments", args)) // they also refuse arguments that are not an object
		}
		parts = append(parts, llm.Part{Provider: provider, ContentPart: toolCall(call.ID, call.Name, args)})
	}
	return parts
}

func toolCall(id, name, args string) llms.ToolCall {
	if name == "" {
		name = "unknown"
	}
	return llms.ToolCall{ID: id, Type: "function", FunctionCall: &llms.FunctionCall{Name: name, Arguments: args}}
}

func jsonObject(key, value string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{key: value})
	return raw
}

// toolText returns the content of a tool message as text, the only form that most models accept there. Of data it says what it was: as
// text an image would fill the context and say nothing.
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
		case v.Get("type").Str == "text", v.Get("type").Str == "text-plain" && v.Get("text").Exists():
			b.WriteString(v.Get("text").String())
		case v.Get("type").Str == "document" && v.Get("source.type").Str == "text":
			b.WriteString(v.Get("source.data").String())
		case dataName[v.Get("type").Str] != "":
			b.WriteString("[" + dataName[v.Get("type").Str] + "]")
		default:
			b.Write(raw)
		}
	}
	return b.String()
}

// dataName has the types of content blocks that are data, and what they are called in text.
var dataName = map[string]string{
	"image": "image", "image_url": "image", "audio": "audio", "input_audio": "audio", "file": "file", "video": "video", "document": "document",
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
			parts = append(parts, llm.Part{ContentPart: llms.TextContent{Text: v.Get("text").String()}, Block: raw})
		case "image_url":
			image := v.Get("image_url")
			url := image.String()
			if image.IsObject() {
				url = image.Get("url").String()
			}
			parts = append(parts, llm.Part{ContentPart: llms.ImageURLContent{URL: url, Detail: image.Get("detail").String()}, Block: raw})
		case "image", "audio", "file", "video":
			part, err := dataPart(kind, v)
			if err != nil {
				return nil, err
			}
			parts = append(parts, llm.Part{ContentPart: part, Block: raw})
		case "document", "search_result", "text-plain", "container_upload":
			parts = append(parts, llm.Part{Block: raw})
		case "reasoning", "thinking", "tool_use", "tool_call", "tool_call_chunk", "redacted_thinking", "non_standard", "refusal":
			// Of a model, in a message that is not one of it.
		default:
			return nil, fmt.Errorf("a content block of type %q cannot be sent to a model", kind)
		}
	}
	return parts, nil
}

// dataPart returns a block with data as models know it; nil when only the provider can tell what a reference in it means.
func dataPart(kind string, v gjson.Result) (llms.ContentPart, error) {
	mime := v.Get("mime_type").String()
	data := v.Get("base64").String()
	url := v.Get("url").String()
	id := v.Get("file_id").String() + v.Get("file.file_id").String() + v.Get("id").String()
	if source := v.Get("source"); source.IsObject() { // Anthropic's form
		mime, data, url = source.Get("media_type").String(), source.Get("data").String(), source.Get("url").String()
		id += source.Get("file_id").String()
	} else if data == "" {
		data = v.Get("data").String()
	}
	if head, encoded, ok := strings.Cut(v.Get("file.file_data").String(), ";base64,"); ok { // OpenAI's form
		mime, data = strings.TrimPrefix(head, "data:"), encoded
	}
	if data == "" {
		if kind == "image" && url != "" {
			return llms.ImageURLContent{URL: url}, nil
		}
		if url != "" && kind == "file" || id != "" {
			return nil, nil
		}
		return nil, fmt.Errorf("a content block of type %q has no data", kind)
	}
	if mime == "" {
		mime = map[string]string{"image": "image/png", "audio": "audio/wav", "file": "application/pdf", "video": "video/mp4"}[kind]
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, fmt.Errorf("a content block of type %q: its data is not valid base64: %w", kind, err)
	}
	return llms.BinaryContent{MIMEType: mime, Data: raw}, nil
}

// usageOf returns the usage in the form of messages.
func usageOf(u *llm.Usage) *message.Usage {
	if u == nil {
		return nil
	}
	out := &message.Usage{InputTokens: int64(u.Input), OutputTokens: int64(u.Output), TotalTokens: int64(u.Total)}
	out.InputDetails, out.OutputDetails = u.InputDetails, u.OutputDetails
	if u.CacheRead > 0 && out.InputDetails == nil {
		out.InputDetails = json.RawMessage(fmt.Sprintf(`{"cache_read":%d}`, u.CacheRead))
	}
	if u.Reasoning > 0 && out.OutputDetails == nil {
		out.OutputDetails = json.RawMessage(fmt.Sprintf(`{"reasoning":%d}`, u.Reasoning))
	}
	return out
}
