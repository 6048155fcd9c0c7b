package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/access/audit"
	"understudy/auth"
	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/internal/config"
	"understudy/run"
	"understudy/run/cron"
)

// gatewayUser is a user of DeerFlow's Gateway API; the zero value of user has no session.
type gatewayUser struct {
	t      *testing.T
	base   string
	client *http.Client
}

// ask sends a request with the cookies and the CSRF token of the user.
func (u *gatewayUser) ask(method, path, body string, header ...string) (status int, answer string) {
	u.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(u.t.Context()), method, u.base+path, strings.NewReader(body))
	require.NoError(u.t, err)
	req.Header.Set("Content-Type", "application/json")
	at, err := url.Parse(u.base)
	require.NoError(u.t, err)
	for _, c := range u.client.Jar.Cookies(at) {
		if c.Name == "csrf_token" {
			req.Header.Set("X-Csrf-Token", c.Value)
		}
	}
	for n := 0; n < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp, err := u.client.Do(req)
	require.NoError(u.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(u.t, err)
	return resp.StatusCode, string(text)
}

// must is ask for a request that succeeds; it returns a field of the answer.
func (u *gatewayUser) must(method, path, body, field string) string {
	u.t.Helper()
	status, answer := u.ask(method, path, body)
	require.Less(u.t, status, 300, "%s %s: %s", method, path, answer)
	var o map[string]any
	require.NoError(u.t, json.Unmarshal([]byte(answer), &o))
	text, _ := o[field].(string)
	return text
}

// serveDeerFlow starts a server with accounts, and returns what makes users of it, and its routes.
func serveDeerFlow(t *testing.T) (user func(email string) *gatewayUser, routes []string) {
	t.Helper()
	srv, user := startDeerFlow(t, func(*Config) {})
	return user, srv.http.Routes()
}

// startDeerFlow starts a server with accounts and a changed configuration, and returns what makes users of it.
func startDeerFlow(t *testing.T, change func(*Config), prepare ...func(*Server)) (srv *Server, user func(email string) *gatewayUser) {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("config_version: 34\nmodels: []\n"), 0o600))
	env := map[string]string{"DEER_FLOW_HOME": home, "AUTH_JWT_SECRET": "a secret of more than thirty-two bytes", "DEER_FLOW_INTERNAL_AUTH_TOKEN": "the token of channels"}
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"port": "0", "data": t.TempDir(), "deerflow": file},
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	require.NoError(t, err)
	c := Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}
	change(&c)
	srv, err = New(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, srv.Register("g", "", repeats{}))
	require.NoError(t, srv.Register("waits", "", waits{}))
	for _, do := range prepare {
		do(srv)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return srv, func(email string) *gatewayUser {
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		u := &gatewayUser{t: t, base: srv.url(), client: &http.Client{Jar: jar}}
		if email != "" {
			u.must("POST", "/api/v1/auth/register", `{"email":"`+email+`","password":"long enough, 1 of them"}`, "id")
		}
		return u
	}
}

// The pages that describe the API are for everybody, and an operator may hide them.
func TestPagesThatDescribeTheGateway(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]int{"": 200, "true": 200, "false": 404, "OFF": 404} {
		_, user := startDeerFlow(t, func(c *Config) {
			env := c.Settings.Lookup
			c.Settings.Lookup = func(name string) (string, bool) {
				if name == "GATEWAY_ENABLE_DOCS" && set != "" {
					return set, true
				}
				return env(name)
			}
		})
		for _, path := range []string{"/docs", "/redoc", "/openapi.json"} {
			status, answer := user("").ask("GET", path, "")
			require.Equal(t, want, status, "%s %q: %.200s", path, set, answer)
		}
	}
}

// waits is a graph whose runs last until they are cancelled.
type waits struct{ graph.Graph }

func (waits) Stream(ctx context.Context, _ graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		<-ctx.Done()
		yield(graph.Event{}, ctx.Err())
	}
}

