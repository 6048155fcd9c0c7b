package python_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"understudy/graph/python"
)

// TestCheckpointerConformance runs LangGraph's own suite for checkpointers inside a worker, against a saver in memory.
func TestCheckpointerConformance(t *testing.T) {
	t.Parallel()
	o := options(t)
	if err := exec.Command(o.Python, "-c", "import langgraph.checkpoint.conformance").Run(); err != nil {
		t.Skip("SKIPPED: langgraph-checkpoint-conformance is not installed")
	}
	o.Graphs = map[string]python.Spec{"suite": {Path: "./conformance.py:graph"}}
	p := start(t, o)
	events := must(t, p, "suite", invocation(newMemory(), `{}`, "updates"))
	var got struct {
		Check struct {
			Report map[string]struct {
				Passed   *bool
				Failures []string
				Ran      int
			}
		}
	}
	if err := json.Unmarshal([]byte(events[0].data), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"put", "put_writes", "get_tuple", "list", "delete_thread", "copy_thread"} {
		r, ok := got.Check.Report[name]
		if !ok || r.Passed == nil || !*r.Passed || r.Ran == 0 {
			t.Errorf("%s: %d passed, failures %q", name, r.Ran, r.Failures)
		}
		t.Logf("%s: %d tests", name, r.Ran)
	}
}
