package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/config"
)

const (
	plainMessage  = `{"type":"human","id":"m1","content":"hello","additional_kwargs":{}}`
	markedMessage = `{"type":"human","id":"m1","content":"hello","additional_kwargs":{"summary_marker":{"replaced_count":2,"summary":"s","run_id":"r"}}}`
	systemMarker  = `{"type":"system","id":"summary-marker-s","content":"s","additional_kwargs":{"summary_marker":{"replaced_count":2,"summary":"s","run_id":"r"}}}`
)

// inputs are all bodies that bring messages to graphs, with MESSAGES in their place. Graph is g.
var inputs = []struct{ method, path, body string }{
	{"POST", "/threads", `{"metadata":{"graph_id":"g"},"supersteps":[{"updates":[{"values":{"messages":MESSAGES},"as_node":"a"}]}]}`},
	{"POST", "/threads", `{"metadata":{"graph_id":"g"},"supersteps":[{"updates":[{"command":{"update":{"messages":MESSAGES}},"as_node":"a"}]}]}`},
	{"POST", "/threads/THREAD/state", `{"values":{"messages":MESSAGES},"as_node":"a"}`},
	{"POST", "/threads/THREAD/state", `{"values":[{"messages":MESSAGES}],"as_node":"a"}`},
	{"POST", "/threads/THREAD/runs", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","command":{"update":{"messages":MESSAGES}}}`},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","command":{"update":[["messages",MESSAGES]]}}`},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","command":{"goto":{"node":"a","input":{"messages":MESSAGES}}}}`},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","command":{"goto":[{"node":"a","input":{"messages":MESSAGES}}]}}`},
	{"POST", "/threads/THREAD/runs/stream", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/runs", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/runs/wait", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/runs/wait", `{"assistant_id":"g","command":{"goto":{"node":"a","input":{"messages":MESSAGES}}}}`},
	{"POST", "/runs/stream", `{"assistant_id":"g","input":{"messages":MESSAGES}}`},
	{"POST", "/runs/batch", `[{"assistant_id":"g","input":{"messages":MESSAGES}}]`},
	{"POST", "/runs/crons", `{"assistant_id":"g","schedule":"* * * * * *","input":{"messages":MESSAGES}}`},
	{"POST", "/threads/THREAD/runs/crons", `{"assistant_id":"g","schedule":"* * * * * *","input":{"messages":MESSAGES}}`},
	{"PATCH", "/runs/crons/CRON", `{"schedule":"* * * * * *","input":{"messages":MESSAGES}}`},
}

