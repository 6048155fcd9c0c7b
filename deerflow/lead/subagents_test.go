package lead_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/deerflow/lead"
	"understudy/deerflow/sandbox"
	"understudy/graph"
	"understudy/graph/agent/scripted"
	"understudy/internal/logtest"
)

// delegate runs a turn that calls task, and returns the result of the call and the types of the custom events, in order.
func (w *world) delegate(ctx context.Context, t *testing.T, prompt, kind, context string) (result string, events []string, err error) {
	t.Helper()
	args, encoding := json.Marshal(map[string]string{"description": "look", "prompt": prompt, "subagent_type": kind})
	require.NoError(t, encoding)
	input, encoding := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "human", "content": "task " + string(args)}}})
	require.NoError(t, encoding)
	inv := graph.Invocation{
		Config: graph.Config{Thread: "t1", Config: json.RawMessage(`{}`), Context: json.RawMessage(context)},
		Run:    "r1", Attempt: 1, Log: cmp.Or(w.log, slog.New(slog.DiscardHandler)),
		Arguments: graph.Arguments{Input: input, Modes: []string{"values", "custom"}, Temporary: true},
	}
	for event, err := range w.graph.Stream(ctx, inv) {
		if err != nil {
			return result, events, err
		}
		switch event.Name {
		case "custom":
			events = append(events, gjson.GetBytes(event.Data, "type").String())
		case "values":
			for _, m := range gjson.GetBytes(event.Data, "messages").Array() {
				if m.Get("type").String() == "tool" {
					result = m.Get("content").String()
				}
			}
		}
	}
	return result, events, nil
}

const delegating = `{"user_id":"u","subagent_enabled":true}`

