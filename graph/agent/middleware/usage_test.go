package middleware

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

func TestAttribution(t *testing.T) {
	t.Parallel()
	call := func(name, args string) message.ToolCall {
		return message.ToolCall{ID: "c", Name: name, Args: json.RawMessage(args)}
	}
	plan := []Todo{{"a", "pending"}, {"b", "pending"}, {"b", "pending"}}
	for name, tt := range map[string]struct {
		m    message.Message
		want string
	}{
		"answer":     {message.AI("x"), `{"version":1,"kind":"final_answer","shared_attribution":false,"tool_call_ids":[],"actions":[]}`},
		"nothing":    {message.AI(" "), `{"version":1,"kind":"thinking","shared_attribution":false,"tool_call_ids":[],"actions":[]}`},
		"search":     {message.AI("", call("web_search", `{"query":" q "}`)), `{"version":1,"kind":"tool_batch","shared_attribution":false,"tool_call_ids":["c"],"actions":[{"kind":"search","tool_name":"web_search","query":"q","tool_call_id":"c"}]}`},
		"tools":      {message.AI("", call("ls", `{"description":"look"}`), call("present_files", `{}`)), `{"version":1,"kind":"tool_batch","shared_attribution":true,"tool_call_ids":["c","c"],"actions":[{"kind":"tool","tool_name":"ls","description":"look","tool_call_id":"c"},{"kind":"present_files","tool_call_id":"c"}]}`},
		"todo":       {message.AI("", call("write_todos", `{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"pending"},{"content":"b","status":"pending"}]}`)), `{"version":1,"kind":"todo_update","shared_attribution":false,"tool_call_ids":["c"],"actions":[{"kind":"todo_complete","content":"a","tool_call_id":"c"}]}`},
		"renamed":    {message.AI("", call("write_todos", `{"todos":[{"content":"c","status":"pending"},{"content":"b","status":"in_progress"}]}`)), `{"version":1,"kind":"tool_batch","shared_attribution":true,"tool_call_ids":["c"],"actions":[{"kind":"todo_update","content":"c","tool_call_id":"c"},{"kind":"todo_start","content":"b","tool_call_id":"c"},{"kind":"todo_remove","content":"b","tool_call_id":"c"}]}`},
		"same again": {message.AI("", call("write_todos", `{"todos":[{"content":"a","status":"pending"},{"content":"b","status":"pending"},{"content":"b","status":"pending"}]}`)), `{"version":1,"kind":"tool_batch","shared_attribution":false,"tool_call_ids":["c"],"actions":[{"kind":"tool","tool_name":"write_todos","tool_call_id":"c"}]}`},
		"no sense":   {message.AI("", call("write_todos", `{"todos":7}`)), `{"version":1,"kind":"tool_batch","shared_attribution":true,"tool_call_ids":["c"],"actions":[{"kind":"todo_remove","content":"a","tool_call_id":"c"},{"kind":"todo_remove","content":"b","tool_call_id":"c"},{"kind":"todo_remove","content":"b","tool_call_id":"c"}]}`},
	} {
		raw, err := json.Marshal(attribute(tt.m, plan))
		require.NoError(t, err)
		require.JSONEq(t, tt.want, string(raw), name)
	}
}

// When calls are taken away, the answer does not name them any more.
func TestAttributionOfCutCalls(t *testing.T) {
	t.Parallel()
	m := message.AI("x", message.ToolCall{ID: "1", Name: "task"}, message.ToolCall{ID: "2", Name: "task"})
	m = noted(m, attribute(m, nil))
	one := WithCalls(m, m.ToolCalls[:1])
	require.JSONEq(t, `{"version":1,"kind":"subagent_dispatch","shared_attribution":false,"tool_call_ids":["1"],"actions":[{"kind":"subagent","tool_call_id":"1"}]}`, gjson.GetBytes(one.AdditionalKwargs, attributionKey).Raw)
	none := WithCalls(m, nil)
	require.JSONEq(t, `{"version":1,"kind":"final_answer","shared_attribution":false,"tool_call_ids":[],"actions":[]}`, gjson.GetBytes(none.AdditionalKwargs, attributionKey).Raw)
}

// Several plans at once are refused, as LangChain does.
func TestParallelPlans(t *testing.T) {
	t.Parallel()
	m := message.AI("", message.ToolCall{ID: "1", Name: "write_todos"}, message.ToolCall{ID: "2", Name: "ls"}, message.ToolCall{ID: "3", Name: "write_todos"})
	update, err := Todos(TodoOptions{}).AfterModel.Run(t.Context(), pregel.Values{"messages": []message.Message{m}})
	require.NoError(t, err)
	got := update.(pregel.Values)["messages"].([]message.Message)
	require.Len(t, got, 2)
	require.Equal(t, []string{"1", "3"}, []string{got[0].ToolCallID, got[1].ToolCallID})
	require.Equal(t, message.StatusError, got[0].Status)
}

// An answer that a middleware gave in place of the model is not sent back.
func TestPlanDoesNotFightOtherMiddleware(t *testing.T) {
	t.Parallel()
	for text, back := range map[string]bool{"fine": true, "[FORCED STOP] x": false} {
		update, err := Todos(TodoOptions{}).AfterModel.Run(t.Context(), pregel.Values{"messages": []message.Message{message.AI(text)}, "todos": []Todo{{"a", "pending"}}})
		require.NoError(t, err)
		require.Equal(t, back, update != nil, text)
	}
	update, err := Todos(TodoOptions{}).AfterModel.Run(t.Context(), pregel.Values{"messages": instead("x").Messages, "todos": []Todo{{"a", "pending"}}})
	require.NoError(t, err)
	require.Nil(t, update)
}

// On a later day only the date is added, before that day's message; what was condensed keeps its context.
func TestContextOfALaterDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	asked := 0
	m := DynamicContext(ContextOptions{Now: func() time.Time { return now }, About: func(context.Context) string { asked++; return "<memory>x</memory>" }})
	state := pregel.Values{"messages": []message.Message{message.Human("one").WithID("1")}}
	turn := func() {
		update, err := m.BeforeAgent.Run(t.Context(), state)
		require.NoError(t, err)
		if update != nil {
			state[contextKey] = update.(pregel.Values)[contextKey]
		}
	}
	texts := func() (list []string) {
		_, err := m.WrapModelCall(t.Context(), agent.ModelRequest{Messages: agent.Messages(state), State: state}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
			for _, m := range r.Messages {
				list = append(list, m.Text())
			}
			return agent.ModelResponse{}, nil
		})
		require.NoError(t, err)
		return list
	}
	turn()
	turn()
	require.Len(t, texts(), 2)
	now = now.Add(24 * time.Hour)
	state["messages"] = append(agent.Messages(state), message.AI("1"), message.Human("two").WithID("2"))
	turn()
	require.Equal(t, []string{
		"<system-reminder>\n<memory>x</memory>\n<current_date>2026-01-31, Saturday</current_date>\n</system-reminder>", "one", "1",
		"<system-reminder>\n<current_date>2026-02-01, Sunday</current_date>\n</system-reminder>", "two",
	}, texts())
	require.Equal(t, 1, asked)
	summary := message.Human("summary")
	summary.AdditionalKwargs = json.RawMessage(`{"lc_source":"summarization"}`)
	state["messages"] = []message.Message{summary, message.AI("1"), message.Human("two").WithID("2")}
	got := texts()
	require.Len(t, got, 5)
	require.Equal(t, "summary", got[0])
	require.Contains(t, got[2], "<memory>")
	require.Contains(t, got[3], "Sunday")
}
