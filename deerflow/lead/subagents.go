package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/deerflow/settings"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

const (
	subagentPool = 3 // subagents that run at once in this process; the others wait
	minSubagents = 1 // that a run may ask for at once
	maxSubagents = 4 // in one answer
	maxPerRun    = 50
)

// subagents are the agents that work for the lead agent, in its thread, folders and run.
type subagents struct {
	agents map[string]*worker // by type
	types  []subagentType     // that there are, in order
	free   chan struct{}      // as many as may start now
}

// worker is an agent of one type.
type worker struct {
	*agent.Agent
	after time.Duration // the time for a task
}

// newSubagents builds the types for which there are tools. models are those of the run, and limits holds back tools that the run must not use:
// what an agent cannot do, it cannot delegate.
func newSubagents(s *settings.Settings, models *models, model agent.Model, tools []agent.Tool, limits agent.Middleware, guards []agent.Middleware, g *Graph) (*subagents, error) {
	out := &subagents{agents: map[string]*worker{}, free: g.subagents}
	for _, kind := range g.subagentTypes(s) {
		own := slices.DeleteFunc(slices.Clone(tools), func(t agent.Tool) bool { return !kind.has(t.Name) })
		if kind.name == bashType && !slices.ContainsFunc(own, func(t agent.Tool) bool { return t.Name == "bash" }) {
			continue // commands are off
		}
		limit, err := agent.ModelCallLimit(agent.CallLimits{Run: kind.turns})
		if err != nil {
			return nil, err
		}
		chain := append([]agent.Middleware{middleware.DanglingToolCalls()}, guards...)
		chain = append(chain, models.subagents(g, kind.model), limits, g.subagentSkills(s.Skills, kind), limit, announce(), images())
		if s.LoopDetection.Enabled {
			chain = append(chain, loops(s.LoopDetection))
		}
		var sources []agent.Source
		if kind.servers {
			if s.ToolSearch.Enabled {
				chain = append(chain, middleware.ToolSearch())
			}
			sources = g.sourceFor(chain, own)
		}
		a, err := agent.New(agent.Options{
			Sources: sources,
			Name:    "subagent_" + strings.ReplaceAll(kind.name, "-", "_"), Model: model, Prompt: kind.prompt, Tools: own, Middleware: chain, State: tool.State(),
			// Each hook of the chain is a step. How often the model is called, limit says.
			Compile: []pregel.CompileOption{pregel.WithRecursionLimit(kind.turns * (2*len(chain) + 2))},
		})
		if err != nil {
			return nil, fmt.Errorf("subagent %s: %w", kind.name, err)
		}
		out.agents[kind.name], out.types = &worker{a, kind.after}, append(out.types, kind)
	}
	return out, nil
}

// tool is the tool task.
func (s *subagents) tool() agent.Tool {
	var b strings.Builder
	b.WriteString("Gives a task to a subagent, which works on it by itself and returns a report. Use it for work that takes several steps and whose details you do not need, and for independent parts at once. Types:")
	var names []string
	for _, kind := range s.types {
		b.WriteString("\n- " + kind.name + ": " + kind.description)
		names = append(names, kind.name)
	}
	type args struct {
		Description string `json:"description" jsonschema:"The task in three to five words. The user sees it."`
		Prompt      string `json:"prompt" jsonschema:"The whole task: the subagent knows nothing else of the conversation."`
		Type        string `json:"subagent_type" jsonschema:"The type of the subagent."`
	}
	return agent.MustTool("task", b.String(), func(ctx context.Context, a args) (any, error) {
		kind := s.agents[a.Type]
		if kind == nil {
			return fmt.Sprintf("Error: Unknown subagent type '%s'. Available: %s", a.Type, strings.Join(names, ", ")), nil
		}
		return s.work(ctx, kind, a.Description, a.Prompt)
	})
}

// watch is how a subagent reports its answers, and the results of its calls, to the run that it works for.
type watch func(m message.Message)

type watchKey struct{}

