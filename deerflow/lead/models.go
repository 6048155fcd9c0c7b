package lead

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/internal/fault"
	"understudy/internal/names"
)

// models are the clients of the models in the settings, each made when it is first needed.
type models struct {
	settings *settings.Settings
	open     func(m *settings.Model, retries *int, body map[string]json.RawMessage) (agent.Model, error)
	retries  *int

	mu   sync.Mutex
	made map[chosen]agent.Model
}

// thinking is how a model is called.
type thinking struct {
	on     bool
	effort string // "": the model's own
}

// chosen is a model with how it is called.
type chosen struct {
	name string
	thinking
}

// efforts are those that providers know. Others, which come from clients, are ignored: each makes a client of its own.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// get returns the model with a name; the first one for "".
func (m *models) get(name string, how thinking) (agent.Model, error) {
	of := &m.settings.Models[0]
	if name != "" {
		if of = m.settings.Model(name); of == nil {
			return agent.Model{}, fault.Newf(fault.Unprocessable, "Model '%s' is not configured", name)
		}
	}
	how.on = how.on && of.Thinking
	if !of.ReasoningEffort || !slices.Contains(efforts, how.effort) {
		how.effort = ""
	}
	key := chosen{of.Name, how}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, ok := m.made[key]; ok {
		return have, nil
	}
	body, err := of.Options(how.on, how.effort)
	if err != nil {
		return agent.Model{}, unusable(of, err)
	}
	opened, err := m.open(of, m.retries, body)
	if err != nil {
		return agent.Model{}, unusable(of, err)
	}
	m.made[key] = opened
	return opened, nil
}

// unusable is the error for a model without a client. What its settings have may be secret.
func unusable(m *settings.Model, err error) error {
	return fault.Wrap(fault.Unavailable, fmt.Sprintf("config.yaml: the model '%s' cannot be used; the log of the server says why", m.Name), err)
}

// wish returns what a run asks for under a key: of its context, else of its configuration.
func wish(ctx context.Context, key string) gjson.Result {
	info, ok := pregel.Info(ctx)
	if !ok {
		return gjson.Result{}
	}
	if v := gjson.GetBytes(info.Context, key); v.Exists() {
		return v
	}
	return gjson.GetBytes(info.Config, "configurable."+key)
}

// agentOf returns the name of the user's agent that a run asks for; "": none.
func agentOf(ctx context.Context) string {
	if name := strings.ToLower(wish(ctx, "agent_name").String()); name != defaultUser {
		return name
	}
	return ""
}

// characterOf returns the run's agent; the zero value for none, and while it is being made. One that its user does not have fails the run, as in DeerFlow: with the
// tools of the default agent it could do what the agent must not.
func (g *Graph) characterOf(ctx context.Context) (Character, error) {
	name := agentOf(ctx)
	if name == "" || g.o.Agent == nil {
		return Character{}, nil
	}
	c, err := g.o.Agent(userOf(ctx), name)
	if !fault.Is(err, fault.NotFound) {
		return c, err
	}
	if wish(ctx, "is_bootstrap").Bool() {
		return Character{}, nil
	}
	return c, &graph.Failure{
		Type: "FileNotFoundError", Message: fmt.Sprintf("Agent '%s' not found", name), Detail: err.Error(),
		Fix: "correct agent_name, or assistant_id, of the run, or create the agent with POST /api/agents; this user has " + g.agentNames(userOf(ctx)),
	}
}

// agentNames lists some of a user's agents.
func (g *Graph) agentNames(user string) string {
	const most = 10
	if g.o.Agents == nil {
		return "none"
	}
	list, err := g.o.Agents.List(user)
	switch {
	case err != nil:
		return "agents that cannot be read: " + err.Error()
	case len(list) == 0:
		return "none"
	}
	var all []string
	for _, a := range list {
		all = append(all, a.Name)
	}
	return names.Some(all, most)
}

// middleware calls the model that the run asks for, else that of its agent, thinking as they say. An unknown model is the first of the settings, with a warning.
func (m *models) middleware(g *Graph) agent.Middleware {
	return m.selection(g, "", func(ctx context.Context, c Character) thinking {
		how := thinking{on: true, effort: c.Effort}
		if c.Thinking != nil {
			how.on = *c.Thinking
		}
		if v := wish(ctx, "thinking_enabled"); v.IsBool() {
			how.on = v.Bool()
		}
		if v := wish(ctx, "reasoning_effort"); v.String() != "" {
			how.effort = v.String()
		}
		return how
	})
}

// subagents is middleware for agents that work for the run's: with a model of their own, unless its name is "". They do not think.
func (m *models) subagents(g *Graph, name string) agent.Middleware {
	return m.selection(g, name, func(context.Context, Character) thinking { return thinking{} })
}

// wanted returns the name of the model that a run asks for; "": the first one. fixed: of an agent with a model of its own.
func wanted(ctx context.Context, fixed string, c Character) string {
	return cmp.Or(fixed, wish(ctx, "model_name").String(), c.Model)
}

// name returns the name of the model that answers, without effects.
func (m *models) name(ctx context.Context, g *Graph, fixed string) string {
	c, err := g.characterOf(ctx)
	if err != nil {
		return "" // the call of the model says so
	}
	if of := m.settings.Model(wanted(ctx, fixed, c)); of != nil {
		return of.Name
	}
	return m.settings.Models[0].Name
}

func (m *models) selection(g *Graph, fixed string, how func(context.Context, Character) thinking) agent.Middleware {
	return agent.Middleware{
		Name: "ModelSelectionMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			c, err := g.characterOf(ctx)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			name := wanted(ctx, fixed, c)
			if name != "" && m.settings.Model(name) == nil {
				pregel.LogOf(ctx).Warn("the model is not configured; the first one answers", "model", name)
				name = ""
			}
			way := how(ctx, c)
			if of := cmp.Or(m.settings.Model(name), &m.settings.Models[0]); way.on && !of.Thinking && wish(ctx, "thinking_enabled").Bool() {
				pregel.LogOf(ctx).Warn("the model cannot think; it answers without", "model", of.Name)
			}
			if r.Model, err = m.get(name, way); err != nil {
				return agent.ModelResponse{}, misconfigured(err)
			}
			return next(ctx, r)
		},
	}
}
