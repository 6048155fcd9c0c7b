package app

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
)

// hearer follows a stream in the background. text is what arrived so far.
type hearer struct {
	lines chan string
	text  string
}

// until reads until a text has come.
func (l *hearer) until(t *testing.T, text string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for !strings.Contains(l.text, text) {
		select {
		case line, ok := <-l.lines:
			require.True(t, ok, "the stream ended: %s", l.text)
			l.text += line
		case <-limit:
			require.Fail(t, "nothing came", "%s of %s", text, l.text)
		}
	}
}

// rest reads what has come.
func (l *hearer) rest() string {
	for {
		select {
		case line, ok := <-l.lines:
			if !ok {
				return l.text
			}
			l.text += line
		default:
			return l.text
		}
	}
}

// listen opens a stream of server-sent events.
func (v *village) listen(user, method, path, body string) *hearer {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	v.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, strings.NewReader(body))
	require.NoError(v.t, err)
	req.Header.Set("Authorization", "Bearer "+user)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(v.t, err)
	require.Equal(v.t, http.StatusOK, resp.StatusCode)
	l := &hearer{lines: make(chan string, 10_000)}
	go func() {
		defer close(l.lines)
		defer resp.Body.Close()
		for in := bufio.NewReader(resp.Body); ; {
			line, err := in.ReadString('\n')
			l.lines <- line
			if err != nil {
				return
			}
		}
	}()
	return l
}

// connect opens a WebSocket on a thread and subscribes.
func (v *village) connect(user, thread string) *hearer {
	v.t.Helper()
	dialer := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + user}}}
	conn, _, _, err := dialer.Dial(v.t.Context(), "ws"+strings.TrimPrefix(v.url, "http")+"/threads/"+thread+"/stream/events")
	require.NoError(v.t, err)
	v.t.Cleanup(func() { conn.Close() })
	require.NoError(v.t, wsutil.WriteClientMessage(conn, ws.OpText, []byte(`{"id":1,"method":"subscription.subscribe","params":{"channels":["values","updates","messages","lifecycle","input"]}}`)))
	l := &hearer{lines: make(chan string, 10_000)}
	go func() {
		defer close(l.lines)
		for {
			text, err := wsutil.ReadServerText(conn)
			l.lines <- string(text)
			if err != nil {
				return
			}
		}
	}()
	l.until(v.t, `"success"`)
	return l
}