// onlyUpstream are those of routes that a LangGraph Server has and `understudy serve` does not.
var onlyUpstream = []struct{ method, path, body string }{
	{"POST", "/threads/THREAD/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"g","input":{"messages":MESSAGES}}}`},
	{"POST", "/threads/THREAD/commands", `{"id":1,"method":"input.respond","params":{"interrupt_id":"i","response":1,"goto":{"node":"a","input":{"messages":MESSAGES}},"update":{"messages":MESSAGES}}}`},
}

// listener is a graph that hands over what it is called with.
type listener struct {
	graph.Graph
	heard chan string
}

func (g listener) hear(parts ...json.RawMessage) {
	text := ""
	for _, p := range parts {
		text += string(p)
	}
	if strings.Contains(text, "hello") {
		select {
		case g.heard <- text:
		default: // a cron that fires again
		}
	}
}

var errHeard = errors.New("heard")

func (g listener) Stream(_ context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(func(graph.Event, error) bool) { g.hear(inv.Input, inv.Command) }
}

func (g listener) Update(_ context.Context, _ graph.Config, _ checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	for _, step := range steps {
		for _, u := range step {
			g.hear(u.Values, u.Command)
		}
	}
	return checkpointer.Key{}, errHeard // nothing is saved
}

// No marker that clients send back reaches a graph, by whatever route: neither here nor through the proxy.
func TestMarkersReachNoGraph(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	settings, _, err := config.Load(config.Source{
		Mode: config.Dev, Flags: map[string]string{"port": "0", "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	server := runWith(t, Config{Settings: settings}, "g", listener{heard: heard}).url()

	forwarded := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "hello") {
			forwarded <- string(body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
	}))
	t.Cleanup(upstream.Close)
	proxy, _ := runProxy(t, upstream.URL, t.TempDir())

	covered := map[string]bool{}
	for _, in := range inputs {
		covered[in.method+" "+in.path] = true
		thread, _ := call(t, "POST", server+"/threads", `{"metadata":{"graph_id":"g"}}`)["thread_id"].(string)
		cron, _ := call(t, "POST", server+"/runs/crons", `{"assistant_id":"g","schedule":"0 0 1 1 *","input":{}}`)["cron_id"].(string)
		fill := strings.NewReplacer("THREAD", thread, "CRON", cron, "MESSAGES", "["+systemMarker+","+markedMessage+"]")
		_, answer := send(t, in.method, server+fill.Replace(in.path), fill.Replace(in.body))
		select {
		case text := <-heard:
			require.NotContains(t, text, "summary_marker", "%s %s", in.method, in.path)
			require.Contains(t, text, "["+plainMessage+"]", "%s %s", in.method, in.path)
		case <-time.After(20 * time.Second):
			require.Fail(t, "the graph heard nothing", "%s %s: %s", in.method, in.path, answer)
		}
		_, list := send(t, "POST", server+"/runs/crons/search", `{}`)
		for _, c := range gjson.Get(list, "#.cron_id").Array() {
			send(t, "DELETE", server+"/runs/crons/"+c.String(), "")
		}
		for len(heard) > 0 {
			<-heard
		}
	}
	for _, in := range slices.Concat(inputs, onlyUpstream) {
		for _, prefix := range []string{"", "/api/langgraph"} {
			fill := strings.NewReplacer("THREAD", upstreamThread, "CRON", upstreamThread)
			path, body := fill.Replace(in.path), fill.Replace(in.body)
			send(t, in.method, proxy+prefix+path, strings.ReplaceAll(body, "MESSAGES", "["+systemMarker+","+markedMessage+"]"))
			require.Equal(t, strings.ReplaceAll(body, "MESSAGES", "["+plainMessage+"]"), <-forwarded, "%s %s", in.method, path)
			same := strings.ReplaceAll(body, "MESSAGES", "[ "+plainMessage+" ]")
			send(t, in.method, proxy+prefix+path, same)
			require.Equal(t, same, <-forwarded, "%s %s", in.method, path)
		}
	}

	// Each route whose body has a place for messages is in the list.
	_, description := send(t, "GET", server+"/openapi.json", "")
	gjson.Get(description, "paths").ForEach(func(path, methods gjson.Result) bool {
		methods.ForEach(func(method, operation gjson.Result) bool {
			schema := operation.Get("requestBody.content.application/json.schema")
			route := strings.ToUpper(method.String()) + " " + strings.NewReplacer("{thread_id}", "THREAD", "{cron_id}", "CRON").Replace(path.String())
			if members := schemaMembers(description, schema, 0); (members["input"] || members["command"] || members["supersteps"] || members["values"] && members["as_node"]) && !covered[route] {
				require.Fail(t, "a route that takes messages is not in the list", route)
			}
			return true
		})
		return true
	})
	require.True(t, covered["POST /runs/batch"])
}

// schemaMembers are the names of members that a schema has, at any depth.
func schemaMembers(description string, schema gjson.Result, depth int) map[string]bool {
	names := map[string]bool{}
	if ref := schema.Get(`\$ref`).String(); ref != "" {
		schema = gjson.Get(description, strings.ReplaceAll(strings.TrimPrefix(ref, "#/"), "/", "."))
	}
	if depth > 6 {
		return names
	}
	schema.Get("properties").ForEach(func(name, member gjson.Result) bool {
		names[name.String()] = true
		for n := range schemaMembers(description, member, depth+1) {
			names[n] = true
		}
		return true
	})
	for _, more := range append(append(schema.Get("anyOf").Array(), schema.Get("oneOf").Array()...), schema.Get("items")) {
		for n := range schemaMembers(description, more, depth+1) {
			names[n] = true
		}
	}
	return names
}
