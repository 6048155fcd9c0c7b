package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// ended is an answer with response_metadata.
func ended(field, value, text string, calls ...message.ToolCall) message.Message {
	m := message.AI(text, calls...).WithID("m")
	m.ResponseMetadata, _ = json.Marshal(map[string]string{field: value})
	return m
}

var half = message.ToolCall{ID: "c", Name: "write_file", Args: json.RawMessage(`{"path":"/a"}`)}

// answer calls the model through a middleware; it gives these answers in turn.
func answer(t *testing.T, m agent.Middleware, answers ...message.Message) (message.Message, int) {
	t.Helper()
	tries := 0
	out, err := m.WrapModelCall(t.Context(), agent.ModelRequest{}, func(context.Context, agent.ModelRequest) (agent.ModelResponse, error) {
		tries++
		return agent.ModelResponse{Messages: []message.Message{answers[tries-1]}}, nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out.Messages)
	return out.Messages[0], tries
}

// Whatever a provider writes as the end of an answer: calls are made exactly when it is an ordinary one.
func TestEndings(t *testing.T) {
	t.Parallel()
	chain := func(m message.Message) message.Message { // as in an agent: safety sees the answer first
		t.Helper()
		m, _ = answer(t, SafetyFinishReason(), m)
		m, _ = answer(t, ModelLength(), m)
		return m
	}
	kinds := map[string]string{
		"finish_reason content_filter": safetyKey, "stop_reason refusal": safetyKey, "finish_reason SAFETY": safetyKey, "finish_reason spii": safetyKey,
		"finish_reason IMAGE_SAFETY": safetyKey, "finish_reason RECITATION": safetyKey,
		"finish_reason length": lengthKey, "stop_reason max_tokens": lengthKey, "finish_reason MAX_TOKENS": lengthKey,
		"finish_reason stop": "", "finish_reason tool_calls": "", "stop_reason tool_use": "", "stop_reason end_turn": "", "finish_reason ": "", "stop_reason content_filter": "",
	}
	for how, key := range kinds {
		field, value, _ := strings.Cut(how, " ")
		for _, text := range []string{"", "I write"} {
			for n := range 3 {
				for _, place := range []string{"response_metadata", "additional_kwargs"} {
					name := fmt.Sprint(how, ", ", n, " calls, text ", text, " in ", place)
					m := ended(field, value, text, []message.ToolCall{half, half}[:min(n, 2)]...)
					m.AdditionalKwargs = json.RawMessage(`{"tool_calls":[{"id":"c"}],"kept":1}`)
					if place == "additional_kwargs" {
						m.AdditionalKwargs, _ = json.Marshal(map[string]any{field: value, "tool_calls": []any{1}, "kept": 1})
						m.ResponseMetadata = nil
					}
					got := chain(m)
					if key == "" || n == 0 && text != "" {
						if key == lengthKey {
							m = Stopped(m, graph.ModelLengthCapped)
						}
						require.Equal(t, m, got, name)
						continue
					}
					want := map[string]graph.StopReason{safetyKey: graph.SafetyCapped, lengthKey: graph.ModelLengthCapped}[key]
					require.Equal(t, want, StopReasonOf(got), name)
					require.Empty(t, got.ToolCalls, name)
					require.Equal(t, "m", got.ID)
					require.True(t, strings.HasPrefix(got.Text(), text), name)
					require.Greater(t, len(got.Text()), len(text)+20, name)
					note := gjson.GetBytes(got.AdditionalKwargs, key)
					require.Equal(t, int64(n), note.Get("suppressed_tool_call_count").Int(), name)
					require.Equal(t, value, note.Get("reason_value").String())
					require.Equal(t, field, note.Get("reason_field").String())
					require.Len(t, note.Get("suppressed_tool_call_names").Array(), n)
					require.False(t, gjson.GetBytes(got.AdditionalKwargs, "tool_calls").Exists(), "they would reappear")
					require.True(t, gjson.GetBytes(got.AdditionalKwargs, "kept").Exists())
					require.Equal(t, n > 0, strings.Contains(got.Text(), "tool calls were not made"), name)
				}
			}
		}
	}
}

// Blocks stay as they are, but for calls; calls that could not be read count; answers in their structured form are whole.
func TestEndingsOfBlocks(t *testing.T) {
	t.Parallel()
	m := ended("stop_reason", "max_tokens", "", half)
	m.Content = message.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"thinking","thinking":"hm","signature":"s"}`), json.RawMessage(`{"type":"tool_use","id":"c"}`)}}
	m.InvalidToolCalls = []message.InvalidToolCall{{ID: "d", Name: "bash", Args: `{"comm`}}
	got, _ := answer(t, ModelLength(), m)
	require.Len(t, got.Content.Blocks, 2)
	require.Equal(t, "s", gjson.GetBytes(got.Content.Blocks[0], "signature").Str)
	require.Contains(t, got.Text(), "output limit")
	require.Empty(t, got.InvalidToolCalls)
	require.JSONEq(t, `["write_file","bash"]`, gjson.GetBytes(got.AdditionalKwargs, lengthKey+".suppressed_tool_call_names").Raw)
	require.Len(t, m.Content.Blocks, 2, "the answer of the model is not changed")
	require.Contains(t, string(m.Content.Blocks[1]), "tool_use")

	whole := agent.ModelResponse{Messages: []message.Message{m}, Structured: json.RawMessage(`{}`)}
	out, err := ModelLength().WrapModelCall(t.Context(), agent.ModelRequest{}, func(context.Context, agent.ModelRequest) (agent.ModelResponse, error) { return whole, nil })
	require.NoError(t, err)
	require.Equal(t, whole, out)

	got, _ = answer(t, SafetyFinishReason(Detector{"mine", "finish_reason", []string{"sensitive"}}), ended("finish_reason", "Sensitive", "", half))
	require.Empty(t, got.ToolCalls)
	require.Equal(t, "mine", gjson.GetBytes(got.AdditionalKwargs, safetyKey+".detector").Str)
}

func TestTerminalResponse(t *testing.T) {
	t.Parallel()
	used := func(m message.Message) message.Message {
		m.Usage = &message.Usage{InputTokens: 3, OutputTokens: 1, TotalTokens: 4}
		return m
	}
	empty, thought := used(message.AI(" \n")), used(message.AI(""))
	thought.Content = message.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"thinking","thinking":"hm"}`)}}
	image, some := message.AI(""), message.AI("", half)
	image.Content = message.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"image_url","image_url":{"url":"x"}}`)}}
	some.InvalidToolCalls = []message.InvalidToolCall{{ID: "d", Name: "bash"}}
	for name, m := range map[string]message.Message{
		"text": message.AI("fine"), "a call": message.AI("", half), "one of two calls that can be read": some, "an image": image, "a limit": ended("finish_reason", "length", ""),
	} {
		got, tries := answer(t, TerminalResponse(), m)
		require.Equal(t, m, got, name)
		require.Equal(t, 1, tries, name)
	}
	for name, m := range map[string]message.Message{"nothing": empty, "thoughts": thought} {
		got, tries := answer(t, TerminalResponse(), m, used(message.AI("fine")))
		require.Equal(t, 2, tries, name)
		require.Equal(t, "fine", got.Text())
		require.False(t, IsFallback(got))
		require.Equal(t, message.Usage{InputTokens: 6, OutputTokens: 2, TotalTokens: 8}, *got.Usage)
		got, tries = answer(t, TerminalResponse(), m, m, message.AI("never"))
		require.Equal(t, 2, tries, name)
		require.Equal(t, emptyText, got.Text())
		require.True(t, IsFallback(got))
	}
}