// announce reports each answer of a subagent, and each result of a call.
func announce() agent.Middleware {
	return agent.Middleware{
		Name: "SubagentEventsMiddleware",
		BeforeModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			list := agent.Messages(state)
			first := len(list)
			for first > 0 && list[first-1].Type == message.TypeTool {
				first--
			}
			report(ctx, list[first:])
			return nil, nil
		}},
		AfterModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			if list := agent.Messages(state); len(list) > 0 && list[len(list)-1].Type == message.TypeAI {
				report(ctx, list[len(list)-1:])
			}
			return nil, nil
		}},
	}
}

func report(ctx context.Context, list []message.Message) {
	if tell, ok := ctx.Value(watchKey{}).(watch); ok {
		for _, m := range list {
			tell(m)
		}
	}
}

// work lets a subagent do a task, and returns the result of the call.
func (s *subagents) work(ctx context.Context, kind *worker, description, prompt string) (any, error) {
	task := agent.CallOf(ctx).ID
	emit := func(event map[string]any) { // to subscribers; a run without them loses nothing
		event["task_id"] = task
		if err := pregel.Emit(ctx, event); err != nil {
			pregel.LogOf(ctx).Warn("an event of a subagent was not sent", "error", err)
		}
	}
	select {
	case <-s.free:
		defer func() { s.free <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	emit(map[string]any{"type": "task_started", "description": description})
	said := 0
	limited, cancel := context.WithTimeout(ctx, kind.after)
	defer cancel()
	limited, fallback := middleware.WithFallback(limited)
	limited = context.WithValue(limited, watchKey{}, watch(func(m message.Message) {
		said++
		emit(map[string]any{"type": "task_running", "message": m, "message_index": said, "total_messages": said})
	}))
	result, err := pregel.Invoke[pregel.Values](limited, kind.Graph, pregel.Values{"messages": []message.Message{message.Human(prompt)}})
	text, used := outcome(agent.Messages(result.State))
	switch {
	case ctx.Err() != nil: // the run was cancelled
		emit(map[string]any{"type": "task_cancelled"})
		return nil, context.Cause(ctx)
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		reason := fmt.Sprintf("Execution timed out after %.0f seconds", kind.after.Seconds())
		emit(map[string]any{"type": "task_timed_out", "error": reason, "usage": used})
		return reported(ctx, "timed_out", "Task timed out. Error: "+reason, used)
	case err != nil || fallback() != "":
		reason := fallback()
		if err != nil {
			reason = err.Error()
		}
		pregel.LogOf(ctx).Warn("a subagent failed", "error", reason)
		emit(map[string]any{"type": "task_failed", "error": reason, "usage": used})
		return reported(ctx, "failed", "Task failed. Error: "+reason, used)
	}
	emit(map[string]any{"type": "task_completed", "result": text, "usage": used})
	return reported(ctx, "completed", "Task Succeeded. Result: "+text, used)
}

// usage counts the tokens of a subagent.
type usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
}

// outcome returns the last answer of a subagent, and what all of its answers used.
func outcome(list []message.Message) (text string, used usage) {
	for _, m := range list {
		if m.Type != message.TypeAI {
			continue
		}
		if u := m.Usage; u != nil {
			used.Input, used.Output, used.Total = used.Input+u.InputTokens, used.Output+u.OutputTokens, used.Total+u.TotalTokens
		}
		text = m.Text()
	}
	if text == "" {
		text = "No response generated"
	}
	return text, used
}

// reported is the result of task, with what the UI and TokenUsageMiddleware read of it.
func reported(ctx context.Context, status, text string, used usage) (any, error) {
	call := agent.CallOf(ctx)
	m := message.Tool(text, call.ID).WithName(call.Name)
	extra, err := json.Marshal(map[string]any{"subagent_status": status, middleware.SubagentUsageKey: used})
	m.AdditionalKwargs = extra
	return m, err
}

// concurrent returns how many subagents a run may ask for in one answer.
func concurrent(ctx context.Context) int {
	if v := wish(ctx, "max_concurrent_subagents"); v.Exists() {
		return min(max(int(v.Int()), minSubagents), maxSubagents)
	}
	return subagentPool
}
