package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/pregel"
	"understudy/graph/spantest"
)

// Spans of an agent: a tool is in its node, an agent that a tool runs is in the tool, and middleware in nodes of its own.
func TestSpans(t *testing.T) {
	t.Parallel()
	for _, content := range []int{200, 0} {
		for _, modes := range [][]string{{"values"}, {"messages-tuple"}, {"events"}} {
			inner := setup(t, agent.Options{Name: "inner", Model: model(t, `{"model":"inner","answers":[{"words":"2"}]}`)})
			ask := agent.MustTool("search", "Ask another agent.", func(ctx context.Context, a searchArgs) (any, error) {
				if a.Q == "bad" {
					return nil, errors.New("secret")
				}
				out, err := pregel.Invoke[json.RawMessage](ctx, inner.agent, pregel.Values{"messages": a.Q})
				if err != nil {
					return nil, err
				}
				return gjson.GetBytes(out.State, "messages.1.content").String(), nil
			})
			w := setup(t, agent.Options{Tools: []agent.Tool{ask}, Model: model(t, `{"model":"lead","answers":[
				{"from":"human","tool_calls":[{"id":"c1","name":"search","args":{"q":"good"}},{"id":"c2","name":"search","args":{"q":"bad"}}]},{"words":"3"}]}`)})
			spans, tracing := spantest.Of(t, content)
			inv := w.invocation(says("call me"), modes...)
			inv.Tracing = tracing
			_, err := w.stream(inv)
			require.NoError(t, err)
			show := func(b graph.SpanBegin, e graph.SpanEnd) string {
				out := ""
				if b.Kind == graph.ModelSpan {
					require.False(t, e.First.IsZero())
					require.NotNil(t, e.Usage)
					out = e.Model
				}
				if e.Error != nil {
					out = e.Error.Type + " " + e.Error.Message
				}
				require.Equal(t, content > 0 && b.Kind != graph.NodeSpan, b.Input != nil, b.Name)
				return out
			}
			text := map[bool]string{true: "secret"}[content > 0]
			lines := spans.Lines(show)
			require.Equal(t, []string{
				"node model success", "  model model success lead", "node model success", "  model model success lead",
				"node tools success", "  " + strings.TrimSpace("tool search error RuntimeError "+text), "node tools success", "  tool search success", "    node model success", "      model model success inner",
			}, lines)
		}
	}
}
