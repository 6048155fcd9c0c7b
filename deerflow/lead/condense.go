package lead

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/internal/fault"
)

// Condensing says how a conversation is condensed on request.
type Condensing struct {
	Force bool             // although it is not long enough to be condensed by itself
	Keep  *settings.Amount // nil: as the settings say
	Model string           // that writes the summary; "": as the settings say
}

// Condense replaces the older part of the conversation of a state by a summary. nil: there is not enough to condense. The error is fault.Conflict when the settings
// turn summarization off.
func (g *Graph) Condense(ctx context.Context, values json.RawMessage, how Condensing) (*agent.Condensed, error) {
	s, err := g.o.Settings()
	if err != nil {
		return nil, err
	}
	if !s.Summarization.Enabled {
		return nil, fault.New(fault.Conflict, "Context compaction is disabled; set summarization.enabled in config.yaml")
	}
	if len(s.Models) == 0 {
		return nil, fault.New(fault.Unavailable, "No model is configured")
	}
	o, err := g.summarizing(s, how.Model)
	if err != nil {
		return nil, err
	}
	if how.Keep != nil {
		o.Keep = size(*how.Keep)
		if how.Keep.Type == "fraction" && o.Model.MaxInputTokens <= 0 {
			return nil, fault.New(fault.Unprocessable, "keep: a fraction needs the context_window of the model in config.yaml; name messages or tokens")
		}
	}
	var messages []message.Message
	for _, raw := range gjson.GetBytes(values, "messages").Array() {
		if m, ok := message.Read([]byte(raw.Raw)); ok {
			messages = append(messages, m)
		}
	}
	c, err := agent.Condense(ctx, o, messages, how.Force)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "The model that writes summaries cannot be reached; the log of the server says why", fmt.Errorf("condense a conversation: %w", err))
	}
	return c, nil
}
