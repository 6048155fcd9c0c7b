package middleware

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/message"
)

func asking(ids ...string) message.Message {
	m := message.Message{Type: message.TypeAI}
	for _, id := range ids {
		m.ToolCalls = append(m.ToolCalls, message.ToolCall{ID: id, Name: "t"})
	}
	return m
}

func brief(list []message.Message) string {
	var out []string
	for _, m := range list {
		switch {
		case m.Type == message.TypeTool && m.Status == message.StatusError:
			out = append(out, "lost "+m.ToolCallID)
		case m.Type == message.TypeTool:
			out = append(out, "result "+m.ToolCallID)
		case m.Type == message.TypeAI:
			out = append(out, fmt.Sprintf("calls %d", len(m.ToolCalls)+len(m.InvalidToolCalls)))
		default:
			out = append(out, m.Text())
		}
	}
	return strings.Join(out, ", ")
}

func TestDanglingToolCalls(t *testing.T) {
	t.Parallel()
	result := func(id string) message.Message { return message.Tool("r", id) }
	invalid := message.Message{Type: message.TypeAI, InvalidToolCalls: []message.InvalidToolCall{{ID: "a", Name: "t", Args: "{", Error: "unexpected end"}}}
	own := message.Message{Type: message.TypeAI, AdditionalKwargs: json.RawMessage(`{"tool_calls":[{"id":"a","function":{"name":"t","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"t","arguments":"{"}}]}`)}
	for _, tt := range []struct {
		list []message.Message
		want string
	}{
		{[]message.Message{message.Human("q"), asking("a", "b"), result("a"), result("b")}, "q, calls 2, result a, result b"},
		{[]message.Message{asking("a", "b"), result("b"), message.Human("q")}, "calls 2, lost a, result b, q"},
		{[]message.Message{asking("a"), message.Human("q"), result("a")}, "calls 1, result a, q"},
		{[]message.Message{result("a"), asking("a")}, "calls 1, result a"},
		{[]message.Message{asking("a"), result("a"), asking("a")}, "calls 1, result a, calls 1, lost a"},
		{[]message.Message{result("a"), message.Human("q")}, "q"},
		{[]message.Message{invalid}, "calls 1, lost a"},
		{[]message.Message{own, result("a")}, "calls 2, result a, lost b"},
	} {
		require.Equal(t, tt.want, brief(complete(tt.list)))
	}
	require.Equal(t, "[Tool call was interrupted and did not return a result.]", complete([]message.Message{asking("a")})[1].Text())
	require.Contains(t, complete([]message.Message{invalid})[1].Text(), "unexpected end")
	require.JSONEq(t, `{"x":1}`, string(complete([]message.Message{own})[0].ToolCalls[0].Args))
	require.Empty(t, own.ToolCalls, "the conversation stays")
}

// Whatever a conversation is: each call has its result behind it, no result is there twice or without a call, nothing else is lost, and a second time nothing changes.
func TestDanglingToolCallsOfAnyConversation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var list []message.Message
		for range random.IntN(10) {
			id := string(rune('a' + random.IntN(4)))
			list = append(list, []message.Message{message.Human("q"), asking(id), asking("x"+id, "y"+id), message.Tool("r", id), message.Tool("r", "x"+id)}[random.IntN(5)])
		}
		out := complete(list)
		for i, m := range out {
			for n, c := range m.ToolCalls {
				require.Greater(t, len(out), i+1+n, "seed %d", seed)
				require.Equal(t, c.ID, out[i+1+n].ToolCallID, "seed %d: %s", seed, brief(list))
			}
		}
		others := func(list []message.Message) (n int) {
			for _, m := range list {
				if m.Type != message.TypeTool {
					n++
				}
			}
			return n
		}
		require.Equal(t, others(list), others(out), "seed %d", seed)
		require.LessOrEqual(t, strings.Count(brief(out), "result"), strings.Count(brief(list), "result"), "seed %d", seed)
		require.Equal(t, brief(out), brief(complete(out)), "seed %d", seed)
	}
}
