package pregel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

// An answer of another type fails the run, but not the thread: the next answer takes its place, sent by order or by ID.
func TestAnswerAfterOneThatDoesNotFit(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		first, err := pregel.Interrupt[bool](ctx, "sure?")
		if err != nil {
			return nil, err
		}
		second, err := pregel.Interrupt[int](ctx, "how many?")
		if err != nil || !first {
			return nil, err
		}
		return counted{N: second}, nil
	})
	for _, byID := range []bool{false, true} {
		thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
		r, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, thread)
		require.NoError(t, err)
		answer := func(x any) error {
			if byID {
				x = map[string]any{r.Interrupts[0].ID: x}
			}
			next, err := pregel.Invoke[counted](t.Context(), g, &pregel.Command{Resume: x}, thread)
			if err == nil {
				r = next
			}
			return err
		}
		require.ErrorContains(t, answer("yes please"), "resume the run with an answer that fits", byID)
		require.ErrorContains(t, answer("yes"), "is not a bool", byID)
		require.NoError(t, answer(true), byID)
		require.JSONEq(t, `"how many?"`, string(r.Interrupts[0].Value))
		require.ErrorContains(t, answer("many"), "is not an integer", byID)
		require.NoError(t, answer(7), byID)
		require.Equal(t, counted{N: 7}, r.State, byID)
	}
}

// A node that ignores the error of Interrupt would go on with an answer that no person gave.
func TestQuestionThatIsNotReturned(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, _ counted) (any, error) {
		ok, _ := pregel.Interrupt[bool](ctx, "sure?")
		return counted{N: map[bool]int{true: 1, false: 2}[ok]}, nil
	})
	thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
	_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, thread)
	require.EqualError(t, err, "node a: node 'a' asked a question, but did not return the error of Interrupt: return it unchanged, so that the run waits for the answer")
}

// Mistakes that would change nothing, in silence, are errors of Invoke.
func TestMistakesInOptions(t *testing.T) {
	t.Parallel()
	g := single(t, func(context.Context, counted) (any, error) { return nil, nil })
	for text, option := range map[string]pregel.RunOption{
		"WithConfig: the configuration is not a JSON object":       pregel.WithConfig(json.RawMessage(`nonsense`)),
		`WithConfig: recursion_limit is a number, not "five"`:      pregel.WithConfig(json.RawMessage(`{"recursion_limit": "five"}`)),
		`WithDurability: "often" is not sync, async or exit`:       pregel.WithDurability("often"),
		"WithThread: the thread has no ID; id.NewThread returns":   pregel.WithThread("", checkpointer.NewMemory()),
		"WithThread: there is no saver; checkpointer.NewMemory re": pregel.WithThread(id.NewThread(), nil),
	} {
		_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, option)
		require.ErrorContains(t, err, text)
	}
	var missing *pregel.Graph
	_, err := pregel.Invoke[counted](t.Context(), missing, counted{N: 1})
	require.ErrorContains(t, err, "check the error of Compile")
	_, err = pregel.Invoke[counted](t.Context(), nil, counted{N: 1})
	require.ErrorContains(t, err, "check the error of Compile")
}

