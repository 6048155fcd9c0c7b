package lead

import (
	"context"
	"time"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// threadData notes on the last message of a person which run it began, and when.
func (g *Graph) threadData() agent.Middleware {
	return agent.Middleware{
		Name:  "ThreadDataMiddleware",
		State: map[string]pregel.Channel{"thread_data": pregel.LastValue()},
		BeforeAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			info, _ := pregel.Info(ctx)
			if info.Thread == "" { // whose files would it have?
				return nil, pregel.Errorf("ValueError", "the run has no thread ID, and so no folders")
			}
			if _, err := g.characterOf(ctx); err != nil { // before anything is done for it
				return nil, err
			}
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
