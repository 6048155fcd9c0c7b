package pregel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

// typed is an error that a caller looks for by its type.
type typed struct{ code int }

func (e *typed) Error() string { return fmt.Sprint("code ", e.code) }

// What a node returned is found with errors.Is and errors.As, however deep the graph is that it is a node of. Only clients of a server see it masked.
func TestInvokeKeepsErrors(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("open: %w", errors.Join(fs.ErrPermission, &typed{7}))
	g := single(t, func(context.Context, counted) (any, error) { return nil, cause })
	for depth := range 3 {
		_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1})
		require.ErrorIs(t, err, fs.ErrPermission, depth)
		var found *typed
		require.ErrorAs(t, err, &found)
		require.Equal(t, 7, found.code)
		require.Contains(t, err.Error(), "open: ")
		var masked *graph.Failure
		require.False(t, errors.As(err, &masked))

		inner := g
		if depth%2 == 0 {
			g = pregel.NewStateGraph[counted]().AddSubgraph("sub", inner).AddEdge(pregel.START, "sub").MustCompile()
		} else {
			g = single(t, func(ctx context.Context, s counted) (any, error) {
				out, err := pregel.Invoke[counted](ctx, inner, s)
				return out.State, err
			})
		}
	}
	_, err := collect(t, g, invocation(nil, `{"n":1}`, "values"))
	var failure *graph.Failure
	require.ErrorAs(t, err, &failure)
}

// unreadable is a saver that fails to load, in namespaces of at least so many characters.
type unreadable struct {
	memory
	loading error
	within  int
}

func (u *unreadable) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	if u.loading != nil && len(k.NS) >= u.within {
		return nil, u.loading
	}
	return u.memory.Load(ctx, k)
}

// Errors of the storage keep their chain in process, whatever fails and however deep; clients of a server read that it failed, not why.
func TestInvokeKeepsErrorsOfStorage(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("disk of the secret host: %w", errors.Join(fs.ErrPermission, &typed{7}))
	leaf := single(t, func(_ context.Context, s counted) (any, error) { return counted{N: s.N + 1}, nil })
	nested := pregel.NewStateGraph[counted]().AddSubgraph("sub", leaf).AddEdge(pregel.START, "sub").MustCompile()
	savers := map[string]func() *unreadable{
		"the first save": func() *unreadable { return &unreadable{memory: memory{fail: func(graph.Save) error { return cause }}} },
		"writes of the node": func() *unreadable {
			return &unreadable{memory: memory{fail: func(s graph.Save) error {
				if s.Put == nil {
					return cause
				}
				return nil
			}}}
		},
		"load":               func() *unreadable { return &unreadable{loading: cause} },
		"load of a subgraph": func() *unreadable { return &unreadable{loading: cause, within: 1} },
	}
	for name, saver := range savers {
		for depth, g := range []*pregel.Graph{leaf, nested} {
			for _, durability := range []string{"sync", "async", "exit"} {
				m := saver()
				_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, pregel.WithThread(testThread, m), pregel.WithDurability(durability))
				at := fmt.Sprint(name, depth, durability)
				if name == "load of a subgraph" && depth == 0 || name == "writes of the node" && durability == "exit" {
					require.NoError(t, err, at)
					continue
				}
				require.ErrorIs(t, err, fs.ErrPermission, at)
				var found *typed
				require.ErrorAs(t, err, &found, at)
				require.Regexp(t, "^(node sub: )?(save|read) .*checkpoints?.* of thread [-0-9a-f]+: disk of the secret host: ", err.Error(), at)
				var masked *graph.Failure
				require.False(t, errors.As(err, &masked), at)

				inv := invocation(nil, `{"n":1}`, "values", "debug")
				inv.Saver, inv.Durability = saver(), durability
				events, err := collect(t, g, inv)
				require.ErrorAs(t, err, &masked, at)
				require.True(t, masked.Server, at)
				require.NotContains(t, masked.Message, "secret", at)
				for _, e := range events {
					require.NotContains(t, string(e.Data), "secret", at)
				}
				require.Contains(t, masked.Detail, "secret", at)
			}
		}
	}
}

