package lead

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

const (
	loopWindow = 20  // answers with calls that are looked back at
	readBucket = 200 // lines of a file that count as the same place
)

// loops ends a run whose model makes the same calls again and again. Before that it warns the model once.
func loops(set settings.LoopDetection) agent.Middleware {
	stop := func(m message.Message, text string) pregel.Values {
		m.ToolCalls, m.InvalidToolCalls = nil, nil
		m.AdditionalKwargs = withoutRawCalls(m.AdditionalKwargs)
		words := strings.TrimSpace(m.Text() + "\n\n" + text)
		m.Content = message.AI(words).Content
		return pregel.Values{"messages": []message.Message{m}}
	}
	return agent.Middleware{
		Name: "LoopDetectionMiddleware",
		AfterModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			list := agent.Messages(state)
			if len(list) == 0 || len(list[len(list)-1].ToolCalls) == 0 {
				return nil, nil
			}
			last := list[len(list)-1]
			same, often, tool := repeated(list, set)
			switch {
			case set.Hard > 0 && same >= set.Hard:
				pregel.LogOf(ctx).Warn("the model repeats the same tool calls; the run is stopped", "times", same)
				return stop(last, "[FORCED STOP] Repeated tool calls exceeded the safety limit. Producing final answer with results collected so far."), nil
			case set.FreqHard > 0 && often >= set.FreqHard:
				pregel.LogOf(ctx).Warn("the model calls one tool too often; the run is stopped", "tool", tool, "times", often)
				return stop(last, fmt.Sprintf("[FORCED STOP] Tool %s called %d times — exceeded the per-tool safety limit. Producing final answer with results collected so far.", tool, often)), nil
			}
			return nil, nil
		}},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			same, often, tool := repeated(r.Messages, set)
			text := ""
			switch { // exactly at the threshold: once
			case set.Warn > 0 && same == set.Warn:
				text = "[LOOP DETECTED] You are repeating the same tool calls. Stop calling tools and produce your final answer now. If you cannot complete the task, summarize what you accomplished so far."
			case set.FreqWarn > 0 && often == set.FreqWarn:
				text = fmt.Sprintf("[LOOP DETECTED] You have called %s %d times without producing a final answer. Stop calling tools and produce your final answer now.", tool, often)
			}
			if text != "" {
				r.Messages = append(slices.Clip(r.Messages), message.Human(text))
			}
			return next(ctx, r)
		},
	}
}

// repeated returns how many of the last answers since the last question have the calls of the newest one, and how often its most frequent tool
// was called.
func repeated(list []message.Message, set settings.LoopDetection) (same, often int, tool string) {
	var window []string // newest first
	counts := map[string]int{}
	var newest []message.ToolCall
	for i := len(list) - 1; i >= 0; i-- {
		m := list[i]
		if m.Type == message.TypeHuman && !hidden(m) && !strings.HasPrefix(m.Text(), "[LOOP DETECTED]") {
			break
		}
		if m.Type != message.TypeAI || len(m.ToolCalls) == 0 {
			continue
		}
		if newest == nil {
			newest = m.ToolCalls
		}
		if len(window) < loopWindow {
			window = append(window, fingerprint(m.ToolCalls))
		}
		for _, c := range m.ToolCalls {
			counts[c.Name]++
		}
	}
	for _, w := range window {
		if w == window[0] {
			same++
		}
	}
	for _, c := range newest {
		if n := counts[c.Name]; n > often {
			often, tool = n, c.Name
		}
	}
	return same, often, tool
}

// salient are the arguments by which calls are compared.
var salient = []string{"path", "url", "query", "command", "pattern", "glob", "cmd"}

// fingerprint returns a text that answers with the same calls share, in whatever order.
func fingerprint(calls []message.ToolCall) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = c.Name + ":" + callKey(c)
	}
	slices.Sort(parts)
	return strings.Join(parts, "|")
}

func callKey(c message.ToolCall) string {
	args := gjson.ParseBytes(c.Args)
	switch c.Name {
	case "write_file", "str_replace": // another text is progress
		return string(c.Args)
	case "read_file":
		from, to := args.Get("start_line").Int(), args.Get("end_line").Int()
		if to < from {
			from, to = to, from
		}
		return fmt.Sprintf("%s:%d-%d", args.Get("path").String(), max(from-1, 0)/readBucket, max(to-1, 0)/readBucket)
	}
	var b strings.Builder
	for _, key := range salient {
		if v := args.Get(key); v.Exists() {
			b.WriteString(key + "=" + v.Raw + ";")
		}
	}
	if b.Len() == 0 {
		return string(c.Args)
	}
	return b.String()
}

// withoutRawCalls returns additional_kwargs without calls in the form of the provider, which would otherwise reappear.
func withoutRawCalls(raw json.RawMessage) json.RawMessage {
	extra := jsonobj.Of(raw)
	extra.Delete("tool_calls")
	extra.Delete("function_call")
	return extra.JSON()
}
