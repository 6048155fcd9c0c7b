package mcp_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/assistant"
	"understudy/id"
	"understudy/run"
	"understudy/server/answer"
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

// What a session is stays in its id, and calls of different sessions, owners and ids have different threads.
func TestSessions(t *testing.T) {
	t.Parallel()
	for capabilities, elicits := range map[string]bool{
		`{}`: false, `{"elicitation":{}}`: true, `{"elicitation":{"form":{}}}`: true, `{"elicitation":{"form":{},"url":{}}}`: true, `{"elicitation":{"url":{}}}`: false, `{"elicitation":null}`: false,
	} {
		m, err := mcp.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":` + capabilities + `}}`))
		require.NoError(t, err)
		s := mcp.NewSession(m)
		require.Equal(t, elicits, s.Elicits, capabilities)
		again, ok := mcp.ParseSession(s.ID)
		require.True(t, ok)
		require.Equal(t, s, again)
	}
	for _, other := range []string{"", "x", "elicits", ".elicits", "00000000-0000-4000-8000-00000000000", "00000000-0000-4000-8000-000000000003.elicits.elicits", "00000000-0000-4000-8000-00000000000A\n"} {
		_, ok := mcp.ParseSession(other)
		require.False(t, ok, other)
	}
	seen := map[id.Thread]bool{}
	for _, session := range []string{"a", "b", "a.elicits"} {
		for _, owner := range []string{"", "me", "\x00"} {
			for _, call := range []string{`1`, `"1"`, `2`, `"me"`} {
				made := mcp.Session{ID: session}.Thread(owner, json.RawMessage(call))
				require.Equal(t, made, mcp.Session{ID: session}.Thread(owner, json.RawMessage(call)))
				require.Equal(t, string(made), id.Canonical(string(made)))
				require.False(t, seen[made])
				seen[made] = true
			}
		}
	}
}

// The id of a question names the question and the call, whatever the client has chosen as the id of the call.
func TestElicitations(t *testing.T) {
	t.Parallel()
	question := func(value string) answer.Question {
		all := answer.Questions(json.RawMessage(`{"t":[{"id":"0a1b","value":` + value + `}]}`))
		require.Len(t, all, 1)
		return all[0]
	}
	const approval = `{"action_requests":[{"name":"search","args":{}}],"review_configs":[{"allowed_decisions":["approve","reject"]}]}`
	withSchema := answer.Questions(json.RawMessage(`{"t":[{"id":"0a1b","value":"Your age?","response_schema":{"type":"object","properties":{"age":{"type":"integer"}}}}]}`))[0]
	nested := answer.Questions(json.RawMessage(`{"t":[{"id":"0a1b","value":"Your age?","response_schema":{"type":"object","properties":{"age":{"type":"object"}}}}]}`))[0]
	for _, tt := range []struct {
		q              answer.Question
		result, reply  string
		asks, property string
	}{
		{question(`"ok?"`), `{"action":"accept","content":{"answer":"yes"}}`, `"yes"`, "ok?", "answer"},
		{question(`{"question":"ok?"}`), `{"action":"accept","content":{"answer":"[1]"}}`, `[1]`, "ok?", "answer"},
		{question(`"ok?"`), `{"action":"decline"}`, ``, "ok?", "answer"},
		{question(`"ok?"`), `{"action":"cancel","content":{"answer":"yes"}}`, ``, "ok?", "answer"},
		{question(`"ok?"`), `5`, ``, "ok?", "answer"},
		{question(approval), `{"action":"accept","content":{"decision":"approve","message":"x"}}`, `{"decisions":[{"type":"approve"}]}`, "search {}", "decision"},
		{question(approval), `{"action":"accept","content":{"decision":"reject","message":"yes"}}`, `{"decisions":[{"type":"reject","message":"yes"}]}`, "search {}", "decision"},
		{question(approval), `{"action":"decline","content":{"decision":"approve"}}`, `{"decisions":[{"type":"reject","message":"The user declined."}]}`, "search {}", "decision"},
		{withSchema, `{"action":"accept","content":{"age":7}}`, `{"age":7}`, "Your age?", "age"},
		{withSchema, `{"action":"accept"}`, `{}`, "Your age?", "age"},
		{nested, `{"action":"accept","content":{"answer":"7"}}`, `"7"`, "Your age?", "answer"},
	} {
		for _, call := range []string{`1`, `"a:b"`, `"\""`, `-2.5`} {
			asked := gjson.ParseBytes(mcp.Elicit(json.RawMessage(call), tt.q))
			require.Equal(t, tt.asks, asked.Get("params.message").Str)
			require.True(t, asked.Get("params.requestedSchema.properties."+tt.property).Exists())
			m, err := mcp.Read([]byte(`{"jsonrpc":"2.0","id":` + asked.Get("id").Raw + `,"result":` + tt.result + `}`))
			require.NoError(t, err)
			require.Nil(t, m.ID)
			e, ok := mcp.ReadElicited(m)
			require.True(t, ok)
			require.Equal(t, call, string(e.Call))
			require.Equal(t, "0a1b", e.Question)
			value, ok := e.Reply(tt.q)
			require.Equal(t, tt.reply != "", ok)
			require.Equal(t, tt.reply, string(value))
		}
	}
	for _, other := range []string{`5`, `""`, `"x"`, `"x:"`, `":x"`, `"x:{}"`, `"x:[["`, `"x:1 2"`} {
		m, err := mcp.Read([]byte(`{"jsonrpc":"2.0","id":` + other + `,"result":{}}`))
		require.NoError(t, err)
		_, ok := mcp.ReadElicited(m)
		require.False(t, ok, other)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{"updates", `{"a":{"n":1}}`, "a"},
		{"updates", `{"a":null,"b":[1]}`, "a, b"},
		{"updates", `{"__interrupt__":[]}`, ""},
		{"custom", `"half"`, "half"},
		{"custom", `{"message":"half"}`, "half"},
		{"custom", `{"n":1}`, `{"n":1}`},
		{"values", `{"n":1}`, ""},
		{"custom", `"` + strings.Repeat("ü", 600) + `"`, strings.Repeat("ü", 500) + "…"},
		{"custom", `"x` + strings.Repeat("ü", 600) + `"`, "x" + strings.Repeat("ü", 499) + "…"},
	} {
		require.Equal(t, tt[2], mcp.ProgressOf(tt[0], []byte(tt[1])))
	}
	require.JSONEq(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x","progress":3,"message":"a\"b"}}`, string(mcp.Progress(json.RawMessage(`"x"`), 3, `a"b`)))
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
		{run.Result{Error: run.ErrorJSON("ValueError", "no \"x\"")}, `{"isError":true,"content":[{"type":"text","text":"ValueError"}],"_meta":{"message":"no \"x\""}}`},
		{run.Result{Error: run.ErrorJSON("ValueError", "")}, `{"isError":true,"content":[{"type":"text","text":"ValueError"}]}`},
	} {
		got := m.Called(tt.res)
		require.Equal(t, `"x"`, gjson.GetBytes(got, "id").Raw)
		require.JSONEq(t, tt.want, gjson.GetBytes(got, "result").Raw)
	}
}

