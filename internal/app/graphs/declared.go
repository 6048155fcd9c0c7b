package graphs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/deerflow/tool"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
	"understudy/graph/agent/middleware"
	"understudy/graph/agent/provider"
	"understudy/graph/message"
	"understudy/internal/config"
)

// Declared are the agents that langgraph.json declares. Reload replaces them.
type Declared struct {
	Tools []agent.Tool // those of the program

	mu      sync.Mutex // guards what follows
	agents  []declaredAgent
	closing []io.Closer // replaced, and not closed yet
}

// declaredAgent is an agent, and what it was built from.
type declaredAgent struct {
	config.Graph
	env   map[string]string
	built *agent.Agent
	kept  bool // of a rebuild: it is the one that is served
}

// Rebuilt are the agents of settings that were read anew.
type Rebuilt struct{ agents []declaredAgent }

// Names returns the names of the agents.
func (r Rebuilt) Names() []string {
	names := make([]string, len(r.agents))
	for i, a := range r.agents {
		names[i] = a.ID
	}
	return names
}

// Discard closes what was built.
func (r Rebuilt) Discard() error {
	var errs []error
	for _, a := range r.agents {
		if !a.kept {
			errs = append(errs, a.built.Close())
		}
	}
	return errors.Join(errs...)
}

// Rebuild builds the agents of settings. Those that have not changed are kept. Mistakes in the file are config.Mistakes.
func (d *Declared) Rebuild(settings *config.Config, log *slog.Logger) (out Rebuilt, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var mistakes config.Mistakes
	for _, g := range settings.Graphs {
		if g.Agent == nil {
			continue
		}
		same := slices.IndexFunc(d.agents, func(a declaredAgent) bool {
			return a.ID == g.ID && reflect.DeepEqual(a.Agent, g.Agent) && maps.Equal(a.env, settings.Env)
		})
		if same >= 0 {
			kept := d.agents[same]
			kept.Graph, kept.kept = g, true
			out.agents = append(out.agents, kept)
			continue
		}
		a, err := Declare(settings, g, d.Tools, log)
		var m config.Mistakes
		switch {
		case errors.As(err, &m):
			mistakes = append(mistakes, m...)
		case err != nil:
			return Rebuilt{}, errors.Join(err, out.Discard())
		default:
			out.agents = append(out.agents, declaredAgent{Graph: g, env: settings.Env, built: a})
		}
	}
	if len(mistakes) > 0 {
		_ = out.Discard() // the mistakes are what counts
		return Rebuilt{}, mistakes
	}
	return out, nil
}

// Replace serves agents in the place of those before, which are closed after grace: their runs end with them.
func (d *Declared) Replace(with Rebuilt, graphs *graph.Registry, grace time.Duration, log *slog.Logger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.agents {
		if slices.ContainsFunc(with.agents, func(other declaredAgent) bool { return other.built == a.built }) {
			continue
		}
		d.closing = append(d.closing, a.built)
		time.AfterFunc(grace, func() {
			d.mu.Lock()
			at := slices.Index(d.closing, io.Closer(a.built))
			if at >= 0 {
				d.closing = slices.Delete(d.closing, at, at+1)
			}
			d.mu.Unlock()
			if at < 0 {
				return // with the server
			}
			if err := a.built.Close(); err != nil {
				log.Warn("replaced agent not closed", "graph", a.ID, "error", err)
			}
		})
	}
	d.agents = with.agents
	for _, a := range d.agents {
		graphs.Put(a.ID, a.Description, a.built)
	}
}

