package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/internal/web"
	"understudy/server/openai"
	"understudy/thread"
)

// models has one assistant for each graph of a list, and one of its own.
type models struct {
	fakeAssistants
	list []*assistant.Assistant
}

func newModels(f fakeAssistants, graphs ...string) models {
	m := models{fakeAssistants: f}
	for _, g := range graphs {
		m.list = append(m.list, &assistant.Assistant{ID: id.DefaultAssistant(g), GraphID: g, Name: g, CreatedAt: someTime})
	}
	about := "answers shortly"
	m.list = append(m.list, &assistant.Assistant{ID: someID, GraphID: graphs[0], Name: "short", Description: &about, CreatedAt: someTime})
	return m
}

func (m models) Get(_ context.Context, a id.Assistant) (*assistant.Assistant, error) {
	for _, one := range m.list {
		if one.ID == a {
			return one, m.err
		}
	}
	return nil, fault.New(fault.NotFound, "Assistant not found")
}

func (m models) Search(_ context.Context, q assistant.Query) ([]*assistant.Assistant, bool, error) {
	end := min(q.Offset+q.Limit, len(m.list))
	return m.list[min(q.Offset, end):end], end < len(m.list), m.err
}

// waiting has a thread that waits at an interrupt, if there are some.
type waiting struct {
	fakeThreads
	row *thread.View // nil: there is no thread
}

func (w waiting) Search(_ context.Context, q thread.Search) ([]*thread.View, bool, error) {
	if w.row == nil || len(q.IDs) != 1 || q.IDs[0] != w.row.ID {
		return nil, false, nil
	}
	return []*thread.View{w.row}, false, nil
}

func (w waiting) Get(context.Context, id.Thread) (*thread.View, error) { return w.row, nil }

func openaiWorld(t *testing.T, row *thread.View, change ...func(*Options)) *world {
	return setup(t, append([]func(*Options){func(o *Options) {
		o.Assistants = newModels(o.Assistants.(fakeAssistants), "agent", "other")
		o.Threads = waiting{o.Threads.(fakeThreads), row}
	}}, change...)...)
}

// ended is a follower of a run that has ended, with these records.
func endedRun(records ...*bridge.Record) func() run.Follower {
	return func() run.Follower {
		l := newLine()
		for _, r := range records {
			l.records <- r
		}
		close(l.records)
		return l.follower()
	}
}

var hello = record(1, "updates", `{"model":{"messages":[{"type":"ai","id":"1","content":"Hello"}]}}`)

const chatBody = `{"model":"agent","messages":[{"role":"user","content":"hi"}]}`

func TestModels(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	_, body := w.ask(t, "GET", "/v1/models", "")
	require.JSONEq(t, `{"object":"list","data":[
		{"id":"agent","object":"model","created":1767323045,"owned_by":"understudy","name":"agent"},
		{"id":"other","object":"model","created":1767323045,"owned_by":"understudy","name":"other"},
		{"id":"`+someID+`","object":"model","created":1767323045,"owned_by":"understudy","name":"short","description":"answers shortly"}]}`, body)
	for model, want := range map[string]string{"agent": "agent", string(id.DefaultAssistant("other")): "other", someID: someID} {
		res, body := w.ask(t, "GET", "/v1/models/"+model, "")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, want, gjson.Get(body, "id").Str)
	}
	res, body := w.ask(t, "GET", "/v1/models/nope", "")
	require.Equal(t, 404, res.StatusCode)
	require.JSONEq(t, `{"error":{"message":"The model 'nope' does not exist: name an assistant by its id, or a graph","type":"invalid_request_error","param":"model","code":"model_not_found"}}`, body)
}

// A run whose end is saved late has its answer: the notice meanwhile is no failure.
func TestAnswersThatAreSavedLate(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	notice := &bridge.Record{Event: "end_not_saved", Data: []byte(`{"error":"ServiceUnavailable","message":"The disk is full"}`), Ephemeral: true}
	w.follow = endedRun(hello, notice)
	for path, request := range map[string]string{"/v1/chat/completions": chatBody, "/v1/responses": `{"model":"agent","input":"hi"}`} {
		for _, request := range []string{request, strings.Replace(request, "{", `{"stream":true,`, 1)} {
			res, body := w.ask(t, "POST", path, request)
			require.Equal(t, 200, res.StatusCode, body)
			require.Contains(t, body, "Hello")
			require.NotContains(t, body, "disk")
			require.NotContains(t, body, "run_failed")
		}
	}
}

