package lead_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	custom "understudy/deerflow/agent"
	"understudy/deerflow/lead"
	"understudy/deerflow/skill"
	"understudy/graph"
)

// managed is an agent whose users have agents and skills of their own.
func managed(t *testing.T, text string) *world {
	t.Helper()
	w := setup(t, text)
	own := func(of string) func(string) string {
		return func(user string) string { return filepath.Join(w.dir, "users", user, of) }
	}
	agents := &custom.Folder{Dir: own("agents")}
	library := &skill.Library{
		Root: func() (string, error) { return filepath.Join(w.dir, "skills"), nil }, User: own("skills/custom"),
		Enabled: func(string, *skill.Skill) (bool, error) { return true, nil }, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Judge: func(_ context.Context, _, content string, _ bool) (skill.Verdict, error) {
			if strings.Contains(content, "EVIL") {
				return skill.Verdict{Decision: "block", Reason: "evil"}, nil
			}
			return skill.Verdict{Decision: "allow"}, nil
		},
	}
	w.options.Agents, w.options.Library, w.options.Skills = agents, library, library.List
	w.options.Agent = func(user, name string) (c lead.Character, err error) {
		a, err := agents.Get(user, name)
		if err == nil {
			c.Soul, c.Skills, c.Groups = a.Soul, a.Skills, a.ToolGroups
		}
		return c, err
	}
	w.rebuild()
	return w
}

const evolving = plain + "agents_api: {enabled: true}\nskill_evolution: {enabled: true}\n"

// An agent is made in a conversation about it, and changes itself in its own, for its user alone.
func TestAgentsOfAgents(t *testing.T) {
	t.Parallel()
	w := managed(t, evolving)
	for _, step := range []struct{ call, context, want string }{
		{`setup_agent {"soul":"I cook.","description":"Cooks","skills":[]}`, `{"user_id":"u","agent_name":"Chef","is_bootstrap":true}`, "The agent 'chef' exists now."},
		{`setup_agent {"soul":"I cook well.","description":"Cooks"}`, `{"user_id":"u","agent_name":"chef","is_bootstrap":true}`, "The agent 'chef' exists now."},
		{`setup_agent {"soul":" ","description":"d"}`, `{"user_id":"u","agent_name":"chef","is_bootstrap":true}`, "Error: soul is empty; an agent needs a SOUL.md."},
		{`setup_agent {"soul":"s","description":"d"}`, `{"user_id":"u","agent_name":"../x","is_bootstrap":true}`, "Error: Invalid agent name '../x'. Must match ^[A-Za-z0-9-]+$ (letters, digits, and hyphens only)"},
		{`update_agent {"description":"Bakes","model":"none"}`, `{"user_id":"u","agent_name":"chef"}`, "Changed of the agent 'chef': description. It counts from the user's next message on."},
		{`update_agent {"description":"Bakes"}`, `{"user_id":"u","agent_name":"chef"}`, "The agent 'chef' is like that already."},
		{`update_agent {"skills":["demo"],"tool_groups":[],"soul":"I bake."}`, `{"user_id":"u","agent_name":"chef"}`, "Changed of the agent 'chef': tool_groups, skills, soul. It counts from the user's next message on."},
		{`update_agent {"soul":null}`, `{"user_id":"u","agent_name":"chef"}`, "Error: nothing to change: give soul, description, skills, tool_groups or model."},
		{`update_agent {"soul":""}`, `{"user_id":"u","agent_name":"chef"}`, "Error: soul is empty; leave it out to keep the present one."},
		{`update_agent {"model":"x"}`, `{"user_id":"u","agent_name":"chef"}`, "Error: there is no model 'x'; choose one of models in config.yaml."},
	} {
		_, got := w.say(t, step.call, step.context, nil)
		require.Equal(t, step.want, got, step.call)
	}
	a, err := w.options.Agents.Get("u", "chef")
	require.NoError(t, err)
	require.Equal(t, &custom.Agent{Name: "chef", Description: "Bakes", ToolGroups: []string{}, Skills: []string{"demo"}, Soul: "I bake."}, a)
	require.NoDirExists(t, filepath.Join(w.dir, "users/v/agents"))
	require.Contains(t, w.last(), "<self_update>")

	// Elsewhere, and while users may not define agents, there are no such tools.
	for _, off := range []struct{ call, context, config string }{
		{`setup_agent {"soul":"s","description":"d"}`, `{}`, evolving},
		{`update_agent {"soul":"s"}`, `{}`, evolving},
		{`setup_agent {"soul":"s","description":"d"}`, `{"agent_name":"chef","is_bootstrap":true}`, plain},
		{`skill_manage {"action":"delete","name":"demo"}`, `{}`, plain},
	} {
		_, got := managed(t, off.config).say(t, off.call, off.context, nil)
		require.Contains(t, got, "is not a valid tool", off.call)
	}
}

