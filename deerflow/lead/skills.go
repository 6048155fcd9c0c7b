package lead

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/regular"
)

// maxBody bounds what is read of a skill that is activated, in bytes.
const maxBody = 64 << 10

// bootstrapSkill is all that an agent has that a user is about to make.
const bootstrapSkill = "bootstrap"

// skillsOf returns the skills that a run may use.
func (g *Graph) skillsOf(ctx context.Context, c Character) ([]*skill.Skill, error) {
	if g.o.Skills == nil {
		return nil, nil
	}
	all, err := g.o.Skills(userOf(ctx))
	if err != nil {
		return nil, fmt.Errorf("list skills: %w", err)
	}
	allowed := c.Skills
	if wish(ctx, "is_bootstrap").Bool() {
		allowed = []string{bootstrapSkill}
	}
	if allowed == nil {
		return all, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(s *skill.Skill) bool { return !slices.Contains(allowed, s.Name) }), nil
}

// skillPath returns the path by which the agent knows the SKILL.md of a skill.
func skillPath(set settings.Skills, s *skill.Skill) string {
	category := s.Category
	if category == skill.Legacy {
		category = skill.Custom
	}
	return strings.TrimSuffix(set.ContainerPath, "/") + "/" + string(category) + "/" + s.Path + "/" + skill.File
}

// activation returns the skill that a message names at its beginning, as in `/skill-name task`; nil for others.
func activation(m message.Message, skills []*skill.Skill) *skill.Skill {
	if m.Type != message.TypeHuman || m.HiddenFromPeople() {
		return nil
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(m.Text()), "/")
	if !ok {
		return nil
	}
	if at := strings.IndexAny(name, " \t\n"); at >= 0 {
		name = name[:at]
	}
	if at := slices.IndexFunc(skills, func(s *skill.Skill) bool { return s.Name == name }); at >= 0 {
		return skills[at]
	}
	return nil
}

// skills puts the instructions of skills that messages name in front of the task, in requests alone, and limits the tools of a run to those of the skill that its
// message activates. listed says whether it adds the list of skills to the instructions too.
func (g *Graph) skills(set settings.Skills, listed func() bool) agent.Middleware {
	return agent.Middleware{
		Name: "SkillActivationMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			skills, err := g.runSkills(ctx)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			if len(skills) > 0 && listed() {
				text := skillsPart(set, skills)
				if r.System != nil {
					text = r.System.Text() + "\n\n" + text
				}
				system := message.System(text)
				r.System = &system
			}
			named := map[string]*skill.Skill{} // by the message, as it was written
			for _, m := range agent.Messages(r.State) {
				if s := activation(m, skills); s != nil {
					named[m.ID] = s
				}
			}
			cloned := false
			for i, m := range r.Messages {
				s := named[m.ID]
				if s == nil || m.ID == "" {
					continue
				}
				body, err := readSkill(s)
				if err != nil {
					pregel.LogOf(ctx).Warn("a skill that a message names cannot be read", "skill", s.Name, "error", err)
					continue
				}
				if !cloned {
					r.Messages, cloned = slices.Clone(r.Messages), true
				}
				r.Messages[i].Content = inFront(fmt.Sprintf("<skill name=%q path=%q>\n%s\n</skill>\n\nThe message below activates this skill by its name: follow it. Files that it names are in its folder.\n\n", s.Name, skillPath(set, s), body), m.Content)
			}
			if allowed := allowedTools(agent.Messages(r.State), skills); allowed != nil {
				r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(t agent.Tool) bool { return !slices.Contains(allowed, t.Name) })
			}
			return next(ctx, r)
		},
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			skills, err := g.runSkills(ctx)
			if err != nil {
				return agent.ToolResult{}, err
			}
			list := agent.Messages(r.State)
			allowed := allowedTools(list, skills)
			if allowed == nil || slices.Contains(allowed, r.Call.Name) {
				out, err := next(ctx, r)
				if read := skillRead(r, out, func(s *skill.Skill) string { return skillPath(set, s) }, skills); err == nil && read != nil {
					out.Updates = append(slices.Clip(out.Updates), read)
				}
				return out, err
			}
			m := message.Tool(fmt.Sprintf("Error: Tool '%s' is not allowed by the activated skill. Allowed are %s.", r.Call.Name, strings.Join(allowed, ", ")), r.Call.ID).WithName(r.Call.Name)
			m.Status = message.StatusError
			return agent.ToolResult{Message: &m}, nil
		},
	}
}

func (g *Graph) runSkills(ctx context.Context) ([]*skill.Skill, error) {
	c, err := g.characterOf(ctx)
	if err != nil {
		return nil, err
	}
	return g.skillsOf(ctx, c)
}

// alwaysAllowed are tools that keep a conversation going, whatever a skill needs.
var alwaysAllowed = []string{"ask_clarification", "present_files", "write_todos"}

// allowedTools returns the tools of the skill that the newest message of a person activates; nil: all.
func allowedTools(list []message.Message, skills []*skill.Skill) []string {
	for _, m := range slices.Backward(list) {
		if m.Type == message.TypeHuman && !m.HiddenFromPeople() {
			if s := activation(m, skills); s != nil && s.Tools != nil {
				return slices.Concat(s.Tools, alwaysAllowed)
			}
			return nil
		}
	}
	return nil
}

// readSkill returns the SKILL.md of a skill.
func readSkill(s *skill.Skill) (string, error) {
	text, err := regular.Read(filepath.Join(s.Dir, skill.File), maxBody)
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "")), err
}
