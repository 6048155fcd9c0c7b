package pregel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

type counted struct {
	N int `json:"n"`
}

func echoGraph(tb testing.TB) *pregel.Graph {
	g := pregel.NewStateGraph[counted]()
	g.AddNode("echo", func(_ context.Context, s counted) (any, error) { return pregel.Values{"n": s.N + 1}, nil })
	g.AddEdge(pregel.START, "echo").AddEdge("echo", pregel.END)
	out, err := g.Compile()
	require.NoError(tb, err)
	return out
}

func loopGraph(tb testing.TB, steps int) *pregel.Graph {
	g := pregel.NewStateGraph[counted]()
	g.AddNode("step", func(_ context.Context, s counted) (any, error) { return pregel.Values{"n": s.N + 1}, nil })
	g.AddEdge(pregel.START, "step")
	g.AddConditionalEdges("step", func(_ context.Context, s counted) (any, error) {
		if s.N < steps {
			return "step", nil
		}
		return pregel.END, nil
	}, "step", pregel.END)
	out, err := g.Compile()
	require.NoError(tb, err)
	return out
}

type conversation struct {
	Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
}

func chatGraph(tb testing.TB) *pregel.Graph {
	g := pregel.NewStateGraph[conversation]()
	g.AddNode("speak", func(_ context.Context, s conversation) (any, error) {
		return conversation{Messages: []message.Message{message.AI(fmt.Sprintf("answer %d", len(s.Messages)))}}, nil
	})
	g.AddEdge(pregel.START, "speak")
	out, err := g.Compile()
	require.NoError(tb, err)
	return out
}

// The engine alone, as bench.py measures graph.ainvoke.
func BenchmarkInvoke(b *testing.B) {
	for _, bc := range []struct {
		name  string
		graph *pregel.Graph
	}{{"echo", echoGraph(b)}, {"loop10", loopGraph(b, 10)}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				if _, err := pregel.Invoke[json.RawMessage](context.Background(), bc.graph, pregel.Values{"n": 0}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// With checkpoints in memory and all root events, as a server runs it.
func BenchmarkStream(b *testing.B) {
	for _, bc := range []struct {
		name, input string
		graph       *pregel.Graph
	}{{"echo", `{"n":0}`, echoGraph(b)}, {"loop10", `{"n":0}`, loopGraph(b, 10)}, {"chat", `{"messages":[{"role":"user","content":"hi"}]}`, chatGraph(b)}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				for _, err := range bc.graph.Stream(context.Background(), invocation(&memory{}, bc.input, "values", "updates", "tasks", "checkpoints")) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// One more turn of a conversation that has so many messages.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g, m := chatGraph(b), &memory{}
			list := make([]message.Message, n)
			for i := range list {
				list[i] = message.Human(fmt.Sprintf("%0300d", i)).WithID(fmt.Sprint(i))
			}
			raw, err := json.Marshal(map[string]any{"messages": list})
			require.NoError(b, err)
			for _, err := range g.Stream(context.Background(), invocation(m, string(raw), "values")) {
				require.NoError(b, err)
			}
			at := m.order[len(m.order)-1]
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				inv := invocation(m, `{"messages":[{"role":"user","content":"more","id":"x"}]}`, "values")
				inv.At = at
				for _, err := range g.Stream(context.Background(), inv) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