// The agent keeps what it learned as a skill of its user.
func TestSkillsOfAgents(t *testing.T) {
	t.Parallel()
	w := managed(t, evolving)
	skillFile := `---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n`
	for _, step := range []struct{ args, want string }{
		{`{"action":"create","name":"tea","content":"` + skillFile + `"}`, "Created the skill 'tea'."},
		{`{"action":"create","name":"tea","content":"` + skillFile + `"}`, "Error: Skill 'tea' already exists. Please remove it first or use a different name."},
		{`{"action":"create","name":"tea"}`, "Error: content is required for create."},
		{`{"action":"create","name":"../tea","content":"x"}`, "Error: name must be lower-case words and digits with hyphens between them."},
		{`{"action":"patch","name":"tea","find":"water","replace":"fresh water"}`, "Replaced 1 of 1 places in the skill 'tea'."},
		{`{"action":"patch","name":"tea","find":"milk","replace":""}`, "Error: find is not in SKILL.md."},
		{`{"action":"patch","name":"tea","find":"water"}`, "Error: find and replace are required for patch."},
		{`{"action":"write_file","name":"tea","path":"references/a.md","content":"A"}`, "Wrote 'references/a.md' of the skill 'tea'."},
		{`{"action":"write_file","name":"tea","path":"a.md","content":"A"}`, "Error: path must begin with one of: references, templates, scripts, assets."},
		{`{"action":"write_file","name":"tea","path":"scripts/a.sh","content":"EVIL"}`, "Error: Security scan blocked the edit: evil"},
		{`{"action":"remove_file","name":"tea","path":"references/a.md"}`, "Removed 'references/a.md' of the skill 'tea'."},
		{`{"action":"edit","name":"none","content":"x"}`, "Error: Custom skill 'none' not found"},
		{`{"action":"burn","name":"tea"}`, "Error: there is no action 'burn'."},
	} {
		_, got := w.say(t, "skill_manage "+step.args, `{"user_id":"u"}`, nil)
		require.Equal(t, step.want, got, step.args)
	}
	require.Contains(t, w.last(), "Makes tea. (custom)")
	_, got := w.say(t, `read_file {"path":"/mnt/skills/custom/tea/SKILL.md"}`, `{"user_id":"u"}`, nil)
	require.Contains(t, got, "Boil fresh water.")
	_, got = w.say(t, `skill_manage {"action":"delete","name":"tea"}`, `{"user_id":"v"}`, nil)
	require.Equal(t, "Error: Custom skill 'tea' not found", got)
	_, got = w.say(t, `skill_manage {"action":"delete","name":"tea"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "Deleted the skill 'tea'.", got)
	_, err := os.Stat(filepath.Join(w.dir, "users/u/skills/custom/tea"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A run that names an agent which its user does not have fails before any model is called, and says which there are: another agent could do what that one must not.
func TestUnknownAgents(t *testing.T) {
	t.Parallel()
	w := managed(t, evolving)
	for _, name := range []string{"chef", "baker"} {
		require.NoError(t, w.options.Agents.Create("u", &custom.Agent{Name: name, ToolGroups: []string{}}))
	}
	for context, want := range map[string]graph.Failure{
		`{"user_id":"u","agent_name":"Cheff"}`: {Message: "Agent 'cheff' not found", Fix: "this user has baker, chef"},
		`{"user_id":"v","agent_name":"chef"}`:  {Message: "Agent 'chef' not found", Fix: "this user has none"},
	} {
		before := len(w.bodies)
		_, _, err := w.converse(t, "t", `update_agent {"soul":"mine"}`, context)
		var got *graph.Failure
		require.ErrorAs(t, err, &got, context)
		require.Equal(t, "FileNotFoundError", got.Type)
		require.Equal(t, want.Message, got.Message)
		require.Contains(t, got.Fix, want.Fix)
		require.Len(t, w.bodies, before, "a model was called")
	}
	require.NoDirExists(t, filepath.Join(w.dir, "users/v/agents"))
	for _, context := range []string{`{"user_id":"u","agent_name":"Chef"}`, `{"user_id":"u","agent_name":"default"}`, `{"user_id":"u","agent_name":"waiter","is_bootstrap":true}`} {
		_, _, err := w.converse(t, "t", "hi", context)
		require.NoError(t, err, context)
	}
}
