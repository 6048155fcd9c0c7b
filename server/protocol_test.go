package server

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strconv"
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
		if strings.Contains(body, `"state.get"`) {
			continue // LangGraph Server does not have it
		}
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
	// Ids that a client made up come back in part only.
	long := strings.Repeat("a", 100_000)
	w.err = &run.UnknownInterrupt{ID: long}
	for _, body := range []string{respond, `{"id":4,"method":"subscription.unsubscribe","params":{"subscription_id":"` + long + `"}}`, `{"id":4,"method":"` + long + `"}`} {
		res, answer := w.ask(t, "POST", protocolPath+"/commands", body)
		require.Equal(t, 200, res.StatusCode)
		require.Contains(t, answer, `"type":"error"`)
		require.Less(t, len(answer), 1200)
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

	for _, input := range []string{`0`, `false`, `""`, `[]`, `{}`, `"yes"`} { // each of them may be an answer
		w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"a","input":`+input+`}}`)
		req, _ = w.last().(run.Request)
		require.Equal(t, input, string(req.Input))
	}
	w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"a","input":null}}`)
	req, _ = w.last().(run.Request)
	require.Nil(t, req.Input, "the run continues from the checkpoint")

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
	require.Equal(t, protocol.Filter{Channels: []string{"values", "custom:x", "checkpoints"}, Namespaces: [][]string{{"a"}, {}}, Depth: &one, Since: 5, Resume: true}, w.last())

	// Positions are in the body only, and without an upgrade there is nothing to get.
	l = following(w)
	close(l.records)
	w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":["values"]}`, "Last-Event-ID", "1795659409608868")
	require.Equal(t, protocol.Filter{Channels: []string{"values"}}, w.last())
	res, body = w.ask(t, "GET", protocolPath+"/stream/events", "")
	require.Equal(t, []any{405, `{"detail":"Method Not Allowed"}`}, []any{res.StatusCode, body})

	for _, more := range []string{`"namespaces":7,"depth":true,"since":-1`, `"depth":-1,"since":1.5`, `"depth":"1","since":"1"`, `"depth":1e0,"since":1e3`, `"depth":null,"since":false`, `"since":0`} {
		l = following(w)
		close(l.records)
		w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":["values"],`+more+`}`)
		require.Equal(t, protocol.Filter{Channels: []string{"values"}}, w.last(), more)
	}
	for _, since := range []string{"9007199254740992", "9223372036854775807", "9223372036854775808", strings.Repeat("9", 400)} {
		l = following(w)
		close(l.records)
		w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":["values"],"since":`+since+`}`)
		require.Equal(t, protocol.Filter{Channels: []string{"values"}, Since: 1<<53 - 1, Resume: true}, w.last(), "no event has such a seq")
	}
}

// Commands about the state of a thread, which the schema of the protocol has and LangGraph Server has not.
func TestStateCommands(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.seen = 7
	const at = "00000000-0000-4000-8000-000000000009"
	ask := func(method, params string) string {
		res, answer := w.ask(t, "POST", protocolPath+"/commands", `{"id":1,"method":"`+method+`","params":`+params+`}`)
		require.Equal(t, 200, res.StatusCode, answer)
		return answer
	}
	for method, all := range map[string][]string{
		"state.get":             {`{}`, `{"namespace":"a"}`, `{"namespace":[1]}`, `{"namespace":[],"keys":"a"}`, `{"namespace":[],"keys":[1]}`},
		"state.listCheckpoints": {`{"namespace":7}`, `{"limit":0}`, `{"limit":-1}`, `{"limit":1001}`, `{"limit":"5"}`, `{"before":"x"}`, `{"before":7}`},
		"state.fork":            {`{}`, `{"checkpoint_id":"x"}`, `{"checkpoint_id":7}`, `{"checkpoint_id":"` + at + `","config":[]}`},
		"input.inject": {
			`{}`, `{"namespace":[]}`, `{"namespace":[],"message":"hi"}`, `{"namespace":[],"message":{}}`, `{"namespace":[],"message":{"role":"ai","content":"x"}}`,
			`{"namespace":[],"message":{"role":"user"}}`, `{"namespace":[],"message":{"role":"user","content":7}}`, `{"namespace":[],"message":{"role":"user","content":"x","name":1}}`,
		},
	} {
		for _, params := range all {
			require.Contains(t, ask(method, params), `"error":"invalid_argument"`, "%s %s", method, params)
		}
	}
	require.Contains(t, ask("input.inject", `{"namespace":["child:1"],"message":{"role":"user","content":"x"}}`), `"error":"not_supported"`)

	require.Equal(t, `{"type":"success","id":1,"result":{"run_id":"`+someRun+`","thread_id":"`+someThread+`"},"meta":{"applied_through_seq":7}}`,
		ask("state.fork", `{"checkpoint_id":"`+at+`","input":{"n":1},"config":{"tags":["x"],"configurable":{"checkpoint_id":"`+someRun+`"}}}`))
	req, ok := w.last().(run.Request)
	require.True(t, ok)
	require.Equal(t, []any{at, `{"n":1}`, "", true}, []any{string(req.CheckpointID), string(req.Input), req.AssistantID, req.EventStreaming})
	require.JSONEq(t, `{"tags":["x"],"configurable":{}}`, string(req.Config))

	require.Equal(t, `{"type":"success","id":1,"result":{"run_id":"`+someRun+`"},"meta":{"applied_through_seq":7}}`,
		ask("input.inject", `{"namespace":[],"message":{"role":"user","content":"hi","name":"Ada"}}`))
	req, _ = w.last().(run.Request)
	require.Equal(t, `{"messages":[{"role":"user","content":"hi","name":"Ada"}]}`, string(req.Input))
	require.Equal(t, run.Enqueue, req.Strategy)

	for _, tt := range []struct {
		err  error
		code string
	}{{&run.UnknownCheckpoint{ID: at}, "no_such_checkpoint"}, {run.ErrNoRun, "no_such_run"}, {run.ErrAsks, "unknown_error"}} {
		w.err = tt.err
		require.Contains(t, ask("state.fork", `{"checkpoint_id":"`+at+`"}`), `"error":"`+tt.code+`"`)
	}
}

// Runs of the older routes cannot have what only event streaming streams.
func TestModesOfEventStreaming(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, mode := range []string{"tools", "lifecycle", "input", "checkpoint-ids", "custom-channels"} {
		res, body := w.ask(t, "POST", protocolPath+"/runs/stream", `{"assistant_id":"a","stream_mode":["`+mode+`"]}`)
		require.Equal(t, 422, res.StatusCode, body)
	}
}

// Each event is compared with all channels of a filter, which may have any names.
func TestChannelsOfAFilterAreBounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for n, status := range map[int]int{1000: 200, 1001: 400} {
		names := make([]string, n)
		for i := range names {
			names[i] = `"custom:` + strconv.Itoa(i) + `"`
		}
		l := following(w)
		close(l.records)
		res, body := w.ask(t, "POST", protocolPath+"/stream/events", `{"channels":[`+strings.Join(names, ",")+`]}`)
		require.Equal(t, status, res.StatusCode, body)
	}
}
