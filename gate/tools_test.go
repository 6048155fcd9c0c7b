package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func toolProcess(t *testing.T, names ...string) *Tools {
	t.Helper()
	o := options(t)
	for _, name := range names {
		if !strings.Contains(name, ":") {
			name = "tools:" + name
		}
		o.Tools = append(o.Tools, name)
	}
	tools, err := StartTools(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tools.Close()) })
	return tools
}

func callTool(t *testing.T, tools *Tools, name, args string) (ToolResult, error) {
	t.Helper()
	return tools.Call(t.Context(), ToolCall{Spec: "tools:" + name, ID: "call_1", Args: json.RawMessage(args), Configurable: json.RawMessage(`{"thread_id":"t1"}`)})
}

func TestTools(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "weather", "ask", "chart", "broken", "double", "remote", "abandoned")
	list := tools.List(t.Context())
	require.Len(t, list, 7)
	for _, one := range list {
		require.Nil(t, one.Problem, one.Spec)
	}
	require.Equal(t, "Says what the weather is like.", list[0].Description)
	require.Equal(t, `["city"]`, gjson.GetBytes(list[0].Schema, "required").Raw)
	require.Equal(t, "integer", gjson.GetBytes(list[0].Schema, "properties.days.type").Str)
	require.False(t, gjson.GetBytes(list[1].Schema, "properties.config").Exists(), "the model does not give it")
	require.Equal(t, Tool{Spec: "tools:double", Name: "double", Description: "Doubles.", Schema: list[4].Schema, Direct: true}, list[4])

	for call, want := range map[[2]string]string{
		{"weather", `{"city":"Rome ü😀"}`}:    `"sunny in Rome ü😀 for 1 days"`,
		{"weather", `{"city":"R","days":3}`}: `"sunny in R for 3 days"`,
		{"chart", `{"title":"x"}`}:           `"drew x"`,
		{"double", `{"a":4}`}:                `"8"`,
		{"remote", `{"city":"R"}`}:           `"remote {'city': 'R'}"`,
	} {
		r, err := callTool(t, tools, call[0], call[1])
		require.NoError(t, err, call)
		require.JSONEq(t, want, string(r.Content), call)
		require.False(t, r.Failed)
	}
	r, err := callTool(t, tools, "chart", `{"title":"x"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"points":[1,2]}`, string(r.Artifact))
	r, err = callTool(t, tools, "ask", `{"question":"why"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"question":"why","thread":"t1"}`, gjson.ParseBytes(r.Content).Str)

	for kind, want := range map[string]ToolError{
		"x": {"ValueError", "no x here"}, "exit": {"SystemExit", "3"}, "stop": {"RuntimeError", "the function raised StopIteration"},
	} {
		_, err := callTool(t, tools, "broken", `{"kind":"`+kind+`"}`)
		var raised *ToolError
		require.ErrorAs(t, err, &raised, kind)
		require.Equal(t, want, *raised)
	}
	var raised *ToolError
	_, err = callTool(t, tools, "abandoned", `{"text":"x"}`)
	require.ErrorAs(t, err, &raised)
	require.Equal(t, ToolError{"RuntimeError", "the tool was cancelled by what it waited for"}, *raised)
	_, err = callTool(t, tools, "removed", `{}`)
	require.ErrorAs(t, err, &raised)
	require.Equal(t, ToolError{"KeyError", "config.yaml has no tool tools:removed any more"}, *raised)
	_, err = callTool(t, tools, "weather", `{"days":"many"}`)
	require.ErrorAs(t, err, &raised)
	require.Equal(t, "ValidationError", raised.ErrorName())
}

// A tool that cannot be loaded says why and what to do; the others work.
func TestToolsThatDoNotLoad(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "weather", "nothing", "plain", "nowhere.at.all:x", "brokentools:x", "graphtools:stateful", "x:")
	want := map[string][2]string{
		"tools:nothing": {"AttributeError: there is no 'nothing' in tools", ""}, "tools:plain": {"it is a function", "put @tool of langchain_core.tools above the function"},
		"nowhere.at.all:x": {"ModuleNotFoundError: No module named 'nowhere'", "put the module nowhere.at.all below"}, "brokentools:x": {"No module named 'a_package_that_is_not_there'", "the module a_package_that_is_not_there (its name"},
		"graphtools:stateful": {"its argument 'state' gets the state", "serve the agent itself in Python"}, "x:": {"ModuleNotFoundError", "put the module x below"},
	}
	for _, one := range tools.List(t.Context()) {
		if one.Spec == "tools:weather" {
			require.Nil(t, one.Problem)
			continue
		}
		require.NotNil(t, one.Problem, one.Spec)
		require.Contains(t, one.Problem.Reason, want[one.Spec][0], one.Spec)
		require.Contains(t, one.Problem.Fix, want[one.Spec][1], one.Spec)
		require.NotContains(t, one.Problem.Fix, "langgraph.json", one.Spec)
	}
	r, err := callTool(t, tools, "weather", `{"city":"Rome"}`)
	require.NoError(t, err)
	require.Contains(t, string(r.Content), "sunny")
}

