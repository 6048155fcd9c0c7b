package lead

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/typo"
)

// subagentType is a kind of subagent that the model can choose.
type subagentType struct {
	name, description, prompt string
	has                       func(name string) bool // a tool
	turns                     int
	after                     time.Duration
	model                     string   // "": the run's
	skills                    []string // whose instructions it has; nil: it finds those of the run
	servers                   bool     // with the tools of MCP servers
}

const bashType = "bash"

// notDelegated are tools that no subagent has: they belong to the conversation, or would start further subagents.
var notDelegated = append([]string{"task", "write_todos", "setup_agent", "update_agent", "list_uploaded_files"}, memoryTools...)

// talking are tools that only a type has that says so.
var talking = []string{"ask_clarification", "present_files"}

func without(name string, lists ...[]string) bool {
	return !slices.ContainsFunc(lists, func(l []string) bool { return slices.Contains(l, name) })
}

// builtin are the types that are always there.
var builtin = []subagentType{
	{
		name: "general-purpose", description: "works on a task of several steps by itself, with all tools",
		prompt: "You work on one task for another agent, which sees nothing but your last message. Finish the task with your tools, ask no questions, and end with a complete report: what you did and found, with file paths and sources, and what is left open.",
		has:    func(name string) bool { return without(name, notDelegated, talking) },
		turns:  150, servers: true,
	},
	{
		name: bashType, description: "executes commands, and returns what matters of their output",
		prompt: "You execute commands for another agent, which sees nothing but your last message. Execute one after the other when they depend on each other, and end with what they did: results, errors with their text, and the files that changed.",
		has: func(name string) bool {
			return slices.Contains([]string{"bash", "ls", "read_file", "write_file", "str_replace"}, name)
		},
		turns: 60,
	},
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// subagentTypes returns the types of subagents, in the order in which errors name them: the built-in ones, then those of the settings by name.
func (g *Graph) subagentTypes(s *settings.Settings) []subagentType {
	set := s.Subagents
	list := slices.Clone(builtin)
	for i := range list {
		list[i].after = seconds(set.Timeout)
		list[i].turns = cmp.Or(max(set.Turns, 0), list[i].turns)
	}
	for _, name := range slices.Sorted(maps.Keys(set.Custom)) {
		if slices.ContainsFunc(list, func(t subagentType) bool { return t.name == name }) {
			g.o.Log.Warn("a subagent of config.yaml has the name of a built-in one and is left out; change built-in ones under subagents.agents", "subagent", name)
			continue
		}
		list = append(list, configuredType(name, set.Custom[name]))
	}
	for i := range list {
		t := &list[i]
		o := set.Agents[t.name]
		if o.Timeout > 0 {
			t.after = seconds(o.Timeout)
		}
		if o.Skills != nil {
			t.skills = o.Skills
		}
		t.turns, t.model = cmp.Or(max(o.Turns, 0), t.turns), cmp.Or(o.Model, t.model)
		if t.model == "inherit" {
			t.model = ""
		}
		if t.model != "" && s.Model(t.model) == nil {
			g.o.Log.Warn("the model of a subagent is not configured; the run's model answers", "subagent", t.name, "model", t.model)
			t.model = ""
		}
	}
	return list
}

// configuredType returns the type that the settings define.
func configuredType(name string, a settings.Subagent) subagentType {
	denied := a.Disallowed
	if denied == nil {
		denied = talking
	}
	return subagentType{
		name: name, description: strings.TrimSpace(a.Description), prompt: a.Prompt, model: a.Model, skills: a.Skills, servers: true,
		turns: cmp.Or(max(a.Turns, 0), 50), after: seconds(cmp.Or(max(a.Timeout, 0), 900)),
		has: func(tool string) bool {
			return without(tool, notDelegated, denied) && (a.Tools == nil || slices.Contains(a.Tools, tool))
		},
	}
}

// checkNames warns of names in the settings that none of the agent's tools has, and no subagent: what they should allow, deny or change stays as it is.
func (g *Graph) checkNames(s *settings.Settings, tools []agent.Tool) {
	kinds := []string{}
	for _, kind := range builtin {
		kinds = append(kinds, kind.name)
	}
	kinds = slices.AppendSeq(kinds, maps.Keys(s.Subagents.Custom))
	for _, name := range slices.Sorted(maps.Keys(s.Subagents.Agents)) {
		if !slices.Contains(kinds, name) {
			g.warnName("subagents.agents", name, "no subagent has this name; it changes none", kinds)
		}
	}
	if len(g.o.Sources) > 0 {
		return // whose tools are not known yet
	}
	known := slices.Concat(notDelegated, talking, taken, []string{"bash"}) // also those that are off now
	for _, t := range tools {
		known = append(known, t.Name)
	}
	for _, c := range s.Tools { // one that is left out has a warning of its own
		_, variable, _ := strings.Cut(c.Use, ":")
		known = append(known, c.Name, variable, strings.TrimSuffix(variable, "_tool"))
	}
	var prefixes []string // of tools of MCP servers
	if g.o.Servers != nil {
		servers, err := g.o.Servers()
		if err != nil {
			return // the log has that when they are needed
		}
		for _, server := range servers {
			prefixes = append(prefixes, server.Name+"_")
		}
	}
	check := func(where string, names []string) {
		for _, name := range names {
			if !slices.Contains(known, name) && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				g.warnName(where, name, "the agent has no tool of this name", known)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Subagents.Custom)) {
		at, kind := "subagents.custom_agents."+name, s.Subagents.Custom[name]
		check(at+".tools", kind.Tools)
		check(at+".disallowed_tools", kind.Disallowed)
	}
	if guard := s.Guardrails; guard.Enabled {
		check("guardrails.provider.config.allowed_tools", guard.Provider.Config.Allowed)
		check("guardrails.provider.config.denied_tools", guard.Provider.Config.Denied)
	}
}

func (g *Graph) warnName(where, name, problem string, known []string) {
	attrs := []any{"key", where, "name", name, "problem", problem}
	if near := typo.Meant(name, known); near != "" {
		attrs = append(attrs, "did_you_mean", near)
	}
	g.o.Log.Warn("a name in the configuration has no effect", attrs...)
}

// subagentSkills puts the instructions of a type's skills into its prompt, and limits its tools to those that it has and that its skills allow. A type without skills of
// its own is shown those of the run.
func (g *Graph) subagentSkills(set settings.Skills, kind subagentType) agent.Middleware {
	var missing sync.Once // a warning of each type, until the settings change
	own := func(ctx context.Context) ([]*skill.Skill, error) {
		all, err := g.runSkills(ctx)
		if err != nil || kind.skills == nil {
			return all, err
		}
		missing.Do(func() { warnSkills(ctx, kind, all) })
		return slices.DeleteFunc(slices.Clone(all), func(s *skill.Skill) bool { return !slices.Contains(kind.skills, s.Name) }), nil
	}
	allowed := func(skills []*skill.Skill, name string) bool {
		if !kind.has(name) {
			return false
		}
		limited := false
		for _, s := range skills {
			if kind.skills == nil || s.Tools == nil {
				continue
			}
			if limited = true; slices.Contains(s.Tools, name) {
				return true
			}
		}
		return !limited
	}
	return agent.Middleware{
		Name: "SubagentSkillsMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			skills, err := own(ctx)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(t agent.Tool) bool { return !allowed(skills, t.Name) && t.Name != "tool_search" })
			if text := kind.instructions(ctx, set, skills); text != "" {
				m := message.System(kind.prompt + "\n\n" + text)
				r.System = &m
			}
			return next(ctx, r)
		},
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			skills, err := own(ctx)
			if err != nil {
				return agent.ToolResult{}, err
			}
			if r.Tool == nil || r.Call.Name == "tool_search" || allowed(skills, r.Call.Name) {
				return next(ctx, r)
			}
			m := message.Tool(fmt.Sprintf("Error: Tool '%s' is not allowed for the subagent %s.", r.Call.Name, kind.name), r.Call.ID).WithName(r.Call.Name)
			m.Status = message.StatusError
			return agent.ToolResult{Message: &m}, nil
		},
	}
}

