package lead_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/lead"
	"understudy/deerflow/memory"
	"understudy/deerflow/skill"
)

// withSkills gives the agent two skills: demo, and careful, which allows ls only.
func withSkills(t *testing.T, o *lead.Options, dir string) {
	t.Helper()
	list := []*skill.Skill{
		{Front: skill.Front{Name: "careful", Description: "Looks only.", Tools: []string{"ls"}}, Category: skill.Custom, Dir: filepath.Join(dir, "careful"), Path: "careful"},
		{Front: skill.Front{Name: "demo", Description: "Shows things."}, Category: skill.Public, Dir: filepath.Join(dir, "demo"), Path: "sub/demo"},
	}
	for _, s := range list {
		require.NoError(t, os.MkdirAll(s.Dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, skill.File), []byte("BODY of "+s.Name), 0o600))
	}
	o.Skills = func(string) ([]*skill.Skill, error) { return list, nil }
	o.Agent = func(_, name string) (lead.Character, error) {
		if name != "cook" {
			return lead.Character{}, errUnknown
		}
		no := false
		return lead.Character{Soul: "SOUL", Skills: []string{"demo"}, Model: "second", Thinking: &no}, nil
	}
}

// The instructions list the skills of the run's agent, and never change within a thread.
func TestInstructions(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	withSkills(t, w.options, t.TempDir())
	w.rebuild()
	_, _, err := w.converse(t, "t", "hi", `{}`)
	require.NoError(t, err)
	for _, part := range []string{"<role>", "<location>/mnt/skills/public/sub/demo/SKILL.md</location>", "Shows things. (built-in)", "/mnt/skills/custom/careful/SKILL.md", "Looks only. (custom)", "/mnt/user-data/outputs", "ask_clarification"} {
		require.Contains(t, w.last(), part)
	}
	require.NotContains(t, w.last(), "<subagents>")
	_, _, err = w.converse(t, "t", "hi", `{"agent_name":"cook","subagent_enabled":true,"max_concurrent_subagents":2}`)
	require.NoError(t, err)
	for _, part := range []string{"You are cook.", "<soul>\nSOUL\n</soul>", "/sub/demo/", "at most 2 in one answer"} {
		require.Contains(t, w.last(), part)
	}
	require.NotContains(t, w.last(), "/careful/")
	_, _, err = w.converse(t, "t", "hi", `{"is_bootstrap":true}`)
	require.NoError(t, err)
	require.NotContains(t, w.last(), "available_skills")
}

// `/name task` puts the skill in front of the task, for the model alone, and its allowed-tools limit what the run may call.
func TestSkillActivation(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	withSkills(t, w.options, t.TempDir())
	w.rebuild()
	v, _, err := w.converse(t, "t", "/demo show it", `{}`)
	require.NoError(t, err)
	require.Contains(t, w.last(), `<skill name="demo" path="/mnt/skills/public/sub/demo/SKILL.md">`+"\nBODY of demo\n</skill>")
	require.Equal(t, "/demo show it", v.Get("messages.0.content").String())
	for text, want := range map[string]string{
		"/careful": "Allowed are ls, ask_clarification, present_files, write_todos.", "/unknown x": "hi\n", "no /careful": "hi\n", "/demo": "hi\n",
	} {
		w := setup(t, plain, calls("bash", `{"command":"echo hi"}`, text))
		withSkills(t, w.options, t.TempDir())
		w.rebuild()
		v, _, err := w.converse(t, "t", text, `{}`)
		require.NoError(t, err)
		require.Contains(t, v.Get("messages.2.content").String(), want, text)
		// The next message is free again.
		v, _, err = w.converse(t, "t", `bash {"command":"echo hi"}`, `{}`)
		require.NoError(t, err)
		require.Equal(t, "hi\n", v.Get("messages|@reverse|1.content").String())
	}
}

// Whether a model thinks is decided by the run, then by its agent; efforts that are not known make no client.
func TestThinkingOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, `
models:
  - {name: first, use: x, model: x, supports_thinking: true, supports_reasoning_effort: true, when_thinking_enabled: {thinking: {type: enabled}}}
  - {name: second, use: x, model: x, supports_thinking: true, when_thinking_enabled: {extra_body: {chat_template_kwargs: {thinking: true}}}}
  - {name: third, use: x, model: x}
title: {enabled: false}
`)
	withSkills(t, w.options, t.TempDir())
	w.rebuild()
	for context, want := range map[string]string{
		`{}`:                                                `first {"thinking":{"type":"enabled"}}`,
		`{"thinking_enabled":false}`:                        `first {"thinking":{"type":"disabled"}}`,
		`{"reasoning_effort":"high"}`:                       `first {"reasoning_effort":"high","thinking":{"type":"enabled"}}`,
		`{"reasoning_effort":"x\ny"}`:                       `first {"thinking":{"type":"enabled"}}`,
		`{"model_name":"second"}`:                           `second {"chat_template_kwargs":{"thinking":true}}`,
		`{"model_name":"third"}`:                            `third {}`,
		`{"model_name":"martian"}`:                          `first {"thinking":{"type":"enabled"}}`,
		`{"agent_name":"cook"}`:                             `second {"chat_template_kwargs":{"thinking":false}}`,
		`{"agent_name":"cook","thinking_enabled":true}`:     `second {"chat_template_kwargs":{"thinking":true}}`,
		`{"agent_name":"cook","model_name":"third"}`:        `third {}`,
		`{"model_name":"second","reasoning_effort":"high"}`: `second {"chat_template_kwargs":{"thinking":true}}`,
	} {
		_, _, err := w.converse(t, "t", "hi", context)
		require.NoError(t, err)
		require.Equal(t, want, w.bodies[len(w.bodies)-1], context)
	}
}

// Custom agents have a memory of their own, and what a summary takes the place of is learned too.
func TestMemoryOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, plain+"summarization: {enabled: true, trigger: [{type: messages, value: 5}], keep: {type: messages, value: 1}}\n")
	withSkills(t, w.options, t.TempDir())
	learned := map[string]string{}
	w.options.Memory = lead.Memory{
		Read: func(_ context.Context, user, agent string) (*memory.Memory, error) {
			return &memory.Memory{Facts: []memory.Fact{{Content: "likes " + agent + "!", Category: "preference", Confidence: 1}}}, nil
		},
		Learn: func(_ context.Context, user, agent, thread string, turns []memory.Turn) error {
			for _, turn := range turns {
				learned[agent+" "+thread] += turn.Text + ";"
			}
			return nil
		},
	}
	w.rebuild()
	_, _, err := w.converse(t, "a", "one", `{"agent_name":"cook"}`)
	require.NoError(t, err)
	require.Contains(t, w.last(), "likes cook!")
	require.Equal(t, map[string]string{"cook a": "one;done;"}, learned)
	_, _, err = w.converse(t, "b", "one", `{}`)
	require.NoError(t, err)
	require.Contains(t, w.last(), "likes !")
	require.Contains(t, learned, " b")

	clear(learned)
	for _, text := range []string{"one", "two", "three"} {
		_, _, err = w.converse(t, "c", text, `{}`)
		require.NoError(t, err)
	}
	var parts int
	for key, text := range learned {
		if key != " c" {
			parts++
			require.Contains(t, key, " c"+memory.Part)
			require.Equal(t, "one;done;two;done;", text)
		}
	}
	require.Equal(t, 1, parts)
}
