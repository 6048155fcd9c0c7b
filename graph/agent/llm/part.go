package llm

import (
	"encoding/hex"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/tmc/langchaingo/llms"
)

// Part is a part of a message with what langchaingo's types have no place for. Which fields are set follows from the embedded part.
type Part struct {
	// ContentPart is the part as other models understand it; nil: they can do nothing with it.
	llms.ContentPart
	// Block is the content block as the message has it, such as a document, or the thinking of a model; nil: none.
	Block json.RawMessage
	// Provider is the model_provider of the message of a model that the part is from; "": unknown, or not from a model.
	Provider string
	// Optional means that a model that does not know Block leaves it out: it is a model's own, such as its thinking.
	Optional bool

	// Reasoning is the text that a model thought before it answered, of providers that have it next to the content.
	Reasoning string
	// Details are OpenRouter's reasoning_details; nil: none.
	Details json.RawMessage
	// Extra is the extra_content of an llms.ToolCall, such as Gemini's signature of its thoughts; nil: none.
	Extra json.RawMessage
	// Failed means that an llms.ToolCallResponse is an error.
	Failed bool
	// Content is that of an llms.ToolCallResponse, in parts; nil: its text is all there is.
	Content []llms.ContentPart
}

// Plain returns messages without Part: with the parts of langchaingo alone.
func Plain(messages []llms.MessageContent) []llms.MessageContent {
	out := make([]llms.MessageContent, 0, len(messages))
	for _, m := range messages {
		parts := make([]llms.ContentPart, 0, len(m.Parts))
		for _, p := range m.Parts {
			if rich, ok := p.(Part); ok {
				p = rich.ContentPart
			}
			if p != nil {
				parts = append(parts, p)
			}
		}
		if len(parts) == 0 {
			parts = append(parts, llms.TextContent{})
		}
		out = append(out, llms.MessageContent{Role: m.Role, Parts: parts})
	}
	return out
}

// NewCallID returns an id for a tool call to which its provider gave none. It fits all providers: OpenAI allows 40 characters.
func NewCallID() string {
	id := uuid.New()
	return "call_" + hex.EncodeToString(id[:12])
}
