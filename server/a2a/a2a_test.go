package a2a_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/id"
	"understudy/server/a2a"
	"understudy/server/answer"
)

const (
	assistant = id.Assistant("00000000-0000-4000-8000-000000000003")
	thread    = id.Thread("00000000-0000-4000-8000-000000000001")
	first     = id.Run("00000000-0000-7000-8000-000000000002")
)

var task = a2a.TaskID{Thread: thread, Run: first}

// json5 is JSON in which ' stands for ".
func json5(s string) string { return strings.ReplaceAll(s, "'", `"`) }

func codeOf(err error) int {
	if e := (*a2a.Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		code   int
		id     string
		method a2a.Method
		v1     bool
	}{
		`{'jsonrpc':'2.0','id':7,'method':'message/send','params':{}}`: {0, "7", a2a.Send, false},
		`{'jsonrpc':'2.0','id':'a','method':'SendMessage'}`:            {0, `"a"`, a2a.Send, true},
		`{'jsonrpc':'2.0','id':1,'method':'SubscribeToTask'}`:          {0, "1", a2a.Resubscribe, true},
		`{'jsonrpc':'2.0','id':1,'method':'nope','params':null}`:       {0, "1", "nope", false},
		`{'jsonrpc':'2.0','id':1,'method':'tasks/get','params':[]}`:    {a2a.InvalidParams, "1", a2a.Get, false},
		`{'jsonrpc':'2.0','id':null,'method':'tasks/get'}`:             {0, "null", a2a.Get, false},
		`{'jsonrpc':'2.0','id':1,'method':5}`:                          {a2a.MethodNotFound, "1", "", false},
		`{'jsonrpc':'2.0','id':{},'method':'tasks/get'}`:               {a2a.InvalidRequest, "null", "", false},
		`{'id':1,'method':'tasks/get'}`:                                {a2a.InvalidRequest, "1", "", false},
		`{'jsonrpc':'2.0','id':1}`:                                     {a2a.InvalidRequest, "1", "", false},
		`[]`:                                                           {a2a.InvalidRequest, "null", "", false},
		`{`:                                                            {a2a.ParseError, "null", "", false},
		``:                                                             {a2a.ParseError, "null", "", false},
	} {
		call, err := a2a.Read([]byte(json5(body)))
		require.Equal(t, want.code, codeOf(err), body)
		require.Equal(t, want.id, string(call.ID), body)
		require.Equal(t, want.method, call.Method, body)
		if want.method != "" {
			require.Equal(t, want.v1, call.V1, body)
		}
	}
	_, err := a2a.Read([]byte(strings.Repeat("[", 60<<20)))
	require.Equal(t, a2a.ParseError, codeOf(err))
	call, err := a2a.Read([]byte(`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","method":"tasks/get"}`))
	require.Equal(t, a2a.InvalidRequest, codeOf(err))
	require.Equal(t, "null", string(call.ID))
}

// sent reads a message whose parts are given, for the input of its run.
func sent(t *testing.T, parts string) (string, error) {
	t.Helper()
	m, err := a2a.Dialect{}.ReadSend(gjson.Parse(json5(`{'message':{'role':'user','messageId':'m','parts':[` + parts + `]},'metadata':{'a':1,'a2a_task':'x'}}`)))
	if err != nil {
		return "", err
	}
	body, err := m.Body(assistant, "", true)
	if err != nil {
		return "", err
	}
	require.JSONEq(t, `{"a":1}`, gjson.GetBytes(body, "metadata").Raw, "the metadata of the task is not the client's")
	return gjson.GetBytes(body, "input").Raw, nil
}

