package middleware

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
)

// reminderMark is what DeerFlow's own agent puts on its hidden messages with the date and the memory.
const reminderMark = "dynamic_context_reminder"

// SystemMessages puts all system messages of a conversation into the one at its beginning, in requests alone: many models refuse one in the middle. Clients send such
// messages, and conversations of DeerFlow's own agent have its reminders: of these only the newest is put there, since its date is the one that counts.
func SystemMessages() agent.Middleware {
	return agent.Middleware{
		Name: "SystemMessageCoalescingMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if !slices.ContainsFunc(r.Messages, isSystem) {
				return next(ctx, r)
			}
			var texts []string
			add := func(m message.Message) {
				if text := strings.TrimSpace(m.Text()); text != "" {
					texts = append(texts, text)
				}
			}
			if r.System != nil {
				add(*r.System)
			}
			newest := lastReminder(r.Messages)
			rest := make([]message.Message, 0, len(r.Messages))
			for i, m := range r.Messages {
				switch {
				case !isSystem(m):
					rest = append(rest, m)
				case !isReminder(m) || i == newest:
					add(m)
				}
			}
			r.Messages = rest
			if len(texts) > 0 {
				system := message.System(strings.Join(texts, "\n\n"))
				r.System = &system
			}
			return next(ctx, r)
		},
	}
}

func isSystem(m message.Message) bool {
	return m.Type == message.TypeSystem || m.Type == message.TypeSystemChunk
}

func isReminder(m message.Message) bool {
	return gjson.GetBytes(m.AdditionalKwargs, reminderMark).Bool()
}

// lastReminder returns the place of the newest reminder among system messages; -1 for none.
func lastReminder(list []message.Message) int {
	for i, m := range slices.Backward(list) {
		if isSystem(m) && isReminder(m) {
			return i
		}
	}
	return -1
}
