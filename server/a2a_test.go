package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/address"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/webhook"
	"understudy/server/a2a"
	"understudy/server/a2a/tasks"
	"understudy/thread"
)

// taskRuns are the runs of one thread, the newest first.
type taskRuns struct {
	fakeRuns
	list []*run.Run
	why  error // no run can be created
}

// fail lets no run be created from now on, if there is an error.
func (f *taskRuns) fail(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why = why
}

func (f *taskRuns) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

func (f *taskRuns) Begin(ctx context.Context, t id.Thread, r run.Request) (*run.Run, run.Follower, error) {
	if err := f.failure(); err != nil {
		return nil, nil, err
	}
	return f.fakeRuns.Begin(ctx, t, r)
}

func (f *taskRuns) BeginWait(ctx context.Context, t id.Thread, r run.Request) (*run.Run, run.Follower, error) {
	return f.Begin(ctx, t, r)
}

func (f *taskRuns) Respond(ctx context.Context, t id.Thread, r run.Request, responses []run.Response) (*run.Run, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	return f.fakeRuns.Respond(ctx, t, r, responses)
}

func (f *taskRuns) Get(_ context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	for _, x := range f.list {
		if x.ID == r && t == someThread {
			return x, nil
		}
	}
	return nil, fault.New(fault.NotFound, "Run not found")
}

func (f *taskRuns) List(_ context.Context, _ id.Thread, q run.Query) ([]*run.Run, error) {
	end := min(q.Offset+q.Limit, len(f.list))
	return f.list[min(q.Offset, end):end], f.err
}

func (f *taskRuns) Newest(_ context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	for _, x := range f.list[:min(limit, len(f.list))] {
		if err := fn(x); err != nil {
			return err
		}
	}
	return f.err
}

// taskThreads has one thread, which is read as one row after the other.
type taskThreads struct {
	fakeThreads
	rows []*thread.View
}

func (f *taskThreads) Search(context.Context, thread.Search) ([]*thread.View, bool, error) {
	row := f.rows[0]
	if len(f.rows) > 1 {
		f.rows = f.rows[1:]
	}
	return []*thread.View{row}, false, nil
}

// taskMessages are the messages of a thread: "run type text" of each.
type taskMessages struct {
	fakeEvents
	said []string
}

func (f taskMessages) Messages(_ context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{}
	for i, one := range f.said {
		r, rest, _ := strings.Cut(one, " ")
		kind, text, _ := strings.Cut(rest, " ")
		if q.Run == "" || q.Run == id.Run(r) {
			page.Rows = append(page.Rows, &eventstore.Event{Run: id.Run(r), MessageID: fmt.Sprint("m", i), Content: []byte(`{"type":"` + kind + `","content":"` + text + `"}`)})
		}
	}
	return page, nil
}

const (
	laterRun = "00000000-0000-7000-8000-000000000009"
	someTask = someThread + ":" + someRun
	asking   = `{"t":[{"id":"q","value":"really?"}]}`
)

func taskRun(r id.Run, status run.Status, metadata string) *run.Run {
	return &run.Run{ID: r, Thread: someThread, Assistant: someID, Status: status, CreatedAt: someTime, UpdatedAt: someTime, Metadata: json.RawMessage(metadata)}
}

func taskThread(status thread.Status, interrupts string) *thread.View {
	return &thread.View{Thread: thread.Thread{ID: someThread, Status: status, Interrupts: json.RawMessage(interrupts)}}
}

type taskWorld struct {
	*world
	runs    *taskRuns
	threads *taskThreads
}

func a2aWorld(t *testing.T, list []*run.Run, rows []*thread.View, said ...string) *taskWorld {
	w := &taskWorld{}
	w.world = setup(t, func(o *Options) {
		w.runs = &taskRuns{fakeRuns: o.Runs.(fakeRuns), list: list}
		w.threads = &taskThreads{o.Threads.(fakeThreads), rows}
		o.Runs, o.Threads, o.Events = w.runs, w.threads, taskMessages{o.Events.(fakeEvents), said}
		o.MaxStreams = 1
	})
	return w
}

func (w *taskWorld) call(t *testing.T, method, params string) gjson.Result {
	t.Helper()
	res, body := w.ask(t, "POST", "/a2a/"+someID, callBody(method, params))
	require.Equal(t, 200, res.StatusCode, body)
	return answerIn(body)
}

