package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/web"
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

	for _, wait := range []time.Duration{0, web.Patience + 100*time.Millisecond} {
		w.follow = func() run.Follower {
			return &resultOf{res: run.Result{Values: json.RawMessage(`{"messages":["hi"]}`)}, wait: wait}
		}
		res, err := session.CallTool(t.Context(), &client.CallToolParams{Name: "assistant_249", Arguments: map[string]any{"messages": "hi"}})
		require.NoError(t, err)
		require.False(t, res.IsError)
		require.Equal(t, "{'messages': ['hi']}", res.Content[0].(*client.TextContent).Text)
		require.Equal(t, map[string]any{"messages": []any{"hi"}}, res.StructuredContent)
		req := w.services.lastRequest(t)
		require.Equal(t, "00000000-0000-4000-8000-000000000249", req.AssistantID)
		require.JSONEq(t, `{"messages":"hi"}`, string(req.Input))
	}
	require.IsType(t, id.Thread(""), w.services.last(), "the thread of the call was deleted")
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
		{"POST", "/mcp", accept, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`, 200, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"LangGraph","version":"` + w.s.opts.APIVersion + `"}}}`},
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
	require.Contains(t, body, `"isError":true`)
	require.Contains(t, body, "Recursion limit reached")
}

// lastRequest returns the last request for a run.
func (s *services) lastRequest(t *testing.T) run.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range slices.Backward(s.asked) {
		if req, ok := v.(run.Request); ok {
			return req
		}
	}
	t.Fatal("no run was requested")
	return run.Request{}
}

// connectMCP returns a session of the SDK's client with a server that has one assistant, echo.
func connectMCP(t *testing.T, o *client.ClientOptions) (*world, *client.ClientSession) {
	w := setup(t, func(o *Options) {
		o.Assistants, o.Heartbeat = manyAssistants{o.Assistants.(fakeAssistants), []string{"echo"}}, 20*time.Millisecond
	})
	c := client.NewClient(&client.Implementation{Name: "test", Version: "1"}, o)
	session, err := c.Connect(t.Context(), &client.StreamableClientTransport{Endpoint: "http://" + w.addr + "/mcp", HTTPClient: w.http}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return w, session
}

// queued returns the followers one after the other.
func queued(followers ...run.Follower) func() run.Follower {
	var mu sync.Mutex
	return func() run.Follower {
		mu.Lock()
		defer mu.Unlock()
		f := followers[0]
		followers = followers[1:]
		return f
	}
}

func TestMCPProgress(t *testing.T) {
	t.Parallel()
	seen := make(chan *client.ProgressNotificationParams, 10)
	w, session := connectMCP(t, &client.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *client.ProgressNotificationClientRequest) { seen <- r.Params }})
	of := newLine()
	w.follow = queued(of.follower(), &resultOf{res: run.Result{Values: json.RawMessage(`{"n":1}`)}})
	of.records <- record(1, "metadata", `{"run_id":"r"}`)
	of.records <- record(2, "updates", `{"a":{"n":1}}`)
	of.records <- record(3, "custom", `{"message":"half"}`)
	of.records <- &bridge.Record{Run: someRun, Kind: bridge.Terminal}
	params := &client.CallToolParams{Name: "echo"}
	params.SetProgressToken("p")
	res, err := session.CallTool(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"n": 1.0}, res.StructuredContent)
	for i, text := range []string{"a", "half"} {
		require.Equal(t, &client.ProgressNotificationParams{ProgressToken: "p", Progress: float64(i + 1), Message: text}, <-seen)
	}
	require.False(t, <-of.closed)
}

// A question is a request of the server, and its answer resumes the thread of the call.
func TestMCPElicitation(t *testing.T) {
	t.Parallel()
	w, session := connectMCP(t, &client.ClientOptions{ElicitationHandler: func(_ context.Context, r *client.ElicitRequest) (*client.ElicitResult, error) {
		return &client.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes, " + r.Params.Message}}, nil
	}})
	of := newLine()
	w.follow = queued(of.follower(),
		&resultOf{res: run.Result{Values: json.RawMessage(`{"__interrupt__":[{"value":"ok?","id":"i1"}]}`)}},
		&resultOf{res: run.Result{Values: json.RawMessage(`{"n":1}`)}})
	w.asks.Store(`{"task":[{"id":"i1","value":"ok?"}]}`)
	of.records <- &bridge.Record{Run: someRun, Kind: bridge.Terminal}
	answered := make(chan []run.Response, 1)
	w.responded = func(all []run.Response) {
		answered <- all
		of.records <- record(1, "updates", `{"a":{"n":1}}`)
		of.records <- &bridge.Record{Run: someRun, Kind: bridge.Terminal}
	}
	res, err := session.CallTool(t.Context(), &client.CallToolParams{Name: "echo"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"n": 1.0}, res.StructuredContent)
	require.Equal(t, []run.Response{{Interrupt: "i1", Value: json.RawMessage(`"yes, ok?"`)}}, <-answered)
}

// A cancelled call deletes its thread, and has no result. So does the end of its connection.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	w, session := connectMCP(t, nil)
	of := newLine()
	w.follow = of.follower
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &client.CallToolParams{Name: "echo"})
		done <- err
	}()
	require.Eventually(t, func() bool { return w.services.created() != "" }, 5*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, func() bool { return w.services.last() == any(w.services.created()) }, 5*time.Second, time.Millisecond, "the thread that was created is deleted")
}

// created returns the thread that was created last.
func (s *services) created() id.Thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range slices.Backward(s.asked) {
		if t, ok := v.(id.Thread); ok && t != someThread {
			return t
		}
	}
	return ""
}

// Changes of assistants are announced on the stream of each session, with one look at the database for all of them.
func TestMCPListChanged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const sessions = 20
	lines := make(chan string, 10*sessions)
	for range sessions {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.addr+"/mcp", nil)
		require.NoError(t, err)
		req.Header.Set("Mcp-Session-Id", string(id.NewThread()))
		res, err := w.http.Do(req)
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode)
		defer res.Body.Close()
		go func() {
			for in := bufio.NewScanner(res.Body); in.Scan(); {
				if strings.HasPrefix(in.Text(), "data: ") {
					lines <- in.Text()
				}
			}
		}()
	}
	looks := func() (n int) {
		w.services.mu.Lock()
		defer w.services.mu.Unlock()
		for _, v := range w.services.asked {
			if q, ok := v.(assistant.Query); ok && q.SortBy == "updated_at" {
				n++
			}
		}
		return n
	}
	require.LessOrEqual(t, looks(), 1)
	w.services.changed.Add(1)
	res, _ := w.ask(t, "DELETE", "/assistants/"+someID, "")
	require.Equal(t, 204, res.StatusCode)
	for range sessions {
		require.Equal(t, `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, <-lines)
	}
	require.LessOrEqual(t, looks(), 2)
}
