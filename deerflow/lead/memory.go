package lead

import (
	"context"
	"strings"

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

// about returns what is known of the run's user, for the model; "": nothing.
func (g *Graph) about(set settings.Memory) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		if g.o.Memory.Read == nil || !set.Enabled || !set.Injection {
			return ""
		}
		known, err := g.o.Memory.Read(userOf(ctx))
		if err != nil { // an answer without a memory is better than none
			pregel.LogOf(ctx).Warn("the memory of the user cannot be read", "error", err)
			return ""
		}
		block := known.Block(set.MaxTokens)
		if block != "" {
			block = "<memory>\n" + block + "\n</memory>"
		}
		return block
	}
}

// remember queues what was said for the memory of the user.
func remember(o Memory, set settings.Memory) agent.Middleware {
	return agent.Middleware{
		Name: "MemoryMiddleware",
		AfterAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			if o.Learn == nil || !set.Enabled {
				return nil, nil
			}
			info, _ := pregel.Info(ctx)
			if err := o.Learn(userOf(ctx), string(info.Thread), turns(agent.Messages(state))); err != nil {
				pregel.LogOf(ctx).Error("the conversation was not queued for the memory", "error", err)
			}
			return nil, nil
		}},
	}
}

// turns are what people said, and the answers to it.
func turns(list []message.Message) (turns []memory.Turn) {
	for _, m := range list {
		text := strings.TrimSpace(m.Text())
		switch {
		case text == "" || hidden(m) || m.Name == "summary":
		case m.Type == message.TypeHuman:
			turns = append(turns, memory.Turn{User: true, Text: text})
		case m.Type == message.TypeAI && len(m.ToolCalls) == 0 && len(turns) > 0:
			turns = append(turns, memory.Turn{Text: text})
		}
	}
	return turns
}
