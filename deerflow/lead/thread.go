package lead

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// threadData notes on the last message of a person which run it began, and when.
func threadData() agent.Middleware {
	return agent.Middleware{
		Name:  "ThreadDataMiddleware",
		State: map[string]pregel.Channel{"thread_data": pregel.LastValue()},
		BeforeAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			info, _ := pregel.Info(ctx)
			update := map[string]any{"thread_data": map[string]string{
				"workspace_path": "/mnt/user-data/workspace", "uploads_path": "/mnt/user-data/uploads", "outputs_path": "/mnt/user-data/outputs",
			}}
			list := agent.Messages(state)
			if len(list) == 0 || list[len(list)-1].Type != message.TypeHuman {
				return update, nil
			}
			m := list[len(list)-1]
			if m.Name == "" {
				m.Name = "user-input"
			}
			extra := jsonobj.Of(m.AdditionalKwargs)
			extra.SetText("run_id", string(info.Run))
			extra.SetText("timestamp", time.Now().UTC().Format(time.RFC3339Nano))
			m.AdditionalKwargs = extra.JSON()
			update["messages"] = []message.Message{m}
			return update, nil
		}},
	}
}

// title names a thread after its first question, once. It asks no model.
func title(set settings.Title) agent.Middleware {
	return agent.Middleware{
		Name:  "TitleMiddleware",
		State: map[string]pregel.Channel{"title": pregel.LastValue()},
		AfterModel: agent.Hook{Run: func(_ context.Context, state pregel.Values) (any, error) {
			if have, _, _ := pregel.Get[string](state, "title"); have != "" {
				return nil, nil
			}
			for _, m := range agent.Messages(state) {
				if m.Type == message.TypeHuman && !hidden(m) {
					return map[string]any{"title": shortened(m.Text(), set.MaxChars)}, nil
				}
			}
			return nil, nil
		}},
	}
}

func hidden(m message.Message) bool {
	var v struct {
		Hidden bool `json:"hide_from_ui"`
	}
	return json.Unmarshal(m.AdditionalKwargs, &v) == nil && v.Hidden
}

// shortened returns the beginning of a text, on one line.
func shortened(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	runes := []rune(text)
	switch {
	case text == "":
		return "New Conversation"
	case len(runes) > min(50, most):
		return string(runes[:min(50, most)]) + "..."
	}
	return text
}
