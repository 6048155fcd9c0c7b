package lead_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent/scripted"
	"understudy/id"
)

// converse runs a turn of a thread that is kept, and returns its values, the types of its custom events, and the error with which it ended.
func (w *world) converse(t *testing.T, thread, text, context string) (values gjson.Result, custom []string, failed error) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "human", "content": text}}})
	require.NoError(t, err)
	inv := graph.Invocation{
		Config: graph.Config{Thread: id.Thread(thread), Config: json.RawMessage(`{}`), Context: json.RawMessage(context), Saver: &w.saves},
		Run:    cmp.Or(w.run, "r1"), Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: input, Modes: []string{"values", "custom"}},
	}
	for event, err := range w.graph.Stream(t.Context(), inv) {
		switch {
		case err != nil:
			return values, custom, err
		case event.Name == "values":
			values = gjson.ParseBytes(event.Data)
		case event.Name == "custom":
			custom = append(custom, gjson.GetBytes(event.Data, "type").String())
		}
	}
	return values, custom, nil
}

const plain = `
models: [{name: plain, use: x, model: x, supports_vision: true}]
sandbox: {allow_host_bash: true}
tools:
  - {name: ls, group: read, use: "deerflow.sandbox.tools:ls_tool"}
  - {name: write_file, group: write, use: "deerflow.sandbox.tools:write_file_tool"}
  - {name: bash, group: bash, use: "deerflow.sandbox.tools:bash_tool"}
  - {name: read_file, group: read, use: "deerflow.sandbox.tools:read_file_tool"}
title: {enabled: false}
token_usage: {enabled: true}
`

// A model that fails is explained in the conversation, and the run has not succeeded.
func TestFallbackEndsTheRun(t *testing.T) {
	t.Parallel()
	w := setup(t, plain, scripted.Answer{When: "^fail$", Error: "400: this model refuses"})
	v, _, err := w.converse(t, "t", "fail", `{}`)
	var f *graph.Failure
	require.ErrorAs(t, err, &f)
	require.Contains(t, f.Message, "LLM request failed: ")
	last := v.Get("messages|@reverse|0")
	require.Equal(t, f.Message, last.Get("content").String())
	require.True(t, last.Get("additional_kwargs.deerflow_error_fallback").Bool())
	v, _, err = w.converse(t, "t", "again", `{}`)
	require.NoError(t, err)
	require.Equal(t, "done", v.Get("messages|@reverse|0.content").String())

	args := `{"description":"d","prompt":"fail","subagent_type":"general-purpose"}`
	v, custom, err := w.converse(t, "t", "task "+args, delegating)
	require.NoError(t, err, "the subagent failed, not the run")
	require.Contains(t, custom, "task_failed")
	require.Contains(t, v.Get("messages|@reverse|1.content").String(), "Task failed. Error: LLM request failed: ")
	require.Equal(t, "failed", v.Get("messages|@reverse|1.additional_kwargs.subagent_status").String())
}

func TestGuardrailsOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, plain+`guardrails: {enabled: true, provider: {use: "deerflow.guardrails.builtin:AllowlistProvider", config: {denied_tools: [bash]}}}`)
	_, got := w.say(t, `bash {"command":"echo hi"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "Guardrail denied: tool 'bash' was blocked (oap.tool_not_allowed). Reason: tool 'bash' is in deny list. Choose an alternative approach.", got)
	_, got = w.say(t, `ls {"path":"/mnt/user-data/workspace"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "(empty)", got)
	// What the agent must not do, its subagents must not either.
	_, _, err := w.delegate(t.Context(), t, `bash {"command":"echo x > /mnt/user-data/workspace/log"}`, "general-purpose", delegating)
	require.NoError(t, err)
	_, got = w.say(t, `ls {"path":"/mnt/user-data/workspace"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "(empty)", got)

	for _, bad := range []string{
		`guardrails: {enabled: true, provider: {use: "mine.guards:Strict"}}`,
		`guardrails: {enabled: true, provider: {use: "deerflow.guardrails.builtin:AllowlistProvider", config: {denied_tool: [bash]}}}`,
		`guardrails: {enabld: true, provider: {use: "deerflow.guardrails.builtin:AllowlistProvider", config: {denied_tools: [bash]}}}`,
	} {
		w = setup(t, plain+bad)
		_, _, err = w.converse(t, "t", "hi", `{}`)
		require.Error(t, err, "without its guard the agent does not work")
	}
}

// A large result is in a file that the agent can read, and in the conversation are its ends.
func TestLargeResultsOfTools(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	_, got := w.say(t, `bash {"command":"seq 1 3500"}`, `{"user_id":"u"}`, nil)
	require.True(t, strings.HasPrefix(got, "1\n2\n3\n"))
	require.Less(t, len(got), 4000)
	_, rest, found := strings.Cut(got, "The whole result is in ")
	require.True(t, found, got)
	path, _, _ := strings.Cut(rest, ":")
	require.True(t, strings.HasPrefix(path, "/mnt/user-data/outputs/.tool-results/bash-"))
	_, got = w.say(t, `read_file {"path":"`+path+`","start_line":1749,"end_line":1750}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "1749\n1750", got)
}

