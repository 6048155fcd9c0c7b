package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { transport().CloseIdleConnections() }))
}

var plain = [][3]string{
	{"metadata", "1-0", `{"run_id":"U","attempt":1}`},
	{"checkpoints", "1-1", checkpointEvent("c0", "", `{}`, "__start__")},
	{"values", "1-2", `{"n":1}`},
	{"checkpoints", "1-3", checkpointEvent("c1", "c0", `{"n":1}`, "work")},
	{"custom", "1-4", `{"type":"summarization","summary":"short"}`},
	{"tasks", "1-5", `{"metadata":{"run_id":"U","understudy_graph":"here","graph_id":"there"}}`},
	{"values", "1-6", `{"n":1,"list":[2]}`},
	{"checkpoints", "1-7", checkpointEvent("c2", "c1", `{"n":1,"list":[2]}`, "")},
}

// withPlain makes the upstream support what plain reports.
func withPlain(u *upstream) {
	u.set("POST /threads/T/history", "["+
		state("c2", "c1", `{"n":1,"list":[2]}`, `[]`)+","+
		state("c1", "c0", `{"n":1}`, `[{"id":"task-c1","name":"work","path":["__pregel_pull","work"],"error":null,"interrupts":[],"checkpoint":null,"result":{"list":[2]}}]`)+","+
		state("c0", "", `{}`, `[{"id":"task-c0","name":"__start__","path":["__pregel_pull","__start__"],"error":null,"interrupts":[],"checkpoint":null,"result":{"n":1}}]`)+"]")
}

var plainSeen = []seen{
	{Name: "values", Data: `{"n":1}`, At: "c1"},
	{Name: "custom", Data: `{"type":"summarization","summary":"short"}`},
	{Name: "tasks", Data: `{"metadata":{"run_id":"R","graph_id":"here"}}`},
	{Name: "values", Data: `{"n":1,"list":[2]}`, At: "c2"},
}

