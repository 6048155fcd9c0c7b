package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// fakeOpenAI speaks OpenAI's wire: it asks for a sum, and repeats what the tool said.
func fakeOpenAI(t *testing.T) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer secret" || gjson.GetBytes(raw, "model").Str != "m" {
			http.Error(w, `{"error":{"message":"who are you?"}}`, http.StatusUnauthorized)
			return
		}
		chunks := []string{
			`{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"all_get-sum","arguments":""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":17,"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"b\":25}"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		}
		if last := gjson.GetBytes(raw, "messages").Array(); last[len(last)-1].Get("role").Str == "tool" {
			chunks = []string{
				`{"choices":[{"index":0,"delta":{"content":"It is: "}}]}`,
				fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, last[len(last)-1].Get("content").Str),
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`,
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, c := range append(chunks, "[DONE]") {
			fmt.Fprintf(w, "data: %s\n\n", c)
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// A declared agent from end to end: a model behind HTTP, a tool of an MCP server from a registry, and nothing left behind.
func TestDeclaredAgent(t *testing.T) {
	t.Parallel()
	script := os.Getenv("UNDERSTUDY_TEST_MCP")
	node, err := exec.LookPath("node")
	if script == "" || err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no MCP server: set UNDERSTUDY_TEST_MCP to what `conformance/setup mcp` prints")
		}
		t.Skip("SKIPPED: set UNDERSTUDY_TEST_MCP to what `conformance/setup mcp` prints")
	}
	bin, err := build()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), fmt.Appendf(nil, `{
		"graphs": {"chat": {"agent": {
			"model": {"name": "openai:m", "base_url": "${MODEL_URL}/v1", "api_key": "${MODEL_KEY}"},
			"prompt": "Be brief.",
			"mcp": {"all": {"command": %q, "args": [%q, "stdio"], "prefix": true, "tools": ["get-sum", "echo"]}},
			"middleware": {"human_in_the_loop": {"all_get-sum": {"allowed_decisions": ["approve"]}}}
		}}},
		"env": {"MODEL_KEY": "secret"}}`, node, script), 0o600))
	env := append(os.Environ(), "MODEL_URL="+fakeOpenAI(t).URL)
	var pid int
	t.Run("served", func(t *testing.T) {
		url, log := program(t, dir, bin, env, "dev", "--port", "0", "--log-level", "info")
		thread := between(postJSON(t, url+"/threads", `{}`), `"thread_id":"`, `"`)
		asked := postJSON(t, url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"17 and 25?"}]}}`)
		require.Equal(t, `{"name":"all_get-sum","args":{"a":17,"b":25},"description":"Tool execution requires approval\n\nTool: all_get-sum\nArgs: {'a': 17, 'b': 25}"}`,
			gjson.Get(asked, "__interrupt__.0.value.action_requests.0").Raw)
		stream := postJSON(t, url+"/threads/"+thread+"/runs/stream", `{"assistant_id":"chat","command":{"resume":{"decisions":[{"type":"approve"}]}},"stream_mode":["messages-tuple","values"]}`)
		var said strings.Builder
		for line := range strings.Lines(stream) {
			data, ok := strings.CutPrefix(line, "data: ")
			if m := gjson.Get(data, "0"); ok && m.Get("type").Str == "AIMessageChunk" {
				said.WriteString(m.Get("content").Str)
				require.Equal(t, "openai", gjson.Get(data, "1.ls_provider").Str)
				require.Equal(t, "m", gjson.Get(data, "1.ls_model_name").Str)
			}
		}
		require.Contains(t, said.String(), "It is: ")
		require.Contains(t, said.String(), "42")
		state := getJSON(t, url+"/threads/"+thread+"/state")
		require.Equal(t, `["human","ai","tool","ai"]`, gjson.Get(state, "values.messages.#.type").Raw)
		require.JSONEq(t, `{"input_tokens":5,"output_tokens":3,"total_tokens":8}`, gjson.Get(state, "values.messages.3.usage_metadata").Raw)
		found := regexp.MustCompile(`mcp server started .*pid=(\d+)`).FindStringSubmatch(log.String())
		require.NotNil(t, found, "%s", log)
		pid, err = strconv.Atoi(found[1])
		require.NoError(t, err)
	})
	server, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.ErrorIs(t, server.Signal(syscall.Signal(0)), os.ErrProcessDone, "the MCP server ends with ours")
}

func getJSON(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	return string(text)
}

// A declared agent condenses its conversation and reports it, and clients still see all messages.
func TestDeclaredSummarization(t *testing.T) {
	t.Parallel()
	bin, err := build()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"chat": {"agent": {
		"model": {"name": "scripted:", "script": [{"when": "<messages>", "content": "we talked"}, {"words": "1"}]},
		"middleware": {"summarization": {"trigger": {"messages": 6}, "keep": {"messages": 2}}}}}}}`), 0o600))
	url, _ := program(t, dir, bin, os.Environ(), "dev", "--port", "0")
	thread := between(postJSON(t, url+"/threads", `{}`), `"thread_id":"`, `"`)
	// A client that knows its conversation from updates alone: it adds messages, and removes those that an update removes.
	var shown []gjson.Result
	list := func() string {
		var raw []string
		for _, m := range shown {
			raw = append(raw, m.Raw)
		}
		return "[" + strings.Join(raw, ",") + "]"
	}
	show := func(stream string) {
		event := ""
		for line := range strings.Lines(stream) {
			line = strings.TrimRight(line, "\r\n")
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				event = name
			}
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			if strings.HasPrefix(event, "messages") {
				require.NotContains(t, data, "we talked", "%s", event)
			}
			if event != "updates" {
				continue
			}
			for _, update := range gjson.Parse(data).Map() {
				for _, m := range update.Get("messages").Array() {
					require.NotEqual(t, "remove", m.Get("type").Str, "%s", data)
					if at := slices.IndexFunc(shown, func(o gjson.Result) bool { return o.Get("id").Str == m.Get("id").Str }); at >= 0 {
						shown[at] = m
					} else {
						shown = append(shown, m)
					}
				}
			}
		}
	}
	var told []string
	for i := range 6 {
		question := fmt.Sprintf(`{"type":"human","content":"q%d","id":"q%d"}`, i, i)
		shown = append(shown, gjson.Parse(question))
		stream := postJSON(t, url+"/threads/"+thread+"/runs/stream", fmt.Sprintf(`{"assistant_id":"chat","input":{"messages":[%s]},"stream_mode":["messages","updates","custom"]}`, question))
		show(stream)
		require.Equal(t, gjson.Get(getJSON(t, url+"/threads/"+thread+"/state"), "values.messages.#.id").Raw, gjson.Get(list(), "#.id").Raw, "turn %d", i)
		if _, event, ok := strings.Cut(stream, "event: custom\r\ndata: "); ok {
			event, _, _ = strings.Cut(event, "\r\n")
			told = append(told, event)
		}
	}
	require.Len(t, told, 2)
	require.JSONEq(t, `{"type":"summarization","summary":"we talked","replaced_count":5}`, told[0])
	require.JSONEq(t, `{"type":"summarization","summary":"we talked","replaced_count":4}`, told[1])
	var seen []string
	for _, m := range gjson.Get(getJSON(t, url+"/threads/"+thread+"/state?markers=system"), "values.messages").Array() {
		seen = append(seen, m.Get("content").Str+m.Get("additional_kwargs.summary_marker.replaced_count").Raw)
	}
	require.Equal(t, []string{"q0", "w0", "q1", "w0", "q2", "we talked5", "w0", "q3", "w0", "q4", "we talked4", "w0", "q5", "w0"}, seen)
}