// Followers that were there before a thread, or stay after it, see nothing of one that is created under its id and is not theirs; those who may see it do.
func TestFollowersOfAnIDSeeTheirOwnThreads(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	const channels = `{"channels":["values","updates","messages","lifecycle","input"]}`
	thread := uuid.NewString()
	follow := func(user string) []*hearer {
		return []*hearer{v.listen(user, "POST", "/threads/"+thread+"/stream/events", channels), v.connect(user, thread)}
	}
	talk := func(user, note string) {
		v.must(user, "POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"talk","input":{"note":"`+note+`"}}`)
	}
	bob, cyd := follow("bob"), follow("cyd")
	v.must("ada", "POST", "/threads", `{"thread_id":"`+thread+`","metadata":{"members":["cyd"]}}`)
	ada := v.listen("ada", "GET", "/threads/"+thread+"/stream", "")
	talk("ada", "SECRET of ada")
	for _, l := range append(cyd, ada) {
		l.until(t, "answer to SECRET of ada")
	}
	for _, l := range bob {
		require.NotContains(t, l.rest(), "SECRET")
	}
	v.must("ada", "DELETE", "/threads/"+thread, "")
	v.must("bob", "POST", "/threads", `{"thread_id":"`+thread+`"}`)
	bob = follow("bob")
	talk("bob", "SECRET of bob")
	for _, l := range bob {
		l.until(t, "answer to SECRET of bob")
		require.NotContains(t, l.rest(), "SECRET of ada")
	}
	for _, l := range append(cyd, ada) {
		require.NotContains(t, l.rest(), "SECRET of bob")
	}
}

// A run or cron acts as who created it, whatever its configuration, context, metadata and payload say, in any spelling.
func TestNoRequestActsAsAnother(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	actor := `"langgraph_auth_user":{"identity":"ada","is_authenticated":true},"langgraph_auth_user_id":"ada","langgraph_auth_permissions":["admin"],"user_id":"ada"`
	for _, config := range []string{
		`{"configurable":{` + actor + `}}`,
		`{"configurable":{},"Configurable":{` + actor + `}}`,
		`{"configurable":{},"configurable":{` + actor + `}}`,
		`{"configurable":{` + actor + `,` + actor + `}}`,
		`{"\u0063onfigurable":{` + actor + `}}`,
		`{"configurable":{` + strings.ReplaceAll(actor, "langgraph", "Langgraph") + `,` + strings.ToUpper(strings.ReplaceAll(actor, "true", "1")) + `}}`,
		`{"configurable":{` + strings.ReplaceAll(actor, "langgraph", `l\u0061nggraph`) + `}}`,
		`{"configurable":null,"CONFIGURABLE":{` + actor + `},` + actor + `}`,
	} {
		request := `{"assistant_id":"talk","schedule":"0 0 1 1 *","input":{"note":"x"},"config":` + config + `,"metadata":{` + actor + `}`
		for _, body := range []string{request + `}`, request + `,"context":{` + actor + `}}`} {
			a := v.ask("bob", "POST", "/runs/crons", body)
			if a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity { // both a configuration and a context, or an odd one
				continue
			}
			require.Less(t, a.status, 300, a.body)
			cron := gjson.Get(a.body, "cron_id").String()
			require.Equal(t, "bob", gjson.Get(a.body, "user_id").String(), config)
			require.NotContains(t, gjson.Get(a.body, "payload.config.configurable").Raw, `"langgraph_auth_`, config)
			changed := v.must("bob", "PATCH", "/runs/crons/"+cron, `{"config":`+config+`}`)
			require.Equal(t, "bob", gjson.Get(changed, "user_id").String(), config)
			run := v.must("bob", "POST", "/runs", body)
			made := access.OfRun(json.RawMessage(gjson.Get(run, "kwargs.config").Raw))
			require.Equal(t, "bob", made.Identity, config)
			require.Empty(t, made.Permissions)
			require.JSONEq(t, `"bob"`, gjson.GetBytes(made.User, "identity").Raw)
		}
	}
}

// A client that leaves a join with cancel_on_disconnect cancels the run as its user.
func TestLeavingAJoinCancelsTheRun(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	thread := gjson.Get(v.must("ada", "POST", "/threads", "{}"), "thread_id").String()
	run := gjson.Get(v.must("ada", "POST", "/threads/"+thread+"/runs", `{"assistant_id":"talk","input":{"note":"wait"}}`), "run_id").String()
	path := "/threads/" + thread + "/runs/" + run
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+path+"/join?cancel_on_disconnect=true", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer ada")
	time.AfterFunc(idle, leave)
	resp, err := http.DefaultClient.Do(req)
	if err == nil { // its head came before
		_, err = bufio.NewReader(resp.Body).ReadString(0)
		resp.Body.Close()
	}
	require.Error(t, err)
	require.Eventually(t, func() bool { return gjson.Get(v.must("ada", "GET", path, ""), "status").String() == "interrupted" }, 10*time.Second, 20*time.Millisecond)
}

// A request with the Idempotency-Key and the body of another user's request is a request of its own.
func TestIdempotencyKeysBelongToUsers(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	thread := uuid.NewString()
	v.must("ada", "POST", "/threads", `{"thread_id":"`+thread+`","metadata":{"members":["bob"]}}`)
	run := `{"assistant_id":"talk","input":{"note":"SECRET"}}`
	for _, c := range []struct{ path, body, id string }{
		{"/threads", `{}`, "thread_id"},
		{"/runs", strings.Replace(run, "SECRET", "wait", 1), "run_id"},
		{"/threads/" + thread + "/runs", run, "run_id"},
		{"/runs/batch", `[` + strings.Replace(run, "SECRET", "wait", 1) + `]`, "0.run_id"},
	} {
		key := []string{"Idempotency-Key", "k" + c.path}
		first := gjson.Get(v.must("ada", "POST", c.path, c.body, key...), c.id).String()
		require.NotEmpty(t, first)
		require.Equal(t, first, gjson.Get(v.must("ada", "POST", c.path, c.body, key...), c.id).String(), c.path)
		require.NotEqual(t, first, gjson.Get(v.must("bob", "POST", c.path, c.body, key...), c.id).String(), c.path)
	}
	// A key does not reach what its user cannot reach any more.
	key := []string{"Idempotency-Key", "given away"}
	given := gjson.Get(v.must("ada", "POST", "/threads", `{"metadata":{"members":["bob"]}}`, key...), "thread_id").String()
	v.must("bob", "PATCH", "/threads/"+given, `{"metadata":{"about":"SECRET of bob"}}`) // bob owns it now
	require.Equal(t, http.StatusNotFound, v.ask("ada", "GET", "/threads/"+given, "").status)
	a := v.ask("ada", "POST", "/threads", `{"metadata":{"members":["bob"]}}`, key...)
	require.NotContains(t, a.body, "SECRET of bob")
}

// A stateless run is reached by who created it, by the location of its response too, and by no other user.
func TestStatelessRunsBelongToUsers(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	made := v.must("ada", "POST", "/runs", `{"assistant_id":"talk","input":{"note":"SECRET wait"},"stream_resumable":true}`)
	thread, run := gjson.Get(made, "thread_id").String(), gjson.Get(made, "run_id").String()
	for _, path := range []string{"/threads/" + thread, "/threads/" + thread + "/runs/" + run} {
		require.Equal(t, http.StatusOK, v.ask("ada", "GET", path, "").status, path)
		require.Equal(t, http.StatusNotFound, v.ask("bob", "GET", path, "").status, path)
	}
	require.NotContains(t, v.ask("ada", "GET", "/runs/"+run+"/stream", "", "Last-Event-ID", "-1").body, "not found")
	require.Contains(t, v.ask("bob", "GET", "/runs/"+run+"/stream", "", "Last-Event-ID", "-1").body, "Run not found")
}

// With the native policy a user cannot publish an assistant to others by calling it one of the system.
func TestNoUserMakesAssistantsOfTheSystem(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageOf(t, native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}, nil).url()}
	made := gjson.Get(v.must("bob", "POST", "/assistants", `{"graph_id":"talk","name":"trap","metadata":{"created_by":"system"}}`), "assistant_id").String()
	hidden := func() {
		t.Helper()
		require.NotContains(t, v.must("ada", "POST", "/assistants/search", "{}"), made)
		require.Equal(t, http.StatusNotFound, v.ask("ada", "GET", "/assistants/"+made, "").status)
	}
	hidden()
	v.must("bob", "PATCH", "/assistants/"+made, `{"metadata":{"created_by":"system"}}`)
	hidden()
}

