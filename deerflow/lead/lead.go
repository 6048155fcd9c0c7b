// Package lead is DeerFlow's agent in Go: the graph lead_agent, built from config.yaml.
package lead

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"understudy/checkpointer"
	"understudy/deerflow/acp"
	custom "understudy/deerflow/agent"
	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/deerflow/tool"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/pregel"
	"understudy/internal/fault"
	"understudy/internal/loop"
)

// Name of the graph.
const Name = "lead_agent"

// Options are what the agent is built from.
type Options struct {
	Settings func() (*settings.Settings, error) // as they are now
	// Open makes the client of a model. retries are its further tries; nil: the client's own number. body are parameters of its requests.
	Open  func(m *settings.Model, retries *int, body map[string]json.RawMessage) (agent.Model, error)
	Tools Tools // the zero value: none
	// Agent returns a user's agent; nil: there are no such agents. The error for an unknown one is fault.NotFound.
	Agent func(user, name string) (Character, error)
	// Skills returns the skills of a user that are switched on; nil: there are none.
	Skills func(user string) ([]*skill.Skill, error)
	// Agents and Library are what setup_agent, update_agent and skill_manage change; nil: there are no such tools.
	Agents  *custom.Folder
	Library *skill.Library
	// Servers are the MCP servers as they are configured now, asked before each call of the model; nil: none.
	Servers func() ([]Server, error)
	Sources []agent.Source // of tools, when Servers is nil
	// ForeignServers are the MCP servers that ACP agents may use; nil: none.
	ForeignServers func() ([]acp.Server, error)
	Memory         Memory // the zero value: nothing is remembered
	Log            *slog.Logger
}

// Character is what makes a user's agent different from the others.
type Character struct {
	Model    string   // "": the first of the settings
	Soul     string   // who it is, for its instructions
	Skills   []string // that it may use; nil: all
	Groups   []string // of tools that it may use; nil: all
	Thinking *bool    // unless the run says so; nil: it thinks
	Effort   string   // of reasoning, unless the run says so
}

// Graph is the agent. It is built anew with the first run after the settings changed; runs keep the one that they began with. Call Close after use.
type Graph struct {
	o         Options
	subagents chan struct{} // as many as may start now
	foreign   chan struct{} // an element for each ACP agent that runs
	servers   *servers      // nil: there are none

	ctx  context.Context // of builds; ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // builds

	mu       sync.Mutex
	of       *settings.Settings
	built    *agent.Agent // nil: none yet
	building *building    // nil: none is under way
	lacking  bool         // tools in Python, in the newest build
	retry    time.Time    // when a build that lacks some is repeated
	pause    loop.Backoff // until then
}

var _ graph.Graph = (*Graph)(nil)

// New returns the agent. It builds nothing yet.
func New(o Options) *Graph {
	g := &Graph{o: o, subagents: make(chan struct{}, subagentPool), foreign: make(chan struct{}, foreignPool), pause: loop.NewBackoff(firstRetry, lastRetry)}
	g.ctx, g.stop = context.WithCancel(context.Background())
	for range subagentPool {
		g.subagents <- struct{}{}
	}
	if o.Servers != nil {
		if g.servers = (&servers{list: o.Servers, log: o.Log, now: time.Now}); o.Log == nil {
			g.servers.log = slog.New(slog.DiscardHandler)
		}
	}
	return g
}

// Stream implements graph.Graph.
func (g *Graph) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	a, err := g.current(ctx, true)
	if err != nil {
		return func(yield func(graph.Event, error) bool) { yield(graph.Event{}, misconfigured(err)) }
	}
	return func(yield func(graph.Event, error) bool) {
		ctx, failed := middleware.WithFallback(ctx)
		for event, err := range a.Stream(ctx, inv) {
			if !yield(event, err) || err != nil {
				return
			}
		}
		if text := failed(); text != "" { // the conversation has the explanation; the run did not succeed
			yield(graph.Event{}, &graph.Failure{Type: "LLMError", Message: text, Detail: text})
		}
	}
}

// misconfigured is the failure of a run for a mistake of the configuration. Clients see what may be shown of it.
func misconfigured(err error) *graph.Failure {
	const kind = "ConfigurationError"
	return &graph.Failure{Type: kind, Message: public(err), Detail: kind + ": " + err.Error(), Fix: fixConfig}
}

const fixConfig = "correct config.yaml, which the next run reads anew; `understudy doctor --deerflow=FILE` checks it"

// mistake is a mistake of config.yaml, in a text that clients may see; it has no secrets.
func mistake(format string, args ...any) error {
	return fault.Newf(fault.Unavailable, "config.yaml: "+format, args...)
}

// public is what clients see of an error.
func public(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return f.Message
	}
	return graph.Masked
}

// Explain implements graph.Graph.
func (g *Graph) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	a, err := g.current(ctx, false)
	if err != nil {
		return checkpointer.Explanation{}, err
	}
	return a.Explain(ctx, cfg, at, live)
}

// Update implements graph.Graph.
func (g *Graph) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	a, err := g.current(ctx, false)
	if err != nil {
		return checkpointer.Key{}, err
	}
	return a.Update(ctx, cfg, at, steps)
}

// Describe implements graph.Graph.
func (g *Graph) Describe(ctx context.Context, cfg graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	a, err := g.current(ctx, false)
	if err != nil {
		return nil, err
	}
	return a.Describe(ctx, cfg, what)
}

