package agent

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
)

// forModel returns a conversation in the form of models. Content that no model understands, such as another one's reasoning, is omitted.
// Content that a model cannot take is an error in the message that a person has just sent, and a short text in all others: a thread
// remains usable when a run failed, and when it changes models.
func forModel(system *message.Message, messages []message.Message) ([]llms.MessageContent, error) {
	out := make([]llms.MessageContent, 0, len(messages)+1)
	if system != nil {
		messages = append([]message.Message{*system}, messages...)
	}
	last := lastHuman(messages)
	for i, m := range messages {
		c, err := toContent(m, i == last)
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// lastHuman returns the index of the message of a person that no model has answered; -1: there is none. A run that failed leaves its
// message in the thread, so only the last of several is new for sure.
func lastHuman(messages []message.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		switch messages[i].Type {
		case message.TypeHuman, message.TypeHumanChunk:
			return i
		case message.TypeAI, message.TypeAIChunk:
			return -1
		case message.TypeChat, message.TypeChatChunk:
			if role := messages[i].Role; role == "user" || role == "human" {
				return i
			}
		}
	}
	return -1
}

// toContent returns a message in the form of models. fresh: a person has just sent it.
func toContent(m message.Message, fresh bool) (llms.MessageContent, error) {
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
			result.Content = contentParts(m, false)
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
	if c.Role == llms.ChatMessageTypeAI {
		c.Parts = answerParts(m)
	} else {
		c.Parts = contentParts(m, fresh)
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
		p := llm.Part{Block: raw, Provider: provider, Optional: true, Unasked: kwargs.Get(llm.UnaskedThinking).Bool()}
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
		case v.Get("type").Str == "text":
			b.WriteString(v.Get("text").String())
		case llm.BlockText(raw) != "":
			b.WriteString(llm.BlockText(raw))
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
	"media": "file", "container_upload": "file",
}

// contentParts reads text and content blocks: those of OpenAI (image_url, input_audio, file), of Anthropic (document, image, …) and
// LangChain's own (image, audio, file with url, base64 or ID). What a model cannot take is an error if fresh, else a text.
func contentParts(m message.Message, fresh bool) []llms.ContentPart {
	c := m.Content
	if c.Blocks == nil {
		if c.Text == "" {
			return nil
		}
		return []llms.ContentPart{llms.TextContent{Text: c.Text}}
	}
	var parts []llms.ContentPart
	for _, raw := range c.Blocks {
		v := gjson.ParseBytes(raw)
		if v.Type == gjson.String {
			parts = append(parts, llms.TextContent{Text: v.Str})
			continue
		}
		kind := v.Get("type").Str
		p := llm.Part{Block: raw, Message: m.ID, Name: fileName(v)}
		if !fresh {
			p.Instead = notShown(kind, p.Name)
		}
		switch kind {
		case "text":
			p.ContentPart = llms.TextContent{Text: v.Get("text").String()}
		case "image_url":
			image := v.Get("image_url")
			url := image.String()
			if image.IsObject() {
				url = image.Get("url").String()
			}
			if _, data, ok := llm.CutDataURL(url); ok {
				p.Broken = wrongData(data)
			}
			if p.Broken == "" {
				p.ContentPart = llms.ImageURLContent{URL: url, Detail: image.Get("detail").String()}
			}
		case "image", "audio", "file", "video", "media":
			p.ContentPart, p.Broken = dataPart(kind, v)
		case "input_audio":
			p.Broken = wrongData(v.Get("input_audio.data").String())
		case "document":
			if v.Get("source.type").Str == "base64" {
				p.Broken = wrongData(v.Get("source.data").String())
			}
		case "search_result", "text-plain", "container_upload":
		case "reasoning", "thinking", "tool_use", "tool_call", "tool_call_chunk", "redacted_thinking", "non_standard", "refusal":
			continue // of a model, in a message that is not one of it
		default:
			p.Broken = "its type is not known"
			if m.Type == message.TypeTool || m.Type == message.TypeToolChunk {
				p.Instead = string(raw) // the JSON that the tool returned
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// notShown returns the text in place of a content block that a model cannot take.
func notShown(kind, name string) string {
	what := cmp.Or(dataName[kind], "content")
	if name != "" {
		what += ": " + name
	}
	return "[" + what + ", not shown to this model]"
}

// fileName returns the name of the file of a content block, at the places where OpenAI, Anthropic and LangChain have it; "": none.
func fileName(v gjson.Result) string {
	for _, at := range []string{"filename", "file.filename", "extras.filename", "metadata.filename", "title", "extras.title", "metadata.title", "name", "extras.name", "metadata.name"} {
		if name := v.Get(at); name.Type == gjson.String && strings.TrimSpace(name.Str) != "" {
			return short(strings.Join(strings.Fields(name.Str), " "), 200)
		}
	}
	return ""
}

// wrongData returns why data cannot be sent; "": it can.
func wrongData(data string) string {
	if data == "" {
		return "it has no data"
	}
	if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))); err != nil {
		return "its data is not valid base64: " + err.Error()
	}
	return ""
}

// dataPart returns a block with data as models know it; nil when only the provider knows what a reference in it means. broken is why
// no model can take it.
func dataPart(kind string, v gjson.Result) (part llms.ContentPart, broken string) {
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
	for _, address := range []string{v.Get("file.file_data").String(), url} { // OpenAI's form, and data in place of an address
		if kind, encoded, ok := llm.CutDataURL(address); ok {
			mime, data = kind, encoded
		}
	}
	if data == "" {
		if kind == "image" && url != "" {
			return llms.ImageURLContent{URL: url}, ""
		}
		if url != "" || id != "" || v.Get("source_type").Str == "text" {
			return nil, ""
		}
		return nil, "it has no data"
	}
	if mime == "" {
		mime = map[string]string{"image": "image/png", "audio": "audio/wav", "file": "application/pdf", "video": "video/mp4"}[kind]
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, "its data is not valid base64: " + err.Error()
	}
	return llms.BinaryContent{MIMEType: mime, Data: raw}, ""
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
