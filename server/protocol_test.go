package server

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
)

const protocolPath = "/threads/" + someThread

// What LangGraph Server answers to bad requests is what we answer.
func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../conformance/wire/v2_errors.json")
	require.NoError(t, err)
	var transcript struct {
		Steps []struct {
			Request struct {
				POST string
				Body json.RawMessage
			}
			Status   int
			Response json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(raw, &transcript))
	require.Greater(t, len(transcript.Steps), 15)
	ids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	for _, step := range transcript.Steps {
		body := string(step.Request.Body)
		if strings.HasPrefix(body, `"`) {
			require.NoError(t, json.Unmarshal(step.Request.Body, &body))
		}
		w := setup(t)
		switch {
		case strings.Contains(body, `"missing"`):
			w.err = fault.New(fault.Unprocessable, "Invalid assistant: 'missing'. Must be either:\n- A valid assistant UUID, or\n- One of the registered graphs: agent, summarizing, hitl, pipeline, failing, slow, parent, echo")
		case strings.Contains(string(step.Response), "No interrupted run"):
			w.err = run.ErrNotInterrupted
		}
		res, answer := w.ask(t, "POST", strings.ReplaceAll(step.Request.POST, "{thread_id}", someThread), body)
		require.Equal(t, step.Status, res.StatusCode, "%s: %s", body, answer)
		require.JSONEq(t, string(step.Response), ids.ReplaceAllString(answer, "<uuid-1>"), body)
	}
}

// An error that is not the client's has its status: clients try again.
func TestCommandErrors(t *testing.T) {
	t.Parallel()
	w := setup(t)
	respond := `{"id":4,"method":"input.respond","params":{"interrupt_id":"a","response":1}}`
	for _, tt := range []struct {
		err    error
		status int
		answer string
	}{
		{&run.UnknownInterrupt{ID: "a"}, 200, `{"type":"error","id":4,"error":"no_such_interrupt","message":"Unknown or already-consumed interrupt: a"}`},
		{fault.New(fault.Conflict, "busy"), 200, `{"type":"error","id":4,"error":"unknown_error","message":"409: busy"}`},
		{fault.New(fault.Unavailable, "later"), 503, `{"detail":"later"}`},
		{errors.New("secret"), 500, `{"detail":"Internal Server Error"}`},
	} {
		w.err = tt.err
		res, answer := w.ask(t, "POST", protocolPath+"/commands", respond)
		require.Equal(t, tt.status, res.StatusCode, answer)
		require.Equal(t, tt.answer, answer)
	}
	w.err = nil
	for _, body := range []string{`[]`, `7`, `{"id":1.5,"method":"x"}`, `{"id":true,"method":"x"}`, `{"id":1,"method":null}`, `{"id":1e2,"method":"x"}`} {
		res, answer := w.ask(t, "POST", protocolPath+"/commands", body)
		require.Equal(t, 400, res.StatusCode, answer)
		require.Contains(t, answer, `"error":"invalid_argument"`)
	}
	for _, params := range []string{
		`{"assistant_id":""}`, `{"assistant_id":7}`, `{"assistant_id":"a","config":[]}`, `{"assistant_id":"a","metadata":"x"}`, `{"assistant_id":"a","langsmith_tracer":1}`,
		`{"assistant_id":"a","config":{"configurable":{"checkpoint_id":7}}}`,
	} {
		_, answer := w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"run.start","params":`+params+`}`)
		require.Contains(t, answer, `"error":"invalid_argument"`, params)
	}
	_, answer := w.ask(t, "POST", "/threads/nonsense/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"a"}}`)
	require.Contains(t, answer, `"error":"unknown_error"`)
}

// Commands make the runs that the contract says.
func TestCommandRequests(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, answer := w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"a","input":{"n":1},"multitaskStrategy":"reject",
		"config":{"configurable":{"checkpoint_id":"00000000-0000-4000-8000-000000000009","k":1}},"metadata":{"m":1},"langsmith_tracer":{"project_name":"p"}}}`)
	require.Equal(t, `{"type":"success","id":1,"result":{"run_id":"`+someRun+`"},"meta":{"applied_through_seq":0}}`, answer)
	req, ok := w.last().(run.Request)
	require.True(t, ok)
	require.JSONEq(t, `{"configurable":{"k":1}}`, string(req.Config))
	require.Equal(t, []any{"a", `{"n":1}`, run.Reject, "create", true, true, true, `{"m":1}`, "00000000-0000-4000-8000-000000000009", `"p"`}, []any{
		req.AssistantID, string(req.Input), req.Strategy, req.IfNotExists, req.Resumable, req.Subgraphs, req.EventStreaming, string(req.Metadata), string(req.CheckpointID), string(req.Tracer.Project),
	})
	require.Subset(t, req.Modes, []string{"values", "updates", "messages-tuple", "tools", "custom", "tasks"})

	w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"a","multitaskStrategy":"nonsense"}}`)
	req, _ = w.last().(run.Request)
	require.Equal(t, run.Enqueue, req.Strategy)
	require.Nil(t, req.Input)

	_, answer = w.ask(t, "POST", protocolPath+"/commands", `{"id":2,"method":"input.respond","params":{"responses":[{"interrupt_id":"a","response":{"x":1}},{"interrupt_id":"b","namespace":[]}],"update":{"k":1},"goto":"n"}}`)
	require.Equal(t, `{"type":"success","id":2,"result":{},"meta":{"applied_through_seq":0}}`, answer)
	require.Equal(t, []run.Response{{Interrupt: "a", Value: json.RawMessage(`{"x":1}`)}, {Interrupt: "b", Value: json.RawMessage(`null`), Namespace: []string{}}}, w.last())
}

// The stream of events has the frames that are handed to it, as they are, and a filter of what the body says that makes sense.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	l.records <- &bridge.Record{Event: "values", Ephemeral: true, Frame: []byte("event: values\r\ndata: {}\r\nid: 7\r\n")}
	close(l.records)
	res, body := w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":["values","custom:x","checkpoints"],"namespaces":[["a"],"b",[1],[]],"depth":1,"since":5,"unknown":1}`)
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "event: values\r\ndata: {}\r\nid: 7\r\n\r\n", body)
	require.Equal(t, []string{"text/event-stream; charset=utf-8", "no-store", "no"}, []string{res.Header.Get("Content-Type"), res.Header.Get("Cache-Control"), res.Header.Get("X-Accel-Buffering")})
	one := 1
	require.Equal(t, protocol.Filter{Channels: []string{"values", "checkpoints"}, Namespaces: [][]string{{"a"}, {}}, Depth: &one, Since: 5}, w.last())

	l = following(w)
	close(l.records)
	w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":["values"],"namespaces":7,"depth":true,"since":-1}`)
	require.Equal(t, protocol.Filter{Channels: []string{"values"}}, w.last())
}