// After an answer whose tool calls are all unreadable, in any form, the model is asked again and gets their errors. A second such answer in a row is replaced by an explanation.
func TestTerminalResponseOfUnreadableCalls(t *testing.T) {
	t.Parallel()
	const broken = `{"path": "a`
	call := message.InvalidToolCall{ID: "d", Name: "write_file", Args: broken, Error: "unexpected end"}
	nameless := call
	nameless.ID = ""
	with := func(text string, calls ...message.InvalidToolCall) message.Message {
		m := message.AI(text)
		m.ResponseMetadata = json.RawMessage(`{"finish_reason":"tool_calls"}`)
		m.InvalidToolCalls = calls
		return m
	}
	own := with("")
	own.AdditionalKwargs = json.RawMessage(`{"tool_calls":[{"id":"d","function":{"name":"write_file","arguments":"{\"path\": \"a"}}]}`)
	for name, m := range map[string]message.Message{
		"one": with("", call), "with a text": with("I write it.", call), "two": with("", call, message.InvalidToolCall{ID: "e", Name: "bash"}), "without an ID": with("", nameless), "the provider's form": own,
	} {
		for after, second := range map[string]message.Message{"a call": message.AI("", half), "text": message.AI("fine"), "nothing": message.AI(""), "unreadable": m} {
			var requests []agent.ModelRequest
			before := []message.Message{message.Human("go")}
			state := pregel.Values{askedAgainKey: "an earlier answer of the run was empty"}
			out, err := TerminalResponse().WrapModelCall(t.Context(), agent.ModelRequest{Messages: before, State: state}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
				requests = append(requests, r)
				return agent.ModelResponse{Messages: []message.Message{[]message.Message{m, second}[len(requests)-1]}}, nil
			})
			require.NoError(t, err)
			require.Len(t, requests, 2, name)
			require.Empty(t, out.Updates, "empty answers are counted, these are not")
			asked := requests[1].Messages
			require.Equal(t, before[0], asked[0])
			require.Contains(t, asked[len(asked)-1].Text(), "could not be read")
			results := 0
			for _, r := range asked {
				if r.Type == message.TypeTool {
					results++
					require.Equal(t, message.StatusError, r.Status)
					require.Contains(t, r.Text(), "arguments were invalid")
				}
			}
			require.Equal(t, map[string]int{"two": 2, "without an ID": 0}[name]+map[bool]int{true: 1}[name != "two" && name != "without an ID"], results, name)
			got := out.Messages[0]
			if after == "a call" || after == "text" {
				require.Equal(t, second, got, name)
				continue
			}
			require.True(t, IsFallback(got), name)
			require.Empty(t, got.InvalidToolCalls, name)
			require.False(t, gjson.GetBytes(got.AdditionalKwargs, "tool_calls").Exists(), name)
			require.Contains(t, got.Text(), map[string]string{"nothing": emptyText, "unreadable": unreadableText}[after], name)
		}
	}
}

