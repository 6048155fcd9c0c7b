package gateway

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/thread"
)

// fakeThreads answers updates by their node, and searches with found or err.
type fakeThreads struct {
	Threads
	refuse map[string]error
	tried  []string
	next   []string

	found *thread.View
	err   error
}

func (f *fakeThreads) State(context.Context, checkpointer.Key, bool) (*checkpointer.Snapshot, error) {
	return &checkpointer.Snapshot{Next: f.next}, nil
}

func (f *fakeThreads) UpdateState(_ context.Context, _ thread.Place, steps [][]graph.StateUpdate) (thread.Place, error) {
	node := steps[0][0].AsNode
	f.tried = append(f.tried, node)
	return thread.Place{}, f.refuse[node]
}

func (f *fakeThreads) Search(context.Context, thread.Search) ([]*thread.View, bool, error) {
	if f.found == nil {
		return nil, false, f.err
	}
	return []*thread.View{f.found}, false, f.err
}

func anyRequest(t *testing.T) *fiber.Ctx {
	t.Helper()
	app := fiber.New()
	c := app.AcquireCtx(&fasthttp.RequestCtx{})
	t.Cleanup(func() { app.ReleaseCtx(c) })
	return c
}

// An update is tried as another node only when the graph does not have the first: any other refusal is the answer.
func TestNodesOfAnUpdate(t *testing.T) {
	t.Parallel()
	wrong, unknown := fault.New(fault.Invalid, "the values are wrong"), &graph.UnknownNode{Node: "x"}
	for name, c := range map[string]struct {
		as     string
		next   []string
		refuse map[string]error
		tried  []string
		want   error
	}{
		"right":               {"x", nil, nil, []string{"x"}, nil},
		"wrong values":        {"x", nil, map[string]error{"x": wrong}, []string{"x"}, wrong},
		"unknown":             {"x", nil, map[string]error{"x": unknown}, []string{"x", lastNode}, nil},
		"unknown, then wrong": {"x", nil, map[string]error{"x": unknown, lastNode: wrong}, []string{"x", lastNode}, wrong},
		"neither":             {"x", nil, map[string]error{"x": unknown, lastNode: unknown}, []string{"x", lastNode, ""}, nil},
		"unknown, waiting":    {"x", []string{"y"}, map[string]error{"x": unknown}, []string{"x", ""}, nil},
		"no node":             {"", nil, map[string]error{lastNode: wrong}, []string{lastNode}, wrong},
	} {
		f := &fakeThreads{refuse: c.refuse, next: c.next}
		v := &thread.View{}
		v.Metadata = json.RawMessage(`{"graph_id":"lead_agent"}`)
		_, err := (&states{&ownership{Threads: f}}).write(anyRequest(t), v, thread.Place{}, json.RawMessage(`{}`), c.as)
		require.Equal(t, c.want, err, name)
		require.Equal(t, c.tried, f.tried, name)
	}
}
