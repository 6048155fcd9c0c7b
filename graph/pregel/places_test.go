package pregel

import (
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/graph/pregel/testdata/dotted.v1"
)

type notedState struct {
	N int `json:"n"`
}

func noted(context.Context, notedState) (any, error) { return nil, nil }

type notes struct{}

func (*notes) byPointer(context.Context, notedState) (any, error) { return nil, nil }
func (notes) byValue(context.Context, notedState) (any, error)    { return nil, nil }

// here is the path of this package: that of the module may be changed.
var here = reflect.TypeFor[notes]().PkgPath()

func TestPlacesOfNodes(t *testing.T) {
	t.Parallel()
	inner := NewStateGraph[notedState]()
	inner.AddNode("deep", noted).AddEdge(START, "deep")
	sub, err := inner.Compile()
	require.NoError(t, err)
	outer := NewStateGraph[notedState]()
	outer.AddNode("plain", noted).AddNode("closure", func(context.Context, notedState) (any, error) { return nil, nil }).AddSubgraph("sub", sub)
	outer.AddNode("pointer", new(notes).byPointer).AddNode("value", notes{}.byValue)
	outer.AddEdge(START, "plain").AddEdge("plain", "closure").AddEdge("closure", "sub").AddEdge("sub", "pointer").AddEdge("pointer", "value")
	g, err := outer.Compile()
	require.NoError(t, err)
	described, err := g.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "nodes"})
	require.NoError(t, err)
	var got graph.Nodes
	require.NoError(t, json.Unmarshal(described, &got))
	source, err := os.ReadFile("places_test.go")
	require.NoError(t, err)
	line := func(text string) int {
		return 1 + strings.Count(string(source[:strings.Index(string(source), text)]), "\n")
	}
	at := func(id, function, begins string) graph.NodePlace {
		return graph.NodePlace{ID: id, Function: here + "." + function, File: here + "/places_test.go", Line: line(begins)}
	}
	require.Equal(t, []graph.NodePlace{
		at("plain", "noted", "func noted"), at("closure", "TestPlacesOfNodes.func1", `outer.AddNode("plain"`), at("sub:deep", "noted", "func noted"),
		{ID: "pointer", Function: here + ".(*notes).byPointer"},
		{ID: "value", Function: here + ".notes.byValue"},
	}, got.Nodes)
}

func TestPlaceInPackageWithDots(t *testing.T) {
	t.Parallel()
	path := here + "/testdata/dotted.v1"
	require.Equal(t, graph.NodePlace{ID: "x", Function: path + ".Note", File: path + "/dotted.go", Line: 5}, placeOf("x", reflect.ValueOf(dotted.Note).Pointer()))
}
