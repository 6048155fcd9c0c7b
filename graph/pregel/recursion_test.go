package pregel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/pregel"
)

// steps is a state that is counted up to a number.
type steps struct {
	N  int `json:"n"`
	To int `json:"to"`
}

// looping returns a graph that takes as many steps as its state says.
func looping(t *testing.T, options ...pregel.CompileOption) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[steps]()
	g.AddNode("count", func(_ context.Context, s steps) (any, error) {
		return pregel.Values{"n": s.N + 1}, nil
	})
	g.AddEdge(pregel.START, "count")
	g.AddConditionalEdges("count", func(_ context.Context, s steps) (any, error) {
		if s.N < s.To {
			return "count", nil
		}
		return pregel.END, nil
	})
	compiled, err := g.Compile(options...)
	require.NoError(t, err)
	return compiled
}

// A graph with a limit of its own has it in a run without one, and within a run that has another; a run with a limit keeps it.
func TestRecursionLimitOfAGraph(t *testing.T) {
	t.Parallel()
	within := func(inner *pregel.Graph) *pregel.Graph {
		g := pregel.NewStateGraph[steps]()
		g.AddNode("inner", func(ctx context.Context, s steps) (any, error) {
			r, err := pregel.Invoke[steps](ctx, inner, s)
			return r.State, err
		})
		g.AddEdge(pregel.START, "inner")
		g.AddEdge("inner", pregel.END)
		compiled, err := g.Compile()
		require.NoError(t, err)
		return compiled
	}
	few := pregel.WithConfig([]byte(`{"recursion_limit":5}`))
	for name, tt := range map[string]struct {
		graph   *pregel.Graph
		options []pregel.RunOption
		steps   int
		ends    bool
	}{
		"its own":                      {looping(t, pregel.WithRecursionLimit(10)), nil, 9, true},
		"more than its own":            {looping(t, pregel.WithRecursionLimit(10)), nil, 10, false},
		"the run's":                    {looping(t, pregel.WithRecursionLimit(10)), []pregel.RunOption{few}, 6, false},
		"within a run":                 {within(looping(t, pregel.WithRecursionLimit(10))), []pregel.RunOption{few}, 9, true},
		"within a run, more than that": {within(looping(t, pregel.WithRecursionLimit(10))), []pregel.RunOption{few}, 10, false},
		"within a run, none":           {within(looping(t)), []pregel.RunOption{few}, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := pregel.Invoke[steps](t.Context(), tt.graph, pregel.Values{"n": 0, "to": tt.steps}, tt.options...)
			if !tt.ends {
				require.ErrorContains(t, err, "Recursion limit")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.steps, r.State.N)
		})
	}
}
