package agent

import (
	"fmt"
	"slices"
	"strings"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// Limits of answers in a row that lead to nothing: each attempt sends the whole conversation, and a model that has failed so often fails for ever.
const (
	maxProse  = 3  // that do not call the tool of the response format
	maxFutile = 10 // of all kinds
)

// futile counts the last answers of a model that led to nothing, by what was wrong.
type futile struct {
	prose, mismatches, impossible int
	last                          string // the first of what was said, or of the arguments
	result                        string // of the last call that was impossible
}

// futileAnswers counts the answers at the end of a conversation after which nothing was done: text in place of the response format, calls that do not match it,
// and calls of tools that there are not or whose arguments do not fit.
func (a *build) futileAnswers(messages []message.Message) (f futile) {
	results := map[string]message.Message{}
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		switch {
		case m.Type == message.TypeTool:
			results[m.ToolCallID] = m
			continue
		case m.Type != message.TypeAI && m.Type != message.TypeHuman:
			continue
		case m.Type == message.TypeHuman:
			return f
		}
		made := func(c message.ToolCall) bool { return !a.format.is(c.Name) && !impossible(c, results) }
		switch {
		case len(m.ToolCalls) == 0 && a.format == nil:
			return f
		case len(m.ToolCalls) == 0:
			f.prose++
		case slices.ContainsFunc(m.ToolCalls, made):
			if _, answered := results[m.ToolCalls[0].ID]; answered || i < len(messages)-1 {
				return f
			}
			continue // they are made now
		case slices.ContainsFunc(m.ToolCalls, func(c message.ToolCall) bool { return a.format.is(c.Name) }):
			f.mismatches++
		default:
			f.impossible++
			if f.result == "" {
				f.result = results[m.ToolCalls[0].ID].Text()
			}
		}
		if f.last == "" {
			f.last = m.Text()
			if len(m.ToolCalls) > 0 {
				f.last = string(m.ToolCalls[0].Args)
			}
		}
	}
	return f
}

// impossible reports whether a call came to no tool.
func impossible(c message.ToolCall, results map[string]message.Message) bool {
	r, ok := results[c.ID]
	if !ok || r.Status != message.StatusError {
		return false
	}
	return strings.HasPrefix(r.Text(), unknownTool(c.Name)) || strings.HasPrefix(r.Text(), fmt.Sprintf(toolInvocationStart, c.Name))
}

// patience returns an error when the model has failed too often.
func (a *build) patience(before []message.Message, answer ModelResponse) error {
	if answer.Structured != nil {
		return nil
	}
	f := a.futileAnswers(slices.Concat(before, answer.Messages))
	all := f.prose + f.mismatches + f.impossible
	switch {
	case f.prose >= maxProse:
		return pregel.Errorf("ValueError", "the model answered %d times without calling the tool %q of the response format; choose one that can call tools, or make the prompt ask for it; its last answer: %s", f.prose, a.format.Name, short(f.last, 500))
	case all < maxFutile:
		return nil
	case f.mismatches > f.impossible:
		return pregel.Errorf("ValueError", "the model answered %d times in a form that does not match the response format %q; simplify the schema, or choose a model that follows it; its last answer: %s", all, a.format.Name, short(f.last, 500))
	}
	return pregel.Errorf("ValueError", "the model called tools %d times in a row in a way that is not possible; choose a model that can call tools, or describe them better; the last call: %s", all, short(f.result, 500))
}

// refuseUnknown answers calls of tools that there are not, for an agent without a node for tools.
func (a *build) refuseUnknown(r ModelResponse) ModelResponse {
	if a.format == nil || a.hasTools() || len(r.Messages) == 0 {
		return r
	}
	for _, c := range r.Messages[0].ToolCalls {
		if !a.format.is(c.Name) {
			r.Messages = append(r.Messages, *toolError(c, unknownTool(c.Name)+a.format.Name+"]."))
		}
	}
	return r
}
