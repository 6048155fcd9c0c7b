package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"understudy/deerflow/settings"
	"understudy/deerflow/tool"
	"understudy/graph"
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
	noBash string             // why there is no type bash
	model  func(ctx context.Context, fixed string) string
	free   chan struct{} // as many as may start now
}

// worker is an agent of one type.
type worker struct {
	*agent.Agent
	subagentType
}

// newSubagents builds the types for which there are tools. models are those of the run, and limits holds back tools that the run must not use:
// what an agent cannot do, it cannot delegate.
func newSubagents(s *settings.Settings, models *models, model agent.Model, tools []agent.Tool, limits agent.Middleware, guards []agent.Middleware, g *Graph) (*subagents, error) {
	out := &subagents{agents: map[string]*worker{}, free: g.subagents}
	out.model = func(ctx context.Context, fixed string) string { return models.name(ctx, g, fixed) }
	for _, kind := range g.subagentTypes(s) {
		own := slices.DeleteFunc(slices.Clone(tools), func(t agent.Tool) bool { return !kind.has(t.Name) })
		if kind.name == bashType && !slices.ContainsFunc(own, func(t agent.Tool) bool { return t.Name == "bash" }) {
			continue // commands are off
		}
		limit, err := turnLimit(kind.turns)
		if err != nil {
			return nil, err
		}
		chain := append([]agent.Middleware{middleware.DanglingToolCalls()}, guards...)
		chain = append(chain, models.subagents(g, kind.model), limits, g.subagentSkills(s.Skills, kind), limit, announce(), images())
		if s.LoopDetection.Enabled {
			chain = append(chain, loops(s.LoopDetection))
		}
		if b := s.BudgetOf(kind.name); b.Enabled {
			m, err := tokenBudget(b)
			if err != nil {
				return nil, err
			}
			chain = append(chain, m)
		}
		chain = append(chain, middleware.DynamicContext(middleware.ContextOptions{}), durable())
		if s.Summarization.Enabled {
			m, err := g.subagentSummarization(s, kind.model)
			if err != nil {
				return nil, err
			}
			chain = append(chain, m)
		}
		chain = append(chain, middleware.SystemMessages())
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
		out.agents[kind.name], out.types = &worker{a, kind}, append(out.types, kind)
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
		if kind == nil && a.Type == bashType {
			return "Error: The subagent bash is switched off: " + s.noBash + ". Do the task without commands.", nil
		}
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
	if notify, ok := ctx.Value(watchKey{}).(watch); ok {
		for _, m := range list {
			notify(m)
		}
	}
}

// turnLimit ends a subagent that has called its model as often as it may, with an answer that says so.
func turnLimit(turns int) (agent.Middleware, error) {
	m, err := agent.ModelCallLimit(agent.CallLimits{Run: turns})
	check := m.BeforeModel.Run
	m.BeforeModel.Run = func(ctx context.Context, state pregel.Values) (any, error) {
		out, err := check(ctx, state)
		if update, ok := out.(pregel.Values); ok {
			last := agent.Messages(update)
			update["messages"] = []message.Message{middleware.Stopped(last[0], graph.TurnCapped)}
		}
		return out, err
	}
	return m, err
}

// work lets a subagent do a task, and returns the result of the call.
func (s *subagents) work(ctx context.Context, kind *worker, description, prompt string) (any, error) {
	task := agent.CallOf(ctx).ID
	model := s.model(ctx, kind.subagentType.model)
	emit := func(event map[string]any) { // to subscribers; a run without them loses nothing
		event["task_id"] = task
		if event["type"] != "task_started" {
			event["model_name"] = model
		}
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
	said, sum := 0, usage{}
	limited, cancel := context.WithTimeout(ctx, kind.after)
	defer cancel()
	limited, fallback := middleware.WithFallback(limited)
	limited = context.WithValue(limited, watchKey{}, watch(func(m message.Message) {
		said++
		sum.add(m)
		emit(map[string]any{"type": "task_running", "message": m, "message_index": said, "total_messages": said, "usage": sum})
	}))
	result, err := pregel.Invoke[pregel.Values](limited, kind.Graph, pregel.Values{"messages": []message.Message{message.Human(prompt)}})
	r := outcome(agent.Messages(result.State), kind.turns)
	r.used, r.model = sum, model // also of answers that were condensed
	switch {
	case ctx.Err() != nil: // the run was cancelled
		emit(map[string]any{"type": "task_cancelled", "usage": r.used})
		return nil, context.Cause(ctx)
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		r.status, r.err, r.stop = "timed_out", fmt.Sprintf("Execution timed out after %.0f seconds", kind.after.Seconds()), ""
	case err != nil:
		r.status, r.err, r.stop = "failed", err.Error(), ""
	case fallback() != "":
		r.status, r.err = "failed", fallback()
	}
	if r.status == "completed" {
		emit(map[string]any{"type": "task_completed", "result": r.text, "usage": r.used})
	} else {
		pregel.LogOf(ctx).Warn("a subagent did not finish its task", "status", r.status, "error", r.err)
		emit(map[string]any{"type": "task_" + r.status, "error": r.err, "usage": r.used})
	}
	return r.message(ctx)
}

// usage counts the tokens of a subagent.
type usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
}

func (u *usage) add(m message.Message) {
	if n := m.Usage; n != nil && m.Type == message.TypeAI {
		u.Input, u.Output, u.Total = u.Input+n.InputTokens, u.Output+n.OutputTokens, u.Total+n.TotalTokens
	}
}

// taskResult is how a subagent ended.
type taskResult struct {
	status, text, err, model string // status completed has a text, the others an error
	stop                     graph.StopReason
	used                     usage
}

// outcome returns the result of a subagent from its messages: its last answer, or the one before the limit of its turns.
func outcome(list []message.Message, turns int) taskResult {
	r := taskResult{status: "completed"}
	for _, m := range list {
		if m.Type != message.TypeAI {
			continue
		}
		if r.stop = middleware.StopReasonOf(m); r.stop != graph.TurnCapped {
			r.text = m.Text()
		}
	}
	switch {
	case r.stop == graph.TurnCapped && strings.TrimSpace(r.text) == "":
		r.status, r.err = "failed", fmt.Sprintf("Reached max_turns=%d", turns)
	case r.text == "":
		r.text = "No response generated"
	}
	return r
}

// Members of additional_kwargs of a result of task, which DeerFlow's UI reads.
const (
	statusKey = "subagent_status"
	stopKey   = "subagent_stop_reason"
	resultKey = "subagent_result_brief"
	sumKey    = "subagent_result_sha256"
	errorKey  = "subagent_error"
	modelKey  = "subagent_model_name"
)

// limits of subagents, as the result of task names them. Other reasons to stop are not named there.
var limitNames = map[graph.StopReason]string{
	graph.TokenCapped: "token budget", graph.TurnCapped: "turn budget", graph.LoopCapped: "repeated tool-call loop",
}

// message is the result of task.
func (r taskResult) message(ctx context.Context) (any, error) {
	capped := limitNames[r.stop]
	extra := map[string]any{statusKey: r.status, middleware.SubagentUsageKey: r.used}
	if r.model != "" {
		extra[modelKey] = r.model
	}
	note := ""
	if capped != "" {
		extra[stopKey], note = r.stop, " (capped: "+capped+")"
	}
	text := "Task Succeeded" + note + ". Result: " + r.text
	switch r.status {
	case "completed":
		extra[resultKey], extra[sumKey] = excerpt(r.text), digest(r.text)
	case "timed_out":
		text, extra[errorKey] = "Task timed out. Error: "+r.err, excerpt(r.err)
	default:
		text, extra[errorKey] = "Task failed"+note+". Error: "+r.err, excerpt(r.err)
	}
	call := agent.CallOf(ctx)
	m := message.Tool(text, call.ID).WithName(call.Name)
	raw, err := json.Marshal(extra)
	m.AdditionalKwargs = raw
	return m, err
}

// excerpt returns the beginning and the end of a text of more than 2,000 characters.
func excerpt(text string) string {
	const limit, gap = 2000, "\n...\n"
	runes := []rune(strings.TrimSpace(text))
	if len(runes) <= limit {
		return string(runes)
	}
	head := limit * 2 / 3
	return string(runes[:head]) + gap + string(runes[len(runes)-(limit-head-len(gap)):])
}

// concurrent returns how many subagents a run may ask for in one answer.
func concurrent(ctx context.Context) int {
	if v := wish(ctx, "max_concurrent_subagents"); v.Exists() {
		return min(max(int(v.Int()), minSubagents), maxSubagents)
	}
	return subagentPool
}
