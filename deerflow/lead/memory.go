package lead

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// agent is a user's own one, which has a memory of its own; "": the one of the user.
	Read func(ctx context.Context, user, agent string) (*memory.Memory, error)
	// Learn queues a conversation.
	Learn func(ctx context.Context, user, agent, thread string, turns []memory.Turn) error
	// Book is what the agent changes itself, when memory.mode is tool; nil: it cannot.
	Book *memory.Book
}

// about returns what is known of the run's user, for the model; "": nothing.
func (g *Graph) about(set settings.Memory) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		if g.o.Memory.Read == nil || !set.Enabled || !set.Injection {
			return ""
		}
		agent, _ := g.remembers(ctx)
		known, err := g.o.Memory.Read(ctx, userOf(ctx), agent)
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
func (g *Graph) remember(set settings.Memory) agent.Middleware {
	return agent.Middleware{
		Name: "MemoryMiddleware",
		AfterAgent: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			g.learn(ctx, set, "", agent.Messages(state))
			return nil, nil
		}},
	}
}

// rescue queues what summarization drops, before it is lost.
func (g *Graph) rescue(set settings.Memory) func(context.Context, []message.Message) {
	return func(ctx context.Context, list []message.Message) {
		for _, m := range list {
			if m.ID != "" && m.Type == message.TypeHuman && !m.HiddenFromPeople() {
				sum := sha256.Sum256([]byte(m.ID))
				g.learn(ctx, set, memory.Part+hex.EncodeToString(sum[:4]), list)
				return
			}
		}
	}
}

// queueTime bounds how long the end of a run waits for the queue of the memory.
const queueTime = 10 * time.Second

// learn queues messages for the memory. part is added to the name of the thread, in whose place later messages come.
func (g *Graph) learn(ctx context.Context, set settings.Memory, part string, list []message.Message) {
	info, ok := pregel.Info(ctx)
	agent, known := g.remembers(ctx)
	if g.o.Memory.Learn == nil || !set.Enabled || set.Mode == toolMode || !ok || !known {
		return
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTime) // also of a run that is being cancelled
	defer cancel()
	if err := g.o.Memory.Learn(limited, userOf(ctx), agent, string(info.Thread)+part, turns(list)); err != nil {
		pregel.LogOf(ctx).Error("the conversation was not queued for the memory", "error", err)
	}
}

// remembers returns the agent whose memory a run has; "": the one of the user. known is false for an agent that is gone or cannot be read: what was said to it is not
// for the memory of the user.
func (g *Graph) remembers(ctx context.Context) (agent string, known bool) {
	name := agentOf(ctx)
	if name == "" || g.o.Agent == nil {
		return "", true
	}
	if _, err := g.o.Agent(userOf(ctx), name); err != nil {
		return "", false
	}
	return name, true
}

// turns are what people said, and the answers to it.
func turns(list []message.Message) (turns []memory.Turn) {
	for _, m := range list {
		text := strings.TrimSpace(m.Text())
		switch {
		case text == "" || m.HiddenFromPeople() || m.Name == "summary":
		case m.Type == message.TypeHuman:
			turns = append(turns, memory.Turn{User: true, Text: text})
		case m.Type == message.TypeAI && len(m.ToolCalls) == 0 && len(turns) > 0:
			turns = append(turns, memory.Turn{Text: text})
		}
	}
	return turns
}