func TestParts(t *testing.T) {
	t.Parallel()
	for parts, want := range map[string]string{
		`{'kind':'text','text':'hi'}`:                                                           `{'messages':[{'type':'human','id':'m','content':'hi'}]}`,
		`{'text':'a'},{'text':'b'}`:                                                             `{'messages':[{'type':'human','id':'m','content':'a\nb'}]}`,
		`{'kind':'data','data':{'topic':'x'}}`:                                                  `{'topic':'x'}`,
		`{'data':{'n':1}},{'text':'a'}`:                                                         `{'n':1,'messages':[{'type':'human','id':'m','content':'a'}]}`,
		`{'data':{'messages':[{'role':'user','content':'x'}]}},{'text':'a'}`:                    `{'messages':[{'role':'user','content':'x'},{'type':'human','id':'m','content':'a'}]}`,
		`{'text':'a'},{'raw':'aGk=','mediaType':'image/png','filename':'a.png'}`:                `{'messages':[{'type':'human','id':'m','content':[{'type':'text','text':'a'},{'type':'image','base64':'aGk=','mime_type':'image/png','filename':'a.png'}]}]}`,
		`{'kind':'file','file':{'uri':'http://x/y.pdf','mimeType':'application/pdf'}}`:          `{'messages':[{'type':'human','id':'m','content':[{'type':'file','url':'http://x/y.pdf','mime_type':'application/pdf'}]}]}`,
		`{'data':{}},{'kind':'file','file':{'bytes':'aGk='}},{'url':'u','mediaType':'audio/x'}`: `{'messages':[{'type':'human','id':'m','content':[{'type':'file','base64':'aGk='},{'type':'audio','url':'u','mime_type':'audio/x'}]}]}`,
	} {
		got, err := sent(t, parts)
		require.NoError(t, err, parts)
		require.JSONEq(t, json5(want), got, parts)
	}
	for parts, code := range map[string]int{
		``: a2a.InvalidParams, `1`: a2a.ContentType, `{}`: a2a.ContentType, `{'kind':'video'}`: a2a.ContentType, `{'kind':'text','text':1}`: a2a.ContentType,
		`{'kind':'file','file':{}}`: a2a.InvalidParams, `{'raw':'aGk=','url':'u'}`: a2a.InvalidParams, `{'raw':'%%%'}`: a2a.InvalidParams, `{'data':1}`: a2a.ContentType,
		`{'data':{'messages':'x'}},{'text':'a'}`: a2a.InvalidParams,
	} {
		_, err := sent(t, parts)
		require.Equal(t, code, codeOf(err), parts)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	for place, code := range map[string]int{
		`'contextId':'` + string(thread) + `'`:                                                0,
		`'taskId':'` + task.String() + `'`:                                                    0,
		`'taskId':'` + task.String() + `','contextId':'` + string(thread) + `'`:               0,
		`'taskId':'` + task.String() + `','contextId':'00000000-0000-4000-8000-000000000009'`: a2a.InvalidParams,
		`'contextId':'x'`: a2a.InvalidParams,
		`'taskId':'x'`:    a2a.TaskNotFound,
		`'taskId':'` + strings.Repeat("x", 200) + `:'`: a2a.TaskNotFound,
	} {
		m, err := a2a.Dialect{}.ReadSend(gjson.Parse(json5(`{'message':{'messageId':'m','parts':[{'text':'a'}],` + place + `}}`)))
		require.Equal(t, code, codeOf(err), place)
		if err == nil {
			require.Equal(t, thread, m.Thread)
			require.True(t, m.Wait)
		}
	}
}

// A message of a graph comes back in the form in which a client sent it, in either version.
func TestHistory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ message, v03, v1 string }{
		{`{'type':'human','content':'hi'}`, `[{'kind':'text','text':'hi'}]`, `[{'kind':'text','text':'hi'}]`},
		{
			`{'type':'human','content':[{'type':'text','text':'a'},{'type':'image','base64':'aGk=','mime_type':'image/png','filename':'a.png'},{'type':'file','url':'u'}]}`,
			`[{'kind':'text','text':'a'},{'kind':'file','file':{'bytes':'aGk=','mimeType':'image/png','name':'a.png'}},{'kind':'file','file':{'uri':'u'}}]`,
			`[{'kind':'text','text':'a'},{'kind':'file','raw':'aGk=','mediaType':'image/png','filename':'a.png'},{'kind':'file','url':'u'}]`,
		},
		{
			`{'type':'ai','content':[{'type':'image_url','image_url':{'url':'data:image/gif;base64,aGk='}},{'type':'reasoning','reasoning':'x'}]}`,
			`[{'kind':'file','file':{'bytes':'aGk=','mimeType':'image/gif'}}]`, `[{'kind':'file','raw':'aGk=','mediaType':'image/gif'}]`,
		},
		{
			`{'type':'tool','content':'4','tool_call_id':'c','name':'f'}`,
			`[{'kind':'data','data':{'tool_results':[{'toolCallId':'c','content':'4','name':'f','status':'success'}]}}]`,
			`[{'kind':'data','data':{'tool_results':[{'toolCallId':'c','content':'4','name':'f','status':'success'}]}}]`,
		},
		{`{'type':'ai','content':'','tool_calls':[{'name':'f','args':{},'id':'c'}]}`, ``, ``},
		{`{'type':'system','content':'be short'}`, ``, ``},
		{`'text'`, ``, ``},
	} {
		m, ok := a2a.FromGraph([]byte(json5(tt.message)), "m", task)
		require.Equal(t, tt.v03 != "", ok, tt.message)
		for v1, want := range map[bool]string{false: tt.v03, true: tt.v1} {
			if ok {
				b := a2a.Dialect{V1: v1}.AppendTask(nil, &a2a.Task{ID: task, State: a2a.Working, History: []a2a.Message{m}})
				require.JSONEq(t, json5(want), gjson.GetBytes(b, "history.0.parts").Raw, tt.message)
			}
		}
	}
}

