package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// RepairToolCalls adds results, before a run begins, to tool calls without one: their run was cancelled, or a person sent a message
// instead of deciding. Models refuse a conversation with such calls.
func RepairToolCalls() Middleware {
	return Middleware{
		Name: "PatchToolCallsMiddleware",
		BeforeAgent: Hook{Run: func(_ context.Context, state pregel.Values) (any, error) {
			messages := Messages(state)
			repaired := repair(messages)
			if len(repaired) == len(messages) {
				return nil, nil
			}
			return pregel.Values{messagesKey: slices.Concat([]message.Message{message.Remove(message.RemoveAll)}, repaired)}, nil
		}},
	}
}

// repair adds the missing results. Without any missing it returns messages itself: it is called with each request to a model.
func repair(messages []message.Message) []message.Message {
	answered := answeredCalls(messages)
	open := func(m message.Message) bool {
		return m.Type == message.TypeAI && slices.ContainsFunc(m.ToolCalls, func(c message.ToolCall) bool { return !answered[c.ID] })
	}
	if !slices.ContainsFunc(messages, open) {
		return messages
	}
	var out []message.Message
	for _, m := range messages {
		out = append(out, m)
		for _, c := range m.ToolCalls {
			if m.Type == message.TypeAI && !answered[c.ID] {
				answered[c.ID] = true
				out = append(out, *toolError(c, fmt.Sprintf("Tool call %s with id %s was not finished: the conversation continued before it could be.", c.Name, c.ID)))
			}
		}
	}
	return out
}

// ToolErrors sends errors of tools to the model with a custom text. text returns it; for "" the error is passed to the next handler.
// tools limits it to these tools; none means all.
func ToolErrors(text func(err error, call message.ToolCall) string, tools ...string) Middleware {
	return Middleware{
		Name: "ToolErrorMiddleware",
		WrapToolCall: func(ctx context.Context, r ToolRequest, next ToolHandler) (ToolResult, error) {
			out, err := next(ctx, r)
			if err == nil || errors.Is(err, pregel.ErrInterrupted) || context.Cause(ctx) != nil || len(tools) > 0 && !slices.Contains(tools, r.Call.Name) {
				return out, err
			}
			if words := text(err, r.Call); words != "" {
				return ToolResult{Message: toolError(r.Call, words)}, nil
			}
			return out, err
		},
	}
}
