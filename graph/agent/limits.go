package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// CallLimits limit how often the model, or tools, are called. 0: no limit.
type CallLimits struct {
	Thread int // over all runs of a thread
	Run    int // in one run
	// Exit is what happens at the limit: ExitEnd, ExitError, and for tools ExitContinue.
	Exit string
}

// What happens at a limit.
const (
	ExitEnd      = "end"      // the run ends normally, with a message of the model about the limit
	ExitError    = "error"    // the run fails
	ExitContinue = "continue" // calls above the limit get an error as their result, and the model continues
)

func (l *CallLimits) check(allowed ...string) error {
	if l.Thread < 0 || l.Run < 0 || l.Thread == 0 && l.Run == 0 {
		return errors.New("write a limit: thread, run, or both")
	}
	if l.Exit == "" {
		l.Exit = allowed[0]
	}
	for _, a := range allowed {
		if l.Exit == a {
			return nil
		}
	}
	return fmt.Errorf("exit: %q; write one of %s", l.Exit, quoteList(allowed))
}

// ModelCallLimit ends a run before it calls the model too often.
func ModelCallLimit(l CallLimits) (Middleware, error) {
	if err := l.check(ExitEnd, ExitError); err != nil {
		return Middleware{}, fmt.Errorf("model call limit: %w", err)
	}
	const threadKey, runKey = "thread_model_call_count", "run_model_call_count"
	counts := func(state pregel.Values) (thread, run int) {
		thread, _, _ = pregel.Get[int](state, threadKey)
		run, _, _ = pregel.Get[int](state, runKey)
		return thread, run
	}
	return Middleware{
		Name:    "ModelCallLimitMiddleware",
		Private: true,
		State:   map[string]pregel.Channel{threadKey: pregel.LastValue(), runKey: pregel.Untracked()},
		BeforeModel: Hook{CanJump: []string{JumpEnd}, Run: func(_ context.Context, state pregel.Values) (any, error) {
			thread, run := counts(state)
			var exceeded []string
			if l.Thread > 0 && thread >= l.Thread {
				exceeded = append(exceeded, fmt.Sprintf("thread limit (%d/%d)", thread, l.Thread))
			}
			if l.Run > 0 && run >= l.Run {
				exceeded = append(exceeded, fmt.Sprintf("run limit (%d/%d)", run, l.Run))
			}
			if len(exceeded) == 0 {
				return nil, nil
			}
			text := "Model call limits exceeded: " + strings.Join(exceeded, ", ")
			if l.Exit == ExitError {
				return nil, pregel.Errorf("ModelCallLimitExceededError", "%s", text)
			}
			return pregel.Values{JumpTo: JumpEnd, messagesKey: []message.Message{message.AI(text)}}, nil
		}},
		AfterModel: Hook{Run: func(_ context.Context, state pregel.Values) (any, error) {
			thread, run := counts(state)
			return pregel.Values{threadKey: thread + 1, runKey: run + 1}, nil
		}},
	}, nil
}

// ToolCallLimit limits the calls of a tool; "": of all tools together.
func ToolCallLimit(tool string, l CallLimits) (Middleware, error) {
	if err := l.check(ExitContinue, ExitEnd, ExitError); err != nil {
		return Middleware{}, fmt.Errorf("tool call limit: %w", err)
	}
	if l.Thread > 0 && l.Run > l.Thread {
		return Middleware{}, fmt.Errorf("tool call limit: run (%d) is more than thread (%d)", l.Run, l.Thread)
	}
	t := &toolLimit{l, tool}
	name := "ToolCallLimitMiddleware"
	if tool != "" {
		name += "[" + tool + "]"
	}
	return Middleware{
		Name:       name,
		Private:    true,
		State:      map[string]pregel.Channel{threadToolKey: pregel.LastValue(), runToolKey: pregel.Untracked()},
		AfterModel: Hook{CanJump: []string{JumpEnd}, Run: t.afterModel},
	}, nil
}

const threadToolKey, runToolKey = "thread_tool_call_count", "run_tool_call_count"

type toolLimit struct {
	CallLimits
	tool string
}

func (t *toolLimit) afterModel(_ context.Context, state pregel.Values) (any, error) {
	messages := Messages(state)
	at := lastAI(messages)
	if at < 0 || len(messages[at].ToolCalls) == 0 {
		return nil, nil
	}
	key := t.tool
	if key == "" {
		key = "__all__"
	}
	thread, run := toolCounts(state, threadToolKey), toolCounts(state, runToolKey)
	before := thread[key]
	var blocked, others []message.ToolCall
	allowed := 0
	for _, c := range messages[at].ToolCalls {
		switch {
		case t.tool != "" && c.Name != t.tool:
			others = append(others, c)
		case t.Thread > 0 && thread[key] >= t.Thread, t.Run > 0 && run[key] >= t.Run:
			blocked = append(blocked, c)
		default:
			others = append(others, c)
			allowed++
			thread[key]++
			run[key]++
		}
	}
	if len(blocked) == 0 {
		if allowed == 0 {
			return nil, nil
		}
		return pregel.Values{threadToolKey: thread, runToolKey: run}, nil
	}
	// Refused calls count for the run, in which they were tried, but not for the thread.
	run[key] += len(blocked)
	final := t.finalText(thread[key]+len(blocked), run[key])
	if t.Exit == ExitError {
		return nil, pregel.Errorf("ToolCallLimitExceededError", "%s", final)
	}
	text := "Tool call limit exceeded. Do not make additional tool calls."
	if t.tool != "" {
		text = fmt.Sprintf("Tool call limit exceeded. Do not call '%s' again.", t.tool)
	}
	var added []message.Message
	for _, c := range blocked {
		added = append(added, *toolError(c, text))
	}
	update := pregel.Values{threadToolKey: thread, runToolKey: run}
	if t.Exit == ExitEnd {
		for _, c := range others {
			added = append(added, *toolError(c,
				"Execution stopped before this tool call could run because another tool call in the same batch exceeded the limit."))
		}
		added = append(added, message.AI(final))
		thread[key] = before // none of them runs
		update[JumpTo] = JumpEnd
	}
	update[messagesKey] = added
	return update, nil
}

// toolCounts returns a copy of the counts by tool.
func toolCounts(state pregel.Values, key string) map[string]int {
	raw, _, _ := pregel.Get[json.RawMessage](state, key)
	var counts map[string]int
	if json.Unmarshal(raw, &counts) != nil || counts == nil {
		return map[string]int{}
	}
	return maps.Clone(counts)
}

func (t *toolLimit) finalText(thread, run int) string {
	what := "Tool"
	if t.tool != "" {
		what = "'" + t.tool + "' tool"
	}
	var exceeded []string
	if t.Thread > 0 && thread > t.Thread {
		exceeded = append(exceeded, fmt.Sprintf("thread limit exceeded (%d/%d calls)", thread, t.Thread))
	}
	if t.Run > 0 && run > t.Run {
		exceeded = append(exceeded, fmt.Sprintf("run limit exceeded (%d/%d calls)", run, t.Run))
	}
	return what + " call limit reached: " + strings.Join(exceeded, " and ") + "."
}