func TestChatRequests(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.follow = endedRun(hello)
	res, body := w.ask(t, "POST", "/v1/chat/completions", chatBody)
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, "Hello", gjson.Get(body, "choices.0.message.content").Str)
	require.Empty(t, res.Header.Get("X-Thread-Id"))
	req := w.services.last().(run.Request)
	require.Equal(t, string(id.DefaultAssistant("agent")), req.AssistantID)
	require.Equal(t, []string{"updates"}, req.Modes)
	require.Equal(t, "cancel", req.OnDisconnect)
	require.JSONEq(t, `{"messages":[{"type":"human","content":"hi"}]}`, string(req.Input))

	res, body = w.ask(t, "POST", "/v1/chat/completions", strings.Replace(chatBody, "{", `{"stream":true,`, 1), "X-Thread-Id", strings.ToUpper(someThread))
	require.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"))
	require.Equal(t, someThread, res.Header.Get("X-Thread-Id"))
	require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), body)
	require.Contains(t, body, `"delta":{"content":"Hello"}`)
	req = w.services.last().(run.Request)
	require.Equal(t, []string{"messages-tuple", "updates"}, req.Modes)
	require.Equal(t, "create", req.IfNotExists)

	for body, want := range map[string]string{
		`{nope`:                           `400 invalid_request_error  `,
		strings.Repeat("[", 1<<20):        `400 invalid_request_error  `,
		`{"model":"agent","messages":[]}`: `400 invalid_request_error messages `,
		`{"model":"nope","messages":[{"role":"user","content":"hi"}]}`: `404 invalid_request_error model model_not_found`,
		strings.Replace(chatBody, "{", `{"n":3,`, 1):                   `400 invalid_request_error n unsupported_parameter`,
		strings.Replace(chatBody, `"hi"`, `[{"type":"image_url","image_url":{"url":"x","a":`+strings.Repeat(`[`, 2000)+strings.Repeat(`]`, 2000)+`}}]`, 1): `400 invalid_request_error  `,
	} {
		res, answer := w.ask(t, "POST", "/v1/chat/completions", body)
		e := gjson.Get(answer, "error")
		require.Equal(t, want, fmt.Sprint(res.StatusCode, " ", e.Get("type").Str, " ", e.Get("param").Str, " ", e.Get("code").Str), "%.200s: %s", body, answer)
		require.NotEmpty(t, e.Get("message").Str)
	}
	for err, want := range map[*fault.Error]string{
		fault.New(fault.Conflict, "busy"):                `409 invalid_request_error busy`,
		fault.New(fault.Unavailable, "away"):             `503 server_error away`,
		fault.New(fault.Internal, "a secret"):            `500 server_error Internal Server Error`,
		fault.New(fault.Unauthorized, "who are you?"):    `401 authentication_error who are you?`,
		fault.New(fault.Forbidden, "not you"):            `403 permission_error not you`,
		fault.New(fault.Unprocessable, "no such thread"): `400 invalid_request_error no such thread`,
	} {
		w.services.err = err
		res, answer := w.ask(t, "POST", "/v1/chat/completions", chatBody)
		require.Equal(t, want, fmt.Sprint(res.StatusCode, " ", gjson.Get(answer, "error.type").Str, " ", gjson.Get(answer, "error.message").Str))
	}
}

// A run that fails has the status of a failure, also when it takes longer than others wait with their answer, and clients do not repeat it.
func TestChatOfARunThatFails(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.follow = func() run.Follower {
		l := newLine()
		time.AfterFunc(web.Patience+50*time.Millisecond, func() {
			l.records <- record(1, "error", `{"error":"ValueError","message":"no"}`)
			close(l.records)
		})
		return l.follower()
	}
	res, body := w.ask(t, "POST", "/v1/chat/completions", chatBody)
	require.Equal(t, 500, res.StatusCode)
	require.Equal(t, "false", res.Header.Get("X-Should-Retry"))
	require.JSONEq(t, `{"error":{"message":"ValueError: no","type":"server_error","param":null,"code":"run_failed"}}`, body)
}

