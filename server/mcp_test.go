package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	client "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// manyAssistants has assistants by name; the schemas of some cannot be read.
type manyAssistants struct {
	fakeAssistants
	names []string
}

func (m manyAssistants) Search(_ context.Context, q assistant.Query) (page []*assistant.Assistant, more bool, err error) {
	for i := q.Offset; i < min(q.Offset+q.Limit, len(m.names)); i++ {
		page = append(page, &assistant.Assistant{ID: id.Assistant(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), Name: m.names[i], GraphID: "g"})
	}
	return page, q.Offset+q.Limit < len(m.names), m.note(q)
}

func (m manyAssistants) Schemas(_ context.Context, a id.Assistant) (json.RawMessage, error) {
	if strings.HasSuffix(string(a), "7") {
		return nil, fault.New(fault.NotFound, "no such graph")
	}
	return json.RawMessage(`{"input_schema":{"type":"object","properties":{"messages":{}},"required":["messages"]},"output_schema":{"type":"object"}}`), nil
}

// resultOf is a follower that has a result after some time.
type resultOf struct {
	absent
	res  run.Result
	wait time.Duration
}

func (r *resultOf) Result(ctx context.Context) (run.Result, error) {
	select {
	case <-time.After(r.wait):
		return r.res, nil
	case <-ctx.Done():
		return run.Result{}, context.Cause(ctx)
	}
}

// A client of the SDK finds all tools, page by page, and calls one: soon, and after heartbeats.
func TestMCP(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 250 {
		names = append(names, fmt.Sprint("assistant ", i))
	}
	names = append(names, "twice", "twice!")
	var all manyAssistants
	w := setup(t, func(o *Options) {
		all = manyAssistants{o.Assistants.(fakeAssistants), names}
		o.Assistants, o.Heartbeat = all, 20*time.Millisecond
	})
	c := client.NewClient(&client.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &client.StreamableClientTransport{Endpoint: "http://" + w.addr + "/mcp", HTTPClient: w.http}, nil)
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.Ping(t.Context(), nil))
	var tools []string
	for tool, err := range session.Tools(t.Context(), nil) {
		require.NoError(t, err)
		tools = append(tools, tool.Name)
	}
	var want []string
	for i := range names[:250] {
		if i%10 != 7 {
			want = append(want, fmt.Sprint("assistant_", i))
		}
	}
	require.Equal(t, append(want, "twice"), tools)

	for _, wait := range []time.Duration{0, patience + 100*time.Millisecond} {
		w.follow = func() run.Follower {
			return &resultOf{res: run.Result{Values: json.RawMessage(`{"messages":["hi"]}`)}, wait: wait}
		}
		res, err := session.CallTool(t.Context(), &client.CallToolParams{Name: "assistant_249", Arguments: map[string]any{"messages": "hi"}})
		require.NoError(t, err)
		require.False(t, res.IsError)
		require.Equal(t, "{'messages': ['hi']}", res.Content[0].(*client.TextContent).Text)
		require.Equal(t, map[string]any{"messages": []any{"hi"}}, res.StructuredContent)
		req := w.services.last().(run.Request)
		require.Equal(t, "00000000-0000-4000-8000-000000000249", req.AssistantID)
		require.JSONEq(t, `{"messages":"hi"}`, string(req.Input))
	}
	w.follow = func() run.Follower { return &resultOf{res: run.Result{Error: run.ErrorJSON("ValueError", "no")}} }
	res, err := session.CallTool(t.Context(), &client.CallToolParams{Name: "assistant_1"})
	require.NoError(t, err)
	require.True(t, res.IsError)
	for name, why := range map[string]string{"nope": "Unknown tool: nope", "twice": "Multiple tools found with the same name."} {
		_, err = session.CallTool(t.Context(), &client.CallToolParams{Name: name})
		require.ErrorContains(t, err, why)
	}
}

// What LangGraph Server 0.16.7 answers, but for arguments that are no object and services that fail.
func TestMCPRequests(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Assistants = manyAssistants{o.Assistants.(fakeAssistants), []string{"echo"}} })
	const accept = "application/json, text/event-stream"
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, tt := range []struct {
		method, path, accept, body string
		status                     int
		answer                     string
	}{
		{"POST", "/mcp", accept, ping, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"POST", "/mcp", "text/event-stream", ping, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"POST", "/mcp", "*/*", ping, 400, `{"error":"Accept header must include application/json or text/event-stream"}`},
		{"POST", "/mcp", accept, `[` + ping + `]`, 400, `{"error":"Invalid message format."}`},
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ""},
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: resources/list"}}`},
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: None"}}`},
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[1]}}`, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"The arguments of a tool are an object"}}`},
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`, 200, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":false}},"serverInfo":{"name":"LangGraph","version":"` + w.s.opts.APIVersion + `"}}}`},
		{"GET", "/mcp", accept, "", 405, ""},
		{"DELETE", "/mcp", accept, "", 404, ""},
		{"POST", "/mcp/", accept, ping, 307, ""},
		{"GET", "/mcp/", accept, "", 307, ""},
	} {
		res, body := w.ask(t, tt.method, tt.path, tt.body, "Accept", tt.accept)
		require.Equal(t, tt.status, res.StatusCode, tt.body)
		require.Equal(t, tt.answer, body)
	}
	w.services.err = fault.New(fault.Unavailable, "the database is away")
	res, _ := w.ask(t, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Accept", accept)
	require.Equal(t, 503, res.StatusCode)
	w.services.err = nil
	// What compat refuses of a run is said to the client's model.
	deep := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	_, body := w.ask(t, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":`+deep+`}}`, "Accept", accept)
	require.Contains(t, body, "Recursion limit reached")
}
