package middleware

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// ToolOutputOptions control ToolOutput. Sizes are in characters.
type ToolOutputOptions struct {
	Limit      int      // a larger result is shortened; 0: 12,000
	Head, Tail int      // what is kept of its beginning and end; both 0: 2,000 and 1,000
	Exempt     []string // tools that bound their results themselves
	// Save keeps the whole result where the agent can read it, and returns that path. nil: results are only shortened.
	Save func(ctx context.Context, tool, callID, text string) (path string, err error)
}

// Defaults of ToolOutputOptions.
const (
	outputLimit = 12_000
	outputHead  = 2_000
	outputTail  = 1_000
)

// ToolOutput keeps large results of tools out of the conversation: the model gets their beginning and end, and where the whole result is. Content that is not text
// alone, such as images, stays as it is.
func ToolOutput(o ToolOutputOptions) (agent.Middleware, error) {
	if o.Limit == 0 {
		o.Limit = outputLimit
	}
	if o.Head == 0 && o.Tail == 0 {
		o.Head, o.Tail = min(outputHead, o.Limit/2), min(outputTail, o.Limit/4)
	}
	if o.Limit < 0 || o.Head < 0 || o.Tail < 0 || o.Head+o.Tail > o.Limit {
		return agent.Middleware{}, fmt.Errorf("tool output: head (%d) and tail (%d) must fit into the limit (%d)", o.Head, o.Tail, o.Limit)
	}
	return agent.Middleware{
		Name: "ToolOutputBudgetMiddleware",
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			out, err := next(ctx, r)
			if err != nil || slices.Contains(o.Exempt, r.Call.Name) {
				return out, err
			}
			if out.Message != nil {
				m := o.shorten(ctx, *out.Message, r.Call.Name)
				out.Message = &m
			}
			for i, u := range out.Updates {
				if m, ok := u.(message.Message); ok {
					out.Updates = slices.Clone(out.Updates)
					out.Updates[i] = o.shorten(ctx, m, r.Call.Name)
				}
			}
			return out, nil
		},
	}, nil
}

// shorten returns a message within the limit.
func (o ToolOutputOptions) shorten(ctx context.Context, m message.Message, tool string) message.Message {
	text, ok := onlyText(m.Content)
	if !ok || len(text) <= o.Limit || utf8.RuneCountInString(text) <= o.Limit {
		return m
	}
	where := "The rest is lost: narrow the request, or use parameters that return less."
	if o.Save != nil {
		path, err := o.Save(ctx, tool, m.ToolCallID, text)
		if err != nil {
			pregel.LogOf(ctx).Warn("a large result of a tool was not kept; the model gets parts of it", "tool", tool, "error", err)
		} else {
			where = "The whole result is in " + path + ": read parts of it with read_file and start_line, end_line, or search it with grep."
		}
	}
	runes := []rune(text)
	head, tail := lineEnd(runes[:o.Head]), lineStart(runes[len(runes)-o.Tail:])
	note := fmt.Sprintf("[Result of %s shortened: %d characters in %d lines, %d characters left out here. %s]", tool, len(runes), strings.Count(text, "\n")+1, len(runes)-len(head)-len(tail), where)
	m.Content = message.Text(string(head) + "\n\n" + note + "\n\n" + string(tail))
	return m
}

// onlyText returns the text of a content, unless it has other blocks too.
func onlyText(c message.Content) (string, bool) {
	if c.Blocks == nil {
		return c.Text, true
	}
	for _, b := range c.Blocks {
		if v := gjson.ParseBytes(b); v.Type != gjson.String && v.Get("type").String() != "text" {
			return "", false
		}
	}
	return c.String(), true
}

// lineEnd drops a line that is cut off at the end, if that is less than half.
func lineEnd(text []rune) []rune {
	for i := len(text) - 1; i >= len(text)/2; i-- {
		if text[i] == '\n' {
			return text[:i]
		}
	}
	return text
}

// lineStart drops a line that is cut off at the beginning, if that is less than half.
func lineStart(text []rune) []rune {
	for i := 0; i < len(text)/2; i++ {
		if text[i] == '\n' {
			return text[i+1:]
		}
	}
	return text
}