func TestChatAnswersQuestions(t *testing.T) {
	t.Parallel()
	row := &thread.View{Thread: thread.Thread{ID: someThread, Status: thread.Interrupted, Head: "c", Interrupts: json.RawMessage(`{"t":[{"id":"i","value":"ok?"}]}`)}, Values: json.RawMessage(`{"messages":[{"type":"ai","id":"1","content":"old"}]}`)}
	w := openaiWorld(t, row)
	w.follow = endedRun(record(1, "updates", `{"child":{"messages":[{"type":"ai","id":"1","content":"old"},{"type":"ai","id":"2","content":"new"}]}}`))
	_, body := w.ask(t, "POST", "/v1/chat/completions", chatBody, "X-Thread-Id", someThread)
	require.Equal(t, "new", gjson.Get(body, "choices.0.message.content").Str)
	req := w.services.last().(run.Request)
	require.JSONEq(t, `{"resume":"hi"}`, string(req.Command))
	require.Nil(t, req.Input)

	// A run answers already, or failed on an answer: this is another message.
	for _, status := range []thread.Status{thread.Busy, thread.Errored} {
		row.Status = status
		_, _ = w.ask(t, "POST", "/v1/chat/completions", chatBody, "X-Thread-Id", someThread)
		req = w.services.last().(run.Request)
		require.Nil(t, req.Command)
		require.NotNil(t, req.Input)
	}
}

// A client that leaves ends its run, and everything of the request.
func TestChatOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		w := openaiWorld(t, nil, func(o *Options) { o.MaxStreams = 1 })
		l := newLine()
		begun := make(chan struct{})
		w.follow = func() run.Follower { close(begun); return l.follower() }
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+w.addr+"/v1/chat/completions", strings.NewReader(strings.Replace(chatBody, "{", `{"stream":`+stream+`,`, 1)))
		require.NoError(t, err)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if res, err := w.http.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		<-begun
		l.records <- hello
		leave()
		require.True(t, <-l.closed, "the run is cancelled")
		<-answered
		w.follow = endedRun(hello)
		require.Eventually(t, func() bool { // the place for a stream is free again
			res, _ := w.ask(t, "POST", "/v1/chat/completions", chatBody)
			return res.StatusCode == 200
		}, 5*time.Second, 10*time.Millisecond)
	}
}

// A quiet stream has heartbeats, which clients skip, and ends without [DONE] when the server does, so that clients see that it was cut.
func TestChatStreamsOfServersThatEnd(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil, func(o *Options) { o.Heartbeat = 10 * time.Millisecond })
	l := newLine()
	w.follow = l.follower
	res, err := w.http.Post("http://"+w.addr+"/v1/chat/completions", "application/json", strings.NewReader(strings.Replace(chatBody, "{", `{"stream":true,`, 1)))
	require.NoError(t, err)
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, ":"), line)
	go func() { _ = w.stop() }()
	rest, err := io.ReadAll(in)
	require.Error(t, err)
	require.NotContains(t, string(rest), "[DONE]")
}

func TestDisableOpenAI(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil, func(o *Options) { o.Disable.OpenAI = true })
	for _, path := range []string{"/v1/models", "/v1/models/agent"} {
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, 404, res.StatusCode)
		require.JSONEq(t, `{"detail":"Not Found"}`, body)
	}
	require.NotContains(t, string(w.s.OpenAPI()), "/v1/")
	// The API is under the mount prefix too, and what it lacks is said in its own form.
	w = openaiWorld(t, nil, func(o *Options) { o.MountPrefix = "/mine" })
	res, _ := w.ask(t, "GET", "/mine/v1/models", "")
	require.Equal(t, 200, res.StatusCode)
	for path, key := range map[string]string{"/mine/v1/models/nope": "error", "/v1/chat/nope": "error", "/v1/modelsx": "detail", "/threads/x/v1/models": "detail"} {
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, 404, res.StatusCode)
		require.True(t, gjson.Get(body, key).Exists(), body)
	}
}

// refusing refuses all requests.
type refusing access.Refusal

func (r refusing) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	refusal := access.Refusal(r)
	return nil, &refusal
}

