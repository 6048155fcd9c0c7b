package pregel_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory keeps checkpoints in memory.
type memory struct {
	checkpointer.Memory
	mu    sync.Mutex
	order []checkpointer.Key
	fail  func(graph.Save) error
}

func (m *memory) Save(ctx context.Context, saves ...graph.Save) error {
	for _, sv := range saves {
		if m.fail != nil {
			if err := m.fail(sv); err != nil {
				return err
			}
		}
		if sv.Put != nil {
			m.mu.Lock()
			m.order = append(m.order, sv.Put.Key)
			m.mu.Unlock()
		}
		if err := m.Memory.Save(ctx, sv); err != nil {
			return err
		}
	}
	return nil
}

const testThread = id.Thread("00000000-0000-4000-8000-000000000001")

func invocation(m *memory, input string, modes ...string) graph.Invocation {
	inv := graph.Invocation{Arguments: graph.Arguments{Modes: modes, Durability: "async"}}
	inv.Thread = testThread
	if m != nil {
		inv.Saver = m
	}
	if input != "" {
		inv.Input = json.RawMessage(input)
	}
	return inv
}

// collect runs a graph and returns its events.
func collect(t *testing.T, g *pregel.Graph, inv graph.Invocation) ([]graph.Event, error) {
	t.Helper()
	var events []graph.Event
	for e, err := range g.Stream(context.Background(), inv) {
		if err != nil {
			return events, err
		}
		if e.Hold != nil {
			<-e.Hold
		}
		events = append(events, e)
	}
	return events, nil
}

type work struct {
	Topic  string   `json:"topic"`
	Items  []string `json:"items" graph:"items,reducer=append"`
	Answer any      `json:"answer"`
}

func pipeline(t *testing.T) *pregel.Graph {
	g := pregel.NewStateGraph[work]()
	g.AddNode("plan", func(ctx context.Context, s work) (any, error) {
		return pregel.Values{"items": []string{s.Topic}}, pregel.Emit(ctx, map[string]any{"progress": "planning"})
	})
	g.AddNode("work", func(_ context.Context, s work) (any, error) {
		return pregel.Values{"items": []string{s.Topic}}, nil
	})
	g.AddNode("ask", func(ctx context.Context, s work) (any, error) {
		answer, err := pregel.Interrupt[any](ctx, map[string]any{"question": "ok?", "items": s.Items})
		return pregel.Values{"answer": answer}, err
	})
	g.AddEdge(pregel.START, "plan")
	g.AddConditionalEdges("plan", func(_ context.Context, s work) (any, error) {
		return []pregel.Send{{Node: "work", Arg: work{Topic: s.Topic + "-0"}}, {Node: "work", Arg: work{Topic: s.Topic + "-1"}}}, nil
	}, "work")
	g.AddEdge("work", "ask").AddEdge("ask", pregel.END)
	out, err := g.Compile()
	require.NoError(t, err)
	return out
}

func TestPipeline(t *testing.T) {
	m := &memory{}
	g := pipeline(t)
	events, err := collect(t, g, invocation(m, `{"topic":"x"}`, "values", "updates", "custom", "tasks"))
	require.NoError(t, err)
	for _, e := range events {
		t.Log(e.Name, string(e.Data), e.Checkpoint)
	}
	inv := invocation(m, "", "values", "updates")
	inv.Command = json.RawMessage(`{"resume":"yes"}`)
	events, err = collect(t, g, inv)
	require.NoError(t, err)
	for _, e := range events {
		t.Log(e.Name, string(e.Data), e.Checkpoint)
	}
	last := events[len(events)-1]
	require.JSONEq(t, `{"topic":"x","items":["x","x-0","x-1"],"answer":"yes"}`, string(last.Data))
}
