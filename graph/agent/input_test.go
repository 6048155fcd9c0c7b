package agent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/pregel"
)

// The input may have the state of middleware, as in LangChain, except what is private.
func TestInputHasTheStateOfMiddleware(t *testing.T) {
	t.Parallel()
	seen := "not asked"
	w := setup(t, agent.Options{Middleware: []agent.Middleware{
		{Name: "A", State: map[string]pregel.Channel{"title": pregel.LastValue()}},
		{Name: "B", State: map[string]pregel.Channel{"secret": pregel.LastValue()}, Private: true, BeforeAgent: agent.Hook{Run: func(_ context.Context, state pregel.Values) (any, error) {
			seen, _, _ = pregel.Get[string](state, "secret")
			return nil, nil
		}}},
	}})
	got := w.last(w.invocation(`{"messages":[{"role":"user","content":"hi"}],"title":"t","secret":"s"}`, "values"))
	require.Equal(t, "t", got.Get("title").String())
	require.Empty(t, seen)
}