// warnSkills warns of skills that a type should have, and that are not among those of its run.
func warnSkills(ctx context.Context, kind subagentType, skills []*skill.Skill) {
	known := make([]string, len(skills))
	for i, s := range skills {
		known[i] = s.Name
	}
	for _, name := range kind.skills {
		if slices.Contains(known, name) {
			continue
		}
		attrs := []any{"subagent", kind.name, "skill", name, "fix", "install it, switch it on, or correct skills of the subagent in config.yaml"}
		if near := typo.Meant(name, known); near != "" {
			attrs = append(attrs, "did_you_mean", near)
		}
		pregel.LogOf(ctx).Warn("a subagent works without a skill: the run has none of this name", attrs...)
	}
}

// instructions are the part of a subagent's prompt about skills; "" for none.
func (t subagentType) instructions(ctx context.Context, set settings.Skills, skills []*skill.Skill) string {
	if len(skills) == 0 || t.name == bashType && t.skills == nil {
		return ""
	}
	if t.skills == nil {
		return skillsPart(set, skills)
	}
	var parts []string
	for _, s := range skills {
		body, err := readSkill(s)
		if err != nil {
			pregel.LogOf(ctx).Warn("a skill of a subagent cannot be read", "subagent", t.name, "skill", s.Name, "error", err)
			continue
		}
		parts = append(parts, fmt.Sprintf("<skill name=%q>\n%s\n</skill>", s.Name, body))
	}
	return strings.Join(parts, "\n\n")
}
