package lead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	custom "understudy/deerflow/agent"
	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/fault"
)

// managing are the tools by which the agent changes itself and its user's agents and skills. They obey the rules of the Gateway's routes, and act for the run's user alone.
func (g *Graph) managing(s *settings.Settings) (list []agent.Tool) {
	if g.o.Agents != nil && s.AgentsAPI.Enabled {
		list = append(list, g.setupAgent(), g.updateAgent(s))
	}
	if g.o.Library != nil && s.SkillEvolution.Enabled {
		list = append(list, g.skillManage())
	}
	return list
}

// refusal is the result of a call that did nothing, and says why.
func refusal(ctx context.Context, text string) message.Message {
	call := agent.CallOf(ctx)
	m := message.Tool("Error: "+text, call.ID).WithName(call.Name)
	m.Status = message.StatusError
	return m
}

// explained is the result for an error that the model can do something about. Others stay errors.
func explained(ctx context.Context, err error) (any, error) {
	var refused *skill.Refused
	var f *fault.Error
	if errors.As(err, &refused) {
		return refusal(ctx, refused.Reason), nil
	}
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return refusal(ctx, f.Message), nil
	}
	return nil, err
}

// said returns a text that a model gives; nil also for the words by which models mean nothing.
func said(v *string) *string {
	if v != nil && slices.Contains([]string{"null", "none", "undefined"}, strings.ToLower(strings.TrimSpace(*v))) {
		return nil
	}
	return v
}

func (g *Graph) setupAgent() agent.Tool {
	type args struct {
		Soul        string   `json:"soul" jsonschema:"The whole SOUL.md: who the agent is, how it works and speaks."`
		Description string   `json:"description" jsonschema:"What the agent does, in one line."`
		Skills      []string `json:"skills,omitempty" jsonschema:"Names of the skills that it may use; an empty list for none. Leave it out for all."`
	}
	return agent.MustTool("setup_agent", "Creates the agent that this conversation is about. Call it once, when the user agrees with how the agent is to be.", func(ctx context.Context, a args) (any, error) {
		name, err := custom.Name(wish(ctx, "agent_name").String())
		if err != nil {
			return explained(ctx, err)
		}
		if strings.TrimSpace(a.Soul) == "" {
			return refusal(ctx, "soul is empty; an agent needs a SOUL.md."), nil
		}
		user := userOf(ctx)
		err = g.o.Agents.Create(user, &custom.Agent{Name: name, Description: a.Description, Skills: a.Skills, Soul: a.Soul})
		if fault.Is(err, fault.Conflict) { // by an earlier call, perhaps one that was cut off
			_, err = g.o.Agents.Change(user, name, func(have *custom.Agent) { have.Description, have.Skills, have.Soul = a.Description, a.Skills, a.Soul })
		}
		if err != nil {
			return explained(ctx, err)
		}
		pregel.LogOf(ctx).Info("the agent made an agent", "name", name)
		return fmt.Sprintf("The agent '%s' exists now.", name), nil
	})
}

func (g *Graph) updateAgent(s *settings.Settings) agent.Tool {
	type args struct {
		Soul        *string   `json:"soul,omitempty" jsonschema:"The whole new SOUL.md: begin with the present one."`
		Description *string   `json:"description,omitempty" jsonschema:"What the agent does, in one line."`
		Skills      *[]string `json:"skills,omitempty" jsonschema:"Names of the skills that it may use; an empty list for none."`
		Groups      *[]string `json:"tool_groups,omitempty" jsonschema:"Groups of tools that it may use; an empty list for none."`
		Model       *string   `json:"model,omitempty" jsonschema:"Name of a configured model."`
	}
	return agent.MustTool("update_agent", "Changes who you are, when the user asks for it: what you leave out stays. It counts from the user's next message on.", func(ctx context.Context, a args) (any, error) {
		a.Soul, a.Description, a.Model = said(a.Soul), said(a.Description), said(a.Model)
		switch {
		case a.Soul == nil && a.Description == nil && a.Skills == nil && a.Groups == nil && a.Model == nil:
			return refusal(ctx, "nothing to change: give soul, description, skills, tool_groups or model."), nil
		case a.Soul != nil && strings.TrimSpace(*a.Soul) == "":
			return refusal(ctx, "soul is empty; leave it out to keep the present one."), nil
		case a.Model != nil && s.Model(*a.Model) == nil:
			return refusal(ctx, fmt.Sprintf("there is no model '%s'; choose one of models in config.yaml.", *a.Model)), nil
		}
		name, err := custom.Name(agentOf(ctx))
		if err != nil {
			return explained(ctx, err)
		}
		var changed []string
		_, err = g.o.Agents.Change(userOf(ctx), name, func(have *custom.Agent) {
			changed = nil
			note := func(field string, differs bool) {
				if differs {
					changed = append(changed, field)
				}
			}
			if v := a.Description; v != nil {
				note("description", have.Description != *v)
				have.Description = *v
			}
			if v := a.Model; v != nil {
				note("model", have.Model == nil || *have.Model != *v)
				have.Model = v
			}
			if v := a.Groups; v != nil {
				note("tool_groups", have.ToolGroups == nil || !slices.Equal(have.ToolGroups, *v))
				have.ToolGroups = *v
			}
			if v := a.Skills; v != nil {
				note("skills", have.Skills == nil || !slices.Equal(have.Skills, *v))
				have.Skills = *v
			}
			if v := a.Soul; v != nil {
				note("soul", true)
				have.Soul = *v
			}
		})
		switch {
		case fault.Is(err, fault.NotFound):
			return refusal(ctx, fmt.Sprintf("the user has no agent '%s'; it has to be made first.", name)), nil
		case err != nil:
			return explained(ctx, err)
		case len(changed) == 0:
			return fmt.Sprintf("The agent '%s' is like that already.", name), nil
		}
		pregel.LogOf(ctx).Info("the agent changed itself", "name", name, "changed", changed)
		return fmt.Sprintf("Changed of the agent '%s': %s. It counts from the user's next message on.", name, strings.Join(changed, ", ")), nil
	})
}

