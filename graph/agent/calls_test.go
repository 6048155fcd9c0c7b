package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/pregel"
)

// Every model call of an agent is reported once, whatever is streamed: its own, those of its middleware, and those of agents that its
// tools run.
func TestModelCallsAreReported(t *testing.T) {
	t.Parallel()
	named := func(name, answers string) agent.Model {
		return model(t, `{"model":"`+name+`","answers":`+answers+`}`)
	}
	for _, modes := range [][]string{{"values"}, {"messages-tuple", "updates"}, {"messages"}, {"events"}, {}} {
		inner := setup(t, agent.Options{Name: "inner", Model: named("inner", `[{"words":"2"}]`)})
		ask := agent.MustTool("search", "Ask another agent.", func(ctx context.Context, a searchArgs) (any, error) {
			out, err := pregel.Invoke[json.RawMessage](ctx, inner.agent, pregel.Values{"messages": a.Q})
			if err != nil {
				return nil, err
			}
			return gjson.GetBytes(out.State, "messages.1.content").String(), nil
		})
		w := setup(t, agent.Options{
			Tools: []agent.Tool{ask}, Model: named("lead", `[{"from":"human","when":"^call (.*)$","tool_calls":[{"id":"c1","name":"search","args":{"q":"$1"}}]},{"words":"3"}]`),
			Middleware: []agent.Middleware{
				must(agent.Summarization(agent.SummarizationOptions{Model: named("summary", `[{"content":"s"}]`), Trigger: []agent.Size{{Messages: 3}}, Keep: agent.Size{Messages: 1}})),
				must(agent.Title(agent.TitleOptions{Model: named("title", `[{"content":"t"}]`)})),
			},
		})
		var mu sync.Mutex
		var got []string
		inv := w.invocation(says("call me"), modes...)
		ids := map[string]bool{}
		inv.Called = func(c graph.ModelCall) {
			mu.Lock()
			defer mu.Unlock()
			require.NotNil(t, c.Usage)
			require.NotEmpty(t, c.Message)
			require.Positive(t, c.Took)
			require.False(t, ids[c.ID])
			ids[c.ID] = true
			got = append(got, fmt.Sprint(c.Caller, " ", c.Model))
		}
		_, err := w.stream(inv)
		require.NoError(t, err)
		slices.Sort(got)
		require.Equal(t, []string{"lead lead", "lead lead", "middleware summary", "middleware title", "subagent inner"}, got, modes)
	}
}
