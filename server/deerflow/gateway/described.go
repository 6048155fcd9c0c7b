package gateway

import (
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"understudy/deerflow"
	custom "understudy/deerflow/agent"
	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/run"
)

// described is how the lead agent works in a run, as rows of its start, and traces, show it.
type described struct {
	Agent    string   `json:"agent_name"`
	Model    string   `json:"model_name"`
	Thinking bool     `json:"thinking_enabled"`
	Effort   *string  `json:"reasoning_effort"`
	Plan     bool     `json:"is_plan_mode"`
	Delegate bool     `json:"subagent_enabled"`
	Groups   []string `json:"tool_groups"`
	Skills   []string `json:"available_skills"`
}

// describe returns how the lead agent works in a run with a context. What the run does not say is that of the user's agent, else of the settings.
func describe(d *deerflow.DeerFlow, set *settings.Settings, user string, context json.RawMessage) (*described, error) {
	c := gjson.ParseBytes(context)
	out := &described{Agent: "default", Thinking: true, Plan: c.Get("is_plan_mode").Bool(), Delegate: c.Get("subagent_enabled").Bool()}
	wanted := c.Get("model_name").String()
	if name, err := custom.Name(c.Get("agent_name").String()); err == nil && name != "default" {
		out.Agent = name
		a, err := d.Agents.Get(user, name)
		switch {
		case fault.Is(err, fault.NotFound): // the run fails
		case err != nil:
			return nil, err
		default:
			out.Groups, out.Skills, out.Effort = a.ToolGroups, slices.Sorted(slices.Values(a.Skills)), a.ReasoningEffort
			if a.Skills != nil && out.Skills == nil {
				out.Skills = []string{}
			}
			if a.Thinking != nil {
				out.Thinking = *a.Thinking
			}
			if wanted == "" && a.Model != nil {
				wanted = *a.Model
			}
		}
	}
	if c.Get("is_bootstrap").Bool() {
		out.Skills = []string{"bootstrap"}
	}
	if v := c.Get("thinking_enabled"); v.IsBool() {
		out.Thinking = v.Bool()
	}
	if v := c.Get("reasoning_effort").String(); v != "" {
		out.Effort = &v
	}
	m := set.Model(wanted)
	if m == nil && len(set.Models) > 0 {
		m = &set.Models[0]
	}
	if m != nil {
		out.Model, out.Thinking = m.Name, out.Thinking && m.Thinking
	}
	return out, nil
}

// Describe adds to the request for a run of a user how the lead agent works in it.
func (d *Installation) Describe(set *settings.Settings, user string, req *run.Request) error {
	of, err := describe(d.DeerFlow, set, user, req.Context)
	if err != nil {
		return err
	}
	req.OwnMetadata, err = json.Marshal(of)
	return err
}