// Over any run, the model is warned at most once, and calls are made exactly as long as the budget lasts; a new run begins anew.
func TestTokenBudget(t *testing.T) {
	t.Parallel()
	for _, o := range []BudgetOptions{{Total: 1, Warn: 0.8, Stop: 0.5}, {Warn: 0.8, Stop: 1}, {Total: -1, Warn: 0.1, Stop: 1}, {Total: 9}, {Total: 9, Stop: 2}} {
		_, err := TokenBudget(o)
		require.Error(t, err, o)
	}
	for name, o := range map[string]BudgetOptions{
		"total": {Total: 100, Warn: 0.8, Stop: 1}, "input": {Input: 60, Warn: 0.8, Stop: 1}, "output": {Total: 1000, Output: 40, Warn: 0.8, Stop: 1}, "early": {Total: 200, Warn: 0.4, Stop: 0.5},
	} {
		b, err := TokenBudget(o)
		require.NoError(t, err)
		state := pregel.Values{"messages": []message.Message{message.Human("go")}}
		warned := 0
		call := func() message.Message {
			list := agent.Messages(state)
			out, err := b.WrapModelCall(t.Context(), agent.ModelRequest{Messages: list, State: state}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
				if len(r.Messages) > len(list) {
					require.Contains(t, r.Messages[len(list)].Text(), budgetWarning)
					warned++
				}
				m := message.AI("on", half)
				m.Usage = &message.Usage{InputTokens: 6, OutputTokens: 4, TotalTokens: 10}
				return agent.ModelResponse{Messages: []message.Message{m}}, nil
			})
			require.NoError(t, err)
			state[spentKey] = out.Updates[0].(*pregel.Command).Update.(pregel.Values)[spentKey]
			result := message.Tool("x", "c")
			state["messages"] = []message.Message{message.Human("go"), out.Messages[0], result} // as after a summary: earlier answers are gone
			return out.Messages[0]
		}
		for n := 1; n < 10; n++ {
			require.Len(t, call().ToolCalls, 1, "%s: call %d", name, n)
		}
		require.Equal(t, 1, warned, name)
		last := call()
		require.Empty(t, last.ToolCalls, name)
		require.True(t, strings.HasPrefix(last.Text(), "on\n\n"+budgetStop), last.Text())
		require.True(t, over(last))
		state["messages"] = append(agent.Messages(state), message.Human("again"))
		require.Len(t, call().ToolCalls, 1, "%s: a new run", name)
		// What a subagent used counts once.
		result := message.Tool("x", "c")
		result.AdditionalKwargs = json.RawMessage(`{"subagent_token_usage":{"input_tokens":600,"output_tokens":400,"total_tokens":1000}}`)
		state["messages"] = []message.Message{message.Human("again"), message.AI("", half), result}
		require.Empty(t, call().ToolCalls, name)
		require.Equal(t, int64(1020), state[spentKey].(spent).Total)
	}
}