// answerIn is an answer, which may be the only event of a stream.
func answerIn(body string) gjson.Result {
	event, _ := strings.CutPrefix(body, "event: message\ndata: ")
	return gjson.Parse(event)
}

func callBody(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + strings.ReplaceAll(params, "'", `"`) + `}`
}

const hi = `{'message':{'messageId':'m','parts':[{'text':'hi'}]}}`

func TestStatesOfTasks(t *testing.T) {
	t.Parallel()
	follows := `{"a2a_task":"` + someRun + `"}`
	for name, tt := range map[string]struct {
		runs []*run.Run
		rows []*thread.View
		want string
	}{
		"pending":              {[]*run.Run{taskRun(someRun, run.Pending, "")}, []*thread.View{taskThread(thread.Busy, "")}, "submitted"},
		"running":              {[]*run.Run{taskRun(someRun, run.Running, "")}, []*thread.View{taskThread(thread.Busy, "")}, "working"},
		"ended":                {[]*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Idle, "")}, "completed"},
		"failed":               {[]*run.Run{taskRun(someRun, run.Error, "")}, []*thread.View{taskThread(thread.Errored, "")}, "failed"},
		"timeout":              {[]*run.Run{taskRun(someRun, run.Timeout, "")}, []*thread.View{taskThread(thread.Errored, "")}, "failed"},
		"cancelled":            {[]*run.Run{taskRun(someRun, run.Interrupted, "")}, []*thread.View{taskThread(thread.Interrupted, asking)}, "canceled"},
		"asks":                 {[]*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, asking)}, "input-required"},
		"breakpoint":           {[]*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, "{}")}, "completed"},
		"another run asks":     {[]*run.Run{taskRun(laterRun, run.Success, ""), taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, asking)}, "completed"},
		"its second run asks":  {[]*run.Run{taskRun(laterRun, run.Success, follows), taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, asking)}, "input-required"},
		"its second run works": {[]*run.Run{taskRun(laterRun, run.Running, follows), taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Busy, "")}, "working"},
		// The run ends between the reads of the thread and of the runs.
		"ends meanwhile":          {[]*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Busy, ""), taskThread(thread.Interrupted, asking)}, "input-required"},
		"of another assistant":    {[]*run.Run{{ID: someRun, Assistant: "x", Status: run.Success}}, []*thread.View{taskThread(thread.Idle, "")}, "-32001"},
		"a second run is no task": {[]*run.Run{taskRun(someRun, run.Success, follows)}, []*thread.View{taskThread(thread.Idle, "")}, "-32001"},
		"unknown":                 {nil, []*thread.View{taskThread(thread.Idle, "")}, "-32001"},
	} {
		w := a2aWorld(t, tt.runs, tt.rows)
		got := w.call(t, "tasks/get", `{'id':'`+someTask+`'}`)
		require.Equal(t, tt.want, got.Get("result.status.state").String()+got.Get("error.code").String(), "%s: %s", name, got.Raw)
	}
}

// A task among very many runs is found by its own run.
func TestTasksOfLongThreads(t *testing.T) {
	t.Parallel()
	var list []*run.Run
	for i := range 2000 {
		list = append(list, taskRun(id.Run(fmt.Sprintf("00000000-0000-7000-8001-%012d", i)), run.Success, ""))
	}
	list = append(list, taskRun(someRun, run.Success, ""))
	w := a2aWorld(t, list, []*thread.View{taskThread(thread.Idle, "")})
	require.Equal(t, "completed", w.call(t, "tasks/get", `{'id':'`+someTask+`'}`).Get("result.status.state").Str)
	got := w.call(t, "ListTasks", `{'contextId':'`+someThread+`','historyLength':0}`)
	require.Equal(t, int64(tasks.MaxRuns), got.Get("result.totalSize").Int())
	require.Equal(t, int64(taskPage), got.Get("result.tasks.#").Int())
	require.Equal(t, "50", got.Get("result.nextPageToken").Str)
	got = w.call(t, "ListTasks", `{'contextId':'`+someThread+`','pageSize':100,'pageToken':'990'}`)
	require.Equal(t, int64(10), got.Get("result.tasks.#").Int())
	got = w.call(t, "ListTasks", `{'contextId':'`+someThread+`','pageToken':'9223372036854775807'}`)
	require.Zero(t, got.Get("result.tasks.#").Int())
	require.Empty(t, got.Get("result.nextPageToken").Str)
}

