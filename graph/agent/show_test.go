package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/pregel"
)

// Calls of tools are streamed in the mode tools: their start, and their result under the ID that it has in the state, or their error. A tool that waits at an
// interrupt has not failed.
func TestStreamOfToolCalls(t *testing.T) {
	t.Parallel()
	asks := agent.MustTool("search", "Look something up.", func(ctx context.Context, a searchArgs) (any, error) {
		return pregel.Interrupt[string](ctx, "which "+a.Q+"?")
	})
	breaks := agent.MustTool("search", "Look something up.", func(context.Context, searchArgs) (any, error) { return nil, errors.New("no network") })
	const started = `{"event":"tool-started","tool_call_id":"call_1","tool_name":"search","input":{"q":"cats"}}`
	for _, tt := range []struct {
		name  string
		tool  agent.Tool
		words string
		want  []string // events; of a result only the content
	}{
		{"result", search, `call search {"q":"cats"}`, []string{started, "Found 10 results for cats"}},
		{"interrupt", asks, `call search {"q":"cats"}`, []string{started}},
		{"error", breaks, `call search {"q":"cats"}`, []string{started, `{"event":"tool-error","tool_call_id":"call_1","message":"no network"}`}},
		{"bad arguments", search, `call search {"p":1}`, []string{`{"event":"tool-started","tool_call_id":"call_1","tool_name":"search","input":{"p":1}}`, `{"event":"tool-error","tool_call_id":"call_1","message":"q: Field required"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, agent.Options{Tools: []agent.Tool{tt.tool}})
			events, _ := w.stream(w.invocation(says(tt.words), "values", "tools"))
			var got []string
			state := ""
			for _, e := range events {
				switch {
				case e.Name == "values":
					state = string(e.Data)
				case gjson.GetBytes(e.Data, "output").Exists():
					got = append(got, gjson.GetBytes(e.Data, "output.content").Str)
				default:
					got = append(got, string(e.Data))
				}
			}
			require.Equal(t, tt.want, got)
			for _, e := range events {
				if result := gjson.GetBytes(e.Data, "output.id").Str; result != "" {
					require.Contains(t, state, result)
				}
			}
			silent, _ := setup(t, agent.Options{Tools: []agent.Tool{tt.tool}}).stream(w.invocation(says(tt.words), "custom"))
			require.Empty(t, silent)
		})
	}
}