// follow returns the results of the stream of a run with these records.
func follow(t *testing.T, v1 bool, final *a2a.Task, failure error, records ...*bridge.Record) (out []gjson.Result, size int) {
	t.Helper()
	call := a2a.Call{Dialect: a2a.Dialect{V1: v1}, ID: json.RawMessage("1")}
	e := a2a.NewEvents(call, &a2a.Task{ID: task, State: a2a.Submitted, NoArtifacts: true}, string(first), answer.New(answer.Options{Live: true}),
		func() (*a2a.Task, error) { return final, failure }, func(error) (int, string) { return a2a.TaskNotFound, "gone" })
	b := e.Begin(nil)
	for _, r := range records {
		b = e.Append(b, r)
	}
	b = e.End(b)
	for one := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(one, "event: message\ndata: ")
		require.True(t, ok && json.Valid([]byte(data)), one)
		out = append(out, gjson.Parse(data))
	}
	return out, len(b)
}

func token(text string) *bridge.Record {
	return &bridge.Record{Event: "messages", Data: []byte(`[{"type":"AIMessageChunk","id":"1","content":"` + text + `"},{"langgraph_node":"model"}]`)}
}

func TestStream(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	final := &a2a.Task{ID: task, State: a2a.Completed, At: at, Artifacts: []a2a.Artifact{a2a.Answer(first, assistant, a2a.Part{Text: "Hello"})}}
	tool := &bridge.Record{Event: "updates", Data: []byte(`{"tools":{"messages":[{"type":"tool","content":"4","tool_call_id":"c","name":"f","id":"t"}]}}`)}
	got, _ := follow(t, false, final, nil, token("Hel"), token("lo"), tool)
	var shown []string
	for _, r := range got {
		shown = append(shown, r.Get("result.kind").Str+" "+r.Get("result.status.state").Str+" "+r.Get("result.status.message.parts.0.text").Str+r.Get("result.status.message.parts.0.data.tool_results.0.content").Str+r.Get("result.artifact.parts.0.text").Str)
	}
	require.Equal(t, []string{"task submitted ", "status-update working Hel", "status-update working Hello", "status-update working 4", "artifact-update  Hello", "status-update completed "}, shown)
	require.True(t, got[5].Get("result.final").Bool())
	require.Equal(t, "1970-01-01T00:16:40.000000+00:00", got[5].Get("result.status.timestamp").Str)

	got, _ = follow(t, true, final, nil, token("Hi"))
	require.Equal(t, task.String(), got[0].Get("result.task.id").Str)
	require.Equal(t, "TASK_STATE_WORKING", got[1].Get("result.statusUpdate.status.state").Str)
	require.Equal(t, got[1].Get("result.status").Raw, got[1].Get("result.statusUpdate.status").Raw)
	require.Equal(t, "Hello", got[2].Get("result.artifactUpdate.artifact.parts.0.text").Str)

	got, _ = follow(t, true, nil, errors.New("x"))
	require.Equal(t, int64(a2a.TaskNotFound), got[1].Get("error.code").Int())
}

// Updates repeat the text, and yet have bytes in proportion to its length.
func TestLongStreams(t *testing.T) {
	t.Parallel()
	final := &a2a.Task{ID: task, State: a2a.Completed}
	measure := func(n int) (events, size int) {
		var records []*bridge.Record
		for i := range n {
			records = append(records, token(fmt.Sprintf("w%05d ", i)))
		}
		got, size := follow(t, false, final, nil, records...)
		require.Equal(t, 7*n, len(got[len(got)-2].Get("result.status.message.parts.0.text").Str))
		return len(got), size
	}
	events, size := measure(2000)
	require.Less(t, events, 45)
	_, more := measure(16_000)
	require.Less(t, more, 12*size)
}

func FuzzRead(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","messageId":"m","parts":[{"kind":"text","text":"a"},{"kind":"data","data":{"messages":[]}},{"raw":"aGk="}],"taskId":"` + task.String() + `"},"configuration":{"historyLength":1,"blocking":false}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"SendMessage","params":{"message":{"messageId":"m","parts":[{"url":"u"},{"data":[1]}]}}}`, `[[`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		call, err := a2a.Read(body)
		if err == nil {
			var m *a2a.Sent
			if m, err = call.ReadSend(call.Params); err == nil {
				require.True(t, json.Valid(call.AppendResult(nil, call.AppendSent(nil, &a2a.Task{ID: task, State: a2a.Submitted, History: []a2a.Message{m.Own()}}))))
				_, _, _ = m.Reply()
				var run json.RawMessage
				if run, err = m.Body(assistant, "", true); err == nil {
					require.True(t, json.Valid(run), "%s", run)
				}
			}
		}
		if err != nil {
			require.NotZero(t, codeOf(err))
			require.True(t, json.Valid(call.AppendFailure(nil, codeOf(err), err.Error())))
		}
	})
}
