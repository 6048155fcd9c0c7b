package pregel_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

type (
	plain[T any] struct {
		K T `json:"k"`
	}
	added[T any] struct {
		K T `json:"k" graph:"k,reducer=add"`
	}
	appended[T any] struct {
		K T `json:"k" graph:"k,reducer=append"`
	}
	messages[T any] struct {
		K T `json:"k" graph:"k,reducer=add_messages"`
	}
)

// twoWrite returns a graph of which two nodes of a step write the key of its state.
func twoWrite[S any](t *testing.T) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[S]()
	for _, name := range []string{"first", "second"} {
		g.AddNode(name, func(context.Context, S) (any, error) { return pregel.Values{"k": json.RawMessage(`null`)}, nil }).AddEdge(pregel.START, name)
	}
	compiled, err := g.Compile()
	require.NoError(t, err, "the advice is followed")
	return compiled
}

// advised checks that a key of this type gets the advice to use the reducer, which its type takes; "": one of its own.
func advised[T any](t *testing.T, reducer string) {
	t.Helper()
	_, err := pregel.Invoke[plain[T]](t.Context(), twoWrite[plain[T]](t), plain[T]{})
	var at *pregel.NodeError
	require.ErrorAs(t, err, &at)
	require.Equal(t, "first, second", at.Node)
	require.NotContains(t, err.Error(), "Annotated")
	require.ErrorContains(t, err, `WithChannel("k", Reducer(`)
	if reducer == "" {
		require.NotContains(t, err.Error(), "reducer=")
	} else {
		require.ErrorContains(t, err, `graph:"k,reducer=`+reducer+`"`)
	}
	switch reducer {
	case "add":
		twoWrite[added[T]](t)
	case "append":
		twoWrite[appended[T]](t)
	case "add_messages":
		twoWrite[messages[T]](t)
	}
}

// What to do about two writes in a step fits the type of the key.
func TestAdviceForReducersFitsTheType(t *testing.T) {
	t.Parallel()
	advised[int](t, "add")
	advised[uint8](t, "add")
	advised[float64](t, "add")
	advised[string](t, "add")
	advised[[]string](t, "append")
	advised[[]map[string]any](t, "append")
	advised[[]message.Message](t, "add_messages")
	advised[bool](t, "")
	advised[any](t, "")
	advised[json.RawMessage](t, "")
	advised[map[string]int](t, "")
	advised[*int](t, "")
	advised[plain[int]](t, "")
}

// An input that is no update is named as the input, of the graph that got it.
func TestWrongInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, input := range []any{"hello", 7, []string{"a"}, json.RawMessage(`"x"`)} {
		_, err := pregel.Invoke[steps](t.Context(), looping(t, pregel.WithName("counter")), input)
		require.ErrorContains(t, err, "Expected dict, got ")
		require.ErrorContains(t, err, "this is the input of graph counter: an update is Values, a struct of keys")
	}
}

// A run that does not end names the nodes that it would run next, also within a graph that is a node.
func TestEndlessLoopsAreNamed(t *testing.T) {
	t.Parallel()
	loop := looping(t, pregel.WithRecursionLimit(3))
	outer := pregel.NewStateGraph[steps]().AddSubgraph("inner", loop).AddEdge(pregel.START, "inner").MustCompile()
	for want, g := range map[string]*pregel.Graph{"count": loop, "inner/count": outer} {
		_, err := pregel.Invoke[steps](t.Context(), g, steps{To: 100})
		var at *pregel.NodeError
		require.ErrorAs(t, err, &at)
		require.Equal(t, want, at.Node)
		require.True(t, strings.HasPrefix(err.Error(), "node "+want+": Recursion limit of 3 reached"), err.Error())
	}
}
