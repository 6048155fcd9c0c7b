package python_test

import (
	"log/slog"
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
	o.Graphs = map[string]python.Spec{"old": {Path: "./undescribed.py:old"}, "odd": {Path: "./undescribed.py:odd"}}
	log := &logtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := start(t, o)
	for range 3 {
		for name, keys := range map[string]string{"old": "inner,question", "odd": "call,question"} {
			schemas, err := p.Graph(name).Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
			require.NoError(t, err)
			for key := range strings.SplitSeq(keys, ",") {
				require.True(t, gjson.GetBytes(schemas, "state_schema.properties."+key).Exists(), "%s: %s", name, schemas)
			}
			require.Equal(t, "string", gjson.GetBytes(schemas, "state_schema.properties.question.type").Str)
		}
	}
	require.Equal(t, 1, strings.Count(log.String(), "graph odd has no input schema: "))
	if _, version := p.Versions(); strings.HasPrefix(version, "3.10.") || strings.HasPrefix(version, "3.11.") {
		require.Regexp(t, `level=WARN msg="graph output" line="graph old has no input schema: Please use .typing_extensions.TypedDict.*; write .from typing_extensions import TypedDict. in place of typing's`, log.String())
		require.Equal(t, 1, strings.Count(log.String(), "graph old has no input schema: "))
	}
}