// A page may end at a row of another user: its `next` is sealed, and each page still follows the one before.
func TestPlacesInListsAreSealed(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageOf(t, native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}, nil).url()}
	var ids []string
	for n := range 6 {
		user := []string{"ada", "bob"}[n%2]
		thread := gjson.Get(v.must(user, "POST", "/threads", `{}`), "thread_id").String()
		run := gjson.Get(v.must(user, "POST", "/threads/"+thread+"/runs", `{"assistant_id":"talk","input":{"note":"x"}}`), "run_id").String()
		v.must(user, "GET", "/threads/"+thread+"/runs/"+run+"/join", "")
		ids = append(ids, thread, run)
	}
	for path, name := range map[string]string{"/understudy/runs": "runs", "/understudy/timeline": "events", "/understudy/heads": "heads"} {
		var whole, paged []string
		require.Eventually(t, func() bool { // the lists are written behind runs
			whole = nil
			for _, row := range gjson.Get(v.must("ada", "GET", path+"?limit=1000", ""), name).Array() {
				whole = append(whole, row.Raw)
			}
			return len(whole) >= 3
		}, 20*time.Second, 10*time.Millisecond, path)
		for next, first := "", true; next != "" || first; first = false {
			query := "?limit=1"
			if next != "" {
				query += "&before=" + next
			}
			body := v.must("ada", "GET", path+query, "")
			next = gjson.Get(body, "next").String()
			for _, id := range ids {
				require.NotContains(t, next, id, path)
			}
			require.True(t, next == "" || strings.HasPrefix(next, "c."), "%s: %s", path, next)
			for _, row := range gjson.Get(body, name).Array() {
				paged = append(paged, row.Raw)
			}
		}
		require.Equal(t, whole, paged, path)
		require.Equal(t, http.StatusUnprocessableEntity, v.ask("ada", "GET", path+"?before=c.AAAA", "").status, path)
	}
}

