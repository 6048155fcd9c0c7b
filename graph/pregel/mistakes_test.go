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
	"understudy/graph/message"
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
		"Expected dict, got text; this is the input of graph":            {returns(nil), "text"},
		"for __start__; send an input with at least one key":             {returns(nil), nil},
		"without checkpointer; pass WithThread":                          {returns(nil), &pregel.Command{Resume: 1}},
		"limit by setting the `recursion_limit` config key; end the loop": {func(g *pregel.StateGraph[counted]) {
			returns(nil)(g)
			g.AddEdge("a", "a")
		}, counted{N: 1}},
		"with what nodes a, b wrote: give it a reducer": {func(g *pregel.StateGraph[counted]) {
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
	for _, invoke := range map[string]func() error{
		"[]int":   func() error { _, err := pregel.Invoke[[]int](t.Context(), g, counted{N: 1}); return err },
		"string":  func() error { _, err := pregel.Invoke[string](t.Context(), g, counted{N: 1}); return err },
		"int":     func() error { _, err := pregel.Invoke[*int](t.Context(), g, counted{N: 1}); return err },
		"float64": func() error { _, err := pregel.Invoke[float64](t.Context(), g, counted{N: 1}); return err },
	} {
		require.ErrorContains(t, invoke(), "its state is an object with the keys n, and ")
		require.ErrorContains(t, invoke(), "name the type of the state: Invoke[State]")
	}
	raw, err := pregel.Invoke[json.RawMessage](t.Context(), g, counted{N: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(raw.State))
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

// A value that cannot be decoded to the type of its key does not fail the run, because possibly no node reads the key. It is logged once per node and key,
// with both types. Values that can be decoded are not reported.
func TestValuesThatDoNotFitAreReported(t *testing.T) {
	t.Parallel()
	type small int
	for name, c := range map[string]struct {
		value any
		typ   string // "": it fits
	}{
		"text": {"two", "string"}, "list": {[]int{1}, "a list"}, "fraction": {1.5, "float64"},
		"same": {2, ""}, "whole": {2.0, ""}, "named": {small(2), ""}, "nothing": {nil, ""}, "JSON": {json.RawMessage(`2`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := single(t, func(context.Context, counted) (any, error) { return pregel.Values{"n": c.value}, nil })
			var log bytes.Buffer
			for range 2 {
				_, _ = pregel.Invoke[counted](t.Context(), g, counted{}, pregel.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
			}
			want := 0
			if c.typ != "" {
				want = 1
				require.Regexp(t, `node=a key=n type="?`+c.typ+`"? want=int`, log.String())
			}
			require.Equal(t, want, strings.Count(log.String(), "not of the type of its key"), log.String())
		})
	}
}

// A value that does not fit is the error of the node that reads it; who wrote it, the key and both types are in the error, and in the log of a server.
func TestMisreadNamesTheWriter(t *testing.T) {
	t.Parallel()
	type state struct {
		N    int      `json:"n"`
		List []string `json:"list" graph:"list,reducer=append"`
		Raw  any      `json:"raw"`
	}
	reader := func(context.Context, state) (any, error) { return nil, nil }
	build := func(update any, options func(g *pregel.StateGraph[state])) *pregel.Graph {
		g := pregel.NewStateGraph[state]()
		g.AddNode("first", func(context.Context, state) (any, error) { return update, nil })
		g.AddNode("between", func(context.Context, state) (any, error) { return pregel.Values{"raw": 1}, nil })
		g.AddNode("reader", reader)
		options(g)
		return g.MustCompile()
	}
	chain := func(g *pregel.StateGraph[state]) { g.AddSequence(pregel.START, "first", "reader") }
	last := func(g *pregel.StateGraph[state]) { g.AddEdge(pregel.START, "first") }
	condition := func(g *pregel.StateGraph[state]) {
		g.AddEdge(pregel.START, "first")
		g.AddConditionalEdges("first", func(context.Context, state) (any, error) { return "reader", nil })
	}
	for _, c := range []struct {
		name   string
		update any
		edges  func(*pregel.StateGraph[state])
		want   string
	}{
		{"a node", pregel.Values{"n": "two"}, chain, `node reader: read the input: n: "two" is not an integer that fits; key 'n' is read as int, but node 'first' wrote string: use one type for both`},
		{"raw JSON", json.RawMessage(`{"n":{"a":1}}`), chain, `key 'n' is read as int, but node 'first' wrote an object: use one type for both`},
		{"a Command", &pregel.Command{Update: pregel.Values{"n": []int{1}}}, chain, `key 'n' is read as int, but node 'first' wrote a list: `},
		{"an item", pregel.Values{"list": []int{7}}, chain, `list: item 0: 7 is not text; key 'list' is read as []string, but node 'first' wrote a list: `},
		{"its condition", pregel.Values{"n": 1.5}, condition, `node first: read the input: n: 1.5 is not an integer that fits; key 'n' is read as int, but node 'first' wrote float64: `},
		{"the result", pregel.Values{"n": true}, last, `n: true is not an integer that fits; key 'n' is read as int, but node 'first' wrote bool: `},
		{"a Send", &pregel.Command{Goto: pregel.Send{Node: "reader", Arg: pregel.Values{"n": "x"}}}, last, `node reader: read the input: n: "x" is not an integer that fits; key 'n' is read as int, but node 'first' sent string: `},
	} {
		_, err := pregel.Invoke[state](t.Context(), build(c.update, c.edges), state{N: 1})
		require.ErrorContains(t, err, c.want, c.name)
		var failure *graph.Failure
		if _, err := collect(t, build(c.update, c.edges), invocation(nil, `{"n":1}`)); err != nil {
			require.ErrorAs(t, err, &failure, c.name)
			require.Equal(t, "TypeError", failure.Type, c.name)
			require.NotContains(t, failure.Message, "first", c.name)
			require.Contains(t, failure.Fix, "node 'first'", c.name)
		}
	}

	_, err := pregel.Invoke[state](t.Context(), build(nil, chain), pregel.Values{"n": "two"})
	require.ErrorContains(t, err, `node first: read the input: n: "two" is not an integer that fits; key 'n' is read as int, but the input has string: use one type for both`)
	_, err = pregel.Invoke[state](t.Context(), build(pregel.Values{"n": "two"}, func(g *pregel.StateGraph[state]) {
		g.AddSequence(pregel.START, "first")
		g.AddConditionalEdges(pregel.START, func(context.Context, state) (any, error) { return "between", nil })
		g.AddJoin([]string{"first", "between"}, "reader")
	}), state{N: 1})
	require.ErrorContains(t, err, "node 'first' wrote string")

	// In an earlier run.
	thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
	_, err = pregel.Invoke[json.RawMessage](t.Context(), build(pregel.Values{"n": "two"}, last), state{N: 1}, thread)
	require.NoError(t, err)
	_, err = pregel.Invoke[state](t.Context(), build(nil, chain), state{List: []string{"x"}}, thread)
	require.ErrorContains(t, err, "key 'n' is read as int, but it was written before this run, or by a client: use one type for both")
}

// What a reducer does not take is the error of the run, not of a node: the key and who wrote it are in the error, and in the log of a server.
func TestRefusedUpdateNamesTheWriter(t *testing.T) {
	t.Parallel()
	type state struct {
		N        int               `json:"n" graph:"n,reducer=add"`
		List     []string          `json:"list" graph:"list,reducer=append"`
		Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
		Own      float64           `json:"own"`
		Last     string            `json:"last"`
	}
	for key, update := range map[string]any{
		"n": pregel.Values{"n": "x"}, "list": pregel.Values{"list": 5}, "messages": pregel.Values{"messages": 5},
		"own": &pregel.Command{Update: pregel.Values{"own": "x"}}, "last": []pregel.Write{{Channel: "last", Value: "x"}, {Channel: "last", Value: "y"}},
	} {
		for _, both := range []bool{false, true} {
			g := pregel.NewStateGraph[state](pregel.WithChannel("own", pregel.Reducer(func(a, b float64) float64 { return a + b })))
			g.AddNode("first", func(context.Context, state) (any, error) { return update, nil })
			g.AddNode("second", func(context.Context, state) (any, error) {
				if both {
					return update, nil
				}
				return nil, nil
			})
			g.AddEdge(pregel.START, "first").AddEdge(pregel.START, "second")
			compiled := g.MustCompile()
			want := "this is key '" + key + "', with what node 'first' wrote"
			if both {
				want = "this is key '" + key + "', with what nodes first, second wrote"
			}
			_, err := pregel.Invoke[state](t.Context(), compiled, state{List: []string{"a"}, Own: 1})
			require.ErrorContains(t, err, want, key)
			_, err = collect(t, compiled, invocation(nil, `{"list":["a"],"own":1}`))
			var failure *graph.Failure
			require.ErrorAs(t, err, &failure, key)
			require.NotContains(t, failure.Message, "first", key)
			require.Contains(t, failure.Fix, want, key)
		}
	}
	_, _, err := pregel.Get[int](pregel.Values{"n": json.RawMessage(`"x"`)}, "n")
	require.EqualError(t, err, `key 'n': "x" is not an integer that fits`)
}

// As in LangGraph an answer that no question waits for is no error, and a question of a run that is not saved is a result. The log says what is wrong with both.
func TestAnswersAndQuestionsWithoutEachOther(t *testing.T) {
	t.Parallel()
	counting := single(t, func(_ context.Context, s counted) (any, error) { return counted{N: s.N + 1}, nil })
	asking := single(t, func(ctx context.Context, _ counted) (any, error) {
		n, err := pregel.Interrupt[int](ctx, "how many?")
		if err != nil {
			return nil, err
		}
		return counted{N: n}, nil
	})
	var log bytes.Buffer
	run := func(g *pregel.Graph, input any, options ...pregel.RunOption) (pregel.Result[counted], string) {
		log.Reset()
		r, err := pregel.Invoke[counted](t.Context(), g, input, append(options, pregel.WithLog(slog.New(slog.NewTextHandler(&log, nil))))...)
		require.NoError(t, err)
		return r, log.String()
	}
	const unasked, unsaved = "an answer came to a thread on which no question waits", "nothing can resume it"
	thread := func() pregel.RunOption { return pregel.WithThread(id.NewThread(), checkpointer.NewMemory()) }

	used := thread()
	_, text := run(counting, counted{N: 1}, used)
	require.Empty(t, text)
	for _, answer := range []any{1, map[string]any{strings.Repeat("0", 32): 1}} {
		r, text := run(counting, &pregel.Command{Resume: answer}, used)
		require.Equal(t, 1, strings.Count(text, unasked), text)
		require.Equal(t, counted{N: 2}, r.State)
		_, text = run(counting, &pregel.Command{Resume: answer}, thread())
		require.Equal(t, 1, strings.Count(text, unasked), text)
	}

	used = thread()
	r, text := run(asking, counted{N: 1}, used)
	require.Len(t, r.Interrupts, 1)
	require.Empty(t, text)
	r, text = run(asking, &pregel.Command{Resume: map[string]any{strings.Repeat("0", 32): 1}}, used) // another question's
	require.Len(t, r.Interrupts, 1)
	require.Empty(t, text)
	r, text = run(asking, &pregel.Command{Resume: 7}, used)
	require.Equal(t, counted{N: 7}, r.State)
	require.Empty(t, text)

	used = thread()
	stopping := pregel.NewStateGraph[counted]().AddNode("a", func(_ context.Context, s counted) (any, error) { return counted{N: s.N + 1}, nil }).
		AddEdge(pregel.START, "a").MustCompile(pregel.InterruptBefore("a"))
	_, text = run(stopping, counted{N: 1}, used)
	require.Empty(t, text)
	r, text = run(stopping, &pregel.Command{Resume: 1}, used) // past a breakpoint, as in LangGraph
	require.Equal(t, counted{N: 2}, r.State)
	require.Empty(t, text)

	r, text = run(asking, counted{N: 1})
	require.Len(t, r.Interrupts, 1)
	require.Equal(t, 1, strings.Count(text, unsaved), text)
	require.Contains(t, text, "pass WithThread")
}
