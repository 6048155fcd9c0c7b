package lead

import (
	"context"
	"slices"
	"strings"
	"time"

	"understudy/deerflow/memory"
	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Memory is what agents know of users, and where they put what they learn.
type Memory struct {
	Read  func(user string) (*memory.Memory, error)
	Learn func(user, thread string, turns []memory.Turn) error
}

// remember shows the model what is known of the user and which day it is, in requests alone, and queues what was said for the memory.
func remember(o Memory, set settings.Memory, now func() time.Time) agent.Middleware {
	return agent.Middleware{
		Name: "MemoryMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			first := slices.IndexFunc(r.Messages, func(m message.Message) bool { return m.Type == message.TypeHuman })
			if first < 0 {
				return next(ctx, r)
			}
			text := "<current_date>" + now().Format("2006-01-02, Monday") + "</current_date>"
			if o.Read != nil && set.Enabled && set.Injection {
				known, err := o.Read(userOf(ctx))
				if err != nil { // an answer without a memory is better than none
					pregel.LogOf(ctx).Warn("the memory of the user cannot be read", "error", err)
				} else if block := known.Block(set.MaxTokens); block != "" {
					text = "<memory>\n" + block + "\n</memory>\n" + text
				}
			}
			r.Messages = slices.Insert(slices.Clone(r.Messages), first, message.Human("<system-reminder>\n"+text+"\n</system-reminder>"))
			return next(ctx, r)
		},
		AfterAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			if o.Learn == nil || !set.Enabled {
				return nil, nil
			}
			var turns []memory.Turn
			for _, m := range agent.Messages(state) {
				text := strings.TrimSpace(m.Text())
				switch {
				case text == "" || hidden(m) || m.Name == "summary":
				case m.Type == message.TypeHuman:
					turns = append(turns, memory.Turn{User: true, Text: text})
				case m.Type == message.TypeAI && len(m.ToolCalls) == 0 && len(turns) > 0:
					turns = append(turns, memory.Turn{Text: text})
				}
			}
			info, _ := pregel.Info(ctx)
			if err := o.Learn(userOf(ctx), string(info.Thread), turns); err != nil {
				pregel.LogOf(ctx).Error("the conversation was not queued for the memory", "error", err)
			}
			return nil, nil
		}},
	}
}