// A call ends with its context: a coroutine is cancelled, of a thread the result is dropped. Neither holds up others.
func TestToolsAreCancelled(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "forever", "slow", "weather")
	dir := t.TempDir()
	said := func(mark, text string) func() bool {
		return func() bool { raw, err := os.ReadFile(mark); return err == nil && string(raw) == text }
	}
	for _, name := range []string{"forever", "slow"} {
		mark := filepath.Join(dir, name)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the run was cancelled")
		var all sync.WaitGroup
		all.Go(func() {
			_, err := tools.Call(ctx, ToolCall{Spec: "tools:" + name, ID: "c", Args: json.RawMessage(`{"mark":"` + mark + `"}`)})
			require.ErrorIs(t, err, why)
		})
		require.Eventually(t, said(mark, "began"), 10*time.Second, time.Millisecond)
		_, err := callTool(t, tools, "weather", `{"city":"R"}`)
		require.NoError(t, err, "another call meanwhile")
		cancel(why)
		all.Wait()
		if name == "forever" {
			require.Eventually(t, said(mark, "cancelled"), 10*time.Second, time.Millisecond)
		}
		require.NoError(t, os.Remove(mark)) // ends the thread
	}
}

// A tool that kills the process fails its call, and the next process has the tools again.
func TestToolsOfAProcessThatDies(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "die", "weather")
	before := tools.PID()
	_, err := callTool(t, tools, "die", `{"text":"x"}`)
	require.ErrorIs(t, err, errToolsDown)
	require.Eventually(t, func() bool { pid := tools.PID(); return pid != 0 && pid != before }, 20*time.Second, time.Millisecond)
	r, err := callTool(t, tools, "weather", `{"city":"R"}`)
	require.NoError(t, err)
	require.Contains(t, string(r.Content), "sunny")
}

// Other tools take over without a gap.
func TestToolsAreReplaced(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "weather")
	o := options(t)
	o.Tools = []string{"tools:double"}
	require.NoError(t, tools.Reload(t.Context(), o))
	require.Equal(t, "double", tools.List(t.Context())[0].Name)
	o.Python = filepath.Join(t.TempDir(), "nopython")
	var why *StartError
	require.ErrorAs(t, tools.Reload(t.Context(), o), &why)
	r, err := callTool(t, tools, "double", `{"a":2}`)
	require.NoError(t, err)
	require.JSONEq(t, `"4"`, string(r.Content))
}

// A call that is open when other tools take over ends with its own answer, and the process before ends after it.
func TestToolsAreReplacedDuringACall(t *testing.T) {
	t.Parallel()
	tools := toolProcess(t, "slow", "weather")
	mark := filepath.Join(t.TempDir(), "mark")
	answered := make(chan error, 1)
	go func() {
		r, err := callTool(t, tools, "slow", `{"mark":"`+mark+`"}`)
		if err == nil && string(r.Content) != `"done"` {
			err = fmt.Errorf("%s", r.Content)
		}
		answered <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(mark); return err == nil }, 20*time.Second, time.Millisecond)
	require.Equal(t, longestCall, tools.gate.grace, "as long as a call may take")
	before := tools.gate.serving()
	o := options(t)
	o.Tools = []string{"tools:double"}
	require.NoError(t, tools.Reload(t.Context(), o))
	r, err := callTool(t, tools, "double", `{"a":2}`)
	require.NoError(t, err)
	require.JSONEq(t, `"4"`, string(r.Content))
	require.NoError(t, os.Remove(mark))
	require.NoError(t, <-answered)
	select {
	case <-before.exited:
	case <-time.After(30 * time.Second):
		t.Fatal("the process before is still there")
	}
}