// SDKs show people the message of an error in OpenAI's form, and nothing of others: so who refuses a request does not matter.
func TestRefusalsHaveOpenAIsForm(t *testing.T) {
	t.Parallel()
	header := http.Header{"Retry-After": {"7"}}
	for _, tt := range []struct {
		refusal access.Refusal
		want    string
	}{
		{access.Refusal{Status: 401, Detail: jsonobj.Quote("no key"), Header: header}, `{"error":{"message":"no key","type":"authentication_error","param":null,"code":null}}`},
		{access.Refusal{Status: 429, Detail: jsonobj.Quote("too many"), Header: header}, `{"error":{"message":"too many","type":"rate_limit_error","param":null,"code":null}}`},
		{access.Refusal{Status: 403, Plain: "go away", Header: header}, `{"error":{"message":"go away","type":"permission_error","param":null,"code":null}}`},
	} {
		w := openaiWorld(t, nil, func(o *Options) { o.Authenticator = refusing(tt.refusal) })
		for _, path := range []string{"/v1/models", "/v1/responses/x"} {
			res, body := w.ask(t, "GET", path, "")
			require.Equal(t, tt.refusal.Status, res.StatusCode)
			require.Equal(t, tt.want, body)
			require.Equal(t, "7", res.Header.Get("Retry-After"))
			require.Equal(t, "application/json", res.Header.Get("Content-Type"))
		}
		_, body := w.ask(t, "GET", "/threads/"+string(someThread), "")
		require.False(t, gjson.Get(body, "error").Exists(), body)
	}
}

// past is a thread whose run has ended at a checkpoint.
type past struct {
	waiting
	end id.Checkpoint // "": its run saved none
}

func (p past) ReadHistory(_ context.Context, q thread.HistoryQuery) (thread.Entries, error) {
	if p.end == "" {
		return &fakeEntries{}, nil
	}
	return &fakeEntries{of: q.Limit, make: func(int) (*checkpointer.Snapshot, error) {
		return &checkpointer.Snapshot{Key: checkpointer.Key{Thread: q.Thread, ID: p.end}, Metadata: q.Metadata}, nil
	}}, nil
}

// A response continues from the end of the one before it, also when the thread has gone on since: then it is another branch, and answers no question.
func TestResponsesContinue(t *testing.T) {
	t.Parallel()
	previous := openai.ResponseID(&run.Run{ID: someRun, Thread: someThread})
	const head, earlier = "00000000-0000-6000-8000-00000000000a", "00000000-0000-6000-8000-000000000009"
	for end, want := range map[id.Checkpoint]string{"": "resume ", head: "resume ", earlier: "input " + earlier} {
		row := &thread.View{Thread: thread.Thread{ID: someThread, Status: thread.Interrupted, Head: head, Interrupts: json.RawMessage(`{"t":[{"id":"i","value":"ok?"}]}`)}}
		w := openaiWorld(t, row, func(o *Options) { o.Threads = past{o.Threads.(waiting), end} })
		w.follow = endedRun(hello)
		res, body := w.ask(t, "POST", "/v1/responses", `{"model":"agent","input":"hi","previous_response_id":"`+previous+`"}`)
		require.Equal(t, 200, res.StatusCode, body)
		require.Equal(t, someThread, res.Header.Get("X-Thread-Id"))
		req := w.services.last().(run.Request)
		kind := "input"
		if len(req.Command) > 0 {
			kind = "resume"
		}
		require.Equal(t, want, kind+" "+string(req.CheckpointID))
	}
	w := openaiWorld(t, nil)
	res, body := w.ask(t, "POST", "/v1/responses", `{"model":"agent","input":"hi","previous_response_id":"`+previous+`"}`)
	require.Equal(t, 400, res.StatusCode)
	require.Equal(t, "previous_response_not_found", gjson.Get(body, "error.code").Str)
}

// storedRuns has a run with a status.
type storedRuns struct {
	fakeRuns
	status run.Status
}

func (s storedRuns) Get(_ context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	x := s.one()
	x.Status, x.Graph, x.Assistant = s.status, "agent", id.DefaultAssistant("agent")
	if s.status == run.Error {
		x.Error = run.ErrorJSON("ValueError", "no")
	}
	if t != someThread || r != someRun {
		return nil, fault.New(fault.NotFound, "Run not found")
	}
	return x, nil
}

