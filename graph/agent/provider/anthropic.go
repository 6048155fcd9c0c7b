package provider

import (
	"context"

	"github.com/tmc/langchaingo/llms"
)

// claude works around a limitation of langchaingo's Anthropic: of a message of the model it sends only the first part, so text next to
// tool calls, and all calls but the first, would be lost. Here each part is a message; the API joins those of one role.
type claude struct {
	llms.Model
	defaults []llms.CallOption
}

func (c claude) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	return c.Model.GenerateContent(ctx, apart(messages), append(c.defaults[:len(c.defaults):len(c.defaults)], options...)...)
}

func apart(messages []llms.MessageContent) []llms.MessageContent {
	var out []llms.MessageContent
	for _, m := range messages {
		var parts []llms.ContentPart
		for _, p := range m.Parts {
			if text, ok := p.(llms.TextContent); ok && text.Text == "" {
				continue // refused there
			}
			parts = append(parts, p)
		}
		if m.Role == llms.ChatMessageTypeHuman {
			if len(parts) > 0 {
				out = append(out, llms.MessageContent{Role: m.Role, Parts: parts})
			}
			continue
		}
		for _, p := range parts {
			out = append(out, llms.MessageContent{Role: m.Role, Parts: []llms.ContentPart{p}})
		}
	}
	return out
}