// skillArgs are the arguments of skill_manage.
type skillArgs struct {
	Action   string  `json:"action" jsonschema:"One of create, patch, edit, delete, write_file, remove_file."`
	Name     string  `json:"name" jsonschema:"Name of the skill: lower-case words with hyphens."`
	Content  *string `json:"content,omitempty" jsonschema:"The new file, for create, edit and write_file."`
	Path     *string `json:"path,omitempty" jsonschema:"A file below references, templates, scripts or assets, for write_file and remove_file."`
	Find     *string `json:"find,omitempty" jsonschema:"The text to replace, for patch."`
	Replace  *string `json:"replace,omitempty" jsonschema:"What takes its place, for patch."`
	Expected *int    `json:"expected_count,omitempty" jsonschema:"How often the text must be there, for patch."`
}

func (g *Graph) skillManage() agent.Tool {
	return agent.MustTool("skill_manage", "Creates, changes and deletes the user's own skills. Each is a SKILL.md, with name and description in its front matter, and files next to it.", func(ctx context.Context, a skillArgs) (any, error) {
		info, _ := pregel.Info(ctx)
		text, err := a.apply(ctx, skill.Agent{Library: g.o.Library, User: userOf(ctx), Thread: string(info.Thread)})
		if err != nil {
			return explained(ctx, err)
		}
		pregel.LogOf(ctx).Info("the agent changed a skill", "skill", a.Name, "action", a.Action)
		return text, nil
	})
}

// apply does what the arguments say, and returns the result for the model.
func (a skillArgs) apply(ctx context.Context, by skill.Agent) (string, error) {
	needs := func(what string) (string, error) { return "", fault.Newf(fault.Invalid, "%s for %s.", what, a.Action) }
	if !slices.Contains([]string{"create", "edit", "patch", "delete", "write_file", "remove_file"}, a.Action) {
		return "", fault.Newf(fault.Invalid, "there is no action '%s'.", a.Action)
	}
	if !skill.IsName(a.Name) {
		return "", fault.New(fault.Invalid, "name must be lower-case words and digits with hyphens between them.")
	}
	if a.Action == "create" {
		if a.Content == nil {
			return needs("content is required")
		}
		return fmt.Sprintf("Created the skill '%s'.", a.Name), by.Create(ctx, a.Name, *a.Content)
	}
	if err := by.Editable(a.Name); err != nil {
		return "", err
	}
	switch a.Action {
	case "edit":
		if a.Content == nil {
			return needs("content is required")
		}
		return fmt.Sprintf("Changed the skill '%s'.", a.Name), by.Edit(ctx, a.Name, *a.Content)
	case "patch":
		if a.Find == nil || a.Replace == nil {
			return needs("find and replace are required")
		}
		found, err := by.Patch(ctx, a.Name, *a.Find, *a.Replace, a.Expected)
		done := 1
		if a.Expected != nil {
			done = *a.Expected
		}
		return fmt.Sprintf("Replaced %[2]d of %[3]d places in the skill '%[1]s'.", a.Name, done, found), err
	case "write_file":
		if a.Path == nil || a.Content == nil {
			return needs("path and content are required")
		}
		return fmt.Sprintf("Wrote '%s' of the skill '%s'.", *a.Path, a.Name), by.WriteFile(ctx, a.Name, *a.Path, *a.Content)
	case "remove_file":
		if a.Path == nil {
			return needs("path is required")
		}
		return fmt.Sprintf("Removed '%s' of the skill '%s'.", *a.Path, a.Name), by.RemoveFile(a.Name, *a.Path)
	}
	return fmt.Sprintf("Deleted the skill '%s'.", a.Name), by.Delete(a.Name)
}
