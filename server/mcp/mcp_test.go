package mcp_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/run"
	"understudy/server/mcp"
)

func FuzzName(f *testing.F) {
	for _, name := range []string{"my tool!", "ünï côde", "!!!", "-x-", strings.Repeat("a", 200), ""} {
		f.Add(name)
	}
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	f.Fuzz(func(t *testing.T, name string) {
		require.Regexp(t, valid, mcp.Name(&assistant.Assistant{ID: "00000000-0000-4000-8000-000000000003", Name: name}))
	})
}

// As LangGraph Server 0.16.7 names them, which gives the last one no name.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"my tool!": "my_tool", "ünï côde": "n_cde", "-x-": "-x-", strings.Repeat("a", 200): strings.Repeat("a", 128), "!!!": "id"} {
		require.Equal(t, want, mcp.Name(&assistant.Assistant{ID: "id", Name: name, GraphID: "echo"}))
	}
}

// As LangGraph Server 0.16.7 takes them.
func TestMessages(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                "1 ping",
		`{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}`: `"a" ping`,
		`{"jsonrpc":"2.0","id":1,"method":5}`:                     "1 5",
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:             " ping",
		`{"jsonrpc":"2.0","method":"nope"}`:                       " nope",
		`{"jsonrpc":"2.0","id":1}`:                                " ",
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                    " ",
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                "Invalid JSON-RPC message. Missing or invalid jsonrpc version.",
		`{"id":1,"method":"ping"}`:                                "Invalid JSON-RPC message. Missing or invalid jsonrpc version.",
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`:              "Invalid message format.",
		`5`:     "Invalid message format.",
		`{nope`: "Invalid JSON",
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`: "Invalid JSON",
		``: "Invalid JSON",
	} {
		m, err := mcp.Read([]byte(body))
		if err != nil {
			require.Equal(t, want, err.Error(), body)
			continue
		}
		require.Equal(t, want, string(m.ID)+" "+m.Method, body)
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	for schemas, want := range map[string]string{
		`{"input_schema":{"$defs":{"M":{}},"properties":{"messages":{"items":{"$ref":"#/$defs/M"},"type":"array"}},"required":["messages"],"title":"S","type":"object"},"output_schema":{"type":"object","properties":{"messages":{"title":"Messages","items":{"$ref":"x"}}}}}`: `{
			"name":"a_b","title":"a b","description":"Tool based on the a b assistant",
			"inputSchema":{"properties":{"messages":{"type":"string","title":"Messages","description":"The user message to send to the agent."}},"required":["messages"],"title":"S","type":"object"},
			"outputSchema":{"type":"object","properties":{"messages":{"title":"Messages"}}},
			"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}}`,
		`{"input_schema":{"$defs":{"F":{"type":"string"}},"properties":{"messages":{},"f":{"$ref":"#/$defs/F"}}},"output_schema":{"type":"array"}}`: `{
			"name":"a_b","title":"a b","description":"Tool based on the a b assistant",
			"inputSchema":{"properties":{"messages":{"type":"string","title":"Messages","description":"The user message to send to the agent."},"f":{"$ref":"#/$defs/F"}},"$defs":{"F":{"type":"string"}},"type":"object"},
			"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}}`,
		`{"input_schema":null}`: "",
		`{}`:                    "",
	} {
		got, ok := mcp.AppendTool([]byte("["), &assistant.Assistant{Name: "a b"}, json.RawMessage(schemas))
		require.Equal(t, want != "", ok)
		if ok {
			require.JSONEq(t, want, string(got[1:]))
		}
	}
}

func TestResultsOfCalls(t *testing.T) {
	t.Parallel()
	m, err := mcp.Read([]byte(`{"jsonrpc":"2.0","id":"x","method":"tools/call"}`))
	require.NoError(t, err)
	for _, tt := range []struct {
		res  run.Result
		want string
	}{
		{run.Result{Values: json.RawMessage(`{"n": 2, "ok":true}`)}, `{"content":[{"type":"text","text":"{'n': 2, 'ok': True}"}],"structuredContent":{"n":2,"ok":true}}`},
		{run.Result{Values: json.RawMessage(`null`)}, `{"content":[{"type":"text","text":"None"}],"structuredContent":{}}`},
		{run.Result{}, `{"content":[{"type":"text","text":"None"}],"structuredContent":{}}`},
		{run.Result{Values: json.RawMessage(`[1]`)}, `{"content":[{"type":"text","text":"[1]"}]}`},
		{run.Result{Error: run.ErrorJSON("ValueError", "no \"x\"")}, `{"isError":true,"content":[{"type":"text","text":"ValueError: no \"x\""}]}`},
		{run.Result{Error: run.ErrorJSON("ValueError", "")}, `{"isError":true,"content":[{"type":"text","text":"ValueError"}]}`},
	} {
		got := m.Called(tt.res)
		require.Equal(t, `"x"`, gjson.GetBytes(got, "id").Raw)
		require.JSONEq(t, tt.want, gjson.GetBytes(got, "result").Raw)
	}
}