// checkPlain holds what is kept against what the upstream has.
func checkPlain(t *testing.T, r *rows) {
	t.Helper()
	all, err := checkpointer.NewSnapshots(r.Memory, nil).History(t.Context(), checkpointer.List{Thread: "T"})
	require.NoError(t, err)
	require.Len(t, all, 3)
	for i, want := range []struct{ id, parent, values, result string }{{"c2", "c1", `{"n":1,"list":[2]}`, ""}, {"c1", "c0", `{"n":1}`, `{"list":[2]}`}, {"c0", "", `{}`, `{"n":1}`}} {
		s := all[i]
		require.Equal(t, want.id, string(s.ID))
		require.Equal(t, want.parent, string(s.Parent))
		require.JSONEq(t, want.values, string(s.Values))
		require.JSONEq(t, `{"source":"loop","step":1,"parents":{},"run_id":"R","graph_id":"here","assistant_id":"A","langgraph_request_id":"Q","thread_id":"T"}`, string(s.Metadata))
		require.Equal(t, "2026-01-02T03:04:05.000006+00:00", s.CreatedAt)
		if want.result != "" {
			require.Len(t, s.Tasks, 1)
			require.JSONEq(t, want.result, string(s.Tasks[0].Result))
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.streams = append(u.streams, says(plain...))
	withPlain(u)
	inv := invocation(r)
	inv.Modes = []string{"values", "custom", "tasks"}
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	require.Equal(t, plainSeen, got)
	require.Equal(t, []string{"short"}, r.words)
	checkPlain(t, r)
	require.JSONEq(t, `{"assistant_id":"there","input":{"n":1},"stream_mode":["values","custom","tasks","checkpoints"],"stream_resumable":true,"on_disconnect":"continue",
		"multitask_strategy":"interrupt","durability":"async","metadata":{"mine":1}}`, u.body("POST /threads/T/runs/stream"))
	require.Equal(t, "R", u.headers["POST /threads/T/runs/stream"].Get("X-Request-Id"))
	require.Equal(t, "secret", u.headers["POST /threads/T/history"].Get("X-Api-Key"))
	require.Equal(t, "off", u.headers["POST /threads/T/history"].Get("X-Understudy-Overlay"))
}

// With the ids of checkpoints each comes before its values, also in subgraphs that run in parallel; an upstream sends them behind.
func TestCheckpointIDs(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	below := func(at, parent, ns string) string {
		return strings.ReplaceAll(checkpointEvent(at, parent, `{}`, ""), `"checkpoint_ns":""`, `"checkpoint_ns":"`+ns+`"`)
	}
	u.streams = append(u.streams, says(append(plain[:4:4], [][3]string{
		{"values|a:1", "2-1", `{"n":1}`},
		{"values|b:2", "2-2", `{"n":2}`},
		{"custom", "2-3", `"x"`},
		{"checkpoints|b:2", "2-4", below("b1", "", "b:2")},
		{"checkpoints|a:1", "2-5", below("a1", "a0", "a:1")},
		{"values|a:1", "2-6", `{"n":3}`}, // without a checkpoint of their own
		{"custom|a:1", "2-6", `"y"`},
		{"tasks", "2-7", `{}`},
		{"values", "2-8", `{"n":1,"list":[2]}`},
		plain[7],
	}...)...))
	withPlain(u)
	inv := invocation(r)
	inv.Modes, inv.Subgraphs = []string{"values", "custom", "tasks", graph.ModeIDs}, true
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	ids := func(at, parent, ns string, root id.Checkpoint) seen {
		if parent != "" {
			parent = `"parent_id":"` + parent + `",`
		}
		return seen{Name: graph.ModeIDs, NS: ns, Data: `{"id":"` + at + `",` + parent + `"step":1,"source":"loop"}`, At: root}
	}
	require.Equal(t, []seen{
		ids("c0", "", "", "c0"),
		ids("c1", "c0", "", "c1"),
		{Name: "values", Data: `{"n":1}`, At: "c1"},
		ids("a1", "a0", "a:1", ""),
		{Name: "values", NS: "a:1", Data: `{"n":1}`},
		ids("b1", "", "b:2", ""),
		{Name: "values", NS: "b:2", Data: `{"n":2}`},
		{Name: "custom", Data: `"x"`},
		{Name: "values", NS: "a:1", Data: `{"n":3}`},
		{Name: "custom", NS: "a:1", Data: `"y"`},
		{Name: "tasks", Data: `{}`},
		ids("c2", "c1", "", "c2"),
		{Name: "values", Data: `{"n":1,"list":[2]}`, At: "c2"},
	}, got)
	require.NotContains(t, u.body("POST /threads/T/runs/stream"), graph.ModeIDs)
}

// Events of tools are made of the tasks that call them.
func TestTools(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	const call1, call2 = `{"name":"search","args":{"q":1},"id":"c1","type":"tool_call"}`, `{"name":"add","args":{},"id":"c2","type":"tool_call"}`
	task := func(ns, data string) [3]string {
		if ns != "" {
			ns = "|" + ns
		}
		return [3]string{"tasks" + ns, "2-0", data}
	}
	tasks := [][3]string{
		task("", `{"id":"m","name":"model","input":{"messages":[]}}`),
		task("", `{"id":"t1","name":"tools","input":[`+call1+`,`+call2+`]}`),
		task("a:1", `{"id":"t2","name":"tools","input":{"__type":"tool_call_with_context","tool_call":`+call2+`}}`),
		task("a:1", `{"id":"t2","name":"tools","error":"boom","result":null}`),
		task("", `{"id":"t1","name":"tools","error":null,"result":{"messages":[{"type":"tool","tool_call_id":"c2","content":"2"},{"type":"tool","tool_call_id":"c1","content":"1"}]}}`),
		task("", `{"id":"n","name":"other","input":[1,{"type":"tool_call"}]}`),
	}
	u.streams = append(u.streams, says(append(plain[:1:1], tasks...)...))
	withPlain(u)
	inv := invocation(r)
	inv.Modes, inv.Subgraphs = []string{"tasks", "tools"}, true
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	tool := func(ns, data string) seen { return seen{Name: "tools", NS: ns, Data: data} }
	as := func(i int, ns string) seen { return seen{Name: "tasks", NS: ns, Data: tasks[i][2]} }
	require.Equal(t, []seen{
		as(0, ""), as(1, ""),
		tool("", `{"event":"tool-started","tool_call_id":"c1","tool_name":"search","input":{"q":1}}`),
		tool("", `{"event":"tool-started","tool_call_id":"c2","tool_name":"add","input":{}}`),
		as(2, "a:1"), tool("a:1", `{"event":"tool-started","tool_call_id":"c2","tool_name":"add","input":{}}`),
		tool("a:1", `{"event":"tool-error","tool_call_id":"c2","message":"boom"}`), as(3, "a:1"),
		tool("", `{"event":"tool-finished","tool_call_id":"c1","output":{"type":"tool","tool_call_id":"c1","content":"1"}}`),
		tool("", `{"event":"tool-finished","tool_call_id":"c2","output":{"type":"tool","tool_call_id":"c2","content":"2"}}`), as(4, ""),
		as(5, ""),
	}, got)
	require.NotContains(t, u.body("POST /threads/T/runs/stream"), "tools")
}

// A connection that breaks within an event is joined again behind the last whole one: nothing is missing, nothing comes twice.
func TestRejoin(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	var from []string
	rest := func(n int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, req *http.Request) {
			from = append(from, req.Header.Get("Last-Event-ID"))
			if n < len(plain) {
				cut(plain[n:n+2]...)(w, req)
			}
			says()(w, req)
		}
	}
	u.streams = append(u.streams, cut(plain[:4]...), rest(4), rest(6), rest(8))
	withPlain(u)
	inv := invocation(r)
	inv.Modes = []string{"values", "custom", "tasks"}
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	require.Equal(t, plainSeen, got)
	require.Equal(t, []string{"1-3", "1-5", "1-7"}, from)
	checkPlain(t, r)
}

// An attempt after a crash finds the running run, and receives all of its events.
func TestSecondAttempt(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.set("GET /threads/T/runs", `[{"run_id":"X","status":"running","kwargs":{"config":{"configurable":{"langgraph_request_id":"other"}}}},`+
		`{"run_id":"U","status":"running","kwargs":{"config":{"configurable":{"langgraph_request_id":"R"}}}}]`)
	u.streams = append(u.streams, says(plain...))
	withPlain(u)
	inv := invocation(r)
	inv.Attempt, inv.Input, inv.Modes = 2, nil, []string{"values", "custom", "tasks"}
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	require.Equal(t, plainSeen, got)
	checkPlain(t, r)
	require.Equal(t, 0, u.count("POST /threads/T/runs/stream"))
	require.Equal(t, "-1", u.headers["GET /threads/T/runs/U/stream"].Get("Last-Event-ID"))
}

// What a node waits for, or failed of, is kept as writes, so that thread and state show it.
func TestInterruptAndError(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.streams = append(u.streams, says(plain[0], plain[1], plain[2], plain[3], [3]string{"values", "2-0", `{"n":1,"__interrupt__":[{"value":"ok?","id":"i1"}]}`}))
	u.set("POST /threads/T/history", "["+state("c1", "c0", `{"n":1}`,
		`[{"id":"a","name":"ask","path":["__pregel_pull","ask"],"error":null,"interrupts":[{"id":"i1","value":"ok?"}],"checkpoint":null,"result":null},`+
			`{"id":"b","name":"bad","path":["__pregel_push",0,false],"error":"ValueError('no')","interrupts":[],"checkpoint":null,"result":null}]`)+","+state("c0", "", `{}`, `[]`)+"]")
	got, err := collect(t.Context(), remote(t, u), invocation(r))
	require.NoError(t, err)
	require.Equal(t, seen{Name: "values", Data: `{"n":1,"__interrupt__":[{"value":"ok?","id":"i1"}]}`}, got[len(got)-1])
	s, err := checkpointer.NewSnapshots(r.Memory, nil).State(t.Context(), checkpointer.Key{Thread: "T"}, false)
	require.NoError(t, err)
	require.Equal(t, []string{"ask", "bad"}, s.Next)
	require.Equal(t, []json.RawMessage{json.RawMessage(`{"id":"i1","value":"ok?"}`)}, s.Tasks[0].Interrupts)
	require.Equal(t, "ValueError('no')", *s.Tasks[1].Error)
	require.JSONEq(t, `["__pregel_push",0,false]`, string(s.Tasks[1].Path))
}

func TestFailures(t *testing.T) {
	t.Parallel()
	const there = "graph \"here\" at "
	for _, tt := range []struct {
		name  string
		setup func(u *upstream, r *rows, inv *graph.Invocation)
		want  graph.Failure // %s in Message: the address
	}{
		{
			name: "a node raised",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.streams = append(u.streams, says(append(plain[:3:3], [3]string{"error", "", `{"error":"ValueError","message":"no"}`})...))
				u.set("GET /threads/T/runs/U", `{"run_id":"U","status":"error"}`)
			},
			want: graph.Failure{Type: "ValueError", Message: "no"},
		},
		{
			name: "a node raised while the connection was away",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.streams = append(u.streams, cut(plain[:3]...), says())
				u.set("GET /threads/T/runs/U", `{"run_id":"U","status":"error"}`)
				u.set("GET /threads/T", `{"error":{"error":"KeyError","message":"'k'"}}`)
			},
			want: graph.Failure{Type: "KeyError", Message: "'k'"},
		},
		{
			name: "cancelled there",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.streams = append(u.streams, says(plain[:3]...))
				u.set("GET /threads/T/runs/U", `{"run_id":"U","status":"interrupted"}`)
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: the run was cancelled there"},
		},
		{
			name: "refused",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.set("POST /threads/T/runs/stream", `{"detail":"Invalid assistant ID"}`)
				u.status["POST /threads/T/runs/stream"] = http.StatusUnprocessableEntity
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: 422 Invalid assistant ID"},
		},
		{
			name: "an address with http:// of a port with TLS",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				for _, key := range []string{"GET /threads/T/state", "POST /threads", "POST /threads/T/runs/stream"} {
					u.set(key, "Client sent an HTTP request to an HTTPS server.\n")
					u.status[key] = http.StatusBadRequest
				}
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: 400 Bad Request: it has TLS, not plain HTTP; write https:// in place of http://"},
		},
		{
			name: "no JSON",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.streams = append(u.streams, says(plain[0], [3]string{"checkpoints", "1-1", `{"config":`}))
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: a checkpoint of the run is no JSON"},
		},
		{
			name: "deleted while it ran",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.streams = append(u.streams, says(plain[:3]...))
				u.status["GET /threads/T/runs/U"] = http.StatusNotFound
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: the run was deleted there"},
		},
		{
			name: "reset",
			setup: func(u *upstream, r *rows, _ *graph.Invocation) {
				_ = r.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: "T", ID: "old"}, Data: json.RawMessage(`{}`)}})
				u.set("GET /threads/T/state", `{"values":{},"next":[],"tasks":[],"checkpoint":{"thread_id":"T","checkpoint_id":null}}`)
				u.set("POST /threads/T/state/checkpoint", `{"values":{},"next":[],"tasks":[],"checkpoint":{"thread_id":"T","checkpoint_id":"old"},"created_at":null}`)
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: " + "the upstream server does not have checkpoint old of thread T, which is here: it was reset, or the thread was made elsewhere. " +
				"The conversation can be read, but not continued there"},
		},
		{
			name: "somebody else's thread",
			setup: func(u *upstream, _ *rows, _ *graph.Invocation) {
				u.set("POST /threads", `{"values":{"n":1},"metadata":{}}`)
				u.set("GET /threads/T/state", state("c9", "", `{"n":1}`, `[]`))
			},
			want: graph.Failure{Type: "UpstreamError", Message: there + "%s: thread T has a history there that is not here"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, r := newUpstream(t), newRows()
			u.set("POST /threads/T/history", "[]")
			inv := invocation(r)
			tt.setup(u, r, &inv)
			_, err := collect(t.Context(), remote(t, u), inv)
			var f *graph.Failure
			require.ErrorAs(t, err, &f)
			if tt.want.Type == "UpstreamError" {
				tt.want.Message = fmt.Sprintf(tt.want.Message, u.URL)
			}
			require.Equal(t, tt.want, *f)
		})
	}
}