// build makes the agent of settings.
func (g *Graph) build(ctx context.Context, b *building) (*agent.Agent, error) {
	s := b.of
	if len(s.Models) == 0 {
		return nil, fault.New(fault.Unavailable, "No model is configured")
	}
	// The agent's own calls are repeated by LLMErrorHandlingMiddleware, which says so.
	models := &models{settings: s, open: g.o.Open, retries: new(int), made: map[chosen]agent.Model{}}
	first, err := models.get("", thinking{})
	guards, errGuards := g.guards(s)
	last, errEndings := endings(s.SafetyFinishReason)
	if err := errors.Join(err, errGuards, errEndings); err != nil {
		return nil, err // all at once
	}
	chain := []agent.Middleware{g.instructions(s)}
	if s.InputSanitization.Enabled {
		chain = append(chain, middleware.InputSanitization())
	}
	chain = append(chain, g.threadData())
	if g.o.Tools.Dir != nil {
		chain = append(chain, uploads(g.o.Tools.Dir))
	}
	if g.o.Tools.Sandbox != nil {
		box, err := g.toolbox(ctx, b, models, slices.Concat(guards, last)) // of subagents
		if err != nil {
			return nil, err
		}
		chain = append(chain, box)
	}
	chain = append(append(chain, middleware.DanglingToolCalls()), guards...)
	chain = append(chain, models.middleware(g), middleware.DynamicContext(middleware.ContextOptions{About: g.about(s.Memory)}))
	if g.o.Skills != nil {
		chain = append(chain, g.skills(s.Skills, func() bool { return false }))
	}
	chain = append(chain, durable())
	if s.Summarization.Enabled {
		m, err := g.summarization(s)
		if err != nil {
			return nil, err
		}
		chain = append(chain, m)
	}
	chain = append(chain, middleware.Todos(middleware.TodoOptions{Active: planning}))
	if s.TokenUsage.Enabled {
		chain = append(chain, middleware.TokenUsage())
	}
	if s.Title.Enabled {
		chain = append(chain, g.title(s.Title, models))
	}
	if g.memorizing(s.Memory) == nil { // else the agent itself keeps what it wants to know
		chain = append(chain, g.remember(s.Memory))
	}
	chain = append(chain, images())
	if s.ToolSearch.Enabled {
		chain = append(chain, middleware.ToolSearch())
	}
	if g.o.Tools.Sandbox != nil {
		chain = append(chain, limitSubagents(s.Subagents.MaxTotal, delegating))
	}
	if s.LoopDetection.Enabled {
		chain = append(chain, loops(s.LoopDetection))
	}
	if s.TokenBudget.Enabled {
		m, err := tokenBudget(s.TokenBudget)
		if err != nil {
			return nil, err
		}
		chain = append(chain, m)
	}
	questions := tool.Clarification()
	questions.Tools = nil // which is among those of the sandbox
	chain = append(append(append(chain, questions, middleware.TerminalResponse()), last...), middleware.SystemMessages())
	return agent.New(agent.Options{Name: Name, Model: first, Sources: g.sourceFor(chain, nil), Middleware: chain, State: state()})
}

// delegating reports whether a run has subagents.
func delegating(ctx context.Context) bool { return wish(ctx, "subagent_enabled").Bool() }

// unattended reports whether questions would stay without an answer: a scheduled task made the run.
func unattended(ctx context.Context) bool { return wish(ctx, "non_interactive").Bool() }

// planning reports whether a run has a plan.
func planning(ctx context.Context) bool { return wish(ctx, "is_plan_mode").Bool() }

// state are the keys of the state that clients know, in addition to those of middleware.
func state() map[string]pregel.Channel {
	all := tool.State()
	all["goal"] = pregel.LastValue()
	return all
}

// summarization condenses conversations as the settings say.
func (g *Graph) summarization(s *settings.Settings) (agent.Middleware, error) {
	o, err := g.summarizing(s, "")
	if err != nil {
		return agent.Middleware{}, err
	}
	return condensing(o)
}

// subagentSummarization condenses what a subagent does, with its own model if the settings name none. Nothing of it is learned: it is not what a user said.
func (g *Graph) subagentSummarization(s *settings.Settings, model string) (agent.Middleware, error) {
	o, err := g.summarizing(s, cmp.Or(s.Summarization.Model, model))
	if err != nil {
		return agent.Middleware{}, err
	}
	o.Replaced = nil
	return condensing(o)
}

func condensing(o agent.SummarizationOptions) (agent.Middleware, error) {
	m, err := agent.Summarization(o)
	if err != nil {
		err = mistake("%w", err)
	}
	m.Name = "DeerFlowSummarizationMiddleware"
	return m, err
}

// summarizing says when and how the settings want conversations condensed. model writes the summary; "": the one of the settings.
func (g *Graph) summarizing(s *settings.Settings, model string) (agent.SummarizationOptions, error) {
	m, err := (&models{settings: s, open: g.o.Open, made: map[chosen]agent.Model{}}).get(cmp.Or(model, s.Summarization.Model), thinking{})
	if err != nil {
		return agent.SummarizationOptions{}, err
	}
	o := agent.SummarizationOptions{Model: m, Keep: size(s.Summarization.Keep), Log: g.o.Log, Replaced: g.rescue(s.Memory), TextKey: summaryKey, Tags: []string{"middleware:summarize"}}
	for _, t := range s.Summarization.Trigger {
		o.Trigger = append(o.Trigger, size(t))
	}
	if len(o.Trigger) == 0 {
		o.Trigger = []agent.Size{{Tokens: 32_000}}
	}
	o.Rescue = rescuing(s, o)
	return o, nil
}

func size(a settings.Amount) agent.Size {
	switch a.Type {
	case "tokens":
		return agent.Size{Tokens: int(a.Value)}
	case "fraction":
		return agent.Size{Fraction: a.Value}
	}
	return agent.Size{Messages: int(a.Value)}
}
