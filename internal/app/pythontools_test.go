package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent/providertest"
)

// Tools of config.yaml that are in Python: what is wrong with one is in the log at the start, the others work, and a change of the file counts for the next run.
func TestLeadToolsInPython(t *testing.T) {
	t.Parallel()
	if os.Getenv("UNDERSTUDY_TEST_PYTHON") == "" {
		t.Skip("SKIPPED: set UNDERSTUDY_TEST_PYTHON")
	}
	code, err := os.ReadFile("../../gate/testdata/tools.py")
	require.NoError(t, err)
	mark := filepath.Join(t.TempDir(), "mark")
	w := serveLead(t, `  - {name: weather, group: a, use: "mine.things:weather"}
  - {name: ask, group: a, use: "mine.things:ask"}
  - {name: broken, group: a, use: "mine.things:broken"}
  - {name: forever, group: a, use: "mine.things:forever", timeout: 0.2}
  - {name: gone, group: a, use: "nowhere.at.all:gone"}
`+off, map[string]string{"mine/things.py": string(code)},
		calling("a", "weather", `{"city":"Rome"}`, "ask", `{"question":"why"}`, "broken", `{"kind":"luck"}`, "forever", `{"mark":"`+mark+`"}`, "gone", `{}`, "weather", `{}`), providertest.Answer("done"),
		calling("b", "double", `{"a":21}`, "weather", `{"city":"Rome"}`), providertest.Answer("done"))
	require.Regexp(t, `level=WARN msg="a tool of config.yaml is left out" tool=gone use=nowhere.at.all:gone reason="ModuleNotFoundError: No module named 'nowhere'[^"]*" fix="put the module nowhere.at.all below [^"]+, or install its package for `, w.log.String())
	require.Equal(t, 2, strings.Count(w.log.String(), "is left out"), "the other one is bash")

	l := w.turn("go", `{}`)
	require.Empty(t, l.failed)
	require.Equal(t, "done", l.last().Get("content").Str)
	results := l.messages("tool")
	require.Len(t, results, 6)
	require.Equal(t, "sunny in Rome for 1 days", results[0].Get("content").Str)
	require.JSONEq(t, `{"question":"why","thread":"`+w.thread+`"}`, results[1].Get("content").Str)
	require.Equal(t, "Error: Tool 'broken' failed with ValueError: no luck here. Continue with available context, or choose an alternative tool.", results[2].Get("content").Str)
	require.Equal(t, "error", results[2].Get("status").Str)
	require.Contains(t, results[3].Get("content").Str, "Tool 'forever' failed with TimeoutError")
	require.Contains(t, results[4].Get("content").Str, "gone is not a valid tool")
	require.Contains(t, results[5].Get("content").Str, "city")
	require.Contains(t, w.log.String(), "raise ValueError", "the traceback")

	file := filepath.Join(w.config, "config.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), `{name: weather, group: a, use: "mine.things:weather"}`, `{name: double, group: a, use: "mine.things:double"}`, 1)), 0o600))
	l = w.turn("again", `{}`)
	results = l.messages("tool")
	require.Equal(t, "42", results[6].Get("content").Str)
	require.Contains(t, results[7].Get("content").Str, "weather is not a valid tool")
}
