package lead_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/lead"
	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
)

// inPython gives the agent tools in Python, each with the name that its `use` has behind the colon.
func (w *world) inPython(t *testing.T, schema string) {
	t.Helper()
	w.options.Tools.Python = func(_ context.Context, uses []string) map[string]lead.PythonTool {
		out := map[string]lead.PythonTool{}
		for _, use := range uses {
			_, name, _ := strings.Cut(use, ":")
			out[use] = lead.PythonTool{Tool: agent.Tool{
				Name: name, Schema: json.RawMessage(schema), Run: func(context.Context, message.ToolCall) (any, error) { return "in Python", nil },
			}}
		}
		return out
	}
	w.rebuild()
	t.Cleanup(func() { require.NoError(t, w.graph.Close()) })
}

// A tool in Python that cannot be one of the agent's is left out, and the log says so; whatever its name and schema are, runs work.
func TestToolsInPythonThatDoNotFit(t *testing.T) {
	t.Parallel()
	names := []string{
		"", "task", "write_todos", "tool_search", "ls", "bash", "present_files", "ask_clarification", "view_image", "list_uploaded_files", "setup_agent", "update_agent",
		"skill_manage", "memory_search", "memory_add", "memory_update", "memory_delete", "invoke_acp_agent", "odd", "odd",
	}
	text := "models: [{name: plain, use: x, model: x}]\nsandbox: {allow_host_bash: true}\ntitle: {enabled: false}\ntool_search: {enabled: true}\ntools:\n" +
		"  - {name: ls, group: read, use: \"deerflow.sandbox.tools:ls_tool\"}\n"
	for i, name := range names {
		text += "  - {name: x, group: a, use: \"m" + string(rune('a'+i)) + ":" + name + "\"}\n"
	}
	w := setup(t, text)
	var log bytes.Buffer
	w.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.inPython(t, `{"type":"object","properties":{"a":{"type":"string","pattern":"^(?!x).*$"},"b":{"$ref":"#/$defs/gone"}},"required":["a"]}`)
	_, got := w.say(t, `odd {"a":"y"}`, `{}`, nil)
	require.Equal(t, "in Python", got)
	for _, want := range []string{
		`use=ma: reason="it has no name" fix=`, `use=mb:task reason="the agent has a tool task of its own" fix=`, `use=me:ls reason="another one before it is named ls" fix=`,
		`use=mt:odd reason="another one before it is named odd"`,
	} {
		require.Contains(t, log.String(), want)
	}
	require.Equal(t, 6, strings.Count(log.String(), "is left out"), log.String())
}

// While the modules of tools load, one run waits for them, and no other, nor a read: those have the agent from before. Waiting ends with its run.
func TestRunsWhileToolsLoad(t *testing.T) {
	t.Parallel()
	w := setup(t, "models: [{name: plain, use: x, model: x}]\ntitle: {enabled: false}\n")
	require.NoError(t, w.graph.Close())
	changed, err := settings.Parse([]byte("models: [{name: plain, use: x, model: x}]\ntitle: {enabled: false}\ntools: [{name: odd, group: a, use: \"m:odd\"}]\n"), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	before, _ := w.options.Settings()
	var mu sync.Mutex
	now := before
	w.options.Settings = func() (*settings.Settings, error) { mu.Lock(); defer mu.Unlock(); return now, nil }
	w.inPython(t, `{}`)
	load, loading, loaded := w.options.Tools.Python, make(chan struct{}, 9), make(chan struct{})
	w.options.Tools.Python = func(ctx context.Context, uses []string) map[string]lead.PythonTool {
		loading <- struct{}{}
		select {
		case <-loaded:
		case <-ctx.Done():
		}
		return load(ctx, uses)
	}
	w.rebuild()
	require.NoError(t, w.graph.Prepare(t.Context()))
	mu.Lock()
	now = changed
	mu.Unlock()

	_, err = w.graph.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	require.NoError(t, err, "a read begins the build, and does not wait for it")
	<-loading
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the run was cancelled")
	cancel(why)
	require.ErrorIs(t, w.graph.Prepare(ctx), why)
	waiting := make(chan error)
	go func() { waiting <- w.graph.Prepare(t.Context()) }()
	require.Eventually(t, func() bool { return lead.Waiting(w.graph) == 1 }, 10*time.Second, time.Millisecond, "a run that was cancelled does not count")
	_, got := w.say(t, `odd {}`, `{}`, nil)
	require.Contains(t, got, "odd is not a valid tool", "the agent from before")
	_, err = w.graph.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	require.NoError(t, err)
	close(loaded)
	require.NoError(t, <-waiting)
	_, got = w.say(t, `odd {}`, `{}`, nil)
	require.Equal(t, "in Python", got)
	require.Empty(t, loading, "one build is enough")

	// Close ends a build.
	w.options.Tools.Python = func(ctx context.Context, _ []string) map[string]lead.PythonTool {
		loading <- struct{}{}
		<-ctx.Done()
		return nil
	}
	w.rebuild()
	go func() { _ = w.graph.Prepare(t.Context()) }()
	<-loading
	require.NoError(t, w.graph.Close())
}

// Tools in Python that could not be loaded are there later without a change of config.yaml: a run after a pause begins another build, and does not wait for it.
func TestToolsInPythonThatAreThereLater(t *testing.T) {
	t.Parallel()
	w := setup(t, "models: [{name: plain, use: x, model: x}]\ntitle: {enabled: false}\ntools: [{name: odd, group: a, use: \"m:odd\"}]\n")
	require.NoError(t, w.graph.Close())
	w.inPython(t, `{}`)
	load, asked := w.options.Tools.Python, make(chan struct{}, 9)
	var broken atomic.Bool
	broken.Store(true)
	w.options.Tools.Python = func(ctx context.Context, uses []string) map[string]lead.PythonTool {
		defer func() { asked <- struct{}{} }()
		if broken.Load() {
			return map[string]lead.PythonTool{uses[0]: {Problem: "its process died"}}
		}
		return load(ctx, uses)
	}
	w.rebuild()
	for range 3 {
		_, got := w.say(t, `odd {}`, `{}`, nil)
		require.Contains(t, got, "odd is not a valid tool")
	}
	require.Len(t, asked, 1, "not with each run")
	<-asked
	broken.Store(false)
	lead.RetryNow(w.graph)
	_, err := w.graph.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "schemas"})
	require.NoError(t, err)
	require.Empty(t, asked, "a read does not load modules again")
	_, got := w.say(t, `odd {}`, `{}`, nil)
	require.Contains(t, got, "odd is not a valid tool", "it does not wait")
	<-asked
	require.Eventually(t, func() bool { _, got := w.say(t, `odd {}`, `{}`, nil); return got == "in Python" }, 10*time.Second, time.Millisecond)
	require.Empty(t, asked)
}