// No error shows the credentials of an address.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	g, err := New(Options{ID: "here", URL: "http://me:secret@127.0.0.1:1"})
	require.NoError(t, err)
	_, err = collect(t.Context(), g, invocation(newRows()))
	var f *graph.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, "UpstreamError", f.Type)
	require.Contains(t, f.Message, `graph "here" at http://127.0.0.1:1: the upstream server cannot be reached`)
	require.NotContains(t, f.Message, "secret")
	_, err = g.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "graph"})
	require.True(t, fault.Is(err, fault.Unavailable), err)
	for _, bad := range []string{"", "graphs.example.com", "ftp://x", "http://", "http://me:secret@[x"} {
		_, err := New(Options{ID: "here", URL: bad})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A cancelled run is cancelled upstream; one that another attempt resumes is not.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		cause   error
		cancels int
	}{{"cancelled", errors.New("by a person"), 1}, {"handed over", fmt.Errorf("shutdown: %w", graph.ErrHandedOver), 0}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			u.set("POST /threads/T/runs/U/cancel", "{}")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			u.streams = append(u.streams, func(w http.ResponseWriter, r *http.Request) {
				says(plain[:4]...)(w, r)
				<-r.Context().Done()
			})
			g, n := remote(t, u), 0
			var last error
			for _, err := range g.Stream(ctx, invocation(newRows())) {
				n++
				last = err
				cancel(tt.cause)
			}
			require.Equal(t, 2, n)
			require.ErrorIs(t, last, tt.cause)
			require.Equal(t, tt.cancels, u.count("POST /threads/T/runs/U/cancel"))
		})
	}
}

