package lead

import (
	"context"
	"fmt"
	"strings"

	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/graph/agent"
	"understudy/graph/message"
)

// instructions are the system prompt of a run: fixed for its settings, its agent and its skills, so that providers can cache it. The date and the memory are elsewhere.
func (g *Graph) instructions(s *settings.Settings) agent.Middleware {
	return agent.Middleware{
		Name: "InstructionsMiddleware",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			c, err := g.characterOf(ctx)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			skills, err := g.skillsOf(ctx, c)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			m := message.System(g.prompt(ctx, s, c, skills))
			r.System = &m
			return next(ctx, r)
		},
	}
}

const thinkingPart = `<thinking>
Think before you act, briefly: what is clear, what is missing, what could be meant otherwise. If something essential is missing, ask first.
Thoughts are not the answer: always end with an answer to the user.
</thinking>`

const selfPart = `<self_update>
When the user asks you to be different from now on, change yourself with update_agent: the soul above, which you pass as a whole, or your description, skills, tools or model. Do it only when the user asks.
</self_update>`

const evolutionPart = `<skill_evolution>
When you found out how to do something that will be needed again, or a skill misled you, offer to keep what you learned with skill_manage. Read a skill before you change it; prefer patch to edit.
</skill_evolution>`

const memoryPart = `<memory_tools>
What you know of the user is kept with memory_search, memory_add, memory_update and memory_delete. Search before you decide what the user may have decided before; what is not shown to you may still be known.
Add what stays true beyond this conversation, above all when the user says so or corrects you. Update or delete what is wrong. Keep no secrets, and nothing that is only about this task.
</memory_tools>`

const clarificationPart = `<clarification>
Ask with ask_clarification before you begin, not in the middle of the work, when
- something that you need is missing (missing_info),
- the request can be understood in several ways (ambiguous_requirement),
- there are several good ways, and the choice matters to the user (approach_choice),
- what you are about to do is dangerous or cannot be undone (risk_confirmation),
- you have a suggestion that needs consent (suggestion).
Ask one question at a time, and wait for the answer. Do not ask for what you can find out.
</clarification>`

const foldersPart = `<folders>
- /mnt/user-data/uploads: files of the user. Those of earlier messages you find with list_uploaded_files.
- /mnt/user-data/workspace: your own work
- /mnt/user-data/outputs: results. Show them to the user with present_files.
Name files by absolute paths. Results that the user should have belong into outputs, and are presented.
</folders>`

const stylePart = `<style>
Write clearly, in the language of the user, without decoration; prose rather than lists, unless a list is clearer.
When you used web pages, cite each next to what it supports, as [title](address), and list the sources at the end of reports.
Be exact about what you did, and open about what you did not.
</style>`

// prompt returns the instructions of a run.
func (g *Graph) prompt(ctx context.Context, s *settings.Settings, c Character, skills []*skill.Skill) string {
	name := agentOf(ctx)
	if name == "" {
		name = "a careful research and coding assistant"
	}
	parts := []string{"<role>\nYou are " + name + ".\n</role>"}
	if soul := strings.TrimSpace(c.Soul); soul != "" {
		parts = append(parts, "<soul>\n"+soul+"\n</soul>")
	}
	if g.o.Tools.Sandbox != nil && g.o.Agents != nil && s.AgentsAPI.Enabled && agentOf(ctx) != "" && !wish(ctx, "is_bootstrap").Bool() {
		parts = append(parts, selfPart)
	}
	parts = append(parts, thinkingPart)
	if g.o.Tools.Sandbox != nil && !unattended(ctx) {
		parts = append(parts, clarificationPart)
	}
	if len(skills) > 0 {
		parts = append(parts, skillsPart(s.Skills, skills))
	}
	if g.o.Tools.Sandbox != nil && g.memorizing(s.Memory) != nil {
		parts = append(parts, memoryPart)
	}
	if g.o.Tools.Sandbox != nil && g.o.Library != nil && s.SkillEvolution.Enabled {
		parts = append(parts, evolutionPart)
	}
	if g.o.Tools.Sandbox != nil {
		if wish(ctx, "subagent_enabled").Bool() {
			parts = append(parts, fmt.Sprintf(`<subagents>
Give work that takes several steps, and whose details you do not need, to subagents with the tool task: independent parts at once, at most %d in one answer, the rest in the next ones. Their descriptions are with the tool.
Do short work yourself. A subagent knows nothing of this conversation: its prompt must have all that it needs. Put their reports together into one answer.
</subagents>`, concurrent(ctx)))
		}
		folders := foldersPart
		if len(s.ACP) > 0 {
			folders = strings.Replace(folders, "\nName files", "\n- /mnt/acp-workspace: files of agents that you asked with invoke_acp_agent, read only. Copy what the user should have to outputs.\nName files", 1)
		}
		for _, m := range s.Sandbox.Mounts {
			mode := ""
			if m.ReadOnly {
				mode = ", read only"
			}
			folders = strings.Replace(folders, "\nName files", fmt.Sprintf("\n- %s: a folder of the deployment%s\nName files", m.Container, mode), 1)
		}
		parts = append(parts, folders)
	}
	return strings.Join(append(parts, stylePart), "\n\n")
}

// skillsPart lists skills, of which the model reads those that fit.
func skillsPart(set settings.Skills, skills []*skill.Skill) string {
	var b strings.Builder
	b.WriteString("<skills>\nSkills are instructions for certain tasks. When one fits, read its file with read_file before you begin, and follow it; read further files of its folder when it names them.\n<available_skills>\n")
	for _, s := range skills {
		kind := "custom"
		if s.Category == skill.Public {
			kind = "built-in"
		}
		fmt.Fprintf(&b, "<skill><name>%s</name><description>%s (%s)</description><location>%s</location></skill>\n", s.Name, s.Description, kind, skillPath(set, s))
	}
	b.WriteString("</available_skills>\n</skills>")
	return b.String()
}
