package app

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

var parameter = regexp.MustCompile(`\{[a-z_]+\}|\*`)

// isPublicGateway are the routes of DeerFlow's Gateway that need no session, without their prefix.
var isPublicGateway = []string{
	"POST /v1/auth/register", "POST /v1/auth/initialize", "POST /v1/auth/login/local", "POST /v1/auth/logout", "GET /v1/auth/setup-status", "GET /v1/auth/providers",
	"GET /v1/auth/oauth/{provider}", "GET /v1/auth/callback/{provider}", "POST /webhooks/{source}",
}

// Every route of a server with DeerFlow's accounts needs a session, but for a short list, and no route with a thread serves it to another user.
func TestDeerFlowRoutesNeedSessions(t *testing.T) {
	t.Parallel()
	user, routes := serveDeerFlow(t)
	stranger, ann, ben := user(""), user("ann@example.com"), user("ben@example.com")
	thread := ann.must("POST", "/api/threads", `{"metadata":{"about":"SECRET of ann"}}`, "thread_id")
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		gateway := method + " " + strings.TrimPrefix(strings.TrimPrefix(path, "/api"), "/langgraph")
		if route == "GET /health" || route == "GET /redoc" || slices.Contains(isPublic, route) || strings.HasPrefix(path, "/api/") && slices.Contains(isPublicGateway, gateway) {
			continue
		}
		refused := []int{http.StatusUnauthorized, http.StatusForbidden}
		for _, header := range [][]string{nil, {"Cookie", "csrf_token=a", "X-Csrf-Token", "a"}, {"X-Deerflow-Internal-Token", ""}, {"X-Deerflow-Owner-User-Id", "default"}} {
			status, answer := stranger.ask(method, parameter.ReplaceAllString(path, "00000000-0000-4000-8000-000000000000"), "{}", header...)
			require.Contains(t, refused, status, "%s: %s", route, answer)
		}
		if strings.HasPrefix(path, "/api/") && strings.Contains(path, "{thread_id}") {
			status, answer := ben.ask(method, parameter.ReplaceAllString(strings.ReplaceAll(path, "{thread_id}", thread), "00000000-0000-4000-8000-000000000000"), "{}")
			require.GreaterOrEqual(t, status, 400, "%s: %s", route, answer)
			require.NotContains(t, answer, "SECRET")
		}
	}
	_, answer := ann.ask("GET", "/api/threads/"+thread, "")
	require.Contains(t, answer, "SECRET of ann")
}

// gatewayBodies are those of routes that do nothing without one, by the end of their path.
var gatewayBodies = []struct{ end, body string }{
	{"/runs", `{"assistant_id":"g","input":{}}`},
	{"/runs/wait", `{"assistant_id":"g","input":{}}`},
	{"/runs/stream", `{"assistant_id":"g","input":{}}`},
	{"/state", `{"values":{"x":"stolen"}}`},
	{"/history", `{"limit":10}`},
	{"/facts/{fact}", `{"content":"stolen"}`},
	{"/agents/{name}", `{"soul":"stolen"}`},
	{"/threads/{thread_id}", `{"metadata":{"x":"stolen"}}`},
	{"/branches", `{"message_id":"{message_id}"}`},
	{"/feedback", `{"rating":-1,"comment":"stolen"}`},
	{"/fork-thread", `{"source_thread_id":"{thread_id}","event_number":1}`},
	{"/send-message", `{"thread_id":"{thread_id}","message":"stolen","assistant_id":"g"}`},
	{"/threads/search", `{"metadata":{"user_id":"{user}"},"limit":100}`},
}

