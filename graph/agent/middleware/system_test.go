package middleware

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/message"
)

// Whatever system messages a conversation has, and wherever: a request has at most one, in front, with all their texts in order, and the other messages as they are.
func TestSystemMessages(t *testing.T) {
	t.Parallel()
	system := func(text string, mark bool) message.Message {
		m := message.System(text)
		if mark {
			m.AdditionalKwargs = json.RawMessage(`{"dynamic_context_reminder":true}`)
		}
		return m
	}
	prompt, human, answer := message.System("prompt"), message.Human("question"), message.AI("answer")
	for name, c := range map[string]struct {
		system *message.Message
		list   []message.Message
		want   string // of the system message; "": none
		rest   []message.Message
	}{
		"none":                 {nil, []message.Message{human, answer}, "", []message.Message{human, answer}},
		"the prompt":           {&prompt, []message.Message{human}, "prompt", []message.Message{human}},
		"one in the middle":    {&prompt, []message.Message{human, system("be brief", false), answer}, "prompt\n\nbe brief", []message.Message{human, answer}},
		"without a prompt":     {nil, []message.Message{human, system("be brief", false)}, "be brief", []message.Message{human}},
		"several, in order":    {&prompt, []message.Message{system("a", false), human, system("b", false), system("c", false)}, "prompt\n\na\n\nb\n\nc", []message.Message{human}},
		"the newest date":      {&prompt, []message.Message{system("Monday", true), human, system("be brief", false), system("Tuesday", true), answer}, "prompt\n\nbe brief\n\nTuesday", []message.Message{human, answer}},
		"one without contents": {nil, []message.Message{system(" ", false), human}, "", []message.Message{human}},
	} {
		before := append([]message.Message(nil), c.list...)
		_, err := SystemMessages().WrapModelCall(t.Context(), agent.ModelRequest{System: c.system, Messages: c.list}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
			require.Equal(t, c.rest, r.Messages, name)
			if c.want == "" {
				require.Nil(t, r.System, name)
			} else {
				require.Equal(t, c.want, r.System.Text(), name)
			}
			return agent.ModelResponse{}, nil
		})
		require.NoError(t, err)
		require.Equal(t, before, c.list, name)
	}
}