// A changed password ends the streams and waits that its user opened before, on the routes of the Gateway and of LangGraph, and no others.
func TestStreamsAfterANewPassword(t *testing.T) {
	t.Parallel()
	user, _ := serveDeerFlow(t)
	ann, bob := user("ann@example.com"), user("bob@example.com")
	open := func(u *gatewayUser) (list []*http.Response) {
		t.Helper()
		thread := u.must("POST", "/api/threads", "{}", "thread_id")
		run := u.must("POST", "/threads/"+thread+"/runs", `{"assistant_id":"waits","input":{},"stream_resumable":true}`, "run_id")
		runs := "/threads/" + thread + "/runs/" + run
		t.Cleanup(func() { u.ask("POST", runs+"/cancel", "") }) // or the server waits for it
		for _, path := range []string{"/api" + runs + "/stream", "/api/langgraph" + runs + "/join", runs + "/stream", runs + "/join", "/threads/" + thread + "/stream"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.base+path, nil)
			require.NoError(t, err)
			res, err := u.client.Do(req)
			require.NoError(t, err)
			t.Cleanup(func() { _ = res.Body.Close() })
			require.Equal(t, 200, res.StatusCode, path)
			list = append(list, res)
		}
		return list
	}
	before, others := open(ann), open(bob)
	ann.must("POST", "/api/v1/auth/change-password", `{"current_password":"long enough, 1 of them","new_password":"another, long enough"}`, "message")
	after := open(ann)
	for _, res := range before {
		_, err := io.Copy(io.Discard, res.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, res.Request.URL)
	}
	for _, res := range append(others, after...) {
		_, err := io.ReadFull(res.Body, make([]byte, 1))
		require.NoError(t, err, res.Request.URL)
	}
}