// A panic shows its value and the node in one line, and with %+v the stack; an error that a node panicked with is part of the chain.
func TestInvokeShowsPanics(t *testing.T) {
	t.Parallel()
	for value, is := range map[any]error{"the value": nil, "two\n\tlines": nil, fs.ErrClosed: fs.ErrClosed} {
		g := single(t, func(context.Context, counted) (any, error) { return panics(value) })
		_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1})
		var p *pregel.PanicError
		require.ErrorAs(t, err, &p)
		require.Equal(t, value, p.Value)
		require.Equal(t, fmt.Sprint("node a: panic: ", strings.Join(strings.Fields(fmt.Sprint(value)), " ")), err.Error())
		var at *pregel.NodeError
		require.ErrorAs(t, err, &at)
		require.Equal(t, "a", at.Node)
		require.Equal(t, "a", p.Node)
		require.Contains(t, string(p.Stack), "pregel_test.panics(")
		require.Equal(t, err.Error(), fmt.Sprintf("%v", err))
		require.Equal(t, `"`+err.Error()+`"`, fmt.Sprintf("%q", err))
		require.Equal(t, err.Error()+"\n\n"+string(p.Stack), fmt.Sprintf("%+v", err))
		if is != nil {
			require.ErrorIs(t, err, is)
		}
	}
}

func panics(value any) (any, error) { panic(value) }

// Questions of parallel nodes and of a subgraph are in the result, and can be answered by ID, one after the other.
func TestInvokeReturnsInterrupts(t *testing.T) {
	t.Parallel()
	type state struct {
		Answers []string `json:"answers" graph:"answers,reducer=append"`
	}
	ask := func(question string) func(ctx context.Context, s state) (any, error) {
		return func(ctx context.Context, _ state) (any, error) {
			answer, err := pregel.Interrupt[string](ctx, question, pregel.ResponseSchema(json.RawMessage(`{"type":"string"}`)))
			if err != nil {
				return nil, err
			}
			return state{[]string{question + answer}}, nil
		}
	}
	inner := pregel.NewStateGraph[state]().AddNode("deep", ask("c")).AddEdge(pregel.START, "deep").MustCompile()
	g := pregel.NewStateGraph[state]().AddNode("a", ask("a")).AddNode("b", ask("b")).AddSubgraph("sub", inner).
		AddNode("done", func(context.Context, state) (any, error) { return nil, nil }).
		AddEdge(pregel.START, "a").AddEdge(pregel.START, "b").AddEdge(pregel.START, "sub").AddJoin([]string{"a", "b", "sub"}, "done").
		MustCompile()
	thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
	r, err := pregel.Invoke[state](t.Context(), g, state{}, thread)
	require.NoError(t, err)
	waiting := []string{"a", "b", "c"}
	nodes := []string{"a", "b", "sub"}
	for len(waiting) > 0 {
		require.Equal(t, nodes, r.Next)
		require.Len(t, r.Interrupts, len(waiting))
		for i, q := range r.Interrupts {
			var text string
			require.NoError(t, q.Decode(&text))
			require.Equal(t, waiting[i], text)
			require.JSONEq(t, `{"type":"string"}`, string(q.ResponseSchema))
		}
		r, err = pregel.Invoke[state](t.Context(), g, &pregel.Command{Resume: map[string]any{r.Interrupts[0].ID: "!"}}, thread)
		require.NoError(t, err)
		waiting, nodes = waiting[1:], nodes[1:]
	}
	require.Empty(t, r.Next)
	require.Empty(t, r.Interrupts)
	require.ElementsMatch(t, []string{"a!", "b!", "c!"}, r.State.Answers)
}

// A graph that stops before or after a node says where it goes on, and goes on without input.
func TestInvokeStops(t *testing.T) {
	t.Parallel()
	step := func(_ context.Context, s counted) (any, error) { return counted{N: s.N + 1}, nil }
	for name, option := range map[string]pregel.CompileOption{"before": pregel.InterruptBefore("two"), "after": pregel.InterruptAfter("one")} {
		g := pregel.NewStateGraph[counted]().AddNode("one", step).AddNode("two", step).AddSequence(pregel.START, "one", "two", pregel.END).MustCompile(option)
		thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
		r, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, thread)
		require.NoError(t, err, name)
		require.Equal(t, pregel.Result[counted]{State: counted{N: 2}, Next: []string{"two"}}, r, name)
		r, err = pregel.Invoke[counted](t.Context(), g, nil, thread)
		require.NoError(t, err, name)
		require.Equal(t, pregel.Result[counted]{State: counted{N: 3}}, r, name)
	}
}