// Users are notified of changes of what they may see, and of nothing else.
func TestChangesShowWhatIsInReach(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	ada, bob, cyd := v.listen("ada", "GET", "/understudy/changes", ""), v.listen("bob", "GET", "/understudy/changes", ""), v.listen("cyd", "GET", "/understudy/changes", "")
	thread := gjson.Get(v.must("ada", "POST", "/threads", `{"metadata":{"members":["cyd"]}}`), "thread_id").String()
	run := gjson.Get(v.must("ada", "POST", "/threads/"+thread+"/runs", `{"assistant_id":"talk","input":{"note":"x"}}`), "run_id").String()
	for _, l := range []*hearer{ada, cyd} {
		l.until(t, thread)
		l.until(t, run)
	}
	v.must("ada", "GET", "/threads/"+thread+"/runs/"+run+"/join", "")
	own := gjson.Get(v.must("bob", "POST", "/threads", `{}`), "thread_id").String()
	bob.until(t, own)
	require.NotContains(t, bob.text, thread)
	require.NotContains(t, bob.text, run)
}

// A search finds the words of messages, before and after they are indexed, and only in threads that its user may see.
func TestSearchFindsWhatIsInReach(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	thread := gjson.Get(v.must("ada", "POST", "/threads", `{"metadata":{"members":["cyd"]}}`), "thread_id").String()
	v.must("ada", "POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"talk","input":{"note":"x","messages":[{"type":"human","content":"The needle of ada"}]}}`)
	const path = "/understudy/threads/search?text=NEED"
	for _, more := range []string{"", "&thread_id=" + thread} {
		for _, user := range []string{"ada", "cyd"} {
			require.JSONEq(t, `["`+thread+`"]`, gjson.Get(v.must(user, "GET", path+more, ""), "results.#.thread_id").Raw)
		}
	}
	require.JSONEq(t, `[]`, gjson.Get(v.must("bob", "GET", path, ""), "results").Raw)
	require.Equal(t, http.StatusNotFound, v.ask("bob", "GET", path+"&thread_id="+thread, "").status)
}

// Each user sees what their own runs used; usage adds up over everyone for those who reach everything.
func TestUsageIsOfTheCaller(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	runs := func(user string) int64 {
		return gjson.Get(v.must(user, "GET", "/understudy/usage?days=2", ""), "total.runs").Int()
	}
	before := map[string]int64{"ada": runs("ada"), "bob": runs("bob")}
	thread := gjson.Get(v.must("ada", "POST", "/threads", `{"metadata":{"members":["bob"]}}`), "thread_id").String()
	v.must("ada", "POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"talk","input":{"note":"x","messages":[{"type":"human","content":"hi"}]}}`)
	require.Eventually(t, func() bool { return runs("ada") == before["ada"]+1 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, before["bob"], runs("bob"), "bob sees the thread, but did not run it")
	require.Equal(t, runs("ada"), gjson.Get(v.must("ada", "GET", "/understudy/usage?days=2&user=ada", ""), "total.runs").Int())
	for _, user := range []string{"bob", "bob&user=ada&user=bob", "nobody", "%00"} {
		require.Equal(t, http.StatusForbidden, v.ask("ada", "GET", "/understudy/usage?user="+user, "").status, user)
	}
}

// Servers, their logs and what doctor finds are for administrators.
func TestServersAndLogsAreForAdministrators(t *testing.T) {
	t.Parallel()
	v := &village{t: t, url: villageServer(t).url()}
	require.Equal(t, http.StatusForbidden, v.ask("ada", "POST", "/understudy/doctor", "{}").status)
	for _, path := range []string{"/understudy/servers", "/understudy/logs", "/understudy/logs/stream"} {
		got := v.ask("ada", "GET", path, "")
		require.Equal(t, http.StatusForbidden, got.status, path)
	}
}
