package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// ProgressOptions say when a tool makes no progress. Results are problems when they are errors, incomplete, or nearly what the tool returned before.
type ProgressOptions struct {
	Warn    int      // problems in a row before the model is warned
	Block   int      // further ones before the tool is blocked, if other arguments do not help
	Quiet   bool     // the model is not warned
	Similar float64  // part of the words of two results that are the same in both; above 1: never
	Words   int      // results with fewer different words are not compared
	Exempt  []string // tools; nil: ProgressExempt
}

// ProgressExempt returns the tools that belong to the conversation: what they return is no progress of theirs.
func ProgressExempt() []string {
	return []string{"ask_clarification", "write_todos", "present_files", "task"}
}

// Check returns what is wrong with the options.
func (o ProgressOptions) Check() error {
	if o.Warn < 1 || o.Block < 1 || !(o.Similar >= 0) {
		return errors.New("tool progress: warns and blocks after 1 or more problems, and similarity is 0 or more")
	}
	return nil
}

const (
	progressKey   = "tool_progress"
	hintPrefix    = "[PROGRESS HINT] "
	blockedPrefix = "[TOOL_BLOCKED] "
	maxHints      = 3
	maxCompared   = 8192 // characters of a result that are compared
	recentResults = 3    // with which a result is compared
)

// progress is how a tool does in a run.
type progress struct {
	Run      string   `json:"run"`
	Problems int      `json:"problems"`          // in a row
	Blocked  string   `json:"blocked,omitempty"` // why; "": it is not
	Hint     string   `json:"hint,omitempty"`    // for the model, of the result of Call
	Call     string   `json:"call"`              // the newest
	Good     []string `json:"good,omitempty"`    // calls of the last results that were no problems
}

// ToolProgress warns the model of a tool whose results bring nothing new, once for each of them, in a request only; and blocks a tool for the rest of the run that keeps
// failing for a reason which other arguments do not change, or whose access or configuration is wrong. Results say in additional_kwargs.deerflow_tool_meta what they are
// worth. Errors become results, as ToolErrors makes them. What is known of tools is in the state, so a run that resumes continues with it. It belongs next to the tools.
func ToolProgress(o ProgressOptions) (agent.Middleware, error) {
	if err := o.Check(); err != nil {
		return agent.Middleware{}, err
	}
	if o.Exempt == nil {
		o.Exempt = ProgressExempt()
	}
	explain := ToolErrors().WrapToolCall
	return agent.Middleware{
		Name:    "ToolProgressMiddleware",
		Private: true,
		State: map[string]pregel.Channel{progressKey: pregel.Reducer(func(current, update map[string]progress) map[string]progress {
			out := maps.Clone(current)
			if out == nil {
				out = map[string]progress{}
			}
			maps.Copy(out, update)
			return out
		})},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			hints, err := hints(ctx, r)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			if len(hints) > 0 && !o.Quiet {
				r.Messages = append(slices.Clip(r.Messages), message.Human(strings.Join(hints, "\n\n")).WithName("progress_hint"))
			}
			return next(ctx, r)
		},
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			name := r.Call.Name
			if r.Tool == nil || slices.Contains(o.Exempt, name) {
				return next(ctx, r)
			}
			of, err := progressOf(ctx, r.State, name)
			if err != nil {
				return agent.ToolResult{}, err
			}
			if of.Blocked != "" {
				m := message.Tool(blockedPrefix+of.Blocked, r.Call.ID).WithName(name)
				m.Status = message.StatusError
				m = judged(m, verdict{"error", "blocked_by_progress_guard", true, "summarize", "progress_middleware"})
				return agent.ToolResult{Message: &m}, nil
			}
			var failed error
			out, err := explain(ctx, r, func(ctx context.Context, r agent.ToolRequest) (agent.ToolResult, error) {
				out, err := next(ctx, r)
				failed = err
				return out, err
			})
			if err != nil || out.Message == nil {
				return out, err
			}
			v := verdictOf(*out.Message)
			if failed != nil {
				v = failedWith(failed.Error(), "exception")
			}
			m := judged(*out.Message, v)
			out.Message = &m
			now := o.after(of, v, m, agent.Messages(r.State))
			if now.Blocked != "" {
				pregel.LogOf(ctx).Warn("a tool is blocked for the rest of the run", "tool", name, "reason", v.Type, "problems", now.Problems)
			}
			out.Updates = append(slices.Clip(out.Updates), &pregel.Command{Update: pregel.Values{progressKey: map[string]progress{name: now}}})
			return out, nil
		},
	}, nil
}