// Whatever a user of DeerFlow's Gateway sends with ids of another user, in any mixture with their own: no answer has anything of the other, a thread of the other is
// refused, other things are answered like those that do not exist, and what the other has stays as it is.
func TestDeerFlowIsolationOfAnyRequest(t *testing.T) {
	t.Parallel()
	user, routes := serveDeerFlow(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	type person struct {
		*gatewayUser
		has map[string]string // by parameter
	}
	settle := func(name string) *person {
		p := &person{user(name + "@example.com"), map[string]string{"name": name + "-agent", "message_id": uuid.NewString()}}
		p.has["thread_id"] = p.must("POST", "/api/threads", `{"metadata":{"about":"SECRET of `+name+`"}}`, "thread_id")
		p.must("PATCH", "/threads/"+p.has["thread_id"], `{"metadata":{"more":"SECRET of `+name+`"}}`, "thread_id")
		p.must("POST", "/threads/"+p.has["thread_id"]+"/runs/wait", `{"assistant_id":"g","input":{},"metadata":{"m":"SECRET of `+name+`"}}`, "")
		_, runs := p.ask("GET", "/threads/"+p.has["thread_id"]+"/runs", "")
		p.has["run_id"] = gjson.Get(runs, "0.run_id").String()
		require.NotEmpty(t, p.has["run_id"], runs)
		status, facts := p.ask("POST", "/api/memory/facts", `{"content":"SECRET of `+name+`"}`)
		require.Equal(t, http.StatusOK, status, facts)
		p.has["fact"] = gjson.Get(facts, "facts.0.id").String()
		require.NotEmpty(t, p.has["fact"], facts)
		_, me := p.ask("GET", "/api/v1/auth/me", "")
		p.has["user"] = gjson.Get(me, "id").String()
		require.NotEmpty(t, p.has["user"], me)
		return p
	}
	ann, ben := settle("ann"), settle("ben")
	view := func(p *person) (all []string) {
		for _, path := range []string{"/api/threads/{thread_id}", "/api/threads/{thread_id}/state", "/threads/{thread_id}/runs", "/api/memory", "/api/agents", "/api/user-profile", "/api/console/runs"} {
			status, answer := p.ask("GET", fill(path, p.has), "")
			all = append(all, fmt.Sprint(path, " ", status, " ", answer))
		}
		return all
	}
	before := view(ann)
	require.Contains(t, strings.Join(before, "\n"), "SECRET of ann")
	nowhere := map[string]string{}
	for key := range ann.has {
		nowhere[key] = uuid.NewString()
	}
	nowhere["name"] = "nobodys-agent"
	// masked leaves out what the two requests differ in.
	masked := func(text string) string {
		for _, has := range []map[string]string{ann.has, nowhere} {
			for _, value := range slices.Sorted(maps.Values(has)) {
				text = strings.ReplaceAll(text, value, "ID")
			}
		}
		return text
	}
	sent := 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		method, path, _ := strings.Cut(routes[random.IntN(len(routes))], " ")
		if !strings.HasPrefix(path, "/api/") || strings.Contains(path, "/auth/") || strings.HasSuffix(path, "/join") || strings.Contains(path, "/webhooks/") {
			continue
		}
		body := "{}"
		for _, b := range gatewayBodies {
			if strings.HasSuffix(path, b.end) {
				body = b.body
			}
		}
		if method == http.MethodGet {
			body = ""
			path += []string{"", "?thread_id={thread_id}", "?run_id={run_id}&limit=100", "?user_id={user}", "?owner={user}"}[random.IntN(5)]
		}
		path = strings.Replace(path, "*", []string{"mnt/user-data/outputs/x", "../{thread_id}/x", "%2e%2e/{thread_id}/x"}[random.IntN(3)], 1)
		foreign, plain := map[string]string{}, map[string]string{}
		any := false
		for key := range ann.has {
			if random.IntN(4) == 0 {
				foreign[key], plain[key] = ben.has[key], ben.has[key]
			} else {
				foreign[key], plain[key] = ann.has[key], nowhere[key]
				any = any || strings.Contains(path+body, "{"+key+"}")
			}
		}
		if !any {
			continue
		}
		header := [][]string{nil, {"X-Deerflow-Owner-User-Id", ann.has["user"]}, {"X-User-Id", ann.has["user"]}}[random.IntN(3)]
		send := func(has map[string]string) (int, string) {
			to := parameter.ReplaceAllString(fill(path, has), "none")
			status, answer := ben.ask(method, to, fill(body, has), header...)
			require.NotContains(t, answer, "SECRET of ann", "%s %s %s", method, to, body)
			require.NotEqual(t, http.StatusInternalServerError, status, "%s %s %s: %s", method, to, body, answer)
			return status, answer
		}
		status, answer := send(foreign)
		sent++
		if foreign["thread_id"] == ann.has["thread_id"] && strings.Contains(path, "{thread_id}") {
			// The Gateway's contract has other answers for threads that do not exist: its clients choose ids.
			if before, _, _ := strings.Cut(path, "?"); strings.Contains(before, "/threads/{thread_id}") {
				require.GreaterOrEqual(t, status, 400, "%s %s: %s", method, path, answer)
			}
		} else if method == http.MethodGet {
			wantStatus, want := send(plain)
			require.Equal(t, wantStatus, status, "%s %s: %s", method, path, answer)
			if status >= 400 {
				require.Equal(t, masked(want), masked(answer), "%s %s", method, path)
			}
		}
		if sent%50 == 0 {
			require.Equal(t, before, view(ann))
		}
	}
	require.Equal(t, before, view(ann), "ben changed what belongs to ann")
	require.Greater(t, sent, 20)
	t.Logf("%d requests", sent)
}

