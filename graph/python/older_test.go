package python_test

import (
	"strings"
	"testing"

	"understudy/graph/python"
)

// LangGraph before 0.6.8 shows questions in mode updates alone. As LangGraph Server the worker shows them in values, to those who did not ask for updates, and
// lets no other update through.
func TestQuestionsOfOlderReleases(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Graphs = map[string]python.Spec{"asking": {Path: "./older.py:asking"}, "nested": {Path: "./older.py:nested"}}
	p := start(t, o)
	const question = `{"__interrupt__":[{"value":{"question":"ok?"},"id":"`

	events := must(t, p, "asking", invocation(newMemory(), `{"topic":"a"}`, "values"))
	if have := names(events); have != "values values values" || !strings.HasPrefix(events[2].data, question) {
		t.Error(have, events)
	}
	events = must(t, p, "asking", invocation(newMemory(), `{"topic":"a"}`, "values", "updates"))
	if have := names(events); have != "values updates values updates" || !strings.HasPrefix(events[3].data, question) {
		t.Error(have, events)
	}
	inv := invocation(newMemory(), `{}`, "values")
	inv.Subgraphs = true
	asked := map[bool]int{} // by whether in the subgraph
	for _, e := range must(t, p, "nested", inv) {
		if e.name != "values" {
			t.Error(e)
		}
		if strings.HasPrefix(e.data, question) {
			asked[e.ns != ""]++
		}
	}
	if asked[true] != 1 || asked[false] != 1 {
		t.Error(asked)
	}
}
