package lead

import (
	"context"
	"sync"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph/agent"
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

// middleware calls the model that the run asks for. An unknown one is the first of the settings, with a warning.
func (m *models) middleware() agent.Middleware {
	return agent.Middleware{
		Name: "ModelSelectionMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			if name := wish(ctx, "model_name").String(); name != "" {
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