func TestLargeErrorsInEvents(t *testing.T) {
	t.Parallel()
	got := gjson.ParseBytes(mcp.Message{ID: json.RawMessage(`1`)}.CalledInEvent(run.Result{Values: json.RawMessage(`{"x":1}`), Error: json.RawMessage(`{"error":"E","message":"` + strings.Repeat("a", 2<<20) + `"}`)}))
	require.True(t, got.Get("result.isError").Bool())
	require.Equal(t, "E", got.Get("result.content.0.text").Str)
	require.Less(t, len(got.Raw), 1<<20)
}

// Whatever a result has, an event with it is one that clients take, and the values are there whole or the call has failed.
func TestLargeResultsInEvents(t *testing.T) {
	t.Parallel()
	m := mcp.Message{ID: json.RawMessage(`1`)}
	for size := 1 << 10; size <= 4<<20; size = size*3/2 + 1 {
		for _, values := range []string{`{"x":"` + strings.Repeat("a", size) + `"}`, `{"x":"` + strings.Repeat(`\"`, size/2) + `"}`, `"` + strings.Repeat("é", size/2) + `"`, `[` + strings.Repeat("1,", size/2) + `1]`} {
			got := gjson.ParseBytes(m.CalledInEvent(run.Result{Values: json.RawMessage(values)}))
			require.LessOrEqual(t, len(got.Raw), 1<<20)
			require.True(t, gjson.Valid(got.Raw))
			structured := got.Get("result.structuredContent")
			switch {
			case got.Get("result.isError").Bool():
				require.Greater(t, len(values), 300<<10)
				require.Contains(t, got.Get("result.content.0.text").Str, "1 MiB")
			case structured.Exists():
				require.Equal(t, values, structured.Raw)
			default:
				require.NotEqual(t, byte('{'), values[0])
				require.Greater(t, len(got.Get("result.content.0.text").Str), size/2)
			}
		}
	}
}