// Close closes all agents. It may be called twice.
func (d *Declared) Close() error {
	d.mu.Lock()
	all := d.closing
	for _, a := range d.agents {
		all = append(all, a.built)
	}
	d.agents, d.closing = nil, nil
	d.mu.Unlock()
	var errs []error
	for _, a := range all {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Declare builds the agent that a graph declares. It starts nothing. Mistakes in the file are
// returned as config.Mistakes.
func Declare(cfg *config.Config, g config.Graph, tools []agent.Tool, log *slog.Logger) (*agent.Agent, error) {
	d := declaration{Agent: g.Agent, cfg: cfg, log: log, tools: tools}
	return d.build(g.ID)
}

// Model is a model that langgraph.json names, and what its agent needs of it.
type Model struct {
	agent.Model
	Name   string   // as in the file
	Places []string // where it is named
	Tools  bool     // the agent calls tools
	Image  bool     // it is declared to read images
}

// Models opens the models of the declared agents and their middleware, each once. Models that cannot be opened are left out: Declare reports
// them.
func Models(cfg *config.Config, log *slog.Logger) (all []Model) {
	var seen []provider.Spec
	add := func(g config.Graph, m *provider.Spec, tools bool) {
		if m == nil {
			return
		}
		same := *m
		same.Place = ""
		for i, known := range seen {
			if reflect.DeepEqual(known, same) {
				all[i].Tools, all[i].Places = all[i].Tools || tools, append(all[i].Places, m.Place)
				return
			}
		}
		d := declaration{Agent: g.Agent, cfg: cfg, log: log}
		opened, err := d.model(*m)
		if err != nil {
			return
		}
		seen = append(seen, same)
		all = append(all, Model{Model: opened, Name: m.Name, Places: []string{m.Place}, Tools: tools, Image: m.Images})
	}
	for _, g := range cfg.Graphs {
		if g.Agent == nil {
			continue
		}
		add(g, &g.Agent.Model, len(g.Agent.Tools) > 0 || len(g.Agent.MCP) > 0 || g.Agent.ResponseFormat != nil)
		for _, m := range g.Agent.Middleware {
			add(g, m.Model, false)
			if m.Subagents != nil {
				for _, kind := range m.Subagents.Types {
					add(g, kind.Model, true)
				}
			}
		}
	}
	return all
}

// declaration is an agent as langgraph.json has it, on its way to become one.
type declaration struct {
	*config.Agent
	cfg   *config.Config
	log   *slog.Logger
	tools []agent.Tool // those of the program
}

// keyError is an error at a key below the one that is being built.
type keyError struct {
	key string
	error
}

// Unwrap returns the error without the key.
func (e *keyError) Unwrap() error { return e.error }

// atKey notes at which key an error is; nil for nil.
func atKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return &keyError{key, err}
}

// wrong is a mistake in the file that only shows when the agent is built.
func (d *declaration) wrong(key string, err error) error {
	key = d.Key + "." + key
	var below *keyError
	if errors.As(err, &below) {
		key += "." + below.key
	}
	text := err.Error()
	if d.cfg.MissingEnv != "" && strings.Contains(text, "has no key") {
		text += " in " + d.cfg.MissingEnv + ", which env names and which does not exist, or in the environment"
	}
	return config.Mistakes{d.cfg.Mistake(key, text)}
}

func (d *declaration) build(id string) (*agent.Agent, error) {
	o := agent.Options{Name: id, Prompt: d.Prompt, ResponseFormat: d.ResponseFormat}
	var err error
	if o.Model, err = d.model(d.Model); err != nil {
		return nil, d.wrong("model", err)
	}
	for i, name := range d.Tools {
		t, err := d.tool(name)
		if err != nil {
			return nil, d.wrong(fmt.Sprintf("tools[%d]", i), err)
		}
		o.Tools = append(o.Tools, t)
	}
	for _, server := range d.MCP {
		server.Log = d.log
		source, err := mcp.New(server)
		if err != nil {
			return nil, d.wrong("mcp."+server.Name, err)
		}
		o.Sources = append(o.Sources, source)
	}
	if err := d.addMiddleware(id, &o); err != nil {
		return nil, err
	}
	a, err := agent.New(o)
	if err != nil {
		return nil, config.Mistakes{d.cfg.Mistake(d.Key, err.Error())}
	}
	return a, nil
}

// tool finds a tool of the program, or a built-in one.
func (d *declaration) tool(name string) (agent.Tool, error) {
	names := agent.BuiltInNames()
	for _, t := range d.tools {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	if t, ok := agent.BuiltIn(name); ok {
		return t, nil
	}
	slices.Sort(names)
	return agent.Tool{}, fmt.Errorf("there is no tool %q; there are %s", name, strings.Join(names, ", "))
}

// model opens a model. Variables of the file's env come before those of the process.
func (d *declaration) model(m provider.Spec) (agent.Model, error) {
	m.Dir, m.Log, m.Getenv = d.cfg.Dir, d.log, getenv(d.cfg)
	return provider.Open(m)
}

// getenv returns variables of the file's env, then those of the process.
func getenv(cfg *config.Config) func(string) string {
	return func(name string) string {
		if v, ok := cfg.Env[name]; ok {
			return v
		}
		return os.Getenv(name)
	}
}

// Embeddings opens the embedding model that store.index names.
func Embeddings(cfg *config.Config, log *slog.Logger) (*provider.Embeddings, error) {
	return provider.OpenEmbeddings(provider.Spec{Name: cfg.StoreIndex.Embed, Place: "store.index", Getenv: getenv(cfg), Log: log}, cfg.StoreIndex.Dims)
}

func one(made agent.Middleware, err error) ([]agent.Middleware, error) {
	return []agent.Middleware{made}, err
}

func (d *declaration) middleware(m config.AgentMiddleware, own agent.Model, parts *parts) ([]agent.Middleware, error) {
	model := own
	if m.Model != nil {
		var err error
		if model, err = d.model(*m.Model); err != nil {
			return nil, atKey("model", err)
		}
	}
	switch {
	case m.Summarization != nil:
		o := *m.Summarization
		o.Model, o.Log = model, d.log
		return one(agent.Summarization(o))
	case m.Approvals != nil:
		return one(agent.HumanInTheLoop(m.Approvals))
	case m.Title != nil:
		o := *m.Title
		o.Model, o.Log = model, d.log
		return one(agent.Title(o))
	case m.ToolErrors != nil:
		text := m.ToolErrors.Message
		return one(agent.ToolErrors(func(error, message.ToolCall) string { return text }, m.ToolErrors.Tools...), nil)
	case m.ModelLimit != nil:
		return one(agent.ModelCallLimit(*m.ModelLimit))
	case m.ToolLimits != nil:
		var all []agent.Middleware
		for _, l := range m.ToolLimits {
			made, err := agent.ToolCallLimit(l.Tool, l.CallLimits)
			if err != nil {
				return nil, err
			}
			all = append(all, made)
		}
		return all, nil
	}
	if made, known, err := parts.middleware(m, model); known {
		return made, err
	}
	return one(d.guarding(m, parts))
}

// guarding makes the middleware of package middleware.
func (d *declaration) guarding(m config.AgentMiddleware, parts *parts) (agent.Middleware, error) {
	switch {
	case m.ModelErrors != nil:
		return middleware.ModelErrors(*m.ModelErrors), nil
	case m.Guardrails != nil:
		o := m.Guardrails.GuardrailOptions
		if o.Guard = m.Guardrails.List; m.Guardrails.Service.URL != "" {
			o.Guard = m.Guardrails.Service
		}
		return middleware.Guardrails(o)
	case m.ToolOutput != nil:
		return middleware.ToolOutput(parts.output(*m.ToolOutput))
	case m.Loops != nil:
		return middleware.Loops(*m.Loops), nil
	case m.Budget != nil:
		return middleware.TokenBudget(*m.Budget)
	case m.Progress != nil:
		return middleware.ToolProgress(*m.Progress)
	}
	switch m.Kind {
	case "todos":
		return middleware.Todos(middleware.TodoOptions{}), nil
	case "date":
		return middleware.DynamicContext(middleware.ContextOptions{}), nil
	case "token_usage":
		return middleware.TokenUsage(), nil
	case "tool_search":
		return middleware.ToolSearch(), nil
	case "input_sanitization":
		return middleware.InputSanitization(), nil
	case "tool_result_sanitization":
		return middleware.ToolResultSanitization(m.Foreign...), nil
	case "terminal_response":
		return middleware.TerminalResponse(), nil
	case "model_length":
		return middleware.ModelLength(), nil
	case "safety_finish_reason":
		return middleware.SafetyFinishReason(), nil
	case "clarification":
		return tool.Clarification(), nil
	}
	return agent.RepairToolCalls(), nil
}
