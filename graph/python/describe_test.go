package python_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/logtest"
)

// A graph of whose input pydantic makes no schema says so once, with the reason, and still has the keys of its state.
func TestGraphsWithoutAnInputSchema(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"old": {Path: "./undescribed.py:old"}, "older": {Path: "./undescribed.py:old"}, "odd": {Path: "./undescribed.py:odd"}}
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	for range 3 {
		for name, keys := range map[string]string{"old": "inner,question", "older": "inner,question", "odd": "call,question"} {
			schemas, err := p.Graph(name).Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
			require.NoError(t, err)
			for key := range strings.SplitSeq(keys, ",") {
				require.True(t, gjson.GetBytes(schemas, "state_schema.properties."+key).Exists(), "%s: %s", name, schemas)
			}
			require.Equal(t, "string", gjson.GetBytes(schemas, "state_schema.properties.question.type").Str)
		}
	}
	require.Equal(t, 1, strings.Count(log.String(), " has no input schema: "), "graphs of one cause are one warning")
	if _, version := p.Versions(); strings.HasPrefix(version, "3.10.") || strings.HasPrefix(version, "3.11.") {
		require.Regexp(t, `level=WARN msg="graph output" line="graph (old|older|odd) has no input schema: Please use .typing_extensions.TypedDict.*; other graphs whose state is such a TypedDict have none either: write .from typing_extensions import TypedDict. in place of typing's`, log.String())
		return
	}
	require.Contains(t, log.String(), "graph odd has no input schema: ")
}

// The code of a node is found in whatever it is, at the line where it begins; that of packages has no file.
func TestPlacesOfNodes(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"places": {Path: "./places.py:graph"}}
	described, err := start(t, o).Graph("places").Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "nodes"})
	require.NoError(t, err)
	var got graph.Nodes
	require.NoError(t, json.Unmarshal(described, &got))
	source, err := os.ReadFile("testdata/graphs/places.py")
	require.NoError(t, err)
	line := func(text string) int {
		return 1 + strings.Count(string(source[:strings.Index(string(source), text)]), "\n")
	}
	here := func(id, function, begins string) graph.NodePlace {
		return graph.NodePlace{ID: id, Function: function, File: "places.py", Line: line(begins)}
	}
	require.Len(t, got.Nodes, 11)
	require.ElementsMatch(t, []graph.NodePlace{
		here("plain", "places.plain", "def plain"), here("awaited", "places.awaited", "async def awaited"), here("wrapped", "places.wrapped", "@logged"), here("callable", "places.Callable", "    def __call__"),
		here("partial", "places.given", "def given"), here("lambda", "places.<lambda>", `    "plain": plain`), here("runnable", "places.plain", "def plain"), here("sequence", "places.plain", "def plain"),
		here("sub:deep", "places.plain", "def plain"),
	}, slices.DeleteFunc(slices.Clone(got.Nodes), func(p graph.NodePlace) bool { return p.ID == "tools" || p.ID == "passing" }))
	for _, p := range got.Nodes {
		if p.ID == "tools" {
			require.Contains(t, p.Function, "ToolNode")
		}
		if p.ID == "tools" || p.ID == "passing" {
			require.Empty(t, p.File)
		}
	}
}
