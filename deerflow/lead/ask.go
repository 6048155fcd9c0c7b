package lead

import (
	"context"
	"fmt"
	"slices"

	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent"
)

// Ask sends a prompt to a model and returns its answer. name is the model's in errors, system may be "", and options are in addition to those of the model.
func Ask(ctx context.Context, m agent.Model, name, system, prompt string, options ...llms.CallOption) (string, error) {
	messages := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, prompt)}
	if system != "" {
		messages = append([]llms.MessageContent{llms.TextParts(llms.ChatMessageTypeSystem, system)}, messages...)
	}
	r, err := m.LLM.GenerateContent(ctx, messages, slices.Concat(m.Options, options)...)
	if err != nil {
		return "", err
	}
	if len(r.Choices) == 0 {
		return "", fmt.Errorf("model %s gave no answer", name)
	}
	return r.Choices[0].Content, nil
}
