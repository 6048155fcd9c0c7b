package agent

import (
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/internal/pytext"
)

// Tokens are counted as in LangChain's count_tokens_approximately: by characters, scaled by the usage that the provider
// reported last.
const (
	charsPerToken    = 4.0
	claudeChars      = 3.3
	tokensPerMessage = 3.0
	tokensPerImage   = 85.0
)

// Tokens estimates the tokens of messages by their characters.
func Tokens(messages ...message.Message) int { return countTokens(messages, charsPerToken, false) }

// countTokens estimates the tokens of messages. scale: by the usage in the last answer.
func countTokens(messages []message.Message, perToken float64, scale bool) int {
	total, atLast := 0.0, 0.0
	provider, mixed := "", false
	var reported int64
	for _, m := range messages {
		chars, images := contentSize(m.Content)
		total += images
		if m.Type == message.TypeAI && m.Content.Blocks == nil && len(m.ToolCalls) > 0 {
			chars += utf8.RuneCountInString(pytext.Repr(callsJSON(m.ToolCalls)))
		}
		if m.Type == message.TypeTool {
			chars += utf8.RuneCountInString(m.ToolCallID)
		}
		chars += len(openAIRole(m)) + utf8.RuneCountInString(m.Name)
		total += math.Ceil(float64(chars)/perToken) + tokensPerMessage
		if m.Type != message.TypeAI {
			continue
		}
		p := gjson.GetBytes(m.ResponseMetadata, "model_provider").String()
		if provider == "" {
			provider = p
		} else if p != provider {
			mixed = true
		}
		if m.Usage != nil {
			reported, atLast = m.Usage.TotalTokens, total
		}
	}
	if scale && len(messages) > 1 && !mixed && provider != "" && atLast > 0 {
		total *= min(1.25, max(1, float64(reported)/atLast))
	}
	return int(math.Ceil(total))
}

func contentSize(c message.Content) (chars int, images float64) {
	if c.Blocks == nil {
		return utf8.RuneCountInString(c.Text), 0
	}
	for _, raw := range c.Blocks {
		v := gjson.ParseBytes(raw)
		switch kind := v.Get("type").Str; {
		case v.Type == gjson.String:
			chars += utf8.RuneCountInString(v.Str)
		case kind == "image" || kind == "image_url":
			images += tokensPerImage
		case kind == "text":
			chars += utf8.RuneCountInString(v.Get("text").String())
		default:
			chars += utf8.RuneCountInString(pytext.Repr(raw))
		}
	}
	return chars, images
}

func openAIRole(m message.Message) string {
	switch m.Type {
	case message.TypeHuman:
		return "user"
	case message.TypeAI:
		return "assistant"
	case message.TypeChat:
		return m.Role
	}
	return m.Type
}

// callsJSON returns a list of tool calls in the form of messages.
func callsJSON(calls []message.ToolCall) json.RawMessage {
	b := []byte{'['}
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, callJSON(c)...)
	}
	return append(b, ']')
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// transcript writes messages for a model to read: an XML element for each, so that the text of a message cannot imitate its
// author.
func transcript(messages []message.Message) string {
	var b strings.Builder
	for i, m := range messages {
		if i > 0 {
			b.WriteByte('\n')
		}
		role := m.Type
		if m.Type == message.TypeChat {
			role = m.Role
		}
		b.WriteString(`<message type="` + xmlAttr(role) + `">`)
		text := xmlText.Replace(readable(m.Content))
		if len(m.ToolCalls) == 0 {
			b.WriteString(text + "</message>")
			continue
		}
		if text != "" {
			b.WriteString("\n  <content>" + text + "</content>")
		}
		for _, c := range m.ToolCalls {
			b.WriteString("\n  <tool_call id=\"" + xmlAttr(c.ID) + `" name="` + xmlAttr(c.Name) + `">` + xmlText.Replace(pytext.Dumps(c.Args)) + "</tool_call>")
		}
		b.WriteString("\n</message>")
	}
	return b.String()
}

func xmlAttr(s string) string { return strings.ReplaceAll(xmlText.Replace(s), `"`, "&quot;") }

// readable returns content as text; an image becomes a placeholder.
func readable(c message.Content) string {
	if c.Blocks == nil {
		return c.Text
	}
	var parts []string
	for _, raw := range c.Blocks {
		v := gjson.ParseBytes(raw)
		switch kind := v.Get("type").Str; {
		case v.Type == gjson.String:
			parts = append(parts, v.Str)
		case kind == "text":
			parts = append(parts, v.Get("text").String())
		case kind == "image", kind == "image_url", kind == "audio", kind == "file", kind == "video":
			parts = append(parts, "["+kind+"]")
		}
	}
	return strings.Join(parts, " ")
}
