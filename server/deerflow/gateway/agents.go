package gateway

import (
	"encoding/json"
	"math"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"understudy/deerflow/agent"
	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// agentHandlers serve the agents that users define, and their profiles.
type agentHandlers struct{ *base }

func (s *agentHandlers) routes() {
	s.handle("GET", "/agents", members, s.withAgents(func(c *fiber.Ctx, who *caller, _ *settings.Settings) error {
		list, err := s.DeerFlow.Agents.List(who.id)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Agents(list))
	}))
	s.handle("POST", "/agents", members, s.withAgents(s.createAgent))
	s.handle("GET", "/agents/check", members, s.withAgents(func(c *fiber.Ctx, who *caller, _ *settings.Settings) error {
		name, err := agent.Name(c.Query("name"))
		if err != nil {
			return err
		}
		has, err := s.DeerFlow.Agents.Has(who.id, name)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(struct {
			Available bool   `json:"available"`
			Name      string `json:"name"`
		}{!has, name}))
	}))
	s.handle("GET", "/agents/{name}", members, s.withAgent(func(c *fiber.Ctx, who *caller, name string, _ *settings.Settings) error {
		a, err := s.DeerFlow.Agents.Get(who.id, name)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Agent(a, true))
	}))
	s.handle("PUT", "/agents/{name}", members, s.withAgent(s.changeAgent))
	s.handle("DELETE", "/agents/{name}", members, s.withAgent(func(c *fiber.Ctx, who *caller, name string, _ *settings.Settings) error {
		if err := s.DeerFlow.DeleteAgent(c.UserContext(), who.id, name); err != nil {
			return err
		}
		return web.SendNothing(c)
	}))
	s.assistantRoutes()
	s.handle("GET", "/user-profile", members, func(c *fiber.Ctx, who *caller) error {
		text, err := s.DeerFlow.Profile(who.id)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(map[string]any{"content": text}))
	})
	s.handle("PUT", "/user-profile", members, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			text := f.TextOr("content", "", 0, maxForm)
			if err := f.Err(); err != nil {
				return err
			}
			if err := s.DeerFlow.SetProfile(who.id, text); err != nil {
				return err
			}
			return web.SendJSON(c, deerflow.Of(map[string]any{"content": text}))
		})
	})
}

// lead is the graph of DeerFlow's agent.
const lead = "lead_agent"

// assistantRoutes show the lead agent, and the agents of the caller, as assistants of LangGraph. All run on the lead agent's graph.
func (s *agentHandlers) assistantRoutes() {
	s.handle("POST", "/assistants/search", members, func(c *fiber.Ctx, who *caller) error {
		if len(c.Request().Header.Peek(fiber.HeaderContentType)) > 0 { // without it the Gateway reads no body
			check := func(f *deerflow.Form) error {
				f.Int("limit", 10, math.MinInt, math.MaxInt)
				f.Int("offset", 0, math.MinInt, math.MaxInt)
				return f.Err()
			}
			if err := s.optionalForm(c, check); err != nil {
				return err
			}
		}
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		list := []json.RawMessage{deerflow.Assistant(nil)}
		if set.AgentsAPI.Enabled {
			agents, err := s.DeerFlow.Agents.List(who.id)
			if err != nil {
				return err
			}
			for _, a := range agents {
				list = append(list, deerflow.Assistant(a))
			}
		}
		return web.SendJSON(c, deerflow.Of(list))
	})
	for _, part := range []string{"", "/graph", "/schemas"} {
		s.handle("GET", "/assistants/{assistant_id}"+part, members, func(c *fiber.Ctx, who *caller) error {
			a, err := s.assistantOf(who, web.Param(c, "assistant_id"))
			if err != nil {
				return err
			}
			switch part {
			case "/graph":
				return web.SendJSON(c, []byte(`{"graph_id":"`+lead+`","nodes":[],"edges":[]}`))
			case "/schemas":
				return web.SendJSON(c, []byte(`{"graph_id":"`+lead+`","input_schema":{},"output_schema":{},"state_schema":{},"config_schema":{}}`))
			}
			return web.SendJSON(c, deerflow.Assistant(a))
		})
	}
}

