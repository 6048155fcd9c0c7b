package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamples: the commands in README and examples/README.md work as described.
func TestExamples(t *testing.T) {
	p := serve(t, t.TempDir(), "--config", "../../langgraph.json")

	question := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "What is 6 times 7?"}}}
	for _, graph := range []string{"chat", "assistant"} {
		messages := field(p.call("POST", "/runs/wait", map[string]any{"assistant_id": graph, "input": question}, 200), "messages").([]any)
		var said []any
		for _, m := range messages {
			said = append(said, field(m, "type"), field(m, "content"))
		}
		require.Equal(t, []any{"human", "What is 6 times 7?", "ai", "", "tool", "42", "ai", "The answer is 42."}, said)
	}

	thread := field(p.call("POST", "/threads", map[string]any{}, 200), "thread_id").(string)
	wait := "/threads/" + thread + "/runs/wait"
	asked := p.call("POST", wait, map[string]any{"assistant_id": "approval", "input": map[string]any{"to": "Ada", "about": "the engine"}}, 200)
	require.Len(t, field(asked, "__interrupt__"), 1)
	sent := p.call("POST", wait, map[string]any{"assistant_id": "approval", "command": map[string]any{"resume": "send"}}, 200)
	require.Equal(t, "sent to Ada", field(sent, "outcome"))
}