// The state is decoded as nodes decode it, also to types that are none of JSON's, and a type that does not fit is an error that names the key.
func TestInvokeDecodes(t *testing.T) {
	t.Parallel()
	g := single(t, func(context.Context, counted) (any, error) { return counted{N: 2}, nil })
	for _, want := range []any{counted{N: 2}, pregel.Values{"n": json.RawMessage("2")}, json.RawMessage(`{"n":2}`)} {
		var got any
		var err error
		switch want.(type) {
		case counted:
			got, err = state(pregel.Invoke[counted](t.Context(), g, one))
		case pregel.Values:
			got, err = state(pregel.Invoke[pregel.Values](t.Context(), g, one))
		default:
			got, err = state(pregel.Invoke[json.RawMessage](t.Context(), g, one))
		}
		require.NoError(t, err)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, `{"n":2}`, string(text))
		require.IsType(t, want, got)
	}
	_, err := pregel.Invoke[struct {
		N []string `json:"n"`
	}](t.Context(), g, one)
	require.ErrorContains(t, err, "result of graph")
}

var one = counted{N: 1}

func state[S any](r pregel.Result[S], err error) (any, error) { return r.State, err }

// An error names the node that returned it, in a subgraph with the nodes around it, and keeps its chain.
func TestInvokeNamesTheNode(t *testing.T) {
	t.Parallel()
	inner := single(t, func(context.Context, counted) (any, error) { return nil, fs.ErrPermission })
	outer := pregel.NewStateGraph[counted]().AddSubgraph("sub", inner).AddEdge(pregel.START, "sub").MustCompile()
	called := single(t, func(ctx context.Context, s counted) (any, error) {
		_, err := pregel.Invoke[counted](ctx, inner, s)
		return nil, fmt.Errorf("ask: %w", err)
	})
	chooses := pregel.NewStateGraph[counted]()
	chooses.AddNode("a", func(context.Context, counted) (any, error) { return nil, nil }).AddEdge(pregel.START, "a")
	chooses.AddConditionalEdges("a", func(context.Context, counted) (any, error) { return nil, fs.ErrPermission })
	for text, g := range map[string]*pregel.Graph{
		"node a: permission denied": inner, "node sub/a: permission denied": outer, "node a/a: ask: permission denied": called,
	} {
		_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1})
		var at *pregel.NodeError
		require.ErrorAs(t, err, &at)
		require.EqualError(t, err, text)
		require.ErrorIs(t, err, fs.ErrPermission)
	}
	_, err := pregel.Invoke[counted](t.Context(), chooses.MustCompile(), counted{N: 1})
	require.EqualError(t, err, "node a: permission denied")

	_, err = collect(t, outer, invocation(nil, `{"n":1}`, "values"))
	var shown *graph.Failure
	require.ErrorAs(t, err, &shown)
	require.Equal(t, "permission denied", shown.Message, "clients see the text of the error alone")
	require.Equal(t, "RuntimeError: permission denied (node sub/a)", shown.Detail)
}

// The error of a run that was cancelled names the nodes that ran, also those that ignore their context.
func TestInvokeNamesWhatItStopped(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		started, release := make(chan struct{}), make(chan struct{})
		grace := time.Minute
		if deaf {
			grace = 100 * time.Millisecond
		}
		inner := pregel.NewStateGraph[counted]()
		inner.AddNode("slow", func(ctx context.Context, _ counted) (any, error) {
			close(started)
			if deaf {
				<-release
				return nil, nil
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}).AddEdge(pregel.START, "slow")
		g := pregel.NewStateGraph[counted]().AddSubgraph("sub", inner.MustCompile()).AddEdge(pregel.START, "sub").
			MustCompile(pregel.WithLimits(pregel.Limits{CancelGrace: grace}))
		cause := errors.New("nothing waits for it")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-started
			cancel(cause)
		}()
		_, err := pregel.Invoke[counted](ctx, g, counted{N: 1})
		close(release)
		var at *pregel.NodeError
		require.ErrorAs(t, err, &at)
		require.ErrorIs(t, err, cause)
		if deaf {
			require.Contains(t, []string{"sub", "sub/slow"}, at.Node, "both graphs give up at the same time")
		} else {
			require.EqualError(t, err, "node sub/slow: nothing waits for it")
		}
	}
}