// A subagent works with the tools and files of the run, and reports each of its answers and results.
func TestSubagent(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	result, events, err := w.delegate(t.Context(), t, `write_file {"path":"/mnt/user-data/workspace/a.txt","content":"by a subagent"}`, "general-purpose", delegating)
	require.NoError(t, err)
	require.Equal(t, "Task Succeeded. Result: done", result)
	require.Equal(t, []string{"task_started", "task_running", "task_running", "task_running", "task_completed"}, events)
	_, got := w.say(t, `read_file {"path":"/mnt/user-data/workspace/a.txt"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "by a subagent", got)

	result, events, err = w.delegate(t.Context(), t, "x", "martian", delegating)
	require.NoError(t, err)
	require.Equal(t, "Error: Unknown subagent type 'martian'. Available: general-purpose, bash", result)
	require.Empty(t, events)

	result, _, err = w.delegate(t.Context(), t, "x", "general-purpose", `{}`)
	require.NoError(t, err)
	require.Contains(t, result, "not a valid tool")

	w = setup(t, strings.ReplaceAll(config, "allow_host_bash: true", "allow_host_bash: false"))
	result, _, err = w.delegate(t.Context(), t, "x", "bash", delegating)
	require.NoError(t, err)
	require.Equal(t, "Error: The subagent bash is switched off: commands would run on the server itself; set sandbox.allow_host_bash to allow them. Do the task without commands.", result)
}

// Why there is no subagent for commands depends on why there are none: allow_host_bash is not advised where it is on, or where commands belong into containers.
func TestReasonsForNoCommands(t *testing.T) {
	t.Parallel()
	listed := "models: [{name: plain, use: x, model: x}]\ntitle: {enabled: false}\ntools: [{name: bash, group: b, use: \"deerflow.sandbox.tools:bash_tool\"}]\n"
	for text, want := range map[string]string{
		"models: [{name: plain, use: x, model: x}]\ntitle: {enabled: false}\nsandbox: {allow_host_bash: true}\n": "tools of config.yaml does not list it",
		listed: "commands would run on the server itself; set sandbox.allow_host_bash to allow them",
		listed + "sandbox: {use: 'their:CloudSandbox'}\n": "CloudSandbox is not known here",
	} {
		w := setup(t, text)
		w.options.Tools.Sandbox = sandbox.NewLocal(sandbox.Options{Refuse: func() string {
			if strings.Contains(text, "Cloud") {
				return "CloudSandbox is not known here"
			}
			return ""
		}})
		t.Cleanup(w.options.Tools.Sandbox.Close)
		w.rebuild()
		result, _, err := w.delegate(t.Context(), t, "x", "bash", delegating)
		require.NoError(t, err)
		require.Equal(t, "Error: The subagent bash is switched off: "+want+". Do the task without commands.", result)
	}
}

// Names of tools and subagents in the settings that nothing has are in the log, with what was likely meant; those that there are, or may be, are not.
func TestNamesThatNothingHas(t *testing.T) {
	t.Parallel()
	const custom = "subagents: {agents: {bahs: {max_turns: 3}, bash: {max_turns: 3}, mine: {max_turns: 3}}, custom_agents: {mine: {description: d, system_prompt: p, "
	for text, want := range map[string]string{
		custom + "tools: [nope, ls, read_fil, bash, web_search, odd, srv_any, srvx, task], disallowed_tools: [present_file, write_file]}}}": `subagents.agents bahs bash;` +
			`subagents.custom_agents.mine.tools nope ;subagents.custom_agents.mine.tools read_fil read_file;subagents.custom_agents.mine.tools srvx ;subagents.custom_agents.mine.disallowed_tools present_file present_files`,
		"guardrails: {enabled: true, provider: {use: 'b:AllowlistProvider', config: {denied_tools: [bsh, task, memory_add], allowed_tools: [ls, lss]}}}": `guardrails.provider.config.allowed_tools lss ls;` +
			`guardrails.provider.config.denied_tools bsh bash`,
		"guardrails: {enabled: false, provider: {use: 'b:AllowlistProvider', config: {denied_tools: [bsh]}}}": "",
		"": "",
	} {
		w := setup(t, config+text)
		var log logtest.Buffer
		w.options.Log = slog.New(slog.NewJSONHandler(&log, nil))
		w.options.Servers = func() ([]lead.Server, error) { return []lead.Server{{Name: "srv"}}, nil }
		w.rebuild()
		require.NoError(t, w.graph.Prepare(t.Context()))
		require.NoError(t, w.graph.Close())
		var got []string
		for line := range strings.Lines(log.String()) {
			if l := gjson.Parse(line); l.Get("msg").String() == "a name in the configuration has no effect" {
				got = append(got, l.Get("key").String()+" "+l.Get("name").String()+" "+l.Get("did_you_mean").String())
			}
		}
		require.Equal(t, want, strings.Join(got, ";"), text)
	}
}

// Skills that a subagent should have and its run does not are in the log, once.
func TestSkillsThatARunDoesNotHave(t *testing.T) {
	t.Parallel()
	w := setup(t, config+"subagents: {custom_agents: {mine: {description: d, system_prompt: p, skills: [demo, dmeo, other]}, plain: {description: d, system_prompt: p}}}")
	withSkills(t, w.options, t.TempDir())
	w.rebuild()
	var log logtest.Buffer
	w.log = slog.New(slog.NewJSONHandler(&log, nil))
	for _, kind := range []string{"mine", "mine", "plain"} {
		result, _, err := w.delegate(t.Context(), t, `ls {"path":"/mnt/user-data"}`, kind, delegating)
		require.NoError(t, err)
		require.Contains(t, result, "Task Succeeded")
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		if l := gjson.Parse(line); l.Get("skill").Exists() {
			got = append(got, l.Get("subagent").String()+" "+l.Get("skill").String()+" "+l.Get("did_you_mean").String())
		}
	}
	require.Equal(t, []string{"mine dmeo demo", "mine other "}, got)
}

// System messages of clients reach models in front, in one message, and stay where they are in the conversation.
func TestSystemMessagesOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	v, _ := w.send(t, "t", `{"messages":[{"type":"human","content":"first"},{"type":"system","content":"BE BRIEF"},{"type":"human","content":"second"}]}`, `{"user_id":"u"}`)
	require.Equal(t, "system", v.Get("messages.1.type").String())
	require.Equal(t, 1, strings.Count(w.last(), "system: "))
	before, _, found := strings.Cut(w.last(), "human: ")
	require.True(t, found)
	require.Contains(t, before, "BE BRIEF")
}

// What an agent cannot do, it cannot delegate either.
func TestSubagentHasNoMoreToolsThanItsAgent(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	for _, kind := range []string{"general-purpose", "bash"} {
		for _, context := range []string{`{"user_id":"u","subagent_enabled":true,"agent_name":"cook"}`, delegating} {
			_, _, err := w.delegate(t.Context(), t, `bash {"command":"echo x >> /mnt/user-data/workspace/log"}`, kind, context)
			require.NoError(t, err)
		}
	}
	_, got := w.say(t, `read_file {"path":"/mnt/user-data/workspace/log"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "x\nx\n", got)
}

// A run that is cancelled ends its subagents.
func TestCancelEndsSubagents(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := 0
	args := `{"description":"d","prompt":"bash {\"command\":\"sleep 600\"}","subagent_type":"bash"}`
	input, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "human", "content": "task " + args}}})
	require.NoError(t, err)
	inv := graph.Invocation{
		Config: graph.Config{Thread: "t1", Config: json.RawMessage(`{}`), Context: json.RawMessage(delegating)}, Run: "r1", Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: input, Modes: []string{"custom"}, Temporary: true},
	}
	var last error
	for event, err := range w.graph.Stream(ctx, inv) {
		if last = err; err == nil && gjson.GetBytes(event.Data, "type").String() == "task_running" {
			started++
			cancel()
		}
	}
	require.Equal(t, 1, started)
	require.Error(t, last)
	// All places of the pool are free again.
	for range 4 {
		result, _, err := w.delegate(t.Context(), t, "x", "general-purpose", delegating)
		require.NoError(t, err)
		require.Equal(t, "Task Succeeded. Result: done", result)
	}
}

