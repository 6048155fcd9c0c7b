package lead

import (
	"context"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/fault"
)

// models are the clients of the models in the settings, each made when it is first needed.
type models struct {
	settings *settings.Settings
	open     func(m *settings.Model, retries *int) (agent.Model, error)
	retries  *int

	mu   sync.Mutex
	made map[string]agent.Model
}

// get returns the model with a name; the first one for "".
func (m *models) get(name string) (agent.Model, error) {
	of := &m.settings.Models[0]
	if name != "" {
		if of = m.settings.Model(name); of == nil {
			return agent.Model{}, fault.Newf(fault.Unprocessable, "Model '%s' is not configured", name)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, ok := m.made[of.Name]; ok {
		return have, nil
	}
	opened, err := m.open(of, m.retries)
	if err != nil {
		return agent.Model{}, err
	}
	m.made[of.Name] = opened
	return opened, nil
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

// character puts the soul of the run's agent behind the instructions.
func (g *Graph) character() agent.Middleware {
	return agent.Middleware{
		Name: "AgentSoulMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if name := agentOf(ctx); name != "" && g.o.Agent != nil {
				_, soul, err := g.o.Agent(userOf(ctx), name)
				if err != nil && !fault.Is(err, fault.NotFound) {
					return agent.ModelResponse{}, err
				}
				if soul = strings.TrimSpace(soul); soul != "" {
					text := "<soul>\n" + soul + "\n</soul>"
					if r.System != nil {
						text = r.System.Text() + "\n\n" + text
					}
					with := message.System(text)
					r.System = &with
				}
			}
			return next(ctx, r)
		},
	}
}

// middleware calls the model that the run asks for, else that of its agent. An unknown one is the first of the settings, with a warning.
func (m *models) middleware(of func(user, name string) (model, soul string, err error)) agent.Middleware {
	return agent.Middleware{
		Name: "ModelSelectionMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			name := wish(ctx, "model_name").String()
			if own := agentOf(ctx); name == "" && own != "" && of != nil {
				var err error
				if name, _, err = of(userOf(ctx), own); err != nil && !fault.Is(err, fault.NotFound) {
					return agent.ModelResponse{}, err
				}
			}
			if name != "" {
				chosen, err := m.get(name)
				switch {
				case err == nil:
					r.Model = chosen
				case fault.Is(err, fault.Unprocessable):
					pregel.LogOf(ctx).Warn("the model is not configured; the first one answers", "model", name)
				default:
					return agent.ModelResponse{}, err
				}
			}
			return next(ctx, r)
		},
	}
}
