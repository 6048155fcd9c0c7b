package lead_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/skill"
	"understudy/graph/agent/scripted"
)

// tasks is an answer that gives tasks to subagents, when a message is exactly this text.
func tasks(text string, n int) scripted.Answer {
	a := scripted.Answer{When: "^" + text + "$", From: "human"}
	for i := range n {
		args, _ := json.Marshal(map[string]string{"description": fmt.Sprintf("part %d", i+1), "prompt": "x", "subagent_type": "general-purpose"})
		a.ToolCalls = append(a.ToolCalls, scripted.ToolCall{Name: "task", Args: args})
	}
	return a
}

// A run has as many subagents as the settings, or the run, say; further calls are left out, and the run says why it stopped delegating. The state has each, and counts for
// the run alone.
func TestSubagentsOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, plain+"subagents: {max_total_per_run: 2}\n", tasks("many", 3), tasks("too many", 6))
	v, _, err := w.converse(t, "t", "many", delegating)
	require.NoError(t, err)
	require.Equal(t, int64(2), v.Get("messages.1.tool_calls.#").Int())
	require.False(t, v.Get("messages.1.additional_kwargs.run_stop_reason").Exists(), "it had some left")
	require.Equal(t, `["completed","completed"]`, v.Get("delegations.#.status").Raw)
	first := v.Get("delegations.0")
	require.Equal(t, v.Get("messages.1.tool_calls.0.id").String(), first.Get("id").String())
	require.Equal(t, "part 1", first.Get("description").String())
	require.Equal(t, "general-purpose", first.Get("subagent_type").String())
	require.Equal(t, "done", first.Get("result_brief").String())
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte("done"))), first.Get("result_sha256").String())
	require.NotEmpty(t, first.Get("result_ref").String())
	v, _, err = w.converse(t, "t", "many", delegating)
	require.NoError(t, err)
	last := v.Get("messages|@reverse|0")
	require.Empty(t, last.Get("tool_calls").Array(), "no other call was left")
	require.Contains(t, last.Get("content").String(), "[SUBAGENT LIMIT REACHED]")
	require.Equal(t, "subagent_limit_capped", last.Get("additional_kwargs.run_stop_reason").String())
	require.Equal(t, int64(2), v.Get("delegations.#").Int())
	w.run = "r2"
	v, _, err = w.converse(t, "t", "many", delegating)
	require.NoError(t, err)
	require.Equal(t, int64(4), v.Get("delegations.#").Int(), "another run has its own")

	w = setup(t, plain, tasks("too many", 6))
	v, _, err = w.converse(t, "t", "too many", `{"user_id":"u","subagent_enabled":true,"max_concurrent_subagents":9,"max_total_subagents":3}`)
	require.NoError(t, err)
	require.Equal(t, int64(3), v.Get("messages.1.tool_calls.#").Int())
	require.Equal(t, int64(3), v.Get("delegations.#").Int())
	v, _, err = w.converse(t, "u", "too many", `{"user_id":"u","subagent_enabled":true,"max_concurrent_subagents":9}`)
	require.NoError(t, err)
	require.Equal(t, int64(4), v.Get("messages.1.tool_calls.#").Int(), "at most 4 in one answer")
}

// What the model read and whom it asked is in its requests after the messages are gone; the newest reads of skills stay as they are.
func TestSummaryForgetsNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, plain+"summarization: {enabled: true, trigger: [{type: messages, value: 14}], keep: {type: messages, value: 1}, preserve_recent_skill_count: 1}\n", tasks("ask", 1))
	list := []*skill.Skill{
		{Front: skill.Front{Name: "demo", Description: "Shows."}, Category: skill.Public, Dir: filepath.Join(w.dir, "skills/public/demo"), Path: "demo"},
		{Front: skill.Front{Name: "mine", Description: "Is mine."}, Category: skill.Custom, Dir: filepath.Join(w.dir, "users/u/skills/custom/mine"), Path: "mine"},
	}
	w.options.Skills = func(string) ([]*skill.Skill, error) { return list, nil }
	w.rebuild()
	const demo, mine = `read_file {"path":"/mnt/skills/public/demo/SKILL.md"}`, `read_file {"path":"/mnt/skills/custom/mine/SKILL.md"}`
	v, _, err := w.converse(t, "t", demo, delegating)
	require.NoError(t, err)
	for _, text := range []string{"ask", mine} {
		v, _, err = w.converse(t, "t", text, delegating)
		require.NoError(t, err)
	}
	require.Equal(t, `["demo","mine"]`, v.Get("skill_context.#.name").Raw)
	read := v.Get("messages.9").Raw // the call; its result follows
	require.Contains(t, read, "custom/mine")
	for _, text := range []string{"more", "and more"} {
		v, _, err = w.converse(t, "t", text, delegating)
		require.NoError(t, err)
	}
	require.Equal(t, "done", v.Get("summary_text").String())
	require.JSONEq(t, read, v.Get("messages.1").Raw, "the newest read stays, behind the summary")
	require.Equal(t, "MINE", v.Get("messages.2.content").String())
	require.Equal(t, "and more", v.Get("messages.3.content").String())
	request := w.last()
	require.Contains(t, request, "<earlier_tasks>\n- [completed] part 1 (general-purpose): done\n</earlier_tasks>")
	require.Contains(t, request, "- demo: Shows. Read /mnt/skills/public/demo/SKILL.md again before you follow it.\n</skills_read>")
	require.NotContains(t, v.Get("messages").Raw, "earlier_tasks", "requests alone have it")
}

// Subagents of the settings have their own tools, skills, model and limits, and built-in ones can be changed.
func TestConfiguredSubagents(t *testing.T) {
	t.Parallel()
	w := setup(t, strings.Replace(plain, "models: [", "models: [{name: first, use: x, model: x}, ", 1)+`
subagents:
  agents: {general-purpose: {model: plain, timeout_seconds: 0.001}, poet: {max_turns: 2}}
  custom_agents:
    poet: {description: writes poems, system_prompt: You rhyme., tools: [ls, write_file, task], skills: [careful], model: plain}
    bash: {description: d, system_prompt: p}
`)
	withSkills(t, w.options, t.TempDir())
	w.rebuild()
	result, _, err := w.delegate(t.Context(), t, `ls {"path":"/mnt/user-data/workspace"}`, "poet", delegating)
	require.NoError(t, err)
	require.Equal(t, "Task Succeeded. Result: done", result)
	seen := fmt.Sprint(w.seen)
	require.Contains(t, seen, "You rhyme.")
	require.Contains(t, seen, "BODY of careful")
	require.NotContains(t, seen, "BODY of demo")
	require.Contains(t, w.bodies, "plain {}")

	// The skill allows ls alone, although the type has more tools.
	_, _, err = w.delegate(t.Context(), t, `write_file {"path":"/mnt/user-data/workspace/a","content":"x"}`, "poet", delegating)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(w.seen), "Error: Tool 'write_file' is not allowed for the subagent poet.")
	_, _, err = w.delegate(t.Context(), t, `task {"description":"d","prompt":"p","subagent_type":"poet"}`, "poet", delegating)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(w.seen), "task is not a valid tool")

	result, _, err = w.delegate(t.Context(), t, `bash {"command":"sleep 600"}`, "general-purpose", delegating)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(result, "Task timed out. Error: "), result)
	result, _, err = w.delegate(t.Context(), t, "x", "martian", delegating)
	require.NoError(t, err)
	require.Equal(t, "Error: Unknown subagent type 'martian'. Available: general-purpose, bash, poet", result)
}