// A plan that is not done sends the model back twice, with what is left; after that the run may end. Runs without plan mode have no plan.
func TestPlan(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	v, _, err := w.converse(t, "t", `write_todos {"todos":[{"content":"buy milk","status":"pending"},{"content":"get up","status":"completed"}]}`, `{"is_plan_mode":true}`)
	require.NoError(t, err)
	require.JSONEq(t, `[{"content":"buy milk","status":"pending"},{"content":"get up","status":"completed"}]`, v.Get("todos").Raw)
	require.Len(t, w.seen, 4, "the call, the answer, and two more")
	require.Contains(t, w.last(), "not completed:\n\n- [pending] buy milk\n\n")
	require.NotContains(t, v.Get("messages").Raw, "not completed", "requests alone have reminders")

	v, _, err = w.converse(t, "t2", `write_todos {"todos":[{"content":"a","status":"completed"}]}`, `{"is_plan_mode":true}`)
	require.NoError(t, err)
	require.Len(t, w.seen, 6)
	require.Equal(t, "done", v.Get("messages|@reverse|0.content").String())

	// When the conversation has lost the plan, the model is reminded of it.
	w = setup(t, plain+"summarization: {enabled: true, trigger: [{type: messages, value: 6}], keep: {type: messages, value: 1}}\n")
	for _, text := range []string{`write_todos {"todos":[{"content":"a","status":"completed"},{"content":"b","status":"in_progress"}]}`, "more", "more"} {
		_, _, err = w.converse(t, "t", text, `{"is_plan_mode":true}`)
		require.NoError(t, err)
	}
	found := false
	for i := range w.seen {
		w.seen = w.seen[:len(w.seen)-min(i, 1)]
		found = found || strings.Contains(w.last(), "- [completed] a\n- [in_progress] b\n\nCall `write_todos`")
	}
	require.True(t, found)
}

// The date and the memory are in front of the first message of a thread, and stay as they were.
func TestDynamicContext(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	_, _, err := w.converse(t, "t", "one", `{}`)
	require.NoError(t, err)
	first := w.last()
	v, _, err := w.converse(t, "t", "two", `{}`)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(w.last(), first), "what precedes the newest message changed")
	require.Equal(t, 1, strings.Count(w.last(), "<current_date>"))
	require.Less(t, strings.Index(first, "<current_date>"), strings.LastIndex(first, "one"))
	require.NotContains(t, v.Raw, "current_date")
	require.False(t, v.Get("context_reminders").Exists())
}

// Images are in the request after the call, and neither in later ones nor in the state.
func TestViewedImages(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	at := filepath.Join(w.dir, "users/u/threads/t/user-data/uploads/a.png")
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte("\x89PNG\r\n\x1a\nrest"), 0o600))
	v, _, err := w.converse(t, "t", `view_image {"image_path":"/mnt/user-data/uploads/a.png"}`, `{"user_id":"u"}`)
	require.NoError(t, err)
	require.Contains(t, w.last(), "data:image/png;base64,iVBOR")
	require.Equal(t, "{}", v.Get("viewed_images").Raw)
	_, _, err = w.converse(t, "t", "and now?", `{"user_id":"u"}`)
	require.NoError(t, err)
	require.NotContains(t, w.last(), "base64")
}

// Each answer says what its tokens were for, and the one that called subagents has theirs too.
func TestTokenUsage(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	args := `{"description":"look","prompt":"x","subagent_type":"general-purpose"}`
	v, _, err := w.converse(t, "t", "task "+args, delegating)
	require.NoError(t, err)
	dispatch, final := v.Get("messages.1"), v.Get("messages.3")
	require.Equal(t, "subagent_dispatch", dispatch.Get("additional_kwargs.token_usage_attribution.kind").String())
	id := dispatch.Get("tool_calls.0.id").String()
	require.JSONEq(t, fmt.Sprintf(`{"version":1,"kind":"subagent_dispatch","shared_attribution":false,"tool_call_ids":[%q],"actions":[{"kind":"subagent","description":"look","subagent_type":"general-purpose","tool_call_id":%q}]}`, id, id),
		dispatch.Get("additional_kwargs.token_usage_attribution").Raw)
	require.Equal(t, "final_answer", final.Get("additional_kwargs.token_usage_attribution.kind").String())
	used := v.Get("messages.2.additional_kwargs.subagent_token_usage.total_tokens").Int()
	require.Positive(t, used)
	require.Greater(t, dispatch.Get("usage_metadata.total_tokens").Int(), used)
}