// A run that is no longer ours stops there as well.
func TestFenced(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	r.fail = graph.ErrFenced
	u.set("POST /threads/T/runs/U/cancel", "{}")
	u.streams = append(u.streams, says(plain...))
	_, err := collect(t.Context(), remote(t, u), invocation(r))
	require.ErrorIs(t, err, graph.ErrFenced)
	require.Equal(t, 1, u.count("POST /threads/T/runs/U/cancel"))
}

// Nothing of a temporary thread stays.
func TestTemporary(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.set("DELETE /threads/T", "{}")
	u.streams = append(u.streams, says(plain[0], plain[2], plain[6]))
	inv := invocation(r)
	inv.Temporary = true
	got, err := collect(t.Context(), remote(t, u), inv)
	require.NoError(t, err)
	require.Equal(t, []seen{{Name: "values", Data: `{"n":1}`}, {Name: "values", Data: `{"n":1,"list":[2]}`}}, got)
	require.Equal(t, 1, u.count("DELETE /threads/T"))
	head, err := r.Load(t.Context(), checkpointer.Key{Thread: "T"})
	require.NoError(t, err)
	require.Nil(t, head)
}

// What is here counts: when the upstream's head is another one, a run names where it starts.
func TestStartsFromTheHeadHere(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	require.NoError(t, r.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: "T", ID: "b1"}, Data: json.RawMessage(`{}`)}}))
	u.set("GET /threads/T/state", state("b2", "b1", `{}`, `[]`))
	u.set("POST /threads/T/state/checkpoint", state("b1", "", `{}`, `[]`))
	u.set("POST /threads/T/history", "["+state("c0", "b1", `{}`, `[]`)+"]")
	u.streams = append(u.streams, says(plain[0]))
	_, err := collect(t.Context(), remote(t, u), invocation(r))
	require.NoError(t, err)
	var body struct{ Checkpoint json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(u.body("POST /threads/T/runs/stream")), &body))
	require.JSONEq(t, `{"thread_id":"T","checkpoint_ns":"","checkpoint_id":"b1"}`, string(body.Checkpoint))
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.set("POST /threads/T/state", `{"checkpoint":{"thread_id":"T","checkpoint_ns":"","checkpoint_id":"c0"}}`)
	u.set("POST /threads/T/history", "["+state("c0", "", `{"n":5}`, `[]`)+"]")
	g := remote(t, u)
	at := checkpointer.Key{Thread: "T"}
	key, err := g.Update(t.Context(), invocation(r).Config, at, [][]graph.StateUpdate{{{Values: json.RawMessage(`{"n":5}`), AsNode: "work"}}})
	require.NoError(t, err)
	require.Equal(t, checkpointer.Key{Thread: "T", ID: "c0"}, key)
	require.JSONEq(t, `{"values":{"n":5},"as_node":"work"}`, u.body("POST /threads/T/state"))
	s, err := checkpointer.NewSnapshots(r.Memory, nil).State(t.Context(), at, false)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":5}`, string(s.Values))

	u.set("GET /threads/T/state", state("c0", "", `{"n":5}`, `[]`))
	u.set("POST /threads/T/state", `{"detail":"Node nobody does not exist"}`)
	u.status["POST /threads/T/state"] = http.StatusBadRequest
	_, err = g.Update(t.Context(), invocation(r).Config, at, [][]graph.StateUpdate{{{AsNode: "nobody"}}})
	require.True(t, fault.Is(err, fault.Invalid), err)
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, "Node nobody does not exist", f.Message)
	_, err = g.Update(t.Context(), invocation(r).Config, at, [][]graph.StateUpdate{{{AsNode: "a"}, {AsNode: "b"}}})
	require.True(t, fault.Is(err, fault.Invalid), err)
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.set("POST /assistants/search", `[{"assistant_id":"D"}]`)
	u.set("GET /assistants/D/graph", `{"nodes":[],"edges":[]}`)
	u.set("GET /assistants/D/schemas", `{"graph_id":"there","input_schema":null}`)
	u.set("GET /assistants/D/subgraphs/a|b", `{"a|b":{}}`)
	g := remote(t, u)
	for _, tt := range []struct {
		what graph.DescribeWhat
		want string
	}{
		{graph.DescribeWhat{Kind: "graph", XRay: -1}, `{"nodes":[],"edges":[]}`},
		{graph.DescribeWhat{Kind: "schemas"}, `{"input_schema":null}`},
		{graph.DescribeWhat{Kind: "subgraphs", Namespace: "a|b", Recurse: true}, `{"a|b":{}}`},
	} {
		got, err := g.Describe(t.Context(), graph.Config{}, tt.what)
		require.NoError(t, err)
		require.JSONEq(t, tt.want, string(got))
	}
	require.Equal(t, 1, u.count("POST /assistants/search"))
	require.JSONEq(t, `{"graph_id":"there","limit":1,"metadata":{"created_by":"system"}}`, u.body("POST /assistants/search"))
	// LangGraph Server does not say where nodes are.
	for _, want := range []string{`{"nodes":[]}`, `{"nodes":[{"id":"a","function":"f","file":"a.py","line":3}]}`} {
		got, err := g.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "nodes"})
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
		u.set("GET /understudy/assistants/D/nodes", `{"nodes":[{"id":"a","function":"f","file":"a.py","line":3}]}`)
	}
	_, err := g.Describe(t.Context(), graph.Config{}, graph.DescribeWhat{Kind: "subgraphs", Namespace: "none"})
	require.True(t, fault.Is(err, fault.NotFound), err)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	u, r := newUpstream(t), newRows()
	u.set("POST /threads/T/state/checkpoint", state("c1", "c0", `{"n":1}`, `[{"id":"a","name":"ask","path":["__pregel_pull","ask"],"interrupts":[],"checkpoint":{"checkpoint_ns":"ask:a"}}]`))
	e, err := remote(t, u).Explain(t.Context(), invocation(r).Config, checkpointer.Key{Thread: "T", ID: "c1"}, false)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(e.Values))
	require.JSONEq(t, `[{"id":"a","name":"ask","path":["__pregel_pull","ask"],"subgraph":true}]`, string(e.Tasks))
	require.NotEmpty(t, e.Shape)
	u.set("GET /threads/T/state", state("c2", "c1", `{"n":2}`, `[]`))
	_, err = remote(t, u).Explain(t.Context(), invocation(r).Config, checkpointer.Key{Thread: "T", ID: "c1"}, true)
	require.ErrorIs(t, err, errLacks) // the head there is another by now
}

