package middleware

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// attribution says what the tokens of an answer were spent on.
type attribution struct {
	Version int      `json:"version"`
	Kind    string   `json:"kind"` // final_answer, tool_batch, todo_update, subagent_dispatch or thinking
	Shared  bool     `json:"shared_attribution"`
	Calls   []string `json:"tool_call_ids"`
	Actions []action `json:"actions"`
}

// action is one thing that an answer does. Absent fields do not belong to its kind.
type action struct {
	Kind        string  `json:"kind"`
	Content     string  `json:"content,omitempty"`
	Tool        string  `json:"tool_name,omitempty"`
	Query       *string `json:"query,omitempty"`
	Description *string `json:"description,omitempty"`
	Subagent    *string `json:"subagent_type,omitempty"`
	Call        *string `json:"tool_call_id"`
}

const (
	attributionKey = "token_usage_attribution"
	// SubagentUsageKey is the member of additional_kwargs by which the result of a tool reports the tokens of an agent that worked for it.
	SubagentUsageKey = "subagent_token_usage"
)

// TokenUsage notes in each answer what its tokens were spent on: additional_kwargs.token_usage_attribution, which DeerFlow's UI shows. The tokens of subagents, which
// results of tools report (SubagentUsageKey), are added to the answer that dispatched them.
//
// It wraps the call, although DeerFlow has a node for it: an answer that is written twice is stored and streamed twice.
func TokenUsage() agent.Middleware {
	return agent.Middleware{
		Name: "TokenUsageMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			out, err := next(ctx, r)
			if err != nil || len(out.Messages) == 0 || out.Messages[0].Type != message.TypeAI {
				return out, err
			}
			m := out.Messages[0]
			if u := m.Usage; u != nil {
				pregel.LogOf(ctx).Debug("tokens of an answer", "input", u.InputTokens, "output", u.OutputTokens, "total", u.TotalTokens)
			}
			plan, _, _ := pregel.Get[[]Todo](r.State, todosKey)
			out.Messages = slices.Clone(out.Messages)
			out.Messages[0] = noted(m, attribute(m, plan))
			if called := dispatchers(agent.Messages(r.State)); called != nil {
				out.Updates = append(slices.Clip(out.Updates), &pregel.Command{Update: pregel.Values{"messages": called}})
			}
			return out, nil
		},
	}
}

// noted returns an answer with its attribution.
func noted(m message.Message, a attribution) message.Message {
	raw, err := json.Marshal(a)
	if err != nil {
		return m // unreachable: texts and lists
	}
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Set(attributionKey, raw)
	m.AdditionalKwargs = extra.JSON()
	return m
}

// withoutCut returns an answer whose attribution has no calls that were taken away.
func withoutCut(m message.Message) message.Message {
	var a attribution
	raw := gjson.GetBytes(m.AdditionalKwargs, attributionKey)
	if !raw.Exists() || json.Unmarshal([]byte(raw.Raw), &a) != nil {
		return m
	}
	gone := func(id string) bool {
		return !slices.ContainsFunc(m.ToolCalls, func(c message.ToolCall) bool { return c.ID == id })
	}
	a.Calls = slices.DeleteFunc(a.Calls, gone)
	a.Actions = slices.DeleteFunc(a.Actions, func(d action) bool { return d.Call != nil && gone(*d.Call) })
	return noted(m, a.named(m))
}

// dispatchers returns the answer whose calls the results at the end are of, with the usage that they report; nothing when they report none.
func dispatchers(list []message.Message) []message.Message {
	var more message.Usage
	at := len(list) - 1
	for ; at >= 0 && list[at].Type == message.TypeTool; at-- {
		used := gjson.GetBytes(list[at].AdditionalKwargs, SubagentUsageKey)
		more.InputTokens += used.Get("input_tokens").Int()
		more.OutputTokens += used.Get("output_tokens").Int()
		more.TotalTokens += used.Get("total_tokens").Int()
	}
	if at < 0 || list[at].Type != message.TypeAI || more.TotalTokens == 0 {
		return nil
	}
	m := list[at]
	if m.Usage != nil {
		more.InputTokens += m.Usage.InputTokens
		more.OutputTokens += m.Usage.OutputTokens
		more.TotalTokens += m.Usage.TotalTokens
		more.InputDetails, more.OutputDetails = m.Usage.InputDetails, m.Usage.OutputDetails
	}
	m.Usage = &more
	return []message.Message{m}
}