// Compile reports all mistakes of a state, also tags on fields that cannot be keys.
func TestMistakesInAState(t *testing.T) {
	t.Parallel()
	type state struct {
		A     string `graph:"a,reducer=append"`
		B     []int  `graph:"b,reducer=addd"`
		E     int    `graph:"a"`
		count int    `graph:"count"`
	}
	g := pregel.NewStateGraph[state]().AddNode("n", func(_ context.Context, s state) (any, error) { return nil, fmt.Errorf("%d", s.count) })
	_, err := g.AddEdge(pregel.START, "n").Compile(pregel.WithLimits(pregel.Limits{CancelGrace: -time.Second}))
	for _, text := range []string{
		"field A: reducer append is for lists", "field B: unknown reducer", `field E: key "a" is taken`,
		"field count has the tag of a key, but is not exported", "limits must not be negative",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = pregel.NewEntrypoint[int, int]("e", nil)
	require.EqualError(t, err, "entrypoint e has no function")
	task := pregel.NewTask[int, int]("t", nil)
	e, err := pregel.NewEntrypoint("e", task.Call)
	require.NoError(t, err)
	_, err = pregel.Invoke[int](t.Context(), e, 1)
	require.EqualError(t, err, "node e: task t has no function")
}

// Names of nodes that there are not come with those that there are; a node that was refused is one mistake.
func TestMistakesInEdges(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, counted) (any, error) { return nil, nil }
	for text, build := range map[string]func(g *pregel.StateGraph[counted]){
		"found edge from '__start__' to unknown node `anwser`; did you mean `answer`?": func(g *pregel.StateGraph[counted]) { g.AddNode("answer", nothing).AddEdge(pregel.START, "anwser") },
		"found edge from '__start__' to unknown node `Answer`; did you mean `answer`?": func(g *pregel.StateGraph[counted]) { g.AddNode("answer", nothing).AddEdge(pregel.START, "Answer") },
		"found edge from '__start__' to unknown node `x`; the nodes are answer, b": func(g *pregel.StateGraph[counted]) {
			g.AddNode("answer", nothing).AddNode("b", nothing).AddEdge(pregel.START, "x")
		},
		"found edge from '__start__' to unknown node `x`; the graph has no nodes: AddNode adds them": func(g *pregel.StateGraph[counted]) { g.AddEdge(pregel.START, "x") },
		"node `a` has no function":                        func(g *pregel.StateGraph[counted]) { g.AddNode("a", nil).AddEdge(pregel.START, "a") },
		"node `a` has no graph":                           func(g *pregel.StateGraph[counted]) { g.AddSubgraph("a", nil).AddEdge(pregel.START, "a") },
		"node `a:b`: '|' and ':' are reserved characters": func(g *pregel.StateGraph[counted]) { g.AddNode("a:b", nothing).AddEdge(pregel.START, "a:b") },
		"at 'a' node, the conditional edges name an unknown node 'bb'; did you mean `abb`?": func(g *pregel.StateGraph[counted]) {
			g.AddNode("a", nothing).AddNode("abb", nothing).AddEdge(pregel.START, "a").AddConditionalEdges("a", func(context.Context, counted) (any, error) { return "bb", nil }, "bb")
		},
	} {
		g := pregel.NewStateGraph[counted]()
		build(g)
		_, err := g.Compile(pregel.WithName("g"))
		require.EqualError(t, err, "graph g: "+text)
	}
}

// What LangGraph words for Python says what to do in Go: to the caller of Invoke in the error, and to an operator in the log, next to the node.
func TestFixesAreForGo(t *testing.T) {
	t.Parallel()
	returns := func(x any) func(g *pregel.StateGraph[counted]) {
		return func(g *pregel.StateGraph[counted]) {
			g.AddNode("a", func(context.Context, counted) (any, error) { return x, nil }).AddEdge(pregel.START, "a")
		}
	}
	for text, c := range map[string]struct {
		build func(g *pregel.StateGraph[counted])
		input any
	}{
		"node a: Expected dict, got text; an update is Values, a struct": {returns("text"), counted{N: 1}},
		"Expected dict, got text; an update is Values, a struct":         {returns(nil), "text"},
		"for __start__; send an input with at least one key":             {returns(nil), nil},
		"without checkpointer; pass WithThread":                          {returns(nil), &pregel.Command{Resume: 1}},
		"limit by setting the `recursion_limit` config key; end the loop": {func(g *pregel.StateGraph[counted]) {
			returns(nil)(g)
			g.AddEdge("a", "a")
		}, counted{N: 1}},
		"write the same key: give it a reducer": {func(g *pregel.StateGraph[counted]) {
			returns(counted{N: 1})(g)
			g.AddNode("b", func(context.Context, counted) (any, error) { return counted{N: 2}, nil }).AddEdge(pregel.START, "b")
		}, counted{N: 1}},
	} {
		g := pregel.NewStateGraph[counted]()
		c.build(g)
		compiled, err := g.Compile(pregel.WithRecursionLimit(5))
		require.NoError(t, err)
		_, err = pregel.Invoke[counted](t.Context(), compiled, c.input)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "docs.langchain.com/oss/python")
		var named *pregel.Error
		require.ErrorAs(t, err, &named, "the chain is kept")
	}
	g := pregel.NewStateGraph[counted]()
	returns("text")(g)
	_, err := collect(t, g.MustCompile(), invocation(nil, `{"n":1}`, "values"))
	var shown *graph.Failure
	require.ErrorAs(t, err, &shown)
	require.Contains(t, shown.Message, "Expected dict, got text\nFor troubleshooting, visit: ", "clients see LangGraph's words")
	require.Contains(t, shown.Detail, "InvalidUpdateError: Expected dict, got text (node a)\n")
	require.Contains(t, shown.Fix, "an update is Values")
}

