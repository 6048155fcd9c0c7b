package python_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"understudy/graph"
	"understudy/graph/python"
)

// testCalls: every model call is reported once, whatever is streamed and wherever in the graph it is made, and counting changes nothing.
func testCalls(t *testing.T, p *python.Pool) {
	for _, tt := range []struct {
		graph, input string
		want         []string
	}{
		{"calling", `{"messages":[]}`, []string{
			"lead counted-1 10+1=11", "lead counted-2 10+2=12", "middleware counted-3 10+3=13", "middleware counted-4 10+4=14",
			"middleware counted-5 10+5=15", "middleware counted-5 10+5=15", "middleware counted-5 10+5=15",
			"subagent counted-1 10+1=11", "subagent counted-1 10+1=11", "subagent counted-7 10+7=17",
		}},
		{"tasks", `"x"`, []string{"lead counted-7 10+7=17"}},
		{"tokens", `{"messages":[{"type":"human","content":"3"}]}`, []string{"lead  nil"}},
		{"echo", `{"n":1}`, nil},
	} {
		for _, modes := range [][]string{{"values"}, {"messages-tuple", "updates"}, {"messages"}, {"events"}, {}} {
			var mu sync.Mutex
			var got []string
			ids := map[string]bool{}
			inv := invocation(newMemory(), tt.input, modes...)
			inv.Called = func(c graph.ModelCall) {
				mu.Lock()
				defer mu.Unlock()
				used := "nil"
				if u := c.Usage; u != nil {
					used = fmt.Sprintf("%d+%d=%d", u.Input, u.Output, u.Total)
				}
				got = append(got, fmt.Sprintf("%s %s %s", c.Caller, c.Model, used))
				if c.Message == "" || ids[c.ID] || c.Took <= 0 || c.Took > time.Minute {
					t.Errorf("%s: call %+v", tt.graph, c)
				}
				ids[c.ID] = true
			}
			counted := must(t, p, tt.graph, inv)
			mu.Lock()
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s %v -want +got\n%s", tt.graph, modes, diff)
			}
			mu.Unlock()
			plain := must(t, p, tt.graph, invocation(newMemory(), tt.input, modes...))
			if slices.Contains(modes, "events") { // parallel calls mix
				continue
			}
			if a, b := ways(counted), ways(plain); !slices.Equal(a, b) {
				t.Errorf("%s %v: counting changes the run:\n%v\n%v", tt.graph, modes, a, b)
			}
		}
	}
}

// ways are the names of events, and whether the models streamed.
func ways(events []got) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprint(e.name, strings.Count(e.data, "strea"), strings.Count(e.data, "whole")))
	}
	slices.Sort(out)
	return out
}
