package protocol_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/run/protocol"
)

// lifecycleOf returns the lifecycle of subgraphs, a line each.
func lifecycleOf(t *testing.T, pairs ...string) (lines []string) {
	t.Helper()
	source, records := oneRun(pairs...)
	for _, e := range project(t, source, protocol.Filter{Channels: []string{"lifecycle"}}, records) {
		if len(e.Params.Namespace) == 0 {
			continue
		}
		line, err := json.Marshal(e.Params.Data)
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	return lines
}

func task(id, input, agent string) string {
	return fmt.Sprintf(`{"id":%q,"name":"n","input":%s,"triggers":[],"metadata":{"lc_agent_name":%q}}`, id, input, agent)
}

// An agent that a tool calls has its own name, and names the call: LangGraph schedules calls as tasks of their own, earlier releases as lists.
func TestAgentsThatToolsCall(t *testing.T) {
	t.Parallel()
	started := func(ns, name, id, more string) string {
		return `{` + more + `"event":"started","graph_name":"` + name + `","namespace":["` + ns + `"],"trigger_call_id":"` + id + `"}`
	}
	caused := func(call string) string { return `"cause":{"tool_call_id":"` + call + `","type":"toolCall"},` }
	ended := func(state, name string) string { return `{"event":"` + state + `","graph_name":"` + name + `"}` }
	const result = `{"id":"1","name":"n","error":null,"result":{},"interrupts":[]}`
	for _, tt := range []struct {
		name  string
		pairs []string
		want  []string
	}{
		{
			"in a list",
			[]string{"tasks", task("1", `[{"name":"f","args":{},"id":"call\"1"},{"id":"call2"}]`, "boss"), "tasks|tools:1", task("2", `{}`, "helper"), "tasks", result},
			[]string{started("tools:1", "helper", "1", caused(`call\"1`)), ended("completed", "helper")},
		},
		{
			"by itself",
			[]string{"tasks", task("1", `{"tool_call":{"id":"c","name":"f"},"state":{}}`, "boss"), "tasks|tools:1", task("2", `{}`, "helper"), "tasks", result},
			[]string{started("tools:1", "helper", "1", caused("c")), ended("completed", "helper")},
		},
		{
			"the first task names the agent",
			[]string{"tasks|tools:1", task("2", `{}`, "helper"), "tasks|tools:1", task("3", `{}`, "another"), "tasks", result},
			[]string{started("tools:1", "helper", "1", ""), ended("completed", "helper")},
		},
		{
			"a graph without a name",
			[]string{"tasks", task("1", `[{"id":"c"}]`, "boss"), "tasks|tools:1", `{"id":"2","name":"n","input":{},"triggers":[]}`, "tasks", result},
			[]string{started("tools:1", "tools", "1", ""), ended("completed", "tools")},
		},
		{
			"an agent that is a node",
			[]string{"tasks", task("1", `{"messages":[]}`, ""), "tasks|node:1", task("2", `{}`, "helper"), "tasks", result},
			[]string{started("node:1", "helper", "1", ""), ended("completed", "helper")},
		},
		{
			"at the end of the run",
			[]string{"tasks", task("1", `[{"id":"c"}]`, "boss"), "tasks|tools:1", task("2", `{}`, "helper")},
			[]string{started("tools:1", "helper", "1", caused("c")), ended("completed", "helper")},
		},
		{
			"an attempt later",
			[]string{
				"tasks", task("1", `[{"id":"c"}]`, "boss"), "tasks|tools:1", task("2", `{}`, "helper"), "metadata", `{"attempt":2}`,
				"tasks|tools:1", `{"id":"2","name":"n","input":{},"triggers":[]}`, "tasks", result,
			},
			[]string{started("tools:1", "helper", "1", caused("c")), ended("interrupted", "helper"), started("tools:1", "tools", "1", ""), ended("completed", "tools")},
		},
	} {
		require.Equal(t, tt.want, lifecycleOf(t, tt.pairs...), tt.name)
	}
}

// The tree of a run names agents as the events do.
func TestTreeNamesAgents(t *testing.T) {
	t.Parallel()
	source, records := oneRun("tasks", task("1", `[{"id":"c"}]`, "boss"), "tasks|tools:1", task("2", `{}`, "helper"))
	p := protocol.New(source, everything)
	for _, rec := range records[:3] {
		_, err := p.Add(t.Context(), rec)
		require.NoError(t, err)
	}
	require.JSONEq(t, `{"namespace":[],"status":"running","graph_name":"g","children":[{"namespace":["tools:1"],"status":"started","graph_name":"helper"}]}`, string(p.Tree()))
}

// Only what executes tasks is a graph with a lifecycle: its first checkpoint and state come before.
func TestSubgraphsStartWithTheirFirstTask(t *testing.T) {
	t.Parallel()
	source, records := oneRun(graph.ModeIDs+"|child:1", `{"id":"c"}`, "values|child:1", `{"n":1}`, "tasks|child:1", task("2", `{}`, ""), "updates|child:1", `{"n":{"n":2}}`)
	var got []string
	for _, e := range project(t, source, everything, records) {
		if len(e.Params.Namespace) > 0 {
			got = append(got, e.Method)
		}
	}
	require.Equal(t, []string{"checkpoints", "values", "lifecycle", "tasks", "updates", "lifecycle"}, got)
}