func TestHistoriesOfTasks(t *testing.T) {
	t.Parallel()
	w := a2aWorld(t, []*run.Run{taskRun(laterRun, run.Success, `{"a2a_task":"`+someRun+`"}`), taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Idle, "")},
		"00000000-0000-7000-8000-000000000000 human before", someRun+" human hi", someRun+" ai what?", laterRun+" ai hello")
	texts := func(params string, headers ...string) (out []string) {
		_, body := w.ask(t, "POST", "/a2a/"+someID, callBody("tasks/get", params), headers...)
		for _, m := range gjson.Get(body, "result.history").Array() {
			out = append(out, m.Get("parts.0.text").Str)
			require.Equal(t, m.Get("parts.0.text").Str != "before", m.Get("taskId").Str == someTask)
		}
		require.Equal(t, "hello", gjson.Get(body, "result.artifacts.0.parts.0.text").Str, body)
		return out
	}
	require.Equal(t, []string{"before", "hi", "what?", "hello"}, texts(`{'id':'`+someTask+`'}`))
	require.Equal(t, []string{"what?", "hello"}, texts(`{'id':'`+someTask+`','historyLength':2}`))
	require.Empty(t, texts(`{'id':'`+someTask+`','historyLength':0}`))
	require.Equal(t, []string{"hi", "what?", "hello"}, texts(`{'id':'`+someTask+`'}`, a2a.HistoryScope, "task"))
}

// A stream begins with its task, before the run does anything; a client that leaves does not end it.
func TestTasksAreShownAtOnce(t *testing.T) {
	t.Parallel()
	w := a2aWorld(t, nil, nil)
	l := newLine()
	w.follow = l.follower
	res, in := w.post(t, "/a2a/"+someID, callBody("message/stream", hi))
	require.Contains(t, until(t, in, "\n\n", 1), `"kind":"task","id":"`)
	require.NoError(t, res.Body.Close())
	require.True(t, <-l.closed)
	req := w.request()
	require.Equal(t, "continue", req.OnDisconnect)
	require.True(t, req.Resumable)
	require.Equal(t, "create", req.IfNotExists)
	require.JSONEq(t, `{"messages":[{"type":"human","id":"m","content":"hi"}]}`, string(req.Input))
}

// request is the last request for a run.
func (w *taskWorld) request() (req run.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.asked {
		if r, ok := one.(run.Request); ok {
			req = r
		}
	}
	return req
}

func TestAnswersOfTasks(t *testing.T) {
	t.Parallel()
	two := `{"a":[{"id":"q","value":"really?"},{"id":"r","value":{"action_requests":[{"name":"f"}]}}]}`
	for reply, want := range map[string]map[string]string{
		`{'text':'yes'}`:                   {"q": `"yes"`},
		`{'data':{'a':1}}`:                 {"q": `{"a":1}`},
		`{'data':true}`:                    {"q": `true`},
		`{'text':'{\u0022a\u0022:1}'}`:     {"q": `{"a":1}`},
		`{'data':{'q':1,'r':[2]}}`:         {"q": `1`, "r": `[2]`},
		`{'data':{'q':1,'other':2}}`:       {"q": `{"q":1,"other":2}`},
		`{'text':'note'},{'data':{'a':1}}`: {"q": `{"a":1}`},
	} {
		w := a2aWorld(t, []*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, two)})
		w.follow = endedRun()
		w.call(t, "message/stream", `{'message':{'messageId':'m','taskId':'`+someTask+`','parts':[`+reply+`]},'configuration':{'blocking':false}}`)
		w.mu.Lock()
		got := map[string]string{}
		for _, one := range w.asked {
			if list, ok := one.([]run.Response); ok {
				for _, r := range list {
					got[r.Interrupt] = string(r.Value)
				}
			}
		}
		w.mu.Unlock()
		require.Equal(t, want, got, reply)
		require.JSONEq(t, `{"a2a_task":"`+someRun+`"}`, string(w.request().Metadata))
		require.Nil(t, w.request().Input)
	}
	for reply, code := range map[string]int64{`{'url':'u'}`: a2a.ContentType, `{'data':1},{'data':2}`: a2a.InvalidParams} {
		w := a2aWorld(t, []*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, two)})
		require.Equal(t, code, w.call(t, "message/send", `{'message':{'messageId':'m','taskId':'`+someTask+`','parts':[`+reply+`]}}`).Get("error.code").Int(), reply)
	}
}