// A type for the result that has none of the graph's keys would always be zero.
func TestResultOfAnotherType(t *testing.T) {
	t.Parallel()
	g := single(t, func(context.Context, counted) (any, error) { return nil, nil })
	_, err := pregel.Invoke[struct{ Number int }](t.Context(), g, counted{N: 1})
	require.ErrorContains(t, err, "no field of struct { Number int } has the name of a key in its json tag: the keys are n")
	part, err := pregel.Invoke[struct {
		N     int `json:"n"`
		Other string
	}](t.Context(), g, counted{N: 1})
	require.NoError(t, err)
	require.Equal(t, 1, part.State.N)
}

// A state that cannot be saved, or could never be set, is a mistake of Compile, not of the first run.
func TestStatesThatCannotBe(t *testing.T) {
	t.Parallel()
	type state struct {
		C    chan int            `json:"c"`
		F    func()              `json:"f"`
		L    []chan int          `json:"l"`
		M    map[string]*func()  `json:"m"`
		Text []string            `json:"text" graph:"text,reducer=add_messages"`
		Kept func()              `json:"kept" graph:"kept,untracked"`
		Not  chan int            `json:"-"`
		Any  any                 `json:"any" graph:"any,reducer=add_messages"`
		Raw  json.RawMessage     `json:"raw"`
		Good map[string][]string `json:"good"`
	}
	g := pregel.NewStateGraph[state]().AddNode("n", func(context.Context, state) (any, error) { return nil, nil })
	_, err := g.AddEdge(pregel.START, "n").Compile(pregel.WithName("g"))
	const tail = " cannot be part of the state: keep it outside, or mark the field untracked\nstate pregel_test.state: field "
	require.EqualError(t, err, "graph g: state pregel_test.state: field C: a chan int"+tail+"F: a func()"+tail+"L: a chan int"+tail+"M: a func()"+tail+
		"Text: reducer add_messages is for []message.Message, not []string")
	for _, empty := range []func() error{
		func() error {
			_, err := pregel.NewStateGraph[pregel.Values]().AddNode("n", func(context.Context, pregel.Values) (any, error) { return nil, nil }).AddEdge(pregel.START, "n").Compile()
			return err
		},
		func() error {
			_, err := pregel.NewStateGraph[struct{}]().AddNode("n", func(context.Context, struct{}) (any, error) { return nil, nil }).AddEdge(pregel.START, "n").Compile()
			return err
		},
	} {
		require.ErrorContains(t, empty(), "the state has no key: give its struct fields, or declare keys with WithChannel")
	}
}

// A condition that chooses what its edges do not name: the caller reads which edges, clients LangGraph's KeyError.
func TestChoiceOutsideOfTheTargets(t *testing.T) {
	t.Parallel()
	g := pregel.NewStateGraph[counted]()
	g.AddNode("a", func(context.Context, counted) (any, error) { return nil, nil }).AddEdge(pregel.START, "a")
	g.AddConditionalEdges("a", func(context.Context, counted) (any, error) { return "b", nil }, pregel.END)
	graphs := g.MustCompile()
	const text = "the conditional edges of 'a' chose 'b', which is not among their targets; add it there"
	_, err := pregel.Invoke[counted](t.Context(), graphs, counted{N: 1})
	require.EqualError(t, err, "node a: "+text)
	_, err = collect(t, graphs, invocation(nil, `{"n":1}`, "values"))
	var shown *graph.Failure
	require.ErrorAs(t, err, &shown)
	require.Equal(t, "KeyError: 'b'", shown.Error())
	require.Equal(t, text, shown.Fix)
}

// Keys that the state does not have are ignored, as in LangGraph, but not in silence: the log names the node and the keys that there are, once.
func TestUnknownKeysAreReported(t *testing.T) {
	t.Parallel()
	g := single(t, func(context.Context, counted) (any, error) { return pregel.Values{"N": 7}, nil })
	var log bytes.Buffer
	for range 2 {
		_, err := pregel.Invoke[counted](t.Context(), g, pregel.Values{"n": 1, "number": 2}, pregel.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(log.String(), "a node returned a key that the state does not have"), log.String())
	require.Contains(t, log.String(), "node=a key=N keys=n")
	require.Equal(t, 1, strings.Count(log.String(), "a key of the input is not one that the graph takes"), log.String())
	require.Contains(t, log.String(), "key=number keys=n")
}
