package lead_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
)

// nodes runs a turn, and returns the names of its nodes, in the order in which they ended.
func (w *world) nodes(t *testing.T, thread, text, context string) (names []string, failed error) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "human", "content": text}}})
	require.NoError(t, err)
	inv := graph.Invocation{
		Config: graph.Config{Thread: id.Thread(thread), Config: json.RawMessage(`{}`), Context: json.RawMessage(context), Saver: &w.saves},
		Run:    "r1", Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: input, Modes: []string{"updates"}},
	}
	for event, err := range w.graph.Stream(t.Context(), inv) {
		if err != nil {
			return names, err
		}
		gjson.ParseBytes(event.Data).ForEach(func(node, _ gjson.Result) bool {
			names = append(names, node.Str)
			return true
		})
	}
	return names, nil
}

// Clients know the steps of a run by their names: they are DeerFlow's, in the order of its chain, and after the model in reverse.
func TestChain(t *testing.T) {
	t.Parallel()
	w := setup(t, strings.Replace(plain, "title: {enabled: false}", "title: {enabled: true}", 1)+"summarization: {enabled: true, trigger: [{type: messages, value: 50}]}\n")
	names, err := w.nodes(t, "t", `ls {"path":"/mnt/user-data/workspace"}`, `{"is_plan_mode":true,"subagent_enabled":true}`)
	require.NoError(t, err)
	turn := []string{
		"DeerFlowSummarizationMiddleware.before_model", "model",
		"LoopDetectionMiddleware.after_model", "SubagentLimitMiddleware.after_model", "TitleMiddleware.after_model", "TodoMiddleware.after_model",
	}
	want := append([]string{"ThreadDataMiddleware.before_agent", "UploadsMiddleware.before_agent", "SandboxMiddleware.before_agent", "DynamicContextMiddleware.before_agent"}, turn...)
	want = append(append(append(want, "tools"), turn...), "MemoryMiddleware.after_agent", "SandboxMiddleware.after_agent")
	require.Equal(t, want, names)
}

// The message that began a run says which one and when, and whose folders it has; without a thread there are none.
func TestThreadData(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	v, _, err := w.converse(t, "t", "hi", `{}`)
	require.NoError(t, err)
	m := v.Get("messages.0")
	require.Equal(t, "user-input", m.Get("name").String())
	require.Equal(t, "r1", m.Get("additional_kwargs.run_id").String())
	require.NotEmpty(t, m.Get("additional_kwargs.timestamp").String())
	require.JSONEq(t, `{"workspace_path":"/mnt/user-data/workspace","uploads_path":"/mnt/user-data/uploads","outputs_path":"/mnt/user-data/outputs"}`, v.Get("thread_data").Raw)
	_, _, err = w.converse(t, "", "hi", `{}`)
	require.ErrorContains(t, err, "thread")
}

// A call that was cut off has a result in the next request, right behind it, and not in the conversation.
func TestCallsThatWereCutOff(t *testing.T) {
	t.Parallel()
	w := setup(t, plain)
	input := `{"messages":[{"type":"human","content":"a"},{"type":"ai","id":"m","content":"","tool_calls":[{"name":"ls","args":{},"id":"c9","type":"tool_call"}]},{"type":"human","content":"b"}]}`
	var last gjson.Result
	inv := graph.Invocation{
		Config: graph.Config{Thread: "t", Config: json.RawMessage(`{}`), Context: json.RawMessage(`{}`), Saver: &w.saves}, Run: "r1", Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: json.RawMessage(input), Modes: []string{"values"}},
	}
	for event, err := range w.graph.Stream(t.Context(), inv) {
		require.NoError(t, err)
		last = gjson.ParseBytes(event.Data)
	}
	require.Contains(t, w.last(), "[Tool call was interrupted and did not return a result.]")
	require.Equal(t, int64(4), last.Get("messages.#").Int())
}