// What a client may have caused is an error of JSON-RPC, and what it has not is one of HTTP. Neither keeps a slot: there is one.
func TestRefusedTasks(t *testing.T) {
	t.Parallel()
	w := a2aWorld(t, []*run.Run{taskRun(someRun, run.Success, "")}, []*thread.View{taskThread(thread.Interrupted, asking)})
	send := map[string]string{"new": hi, "answer": `{'message':{'messageId':'m','taskId':'` + someTask + `','parts':[{'text':'x'}]}}`}
	for _, method := range []string{"message/send", "message/stream"} {
		for _, params := range send {
			for _, tt := range []struct {
				err    error
				status int
				code   int64
			}{
				{fault.New(fault.NotFound, "x"), 200, a2a.InvalidParams},
				{fault.New(fault.Unprocessable, "x"), 200, a2a.InvalidParams},
				{fault.New(fault.Unavailable, "x"), 503, 0},
				{fmt.Errorf("disk"), 500, 0},
			} {
				w.runs.fail(tt.err)
				res, body := w.ask(t, "POST", "/a2a/"+someID, callBody(method, params))
				require.Equal(t, tt.status, res.StatusCode, "%s: %s", method, body)
				require.Equal(t, tt.code, answerIn(body).Get("error.code").Int(), body)
				if stream := strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"); tt.status == 200 {
					require.Equal(t, method == "message/stream", stream, "clients that stream read nothing else")
				}
			}
			w.runs.fail(&run.UnknownInterrupt{ID: "q"})
			if strings.Contains(params, "taskId") {
				require.Equal(t, int64(a2a.Unsupported), w.call(t, method, params).Get("error.code").Int())
			}
		}
	}
	w.runs.fail(nil)
	l := newLine()
	l.result <- run.Result{}
	w.follow = l.follower
	require.Equal(t, "input-required", w.call(t, "message/send", send["answer"]).Get("result.status.state").Str)
}

func TestDisableA2A(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Disable.A2A = true })
	for _, path := range []string{"/a2a/" + someID, "/.well-known/agent-card.json?assistant_id=" + someID} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, 404, res.StatusCode)
	}
	res, _ := w.ask(t, "POST", "/a2a/"+someID, callBody("message/send", hi))
	require.Equal(t, 404, res.StatusCode)
}

func TestCards(t *testing.T) {
	t.Parallel()
	proxied := func(o *Options) {
		networks, err := address.Networks("127.0.0.1")
		require.NoError(t, err)
		o.TrustedProxies = networks
	}
	w := setup(t, proxied, func(o *Options) { o.MountPrefix = "/mine" })
	plain := setup(t, proxied)
	for _, path := range []string{"", "/mine", "/api/langgraph"} {
		w := w
		if path != "/mine" {
			w = plain
		}
		for _, route := range []string{"/a2a/" + someID, "/a2a/" + someID + "/.well-known/agent-card.json", "/a2a/" + someID + "/.well-known/agent.json", "/.well-known/agent-card.json?assistant_id=" + someID} {
			res, body := w.ask(t, "GET", path+route, "", "X-Forwarded-Proto", "https")
			require.Equal(t, 200, res.StatusCode)
			require.Equal(t, "https://"+w.addr+path+"/a2a/"+someID, gjson.Get(body, "url").Str)
		}
	}
	w.err = fault.New(fault.NotFound, "x")
	res, body := w.ask(t, "GET", "/mine/a2a/"+someID, "")
	require.Equal(t, 400, res.StatusCode)
	require.Equal(t, int64(a2a.InvalidParams), gjson.Get(body, "error.code").Int())
}