// namedElsewhere are requests with ids in their body or query, of routes in both dialects. {own} is a thread of the caller.
var namedElsewhere = []string{
	`POST /api/commands/fork-thread {"source_thread_id":"{thread_id}","event_number":1}`,
	`POST /api/commands/send-message {"thread_id":"{thread_id}","message":"x","assistant_id":"g"}`,
	`POST /api/threads/{own}/runs {"assistant_id":"g","input":{},"checkpoint":{"checkpoint_id":"{checkpoint_id}"}}`,
	`POST /api/threads/{own}/runs/wait {"assistant_id":"g","input":{},"checkpoint_id":"{checkpoint_id}"}`,
	`POST /api/threads/{own}/state {"values":{"title":"x"},"checkpoint_id":"{checkpoint_id}"}`,
	`POST /api/threads/{own}/history {"before":"{checkpoint_id}"}`,
	`POST /api/threads/{own}/branches {"message_id":"{message_id}"}`,
	`POST /api/threads/{own}/runs/regenerate/prepare {"message_id":"{message_id}"}`,
	`POST /api/threads/{own}/runs/edit-regenerate/prepare {"human_message_id":"{message_id}","replacement_text":"x"}`,
	`POST /api/scheduled-tasks {"title":"t","prompt":"p","schedule_type":"cron","schedule_spec":{"cron":"0 9 * * *"},"timezone":"UTC","context_mode":"reuse_thread","thread_id":"{thread_id}"}`,
	`PATCH /api/scheduled-tasks/{task} {"context_mode":"reuse_thread","thread_id":"{thread_id}"}`,
	`POST /api/input-polish {"text":"x","thread_id":"{thread_id}"}`,
	`POST /api/skills/install {"thread_id":"{thread_id}","path":"mnt/user-data/outputs/x.skill"}`,
	`POST /api/threads/search {"metadata":{"parent_thread_id":"{thread_id}"}}`,
	`POST /api/threads/search {"metadata":{"user_id":"{user}"}}`,
	`PATCH /api/memory/facts/{fact} {"content":"x"}`,
	`DELETE /api/memory/facts/{fact} `,
	`GET /api/runs/{run_id}/messages `,
	`GET /api/runs/{run_id}/feedback `,
	`POST /commands/fork-thread {"source_thread_id":"{thread_id}","event_number":1}`,
	`POST /commands/send-message {"thread_id":"{thread_id}","message":"x","assistant_id":"g"}`,
	`POST /threads/{own}/runs/wait {"assistant_id":"{assistant}","input":{}}`,
	`POST /threads/{own}/runs/wait {"assistant_id":"g","input":{},"checkpoint":{"thread_id":"{own}","checkpoint_ns":"","checkpoint_id":"{checkpoint_id}"}}`,
	`POST /threads/{own}/runs/crons {"assistant_id":"{assistant}","schedule":"0 9 * * *","input":{}}`,
	`POST /runs/wait {"assistant_id":"{assistant}","input":{}}`,
	`POST /runs/batch [{"assistant_id":"{assistant}","input":{}}]`,
	`POST /runs/cancel {"thread_id":"{thread_id}","run_ids":["{run_id}"]}`,
	`POST /runs/cancel {"thread_id":"{own}","run_ids":["{run_id}"]}`,
	`POST /threads/prune {"thread_ids":["{thread_id}"]}`,
	`POST /threads/search {"ids":["{thread_id}"]}`,
	`POST /assistants/search {"metadata":{"user_id":"{user}"}}`,
	`GET /understudy/threads/search?q=SECRET&thread_id={thread_id} `,
	`GET /understudy/runs?thread_id={thread_id} `,
	`GET /understudy/timeline?thread_id={thread_id} `,
}

