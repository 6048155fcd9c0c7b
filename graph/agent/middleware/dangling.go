package middleware

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
)

// DanglingToolCalls puts the result of each call right behind the message with the call, in requests alone, and adds the missing ones: of runs that were cut off, of calls
// whose arguments could not be read, and of calls that only a provider's own form has. Results without a call are left out. Models refuse other conversations.
func DanglingToolCalls() agent.Middleware {
	return agent.Middleware{
		Name: "DanglingToolCallMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			r.Messages = complete(r.Messages)
			return next(ctx, r)
		},
	}
}

// wanted is a call that needs a result.
type wanted struct {
	id, name, problem string // problem: with its arguments; "": none
	result            int    // its place; -1: there is none
}

// complete returns messages with a result for each call, behind it. It returns messages itself when they are so already.
func complete(list []message.Message) []message.Message {
	same := true
	for i, m := range list {
		if whole, changed := withOwnCalls(m); changed {
			if same {
				list, same = slices.Clone(list), false
			}
			list[i] = whole
		}
	}
	calls := make([][]wanted, len(list))
	open := map[string]*wanted{} // the newest call under an ID, until it has a result
	early := map[string]int{}    // results that stand before their call
	moved := map[int]bool{}      // results that are put behind their call
	for i, m := range list {
		switch m.Type {
		case message.TypeTool:
			if w := open[m.ToolCallID]; w != nil {
				w.result, moved[i] = i, true
				delete(open, m.ToolCallID)
			} else {
				early[m.ToolCallID] = i
			}
		case message.TypeAI:
			calls[i] = callsOf(m)
			for j := range calls[i] {
				w := &calls[i][j]
				if at, ok := early[w.id]; ok {
					w.result, moved[at] = at, true
					delete(early, w.id)
				} else {
					open[w.id] = w
				}
			}
		}
	}
	out := make([]message.Message, 0, len(list))
	for i, m := range list {
		if m.Type == message.TypeTool {
			same = same && moved[i]
			continue
		}
		out = append(out, m)
		for n, w := range calls[i] {
			same = same && w.result == i+1+n
			if w.result >= 0 {
				out = append(out, list[w.result])
				continue
			}
			out = append(out, w.missing())
		}
	}
	if same {
		return list
	}
	return out
}

// callsOf returns the calls of a message: each ID once.
func callsOf(m message.Message) (list []wanted) {
	seen := map[string]bool{}
	add := func(id, name, problem string) {
		if id != "" && !seen[id] {
			seen[id] = true
			list = append(list, wanted{id, name, problem, -1})
		}
	}
	for _, c := range m.ToolCalls {
		add(c.ID, c.Name, "")
	}
	for _, c := range m.InvalidToolCalls {
		add(c.ID, c.Name, cmp.Or(c.Error, "they could not be read"))
	}
	return list
}

// withOwnCalls returns a message with the calls that only its provider's own form has.
func withOwnCalls(m message.Message) (message.Message, bool) {
	if m.Type != message.TypeAI || len(m.ToolCalls) > 0 || len(m.InvalidToolCalls) > 0 {
		return m, false
	}
	for _, c := range gjson.GetBytes(m.AdditionalKwargs, "tool_calls").Array() {
		id, name, args := c.Get("id").String(), c.Get("function.name").String(), c.Get("function.arguments").String()
		if id == "" {
			continue
		}
		if read, err := message.Arguments(args); err == nil {
			m.ToolCalls = append(m.ToolCalls, message.ToolCall{ID: id, Name: name, Args: read})
		} else {
			m.InvalidToolCalls = append(m.InvalidToolCalls, message.InvalidToolCall{ID: id, Name: name, Args: args, Error: err.Error()})
		}
	}
	return m, len(m.ToolCalls) > 0 || len(m.InvalidToolCalls) > 0
}

// missing is the result of a call that has none.
func (w wanted) missing() message.Message {
	text := "[Tool call was interrupted and did not return a result.]"
	if w.problem != "" {
		problem := []rune(strings.Join(strings.Fields(w.problem), " "))
		text = fmt.Sprintf("[Tool call could not be executed because its arguments were invalid: %s. Call the tool again with valid arguments.]", string(problem[:min(len(problem), maxDetail)]))
	}
	m := message.Tool(text, w.id).WithName(w.name)
	m.Status = message.StatusError
	return m
}