// judged returns a result with its verdict.
func judged(m message.Message, v verdict) message.Message {
	raw, err := json.Marshal(v)
	if err != nil {
		return m // unreachable: texts
	}
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Set(verdictKey, raw)
	m.AdditionalKwargs = extra.JSON()
	return m
}

// progressOf returns how a tool does in this run.
func progressOf(ctx context.Context, state pregel.Values, tool string) (progress, error) {
	all, _, err := pregel.Get[map[string]progress](state, progressKey)
	if err != nil {
		return progress{}, fmt.Errorf("read %s: %w", progressKey, err)
	}
	info, _ := pregel.Info(ctx)
	if p := all[tool]; p.Run == string(info.Run) {
		return p, nil
	}
	return progress{Run: string(info.Run)}, nil
}

// hints are what the model has to know of the newest results.
func hints(ctx context.Context, r agent.ModelRequest) (out []string, err error) {
	for _, m := range slices.Backward(r.Messages) {
		if m.Type != message.TypeTool || len(out) == maxHints {
			break
		}
		p, err := progressOf(ctx, r.State, m.Name)
		if err != nil {
			return nil, err
		}
		if p.Hint != "" && p.Call == m.ToolCallID && !slices.Contains(out, p.Hint) {
			out = append(out, p.Hint)
		}
	}
	slices.Reverse(out)
	return out, nil
}

// after returns how a tool does with one more result. list has its earlier ones.
func (o ProgressOptions) after(p progress, v verdict, m message.Message, list []message.Message) progress {
	p.Hint, p.Call = "", m.ToolCallID
	if !v.Recoverable && v.Next == "stop" {
		p.Problems, p.Blocked = p.Problems+1, blockReason(v)
		return p
	}
	if v.Status == "success" && !o.repeats(m, p.Good, list) {
		good := append(slices.Clone(p.Good), m.ToolCallID)
		p.Problems, p.Good = 0, good[max(len(good)-recentResults, 0):]
		return p
	}
	p.Problems++
	switch {
	case p.Problems >= o.Warn+o.Block && !v.Recoverable:
		p.Blocked = blockReason(v)
	case p.Problems >= o.Warn:
		p.Hint = hintOf(v)
	}
	return p
}

var progressWord = regexp.MustCompile(`[\p{L}\p{N}_]{3,}`)

func wordsOf(m message.Message) map[string]bool {
	out := map[string]bool{}
	if m.Content.Blocks != nil {
		return out
	}
	text := m.Content.Text
	n := 0
	for i := range text {
		if n++; n > maxCompared {
			text = text[:i]
			break
		}
	}
	for _, w := range progressWord.FindAllString(strings.ToLower(text), -1) {
		out[w] = true
	}
	return out
}

// repeats reports whether a result has nearly the words of one of the good ones.
func (o ProgressOptions) repeats(m message.Message, good []string, list []message.Message) bool {
	now := wordsOf(m)
	if len(now) < o.Words || len(good) == 0 {
		return false
	}
	left := len(good)
	for _, before := range slices.Backward(list) {
		if left == 0 {
			break
		}
		if before.Type != message.TypeTool || !slices.Contains(good, before.ToolCallID) {
			continue
		}
		left--
		then := wordsOf(before)
		if len(then) < o.Words {
			continue
		}
		both := 0
		for w := range now {
			if then[w] {
				both++
			}
		}
		if all := len(now) + len(then) - both; all > 0 && float64(both) >= o.Similar*float64(all) {
			return true
		}
	}
	return false
}

func hintOf(v verdict) string {
	what := map[string]string{
		"no_results": "The search finds nothing.", "not_found": "What you ask for was not found, again.", "rate_limited": "The tool answers too many requests.",
		"transient": "The tool fails again and again.", "partial_success": "The tool returns incomplete results again and again.", "success": "The tool returns what it returned before.",
	}
	do := map[string]string{
		"rewrite_query": "Ask for something else, or in other words.", "try_alternative": "Use another tool, or another way.", "summarize": "Continue with what you have.",
		"stop": "Do not call it again.", "continue": "Ask for something else, or in other words.",
	}
	kind := v.Type
	if kind == "" {
		kind = v.Status
	}
	text, ok := what[kind]
	if !ok {
		text = "The tool brings nothing new."
	}
	return hintPrefix + text + " " + do[v.Next]
}

func blockReason(v verdict) string {
	switch v.Type {
	case "auth":
		return "The tool is not permitted to do this; it cannot be used."
	case "config":
		return "The tool is not configured; it cannot be used."
	case "internal":
		return "The tool has an error of its own; it cannot be used."
	case "rate_limited":
		return "The tool answers too many requests. Continue with what you have."
	}
	return "The tool failed again and again. Use another way, or continue with what you have."
}