// An id of another user in a body or a query is answered as one that does not exist, and nothing of the other changes.
func TestForeignIDsAreUnknown(t *testing.T) {
	t.Parallel()
	user, routes := serveDeerFlow(t)
	ann, ben := user("ann@example.com"), user("ben@example.com")
	own := ben.must("POST", "/api/threads", `{}`, "thread_id")
	ben.must("POST", "/threads/"+own+"/runs/wait", `{"assistant_id":"g","input":{}}`, "")
	task := `{"title":"SECRET","prompt":"p","schedule_type":"cron","schedule_spec":{"cron":"0 9 * * *"},"timezone":"UTC"}`
	has := map[string]string{"thread_id": ann.must("POST", "/api/threads", `{"metadata":{"about":"SECRET"}}`, "thread_id")}
	ann.must("POST", "/threads/"+has["thread_id"]+"/runs/wait", `{"assistant_id":"g","input":{"messages":[{"type":"human","id":"aa5ffbba-21a9-4a4e-8f2c-d1a3a3b2a2f1","content":"SECRET"}]}}`, "")
	ann.must("PATCH", "/threads/"+has["thread_id"], `{"metadata":{"parent_thread_id":"`+has["thread_id"]+`"}}`, "thread_id")
	_, state := ann.ask("GET", "/threads/"+has["thread_id"]+"/state", "")
	_, runs := ann.ask("GET", "/threads/"+has["thread_id"]+"/runs", "")
	_, facts := ann.ask("POST", "/api/memory/facts", `{"content":"SECRET"}`)
	_, me := ann.ask("GET", "/api/v1/auth/me", "")
	has["checkpoint_id"], has["run_id"] = gjson.Get(state, "checkpoint.checkpoint_id").String(), gjson.Get(runs, "0.run_id").String()
	has["fact"], has["user"], has["message_id"] = gjson.Get(facts, "facts.0.id").String(), gjson.Get(me, "id").String(), "aa5ffbba-21a9-4a4e-8f2c-d1a3a3b2a2f1"
	has["assistant"] = ann.must("POST", "/assistants", `{"graph_id":"g","name":"SECRET"}`, "assistant_id")
	nowhere := map[string]string{}
	for key, value := range has {
		require.NotEmpty(t, value, key)
		nowhere[key] = uuid.NewString()
	}
	own2 := ben.must("POST", "/api/scheduled-tasks", task, "id")
	view := func() (all []string) {
		for _, path := range []string{"/threads/{thread_id}", "/threads/{thread_id}/history", "/threads/{thread_id}/runs", "/api/memory", "/assistants/{assistant}", "/api/scheduled-tasks", "/understudy/threads/{thread_id}/branches"} {
			status, answer := ann.ask("GET", fill(path, has), "")
			require.Equal(t, http.StatusOK, status, "%s: %s", path, answer)
			all = append(all, answer)
		}
		return all
	}
	before := view()
	masked := func(text string, ids map[string]string) string {
		for _, value := range ids {
			text = strings.ReplaceAll(text, value, "ID")
		}
		return text
	}
	for _, request := range namedElsewhere {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		bare, _, _ := strings.Cut(path, "?")
		pattern := regexp.MustCompile(`^` + method + " " + parameter.ReplaceAllString(bare, `(\{[a-z_]+\})`) + `$`)
		require.True(t, slices.ContainsFunc(routes, pattern.MatchString), "there is no route of %s", request)
		send := func(ids map[string]string) (int, string) {
			ids = maps.Clone(ids)
			ids["own"], ids["task"] = own, own2
			status, answer := ben.ask(method, fill(path, ids), fill(body, ids))
			require.NotContains(t, answer, "SECRET", request)
			return status, answer
		}
		wantStatus, want := send(nowhere)
		status, answer := send(has)
		require.Equal(t, wantStatus, status, "%s: %s, not %s", request, answer, want)
		if status >= 400 {
			require.Equal(t, masked(want, nowhere), masked(answer, has), request)
		}
	}
	require.Equal(t, before, view())
}