func TestStoredResponses(t *testing.T) {
	t.Parallel()
	rid := openai.ResponseID(&run.Run{ID: someRun, Thread: someThread})
	rows := func() *eventstore.Page {
		var page eventstore.Page
		for _, content := range []string{`{"type":"human","content":"hi"}`, `{"type":"ai","id":"1","content":"Hello"}`, `{"type":"summary_marker"}`} {
			page.Rows = append(page.Rows, &eventstore.Event{Content: []byte(content)})
		}
		return &page
	}
	for status, want := range map[run.Status]string{run.Success: "completed", run.Pending: "queued", run.Running: "in_progress", run.Error: "failed", run.Interrupted: "cancelled"} {
		row := &thread.View{Thread: thread.Thread{ID: someThread, Head: "c"}}
		w := openaiWorld(t, row, func(o *Options) {
			o.Threads = past{o.Threads.(waiting), "c"}
			o.Runs = storedRuns{o.Runs.(fakeRuns), status}
			o.Events = transcript{o.Events.(fakeEvents), rows}
		})
		for _, ask := range [][2]string{{"GET", ""}, {"POST", "/cancel"}} {
			res, body := w.ask(t, ask[0], "/v1/responses/"+rid+ask[1], "")
			require.Equal(t, 200, res.StatusCode, body)
			require.Equal(t, want, gjson.Get(body, "status").Str)
			require.Equal(t, "Hello", gjson.Get(body, "output.0.content.0.text").Str)
			require.Equal(t, int64(1), gjson.Get(body, "output.#").Int())
			require.Equal(t, "agent", gjson.Get(body, "model").Str)
			require.Equal(t, status == run.Error, gjson.Get(body, "error").IsObject())
		}
		res, body := w.ask(t, "GET", "/v1/responses/"+rid+"?stream=true", "")
		require.Equal(t, 400, res.StatusCode, "an answer that is no stream has no events for who reads one")
		require.Contains(t, gjson.Get(body, "error.message").Str, "without stream=true")
		for _, unknown := range []string{"resp_1", strings.Replace(rid, "4", "5", 1)} {
			res, body := w.ask(t, "GET", "/v1/responses/"+unknown, "")
			require.Equal(t, 404, res.StatusCode)
			require.True(t, gjson.Get(body, "error.message").Exists(), body)
		}
	}
}

// transcript has the messages of a run.
type transcript struct {
	fakeEvents
	rows func() *eventstore.Page
}

func (e transcript) Messages(_ context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	if q.Run != someRun || q.At != "c" {
		return nil, fmt.Errorf("of run %q at %q", q.Run, q.At)
	}
	return e.rows(), nil
}

func TestConversations(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const conversation = "conv_00000000000040008000000000000001"
	for _, body := range []string{"", "{}", `{"metadata":{"k":"v"}}`} {
		res, answer := w.ask(t, "POST", "/v1/conversations", body)
		require.Equal(t, 200, res.StatusCode, answer)
		require.JSONEq(t, `{"id":"`+conversation+`","object":"conversation","created_at":1767323045,"metadata":{}}`, answer)
	}
	require.JSONEq(t, `{"k":"v"}`, string(w.services.last().(thread.New).Metadata))
	for _, body := range []string{"[]", "{", `{"items":[1]}`, `{"metadata":1}`} {
		res, answer := w.ask(t, "POST", "/v1/conversations", body)
		require.Equal(t, 400, res.StatusCode)
		require.True(t, gjson.Get(answer, "error.message").Exists())
	}
	_, answer := w.ask(t, "GET", "/v1/conversations/"+conversation, "")
	require.Equal(t, conversation, gjson.Get(answer, "id").Str)
	_, answer = w.ask(t, "DELETE", "/v1/conversations/"+conversation, "")
	require.JSONEq(t, `{"id":"`+conversation+`","object":"conversation.deleted","deleted":true}`, answer)
	require.Equal(t, id.Thread(someThread), w.services.last())
	res, _ := w.ask(t, "GET", "/v1/conversations/nope", "")
	require.Equal(t, 404, res.StatusCode)
}

// A server that ends answers those who wait. The run goes on elsewhere, so only a request without a thread may be repeated.
func TestChatsOfServersThatEnd(t *testing.T) {
	t.Parallel()
	for header, retry := range map[string]string{"": "", someThread: "false"} {
		w := openaiWorld(t, nil)
		l, begun := newLine(), make(chan struct{})
		w.follow = func() run.Follower { close(begun); return l.follower() }
		go func() { <-begun; _ = w.stop() }()
		res, body := w.ask(t, "POST", "/v1/chat/completions", chatBody, "X-Thread-Id", header)
		require.Equal(t, 503, res.StatusCode)
		require.Equal(t, retry, res.Header.Get("X-Should-Retry"))
		require.Equal(t, "server_error", gjson.Get(body, "error.type").Str)
		require.False(t, <-l.closed, "the run is not cancelled")
	}
}
