package middleware

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

const (
	loopWindow = 20  // answers with calls that are looked back at
	readBucket = 200 // lines of a file that count as the same place
)

// LoopOptions say how often a model may repeat itself after a message of a person. 0: no limit.
type LoopOptions struct {
	Warn, Hard int // answers with the same calls, within the last 20: before a warning, and before the run is stopped
	Calls      Frequency
	Tools      map[string]Frequency // of single tools, in place of Calls
}

// Frequency says how often one tool may be called. 0: no limit.
type Frequency struct{ Warn, Hard int }

func (o LoopOptions) of(tool string) Frequency {
	if f, ok := o.Tools[tool]; ok {
		return f
	}
	return o.Calls
}

// Loops ends a run whose model makes the same calls again and again: the calls are taken away, and the answer says so (forcedStop + " …"). Before that the model is
// warned once, in a request only. What counts as the same call are the tool and its path, url, query, command or pattern; reading the next 200 lines of a file, or
// writing another text, is progress.
func Loops(o LoopOptions) agent.Middleware {
	stop := func(m message.Message, text string) pregel.Values {
		return pregel.Values{"messages": []message.Message{Stopped(Closed(m, text), graph.LoopCapped)}}
	}
	return agent.Middleware{
		Name: "LoopDetectionMiddleware",
		AfterModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			list := agent.Messages(state)
			if len(list) == 0 || len(list[len(list)-1].ToolCalls) == 0 {
				return nil, nil
			}
			last := list[len(list)-1]
			same, often := repeated(list)
			if o.Hard > 0 && same >= o.Hard {
				pregel.LogOf(ctx).Warn("the model repeats the same tool calls; the run is stopped", "times", same)
				return stop(last, forcedStop+" Repeated tool calls exceeded the safety limit. Producing final answer with results collected so far."), nil
			}
			for _, t := range often {
				if limit := o.of(t.tool).Hard; limit > 0 && t.calls >= limit {
					pregel.LogOf(ctx).Warn("the model calls one tool too often; the run is stopped", "tool", t.tool, "times", t.calls)
					return stop(last, fmt.Sprintf(forcedStop+" Tool %s called %d times — exceeded the per-tool safety limit. Producing final answer with results collected so far.", t.tool, t.calls)), nil
				}
			}
			return nil, nil
		}},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if text := o.warning(r.Messages); text != "" {
				r.Messages = append(slices.Clip(r.Messages), message.Human(text))
			}
			return next(ctx, r)
		},
	}
}

// forcedStop begins what is added to an answer whose calls were taken away.
const forcedStop = "[FORCED STOP]"

const loopWarning = "[LOOP DETECTED] "

// warning returns the text that goes with the next request; "": none. It is exactly at a threshold that the model is warned: once.
func (o LoopOptions) warning(list []message.Message) string {
	if n := len(list); n == 0 || list[n-1].Type != message.TypeTool {
		return "" // a person speaks, or the model is sent back
	}
	same, often := repeated(list)
	if o.Warn > 0 && same == o.Warn {
		return loopWarning + "You are repeating the same tool calls. Stop calling tools and produce your final answer now. If you cannot complete the task, summarize what you accomplished so far."
	}
	for _, t := range often {
		if limit := o.of(t.tool).Warn; limit > 0 && t.calls >= limit && t.calls-t.now < limit {
			return fmt.Sprintf(loopWarning+"You have called %s %d times without producing a final answer. Stop calling tools and produce your final answer now.", t.tool, t.calls)
		}
	}
	return ""
}

// called is how often a tool was called since the last message of a person.
type called struct {
	tool  string
	calls int
	now   int // of calls, in the newest answer
}

// repeated returns how many of the last answers since the last question have the calls of the newest one, and how often its tools were called.
func repeated(list []message.Message) (same int, often []called) {
	var window []string // newest first
	counts := map[string]int{}
	var newest []message.ToolCall
	for i := len(list) - 1; i >= 0; i-- {
		m := list[i]
		if m.Type == message.TypeHuman && !m.HiddenFromPeople() && !strings.HasPrefix(m.Text(), loopWarning) {
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
		at := slices.IndexFunc(often, func(t called) bool { return t.tool == c.Name })
		if at < 0 {
			at, often = len(often), append(often, called{tool: c.Name, calls: counts[c.Name]})
		}
		often[at].now++
	}
	return same, often
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

// WithCalls returns an answer with other tool calls. Those in the form of the provider, in additional_kwargs, are removed: they would reappear.
func WithCalls(m message.Message, calls []message.ToolCall) message.Message {
	m.ToolCalls = calls
	if len(calls) == 0 && gjson.GetBytes(m.ResponseMetadata, "finish_reason").String() == "tool_calls" {
		how := jsonobj.Of(m.ResponseMetadata)
		how.SetText("finish_reason", "stop")
		m.ResponseMetadata = how.JSON()
	}
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Delete("tool_calls")
	extra.Delete("function_call")
	m.AdditionalKwargs = extra.JSON()
	return withoutCut(m)
}