func attribute(m message.Message, plan []Todo) attribution {
	a := attribution{Version: 1, Calls: []string{}, Actions: []action{}}
	for _, c := range m.ToolCalls {
		if c.ID != "" {
			a.Calls = append(a.Calls, c.ID)
		}
		a.Actions = append(a.Actions, actions(c, plan)...)
		if c.Name == todosTool {
			plan = planned(c)
		}
	}
	return a.named(m)
}

// named returns the attribution with the kind that follows from its actions.
func (a attribution) named(m message.Message) attribution {
	a.Shared = len(a.Actions) > 1
	switch {
	case len(a.Actions) == 1 && strings.HasPrefix(a.Actions[0].Kind, "todo_"):
		a.Kind = "todo_update"
	case len(a.Actions) == 1 && a.Actions[0].Kind == "subagent":
		a.Kind = "subagent_dispatch"
	case len(a.Actions) > 0:
		a.Kind = "tool_batch"
	case strings.TrimSpace(m.Text()) != "":
		a.Kind = "final_answer"
	default:
		a.Kind = "thinking"
	}
	return a
}

// actions describes a call.
func actions(c message.ToolCall, plan []Todo) []action {
	var id *string
	if c.ID != "" {
		id = &c.ID
	}
	arg := func(name string) *string {
		v := gjson.GetBytes(c.Args, name)
		text := strings.TrimSpace(v.String())
		if v.Type != gjson.String || text == "" {
			return nil
		}
		return &text
	}
	switch c.Name {
	case todosTool:
		if list := steps(plan, planned(c)); len(list) > 0 {
			for i := range list {
				list[i].Call = id
			}
			return list
		}
		return []action{{Kind: "tool", Tool: c.Name, Call: id}}
	case "task":
		return []action{{Kind: "subagent", Description: arg("description"), Subagent: arg("subagent_type"), Call: id}}
	case "web_search", "image_search":
		return []action{{Kind: "search", Tool: c.Name, Query: arg("query"), Call: id}}
	case "present_files":
		return []action{{Kind: "present_files", Call: id}}
	case "ask_clarification":
		return []action{{Kind: "clarification", Call: id}}
	}
	return []action{{Kind: "tool", Tool: c.Name, Description: arg("description"), Call: id}}
}

// planned returns the plan that a call of write_todos writes.
func planned(c message.ToolCall) (list []Todo) {
	for _, v := range gjson.GetBytes(c.Args, todosKey).Array() {
		list = append(list, Todo{strings.TrimSpace(v.Get("content").String()), v.Get("status").String()})
	}
	return list
}

// steps returns what a new plan changes of the old one. Steps are the same by their text; one with a new text takes the place of the old step at its position.
func steps(before, after []Todo) (list []action) {
	old := map[string][]int{}
	for i, t := range before {
		old[t.Content] = append(old[t.Content], i)
	}
	known := func(text string) bool {
		return slices.ContainsFunc(before, func(t Todo) bool { return t.Content == text })
	}
	taken := map[int]bool{}
	for i, t := range after {
		if t.Content == "" {
			continue
		}
		was := -1
		for len(old[t.Content]) > 0 && was < 0 {
			at := old[t.Content][0]
			old[t.Content] = old[t.Content][1:]
			if !taken[at] {
				was = at
			}
		}
		if was < 0 && !known(t.Content) && i < len(before) && !taken[i] {
			was = i
		}
		kind := map[string]string{"completed": "todo_complete", "in_progress": "todo_start"}[t.Status]
		if was >= 0 {
			taken[was] = true
			switch {
			case before[was] == t:
				continue
			case before[was].Content != t.Content:
				kind = "todo_update"
			}
		}
		if kind == "" {
			kind = "todo_update"
		}
		list = append(list, action{Kind: kind, Content: t.Content})
	}
	for i, t := range before {
		if !taken[i] && t.Content != "" {
			list = append(list, action{Kind: "todo_remove", Content: t.Content})
		}
	}
	return list
}
