package python_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"understudy/graph"
	"understudy/graph/python"
	"understudy/graph/spantest"
)

// testSpans: nodes, models and tools are reported with what is in what, wherever they run and whatever is streamed; and that changes nothing.
func testSpans(t *testing.T, p *python.Pool) {
	for _, modes := range [][]string{{"values"}, {"messages-tuple", "updates"}, {"events"}} {
		spans, tracing := spantest.Of(t, 0)
		inv := invocation(newMemory(), `{"messages":[]}`, modes...)
		inv.Tracing = tracing
		calls := 0
		inv.Called = func(graph.ModelCall) { calls++ }
		traced := must(t, p, "calling", inv)
		if calls != 10 {
			t.Errorf("%v: %d model calls are counted", modes, calls)
		}
		used := func(b graph.SpanBegin, e graph.SpanEnd) string {
			if b.Kind != graph.ModelSpan {
				return ""
			}
			if !strings.HasPrefix(b.NS, b.Node+":") && !strings.Contains(b.NS, "|"+b.Node+":") {
				t.Errorf("namespace %q of node %q", b.NS, b.Node)
			}
			return fmt.Sprint(b.Node, " ", e.Model, " ", *e.Usage)
		}
		model := func(node string, n int) string {
			return fmt.Sprintf("  model Counted success %s counted-%d {10 %d %d 0}", node, n, n, 10+n)
		}
		want := []string{
			"node T.after_agent success", model("T.after_agent", 5),
			"node by_task success", "  node tasks success", "    node one success", "    " + model("one", 7),
			"node in_thread success", model("in_thread", 1),
			"node inside success", "  node T.before_model success", "  " + model("T.before_model", 5), "  node in_thread success", "  " + model("in_thread", 1),
			"node sub success", "  node T.before_model success", "  " + model("T.before_model", 5), "  node in_thread success", "  " + model("in_thread", 1),
			"node twice success", model("twice", 2), model("twice", 3), model("twice", 4),
		}
		if diff := cmp.Diff(want, spans.Lines(used)); diff != "" {
			t.Errorf("%v -want +got\n%s", modes, diff)
		}
		if slices.Contains(modes, "events") { // parallel calls mix
			continue
		}
		plain := must(t, p, "calling", invocation(newMemory(), `{"messages":[]}`, modes...))
		if a, b := ways(traced), ways(plain); !slices.Equal(a, b) {
			t.Errorf("%v: tracing changes the run:\n%v\n%v", modes, a, b)
		}
	}
}

// testSpanErrors: retries are spans of their own, questions are no errors, and without content there is no text of users or models.
func testSpanErrors(t *testing.T, p *python.Pool) {
	for _, content := range []int{100, 0} {
		spans, tracing := spantest.Of(t, content)
		inv := invocation(newMemory(), fmt.Sprintf(`{"topic":"%d"}`, content), "values")
		inv.Tracing = tracing
		must(t, p, "traced", inv)
		show := func(_ graph.SpanBegin, e graph.SpanEnd) string {
			if e.Error == nil {
				return ""
			}
			if !strings.Contains(e.Error.Detail, "graphs.py") || strings.Contains(e.Error.Detail, "Error: secret") != (content > 0) {
				t.Errorf("stack: %s", e.Error.Detail)
			}
			return e.Error.Type + " " + e.Error.Message
		}
		text := map[bool]string{true: " secret"}[content > 0]
		want := []string{
			"node child interrupted", "  node ask interrupted",
			"node flaky error ConnectionError" + text, "node flaky success",
			"node use success", "  tool lookup error ValueError" + text, "  tool lookup success",
		}
		if diff := cmp.Diff(want, spans.Lines(show)); diff != "" {
			t.Errorf("content %d: -want +got\n%s", content, diff)
		}
		texts := func(b graph.SpanBegin, e graph.SpanEnd) string {
			if b.Kind != graph.ToolSpan {
				return ""
			}
			return spantest.Text(b.Input) + spantest.Text(e.Output)
		}
		got := strings.Join(spans.Lines(texts), "\n")
		if want := content > 0; strings.Contains(got, `{"key":"a"}"aa"`) != want || strings.Contains(got, `{"key":"bad"}`) != want {
			t.Errorf("content %d:\n%s", content, got)
		}
	}
}

// testSpanContent: of long conversations there are the last messages, and of long texts the beginning.
func testSpanContent(t *testing.T, p *python.Pool) {
	long, spaces := strings.Repeat("é", 5000), strings.Repeat(" ", 5000)
	for input, want := range map[string]string{
		`[{"type":"human","content":"` + long + `"},{"type":"human","content":"3"}]`: `"content":"3"`,
		`[{"type":"human","content":"3` + spaces + `"}]`:                             `"content":"3 `,
	} {
		spans, tracing := spantest.Of(t, 1000)
		inv := invocation(newMemory(), `{"messages":`+input+`}`, "values")
		inv.Tracing = tracing
		must(t, p, "tokens", inv)
		got := strings.Join(spans.Lines(func(b graph.SpanBegin, _ graph.SpanEnd) string { return spantest.Text(b.Input) }), "\n")
		if !strings.Contains(got, want) || !strings.Contains(got, "…") || len(got) > 4000 {
			t.Errorf("%.100s: %s", input, got)
		}
	}
}
