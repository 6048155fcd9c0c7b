package graphs

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/config"
)

// declare builds the agent of a langgraph.json whose model calls the tool that a message names: NAME {json}.
func declare(t *testing.T, tools, middleware string) *agent.Agent {
	t.Helper()
	dir := t.TempDir()
	text := `{"graphs": {"a": {"agent": {"model": {"name": "scripted:", "script": [
		{"from": "human", "when": "^(calculator) (.*)$", "tool_calls": [{"name": "calculator", "args": "$2"}]},
		{"from": "human", "when": "^(write_todos) (.*)$", "tool_calls": [{"name": "write_todos", "args": "$2"}]},
		{"from": "human", "when": "^(ask_clarification) (.*)$", "tool_calls": [{"name": "ask_clarification", "args": "$2"}]},
		{"from": "human", "when": "^(again$|.LOOP DETECTED)", "tool_calls": [{"name": "calculator", "args": {"expression": "1"}}]},
		{"from": "tool", "when": "^1$", "tool_calls": [{"name": "calculator", "args": {"expression": "1"}}]},
		{"when": "^unsafe$", "finish_reason": "content_filter", "tool_calls": [{"name": "calculator", "args": {"expression": "1"}}]},
		{"when": "^long$", "finish_reason": "length", "tool_calls": [{"name": "calculator", "args": {"expression": "1"}}]},
		{"when": "^nothing$|answer was empty"},
		{"content": "done"}]}, "tools": ` + tools + `, "middleware": ` + middleware + `}}}}`
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c, _, err := config.Load(config.Source{File: file})
	require.NoError(t, err)
	a, err := Declare(c, c.Graphs[0], nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func say(t *testing.T, a *agent.Agent, text string) (pregel.Values, []message.Message) {
	t.Helper()
	r, err := pregel.Invoke[pregel.Values](t.Context(), a.Graph, pregel.Values{"messages": []message.Message{message.Human(text)}})
	require.NoError(t, err)
	return r.State, agent.Messages(r.State)
}

// Each key does what docs/agent.md says.
func TestDeclaredMiddleware(t *testing.T) {
	t.Parallel()
	const sum = `calculator {"expression": "1 + 1"}`
	_, list := say(t, declare(t, `["calculator"]`, `{"guardrails": {"denied_tools": ["calculator"]}}`), sum)
	require.Contains(t, list[2].Text(), "Guardrail denied: tool 'calculator' was blocked")
	_, list = say(t, declare(t, `["calculator"]`, `{"tool_output": {"limit": 10, "head": 3, "tail": 2}}`), `calculator {"expression": "123456789 * 1000000"}`)
	require.Contains(t, list[2].Text(), "123\n\n[Result of calculator shortened: 15 characters")
	_, list = say(t, declare(t, `["calculator"]`, `{"tool_progress": true}`), `calculator {"expression": "1 +"}`)
	require.Contains(t, string(list[2].AdditionalKwargs), `"deerflow_tool_meta":{"status":"error"`)
	_, list = say(t, declare(t, `["calculator"]`, `{"loop_detection": true}`), "again")
	require.Contains(t, list[len(list)-1].Text(), "[FORCED STOP]")
	require.Len(t, list, 10)
	endings := declare(t, `["calculator"]`, `{"safety_finish_reason": true, "model_length": true, "terminal_response": true, "model_errors": true}`)
	for text, want := range map[string]string{"unsafe": "for safety reasons", "long": "output limit", "nothing": "without an answer"} {
		_, list = say(t, endings, text)
		require.Len(t, list, 2)
		require.Contains(t, list[1].Text(), want)
	}
	_, list = say(t, declare(t, `["calculator"]`, `{"token_budget": {"output": 4}}`), "again")
	require.Contains(t, list[len(list)-1].Text(), "[TOKEN BUDGET EXCEEDED]")
	require.Len(t, list, 8)
	state, list := say(t, declare(t, `[]`, `{"todos": true}`), `write_todos {"todos": [{"content": "a", "status": "completed"}]}`)
	require.NotEmpty(t, state["todos"])
	require.Equal(t, "done", list[len(list)-1].Text())
	_, list = say(t, declare(t, `[]`, `{"clarification": true}`), `ask_clarification {"question": "Which?", "clarification_type": "missing_info"}`)
	require.Equal(t, "❓ Which?", list[len(list)-1].Text())
	_, list = say(t, declare(t, `["calculator"]`, `{"token_usage": true, "date": true, "model_errors": true}`), sum)
	require.Len(t, list, 4)
	var extra struct {
		Usage struct{ Kind string } `json:"token_usage_attribution"`
	}
	require.NoError(t, json.Unmarshal(list[3].AdditionalKwargs, &extra))
	require.Equal(t, "final_answer", extra.Usage.Kind)
}