// A subagent that a limit ends returns what it has, and says which limit it was; without anything it has failed.
func TestLimitsOfSubagents(t *testing.T) {
	t.Parallel()
	again := func(text string) scripted.Answer {
		return scripted.Answer{When: "(?s)^", Content: text, ToolCalls: []scripted.ToolCall{{Name: "ls", Args: json.RawMessage(`{"path":"/mnt/user-data/workspace","description":"d"}`)}}}
	}
	for name, c := range map[string]struct {
		config, text          string
		status, reason, label string
		result                string
	}{
		"tokens": {"loop_detection: {enabled: false}\nsubagents: {token_budget: {max_tokens: 9}}\n", "found", "completed", "token_capped", "token budget", "[TOKEN BUDGET EXCEEDED]"},
		"of one": {"loop_detection: {enabled: false}\nsubagents: {token_budget: {enabled: false}, agents: {general-purpose: {token_budget: {max_tokens: 9}}}}\n", "found", "completed", "token_capped", "token budget", "found"},
		"loops":  {"", "found", "completed", "loop_capped", "repeated tool-call loop", "[FORCED STOP]"},
		"turns":  {"subagents: {agents: {general-purpose: {max_turns: 2}}}\n", "found", "completed", "turn_capped", "turn budget", "found"},
		"silent": {"subagents: {agents: {general-purpose: {max_turns: 2}}}\n", "", "failed", "turn_capped", "turn budget", "Reached max_turns=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lead := tasks("go", 1)
			done := scripted.Answer{When: "Task (Succeeded|failed)", From: "tool", Content: "end"}
			w := setup(t, plain+c.config, lead, done, again(c.text))
			v, _, err := w.converse(t, "t", "go", delegating)
			require.NoError(t, err)
			about := v.Get("messages.2.additional_kwargs")
			require.Equal(t, c.status, about.Get("subagent_status").String())
			require.Equal(t, c.reason, about.Get("subagent_stop_reason").String())
			require.Equal(t, "plain", about.Get("subagent_model_name").String())
			text := v.Get("messages.2.content").String()
			require.Contains(t, text, " (capped: "+c.label+").")
			require.Contains(t, text, c.result)
			key := map[string]string{"completed": "subagent_result_brief", "failed": "subagent_error"}[c.status]
			require.Contains(t, about.Get(key).String(), c.result)
			require.Equal(t, c.reason, v.Get("delegations.0.stop_reason").String())
			require.False(t, v.Get("messages.3.additional_kwargs.run_stop_reason").Exists(), "the run was not stopped")
		})
	}
	_, _, err := setup(t, plain+"subagents: {token_budget: {max_tokens: -1}}\n").converse(t, "t", "hi", `{}`)
	require.Error(t, err)
}