// With DeerFlow's accounts, LangGraph's own routes are for its users too, and each sees only what is theirs.
func TestDeerFlowUsersOnRoutesOfLangGraph(t *testing.T) {
	t.Parallel()
	user, _ := serveDeerFlow(t)
	ann, ben, stranger := user("ann@example.com"), user("ben@example.com"), user("")

	thread := ann.must("POST", "/threads", `{"metadata":{"user_id":"somebody","topic":"x"}}`, "thread_id")
	status, answer := ann.ask("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"g","input":{}}`)
	require.Equal(t, 200, status, answer)
	run := func() string {
		_, list := ann.ask("GET", "/threads/"+thread+"/runs", "")
		var runs []struct {
			ID string `json:"run_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(list), &runs))
		return runs[0].ID
	}()
	gateway := ann.must("POST", "/api/threads", `{}`, "thread_id")

	requests := []struct{ method, path, body string }{
		{"GET", "/threads/THREAD", ""},
		{"GET", "/threads/THREAD/state", ""},
		{"GET", "/threads/THREAD/history", ""},
		{"GET", "/threads/THREAD/runs", ""},
		{"GET", "/threads/THREAD/runs/RUN", ""},
		{"GET", "/threads/THREAD/runs/RUN/join", ""},
		{"GET", "/threads/THREAD/events", ""},
		{"GET", "/threads/THREAD/messages", ""},
		{"POST", "/threads/THREAD/history", `{}`},
		{"POST", "/threads/THREAD/state", `{"values":{}}`},
		{"POST", "/threads/THREAD/copy", `{}`},
		{"POST", "/threads/THREAD/runs", `{"assistant_id":"g","input":{}}`},
		{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"g","input":{}}`},
		{"POST", "/threads/THREAD/runs/RUN/cancel", ""},
		{"PATCH", "/threads/THREAD", `{"metadata":{"a":1}}`},
		{"DELETE", "/threads/THREAD/runs/RUN", ""},
		{"DELETE", "/threads/THREAD", ""},
	}
	const unknown = "00000000-0000-4000-8000-000000000000"
	for _, r := range requests {
		for _, of := range []string{thread, gateway} {
			path := strings.NewReplacer("THREAD", of, "RUN", run).Replace(r.path)
			status, answer := stranger.ask(r.method, path, r.body)
			require.Contains(t, []int{401, 403}, status, "%s %s of a stranger: %s", r.method, path, answer)
			status, answer = stranger.ask(r.method, path, r.body, "Cookie", "csrf_token=a", "X-Csrf-Token", "a")
			require.Equal(t, 401, status, "%s %s with a CSRF token: %s", r.method, path, answer)

			status, answer = ben.ask(r.method, path, r.body)
			nothing, missing := ben.ask(r.method, strings.NewReplacer("THREAD", unknown, "RUN", run).Replace(r.path), r.body)
			require.Equal(t, nothing, status, "%s %s of another user: %s", r.method, path, answer)
			require.Equal(t, missing, strings.ReplaceAll(answer, of, unknown), "%s %s", r.method, path)
		}
	}
	for path, body := range map[string]string{
		"/threads/search": `{}`, "/threads/count": `{}`, "/assistants/search": `{}`, "/runs/crons/search": `{}`, "/store/items/search": `{"namespace_prefix":[]}`,
		"/runs/wait": `{"assistant_id":"g","input":{}}`, "/mcp": `{}`, "/v1/chat/completions": `{}`, "/runs/cancel": `{"status":"all"}`,
	} {
		status, answer := stranger.ask("POST", path, body, "Cookie", "csrf_token=a", "X-Csrf-Token", "a")
		require.Equal(t, 401, status, "%s: %s", path, answer)
		status, answer = ann.ask("POST", path, body, "X-Csrf-Token", "another")
		require.Equal(t, 403, status, "%s with a wrong CSRF token: %s", path, answer)
	}

	_, list := ben.ask("POST", "/threads/search", `{}`)
	require.JSONEq(t, "[]", list)
	_, list = ann.ask("POST", "/threads/search", `{"metadata":{"topic":"x"}}`)
	require.Contains(t, list, thread)
	require.NotContains(t, list, "somebody")
	_, list = ben.ask("POST", "/assistants/search", `{}`)
	require.Contains(t, list, `"graph_id":"g"`)

	me := ann.must("GET", "/api/v1/auth/me", "", "id")
	status, answer = ann.ask("PUT", "/store/items", `{"namespace":["`+me+`","notes"],"key":"k","value":{"v":1}}`)
	require.Equal(t, 204, status, answer)
	status, _ = ben.ask("PUT", "/store/items", `{"namespace":["`+me+`","notes"],"key":"k","value":{"v":2}}`)
	require.Equal(t, 403, status)
	_, list = ben.ask("POST", "/store/items/search", `{"namespace_prefix":[]}`)
	require.JSONEq(t, `{"items":[]}`, list)
	_, list = ann.ask("POST", "/store/items/search", `{"namespace_prefix":[]}`)
	require.Contains(t, list, `"v":1`)
}

// A page of another site does not become one of this server by a header that it cannot send. What a client says of its own connection counts for its own cookies.
func TestDeerFlowAndForwardedHeaders(t *testing.T) {
	t.Parallel()
	user, _ := serveDeerFlow(t)
	base := user("ann@example.com").base
	register := func(email string, header ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+"/api/v1/auth/register", strings.NewReader(`{"email":"`+email+`","password":"long enough, 1 of them"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		for n := 0; n < len(header); n += 2 {
			req.Header.Set(header[n], header[n+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	var resp *http.Response
	for n, encrypted := range []struct {
		header []string
		secure bool
	}{
		{[]string{"X-Forwarded-Ssl", "on", "X-Url-Scheme", "https", "X-Forwarded-Host", "evil.example"}, false}, {[]string{"X-Forwarded-Proto", "https"}, true}, {[]string{"Forwarded", "proto=https"}, true},
	} {
		resp = register(fmt.Sprintf("bob%d@example.com", n), encrypted.header...)
		require.Less(t, resp.StatusCode, 300)
		require.NotEmpty(t, resp.Cookies())
		for _, c := range resp.Cookies() {
			require.Equal(t, encrypted.secure, c.Secure, c.Name)
		}
	}
	require.Equal(t, 403, register("eve@example.com", "Origin", "https://evil.example").StatusCode)
	require.Equal(t, 403, register("eve@example.com", "Origin", "https://evil.example", "X-Forwarded-Host", "other.example").StatusCode)
	require.Less(t, register("dan@example.com", "Origin", base).StatusCode, 300)

	// The server of the web UI says in X-Forwarded-Host where the browser is. Browsers ask first whether a page may send that header, and hear that it may not.
	require.Less(t, register("kim@example.com", "Origin", "https://chat.example", "X-Forwarded-Host", "chat.example", "X-Forwarded-Proto", "https").StatusCode, 300)
	require.Equal(t, 403, register("eve@example.com", "Origin", "http://chat.example", "X-Forwarded-Host", "chat.example", "X-Forwarded-Proto", "https").StatusCode)
	// It adds its own port, which a proxy before it may hide.
	require.Less(t, register("lea@example.com", "Origin", "https://chat.example", "X-Forwarded-Host", "chat.example", "X-Forwarded-Proto", "https", "X-Forwarded-Port", "3000").StatusCode, 300)
	ask, err := http.NewRequestWithContext(t.Context(), "OPTIONS", base+"/api/v1/auth/register", nil)
	require.NoError(t, err)
	for name, value := range map[string]string{"Origin": "https://evil.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-forwarded-host"} {
		ask.Header.Set(name, value)
	}
	resp, err = http.DefaultClient.Do(ask)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, name := range []string{"Origin", "Headers", "Methods", "Credentials"} {
		require.Empty(t, resp.Header.Get("Access-Control-Allow-"+name))
	}
}

// Texts of scheduled tasks are bounded: a thousand of them are listed at once.
func TestTextsOfTasks(t *testing.T) {
	t.Parallel()
	user, _ := serveDeerFlow(t)
	ann := user("ann@example.com")
	body := func(title, prompt int) string {
		return fmt.Sprintf(`{"title":%q,"prompt":%q,"schedule_type":"cron","schedule_spec":{"cron":"0 9 * * *"},"timezone":"UTC"}`, strings.Repeat("é", title), strings.Repeat("é", prompt))
	}
	task := "/api/scheduled-tasks/" + ann.must("POST", "/api/scheduled-tasks", body(200, 20_000), "id")
	for _, long := range []string{body(201, 1), body(1, 20_001)} {
		for method, path := range map[string]string{"POST": "/api/scheduled-tasks", "PATCH": task} {
			status, answer := ann.ask(method, path, long)
			require.Equal(t, 422, status, answer)
			require.Contains(t, answer, "string_too_long")
		}
	}
	ann.must("PATCH", task, `{"title":"N"}`, "id")
	_, list := ann.ask("GET", "/api/scheduled-tasks", "")
	require.Contains(t, list, strings.Repeat("é", 20_000), "the prompt is there")
}

// While config.yaml cannot be read, scheduled tasks are run as before: they are due, and no more of them at once.
func TestRulesOfBrokenSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	file := &settings.File[*settings.Settings]{Path: path, Parse: func(text []byte) (*settings.Settings, error) {
		return settings.Parse(text, func(string) (string, bool) { return "", false })
	}}
	rules := rulesOf(file.Last)
	require.False(t, rules().Scheduled)
	require.NotZero(t, rules().MaxRuns, "0 is any number")
	save := func(scheduler string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte("config_version: 34\nmodels: []\nscheduler: "+scheduler+"\n"), 0o600))
	}
	save(`{enabled: true, max_concurrent_runs: 2, min_once_delay_seconds: 5}`)
	want := cron.TaskRules{Scheduled: true, MaxRuns: 2, MinDelay: 5 * time.Second}
	require.Equal(t, want, rules())
	save(`{enabled: true, max_conc`)
	require.Equal(t, want, rules())
	require.NoError(t, os.Remove(path))
	require.Equal(t, want, rules())
	save(`{enabled: false}`)
	require.Equal(t, cron.TaskRules{MaxRuns: 3, MinDelay: time.Minute}, rules())
}

// Runs of the Gateway act as who sent them: they are counted, paced and limited as those of LangGraph's routes, also where another policy decides about these.
func TestDeerFlowRunsActAsTheirUsers(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]Auth{"accounts": nil, "another policy": native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 5 // runs a minute
			srv, user := startDeerFlow(t, func(c *Config) { c.Auth, c.Settings.Limits.RunsPerMinute = policy, most })
			now := time.Now()
			srv.guard.Pace.Now = func() time.Time { return now } // none may be created again by and by
			ann, ben, channel := user("ann@example.com"), user("ben@example.com"), user("")
			me := ann.must("GET", "/api/v1/auth/me", "", "id")
			asAnn := []string{"X-Deerflow-Internal-Token", "the token of channels", "X-Deerflow-Owner-User-Id", me, "Cookie", "csrf_token=a", "X-Csrf-Token", "a"}
			body := `{"assistant_id":"lead_agent","input":{"messages":[{"role":"user","content":"hello"}]}}`

			thread := ann.must("POST", "/api/threads", `{}`, "thread_id")
			for n := range most {
				from, header := ann, []string(nil)
				if n == 1 {
					from, header = channel, asAnn
				}
				path := []string{"/api/threads/" + thread + "/runs/wait", "/api/runs/wait"}[n%2]
				status, answer := from.ask("POST", path, body, header...)
				require.Equal(t, 200, status, answer)
			}
			for path, body := range map[string]string{
				"/api/threads/" + thread + "/runs": body, "/api/threads/" + thread + "/runs/wait": body, "/api/threads/" + thread + "/runs/stream": body, "/api/runs/wait": body,
				"/api/langgraph/runs/stream": body, "/api/commands/send-message": `{"thread_id":"` + thread + `","message":"more"}`,
			} {
				status, answer := ann.ask("POST", path, body)
				require.Equal(t, 429, status, "%s: %s", path, answer)
				require.Contains(t, answer, `"detail":"Too many runs`)
				status, answer = channel.ask("POST", path, body, asAnn...)
				require.Equal(t, 429, status, "%s: %s", path, answer)
			}
			status, answer := ben.ask("POST", "/api/runs/wait", body)
			require.Equal(t, 200, status, answer)
			status, answer = channel.ask("POST", "/api/runs/wait", body, append(slices.Clone(asAnn), "X-Deerflow-Owner-User-Id", "somebody")...)
			require.Equal(t, 200, status, answer)

			// What belongs to another is noted, and what does not exist is not.
			for _, t := range []string{thread, "00000000-0000-4000-8000-000000000000"} {
				for _, path := range []string{"", "/messages", "/runs/" + t} {
					_, _ = ben.ask("GET", "/api/threads/"+t+path, "")
				}
			}
			status, _ = ann.ask("GET", "/api/threads/"+thread+"/runs/"+thread, "")
			require.Equal(t, 404, status)
			require.Eventually(t, func() bool {
				list, err := srv.rows.Audit(t.Context(), audit.Query{Limit: 100})
				require.NoError(t, err)
				denied := 0
				for _, e := range list {
					if e.Event == audit.Denied {
						denied++
						require.Contains(t, e.Resource, "of thread "+thread)
						require.NotEqual(t, me, e.Identity)
					}
				}
				return denied == 3
			}, time.Minute, 10*time.Millisecond)

			// Threads and runs are the user's, for whom the Gateway shows them without what the server noted.
			_, answer = ann.ask("GET", "/api/threads/"+thread+"/runs", "")
			require.Equal(t, int64(3), gjson.Get(answer, "#").Int(), answer)
			require.NotContains(t, answer, "langgraph_auth")
			require.NotContains(t, answer, me)
			_, answer = ann.ask("POST", "/api/threads/search", `{}`)
			require.Equal(t, int64(3), gjson.Get(answer, "#").Int(), answer)
			if policy != nil {
				status, answer = user("").ask("POST", "/threads/search", `{}`, "Authorization", "Bearer "+me)
				require.Equal(t, 200, status, answer)
				require.Equal(t, "[]", answer, "the other policy finds its own owners")
				return
			}
			status, answer = ann.ask("POST", "/threads/"+thread+"/runs", `{"assistant_id":"g","input":{}}`)
			require.Equal(t, 429, status, answer)
			for u, runs := range map[*gatewayUser]int64{ann: most, ben: 1} {
				require.Eventually(t, func() bool {
					_, answer = u.ask("GET", "/understudy/usage", "")
					return gjson.Get(answer, "total.runs").Int() == runs
				}, time.Minute, 10*time.Millisecond)
			}
		})
	}
}

// A task whose agent cannot be read makes its run, which says why it fails: other crons do not wait for that.
func TestTaskOfAnAgentThatCannotBeRead(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(*Config) {})
	_, me := user("ann@example.com").ask("GET", "/api/v1/auth/me", "")
	account := gjson.Get(me, "id").String()
	folder := filepath.Join(srv.deerflow.Agents.Dir(account), "broken")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.yaml"), []byte("{:"), 0o600))
	task, req := &run.Cron{ID: "c", Account: account}, &run.Request{}
	req.Context = json.RawMessage(`{"agent_name":"broken"}`)
	require.Error(t, srv.describeTask(task, req))
	require.NoError(t, srv.admitCron()(t.Context(), task, req))
}