// A server that sends no webhooks sends no push notifications, and says so.
func TestPushNotificationsAreWebhooks(t *testing.T) {
	t.Parallel()
	w := a2aWorld(t, []*run.Run{taskRun(someRun, run.Running, "")}, []*thread.View{taskThread(thread.Busy, "")})
	config := `'pushNotificationConfig':{'id':'p','url':'http://x/','token':'t','authentication':{'schemes':['Basic'],'credentials':'secret'}}`
	got := w.call(t, "tasks/pushNotificationConfig/set", `{'taskId':'`+someTask+`',`+config+`}`)
	require.JSONEq(t, `{"taskId":"`+someTask+`","pushNotificationConfig":{"id":"p","url":"http://x/","token":"t","authentication":{"schemes":["Basic"]}}}`, got.Get("result").Raw)
	require.Equal(t, []webhook.Push{{ID: "p", Task: someTask, URL: "http://x/", Token: "t", Scheme: "Basic", Credentials: "secret"}}, w.last())
	got = w.call(t, "DeleteTaskPushNotificationConfig", `{'taskId':'`+someTask+`','id':'q'}`)
	require.Equal(t, int64(a2a.InvalidParams), got.Get("error.code").Int())
	w.follow = endedRun()
	w.call(t, "SendStreamingMessage", `{'message':{'messageId':'m','parts':[{'text':'hi'}]},'configuration':{'taskPushNotificationConfig':{'id':'p','url':'http://x/'}}}`)
	require.Equal(t, []webhook.Push{{ID: "p", URL: "http://x/", Scheme: "Bearer", V1: true}}, w.request().Push)

	off := setup(t, func(o *Options) { o.Disable.Webhooks = true })
	for _, body := range []string{callBody("tasks/pushNotificationConfig/list", `{'id':'`+someTask+`'}`), callBody("message/send", strings.TrimSuffix(hi, "}")+`,'configuration':{`+config+`}}`)} {
		_, answer := off.ask(t, "POST", "/a2a/"+someID, body)
		require.Equal(t, int64(a2a.PushNotSupported), gjson.Get(answer, "error.code").Int(), answer)
	}
	_, card := off.ask(t, "GET", "/a2a/"+someID, "")
	require.False(t, gjson.Get(card, "capabilities.pushNotifications").Bool())
}

// manyContexts has threads with some runs each, and counts the calls.
type manyContexts struct {
	*taskRuns
	threads, calls int
}

func (m *manyContexts) row(i int) *thread.View {
	row := taskThread(thread.Idle, "")
	row.ID = id.Thread(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
	return row
}

func (m *manyContexts) Newest(_ context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	m.calls++
	for i := range min(limit, 3*len(threads)) {
		x := taskRun(id.Run(fmt.Sprintf("00000000-0000-7000-8001-%012d", i)), run.Success, "")
		x.Thread = threads[i%len(threads)]
		if err := fn(x); err != nil {
			return err
		}
	}
	return nil
}

func (m *manyContexts) List(context.Context, id.Thread, run.Query) ([]*run.Run, error) {
	m.calls++
	return nil, nil
}

type contextsOf struct {
	fakeThreads
	*manyContexts
}

func (c contextsOf) Search(_ context.Context, q thread.Search) (page []*thread.View, more bool, err error) {
	c.calls++
	for i := range min(c.threads, q.Limit) {
		page = append(page, c.row(i))
	}
	return page, false, nil
}

type messagesOf struct {
	taskMessages
	*manyContexts
}

func (m messagesOf) Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	m.calls++
	return m.taskMessages.Messages(ctx, q)
}

// The calls for a list of tasks depend on the size of its page, not on how many contexts and runs there are.
func TestCallsOfTaskLists(t *testing.T) {
	t.Parallel()
	calls := map[int]int{}
	for _, threads := range []int{10, 100, 1000} {
		m := &manyContexts{threads: threads}
		w := setup(t, func(o *Options) {
			m.taskRuns = &taskRuns{fakeRuns: o.Runs.(fakeRuns)}
			o.Runs, o.Threads = m, contextsOf{o.Threads.(fakeThreads), m}
			o.Events = messagesOf{taskMessages{o.Events.(fakeEvents), nil}, m}
		})
		_, body := w.ask(t, "POST", "/a2a/"+someID, callBody("ListTasks", `{'pageSize':5}`))
		require.Equal(t, int64(min(3*threads, tasks.MaxRuns)), gjson.Get(body, "result.totalSize").Int(), body)
		require.Equal(t, int64(5), gjson.Get(body, "result.tasks.#").Int())
		calls[threads] = m.calls
	}
	require.Equal(t, calls[10], calls[1000])
	require.LessOrEqual(t, calls[10], 2+5*3)
}