// assistantOf returns an agent of the caller by the ID of its assistant; nil for the lead agent.
func (s *agentHandlers) assistantOf(who *caller, name string) (*agent.Agent, error) {
	if name == lead {
		return nil, nil
	}
	missing := fault.Newf(fault.NotFound, "Assistant %s not found", web.Bounded(name, web.MaxReason))
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return nil, err
	}
	key, err := agent.Name(name)
	if err != nil || key != name || !set.AgentsAPI.Enabled {
		return nil, missing
	}
	a, err := s.DeerFlow.Agents.Get(who.id, key)
	if fault.Is(err, fault.NotFound) {
		return nil, missing
	}
	return a, err
}

// withAgents refuses requests while users may not define agents.
func (s *agentHandlers) withAgents(h func(*fiber.Ctx, *caller, *settings.Settings) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		if !set.AgentsAPI.Enabled {
			return fault.New(fault.Forbidden, "Custom agents are disabled. Set agents_api.enabled in config.yaml.")
		}
		return h(c, who, set)
	}
}

func (s *agentHandlers) withAgent(h func(*fiber.Ctx, *caller, string, *settings.Settings) error) handler {
	return s.withAgents(func(c *fiber.Ctx, who *caller, set *settings.Settings) error {
		name, err := agent.Name(web.Param(c, "name"))
		if err != nil {
			return err
		}
		return h(c, who, name, set)
	})
}

// agentFields reads what a client says of an agent into a; what it does not say stays.
func agentFields(f *deerflow.Form, a *agent.Agent, set *settings.Settings) error {
	if t := f.Text("description", 0, maxText); t != nil {
		a.Description = *t
	}
	if f.Has("model") {
		if a.Model = f.Text("model", 0, 200); a.Model != nil && set.Model(*a.Model) == nil {
			f.Fail("model", "value_error", "Unknown model '"+*a.Model+"'")
			return fault.Newf(fault.Unprocessable, "Unknown model '%s'. It is not among the configured models.", *a.Model)
		}
	}
	if f.Has("tool_groups") {
		a.ToolGroups = f.Texts("tool_groups")
	}
	if f.Has("skills") {
		a.Skills = f.Texts("skills")
	}
	if raw := f.Object("model_settings"); raw != nil {
		f.ModelSettings("model_settings")
		a.ModelSettings = nil
		if err := json.Unmarshal(raw, &a.ModelSettings); err != nil {
			f.Fail("model_settings", "dict_type", "Input should be a valid dictionary")
		}
	}
	if f.Has("thinking_enabled") {
		a.Thinking = nil
		if f.Raw("thinking_enabled") != nil {
			on := f.Bool("thinking_enabled", false)
			a.Thinking = &on
		}
	}
	f.Among("reasoning_effort", "none", "minimal", "low", "medium", "high", "xhigh")
	if f.Has("reasoning_effort") {
		a.ReasoningEffort = f.Text("reasoning_effort", 0, 50)
	}
	if t := f.Text("soul", 0, maxForm); t != nil {
		a.Soul = *t
	}
	return f.Err()
}

func (s *agentHandlers) createAgent(c *fiber.Ctx, who *caller, set *settings.Settings) error {
	return s.form(c, func(f *deerflow.Form) error {
		given := f.Required("name", 0, maxText)
		if err := f.Err(); err != nil {
			return err
		}
		name, err := agent.Name(given)
		if err != nil {
			return err
		}
		a := &agent.Agent{Name: name}
		if err := agentFields(f, a, set); err != nil {
			return err
		}
		if err := s.DeerFlow.Agents.Create(who.id, a); err != nil {
			return err
		}
		return web.SendJSON(c.Status(http.StatusCreated), deerflow.Agent(a, true))
	})
}

func (s *agentHandlers) changeAgent(c *fiber.Ctx, who *caller, name string, set *settings.Settings) error {
	return s.form(c, func(f *deerflow.Form) error {
		if err := agentFields(f, &agent.Agent{}, set); err != nil {
			return err
		}
		a, err := s.DeerFlow.Agents.Change(who.id, name, func(a *agent.Agent) {
			_ = agentFields(f, a, set) // checked above
		})
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Agent(a, true))
	})
}