// What belongs to this server does not reach the upstream; a context is sent as one, else configurable is.
func TestConfig(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, config, context, want string }{
		{
			"configurable", `{"recursion_limit":5,"tags":["t"],"configurable":{"k":1,"run_id":"R","__request_start_time_ms__":1,"langgraph_auth_user":null}}`, `{"k":1}`,
			`{"config":{"recursion_limit":5,"tags":["t"],"configurable":{"k":1}}}`,
		},
		{"context", `{"configurable":{"k":1,"__context_keys__":["k"]}}`, `{"k":1}`, `{"context":{"k":1}}`},
		{"nothing", `{"configurable":{"run_id":"R"},"metadata":{"run_id":"R","langgraph_host":"x"}}`, ``, `{}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, err := New(Options{ID: "here", URL: "http://127.0.0.1:1"})
			require.NoError(t, err)
			inv := invocation(nil)
			inv.Config.Config, inv.Context = json.RawMessage(tt.config), json.RawMessage(tt.context)
			body, err := (&run{g: g, inv: &inv}).body("")
			require.NoError(t, err)
			var m map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(body, &m))
			for k := range m {
				if k != "config" && k != "context" && k != "metadata" {
					delete(m, k)
				}
			}
			got, err := json.Marshal(m)
			require.NoError(t, err)
			require.JSONEq(t, tt.want, string(got))
		})
	}
}
