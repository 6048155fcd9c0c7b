package app

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
	"understudy/id"
	"understudy/internal/redistest"
	"understudy/internal/seedtest"
	"understudy/storage/postgres/migratedtest"
)

// places are what the parameters of routes stand for.
var places = map[string]string{
	"{thread_id}": "{T}", "{run_id}": "{R}", "{checkpoint_id}": "{C}", "{assistant_id}": "{A}", "{cron_id}": "{K}", "{response}": "{RESP}", "{conversation}": "{CONV}",
	"{message_id}": "{M}",
	"{model}":      "{A}", "{namespace}": "talk", "{graph}": "talk", "{page}": "wire", "{asset}": "x.js",
}

// isPublic are the routes that need no credentials.
var isPublic = []string{
	"GET /", "GET /ok", "GET /livez", "GET /readyz", "GET /info", "GET /metrics", "GET /docs", "GET /docs/{page}", "GET /openapi.json", "GET /ui/{graph}", "GET /ui/{graph}/{asset}",
	"POST /feedback/tokens/{token}", "POST /api/langgraph/feedback/tokens/{token}", // the token is what allows it
}

// bodies are those of routes that need one, by the end of their path.
var bodies = []struct{ end, body string }{
	{"/runs/crons", `{"assistant_id":"talk","schedule":"0 0 1 1 *","input":{}}`},
	{"/runs", `{"assistant_id":"talk","input":{"note":"x"}}`},
	{"/runs/stream", `{"assistant_id":"talk","input":{"note":"x"}}`},
	{"/runs/wait", `{"assistant_id":"talk","input":{"note":"x"}}`},
	{"/state", `{"values":{"note":"stolen"}}`},
	{"/state/checkpoint", `{"checkpoint":{"checkpoint_id":"{C}","checkpoint_ns":""}}`},
	{"/latest", `{"version":1}`},
	{"/stream/events", `{"channels":["values","updates","messages","lifecycle","tasks","input"]}`},
	{"/commands", `{"id":1,"method":"state.get","params":{}}`},
	{"/a2a/{A}", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","messageId":"m","parts":[{"kind":"text","text":"x"}]}}}`},
	{"/threads/{T}", `{"metadata":{"x":1}}`},
	{"/assistants/{A}", `{"name":"x"}`},
	{"/runs/crons/{K}", `{"enabled":false}`},
}

// probe is a request about what belongs to another user.
type probe struct {
	method, path, body string
	headers            []string
}

func (p probe) String() string { return p.method + " " + p.path + " " + p.body }

// probesOf makes a request of each route that names something. Other threads stand in for that of the route.
func probesOf(t *testing.T, routes []string) (out []probe) {
	t.Helper()
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		if strings.HasPrefix(path, "/api/langgraph/") || !strings.Contains(path, "{") || slices.Contains(isPublic, route) || strings.HasPrefix(path, "/ui/") {
			continue
		}
		for _, segment := range strings.Split(path, "/") {
			if strings.HasPrefix(segment, "{") {
				require.Contains(t, places, segment, "%s: what is it?", route)
				path = strings.Replace(path, segment, places[segment], 1)
			}
		}
		p := probe{method: method, path: path}
		if method != http.MethodGet && method != http.MethodDelete {
			p.body = "{}"
			for _, b := range bodies {
				if strings.HasSuffix(path, b.end) {
					p.body = b.body
				}
			}
		}
		out = append(out, p)
		if strings.HasPrefix(path, "/threads/{T}") {
			for _, other := range []struct{ thread, run string }{{"{I}", "{R}"}, {"{B}", "{BR}"}} {
				p := p
				p.path = strings.NewReplacer("{T}", other.thread, "{R}", other.run).Replace(path)
				out = append(out, p)
			}
		}
	}
	return out
}

// a2a is a call of an agent.
func a2a(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

const spoken = `"role":"user","messageId":"m","parts":[{"kind":"text","text":"x"}]`

// more are probes that routes do not show: ids in bodies, queries and headers. {OWN…} is what the prober has, {MINE} the thread of their conversation.
var more = []probe{
	{"GET", "/understudy/threads/search?text=secret&thread_id={T}", "", nil},
	{"GET", "/understudy/threads/{OWNT}/branches?after={T}", "", nil},
	{"GET", "/understudy/threads/{OWNT}/messages/{M}", "", nil},
	{"GET", "/threads/{T}/stream", "", []string{"Last-Event-ID", "0-0"}},
	{"GET", "/threads/{B}/stream", "", []string{"Last-Event-ID", "0-0"}},
	{"GET", "/threads/{T}/runs/{R}/stream", "", []string{"Last-Event-ID", "-1"}},
	{"GET", "/threads/{B}/runs/{BR}/stream?cancel_on_disconnect=true", "", nil},
	{"POST", "/threads/{B}/runs/{BR}/cancel?wait=true&action=rollback", "", nil},
	{"GET", "/runs/{S}/stream", "", []string{"Last-Event-ID", "-1"}},
	{"GET", "/runs/{R}/stream", "", nil},
	{"GET", "/threads/{OWNT}/runs/{R}", "", nil},
	{"GET", "/threads/{OWNT}/runs/{BR}/join", "", nil},
	{"DELETE", "/threads/{OWNT}/runs/{R}", "", nil},
	{"POST", "/threads/{OWNT}/runs/{BR}/cancel", "", nil},
	{"GET", "/threads/{OWNT}/runs/{R}/messages", "", nil},
	{"GET", "/threads/{OWNT}/state/{C}", "", nil},
	{"POST", "/threads/{OWNT}/state/checkpoint", `{"checkpoint":{"thread_id":"{T}","checkpoint_id":"{C}","checkpoint_ns":""}}`, nil},
	{"POST", "/threads/{OWNT}/history", `{"before":{"configurable":{"thread_id":"{T}","checkpoint_id":"{C}"}}}`, nil},
	{"POST", "/threads/{OWNT}/history", `{"checkpoint":{"thread_id":"{T}"}}`, nil},
	{"POST", "/threads/{MINE}/runs/wait", `{"assistant_id":"talk","input":{"note":"x"},"checkpoint":{"thread_id":"{T}","checkpoint_id":"{C}","checkpoint_ns":""}}`, nil},
	{"POST", "/runs/wait", `{"assistant_id":"talk","input":{},"config":{"configurable":{"thread_id":"{T}","checkpoint_id":"{C}"}}}`, nil},
	{"POST", "/runs/wait", `{"assistant_id":"talk","input":{},"context":{"thread_id":"{T}"}}`, nil},
	{"POST", "/runs/wait", `{"assistant_id":"{A}","input":{}}`, nil},
	{"POST", "/runs/stream", `{"assistant_id":"{A}","input":{}}`, nil},
	{"POST", "/runs", `{"assistant_id":"{A}","input":{}}`, nil},
	{"POST", "/runs/batch", `[{"assistant_id":"talk","input":{}},{"assistant_id":"{A}","input":{}}]`, nil},
	{"POST", "/threads/{MINE}/runs", `{"assistant_id":"{A}","input":{}}`, nil},
	{"POST", "/runs/crons", `{"assistant_id":"{A}","schedule":"0 0 1 1 *","input":{}}`, nil},
	{"POST", "/runs/cancel", `{"thread_id":"{B}","run_ids":["{BR}"]}`, nil},
	{"POST", "/threads/prune", `{"thread_ids":["{T}"]}`, nil},
	{"POST", "/threads/prune", `{"thread_ids":["{OWNT}","{T}"]}`, nil},
	{"POST", "/threads/search", `{"ids":["{T}","{B}"]}`, nil},
	{"POST", "/threads/search", `{"metadata":{"owner":"{NAME}"}}`, nil},
	{"POST", "/threads/count", `{"metadata":{"owner":"{NAME}"}}`, nil},
	{"POST", "/threads/search", `{"status":"interrupted","metadata":{"owner":"{NAME}"}}`, nil},
	{"POST", "/assistants/search", `{"metadata":{"owner":"{NAME}"}}`, nil},
	{"POST", "/assistants/count", `{"metadata":{"owner":"{NAME}"}}`, nil},
	{"POST", "/runs/crons/search", `{"thread_id":"{T}"}`, nil},
	{"POST", "/runs/crons/search", `{"assistant_id":"{A}"}`, nil},
	{"POST", "/runs/crons/count", `{"thread_id":"{T}"}`, nil},
	{"GET", "/runs/crons/{KT}", "", nil},
	{"GET", "/store/items?namespace={NAME}.notes&key=k", "", nil},
	{"POST", "/store/items/search", `{"namespace_prefix":["{NAME}"]}`, nil},
	{"POST", "/store/items/search", `{"namespace_prefix":[],"filter":{"owner":"{NAME}"}}`, nil},
	{"POST", "/store/namespaces", `{"prefix":["{NAME}"]}`, nil},
	{"POST", "/store/namespaces", `{"suffix":["{NAME}","notes"]}`, nil},
	{"DELETE", "/store/items", `{"namespace":["{NAME}","notes"],"key":"k"}`, nil},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"{TOOL}","arguments":{}}}`, nil},
	{"POST", "/v1/chat/completions", `{"model":"{A}","messages":[{"role":"user","content":"x"}]}`, nil},
	{"POST", "/v1/responses", `{"model":"talk","input":"x","previous_response_id":"{RESP}"}`, nil},
	{"POST", "/a2a/" + string(id.DefaultAssistant("talk")), a2a("tasks/get", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/" + string(id.DefaultAssistant("talk")), a2a("tasks/cancel", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/" + string(id.DefaultAssistant("talk")), a2a("tasks/resubscribe", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/get", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/resubscribe", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("message/send", `{"message":{`+spoken+`,"taskId":"{TASK}"}}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/pushNotificationConfig/set", `{"taskId":"{TASK}","pushNotificationConfig":{"url":"https://example.com/"}}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/pushNotificationConfig/get", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/pushNotificationConfig/list", `{"id":"{TASK}"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("tasks/pushNotificationConfig/delete", `{"id":"{TASK}","pushNotificationConfigId":"x"}`), nil},
	{"POST", "/a2a/{OWNA}", a2a("ListTasks", `{"contextId":"{T}"}`), []string{"A2A-Version", "1.0"}},
	{"POST", "/a2a/{OWNA}", a2a("GetTask", `{"id":"{TASK}"}`), []string{"A2A-Version", "1.0"}},
	{"GET", "/.well-known/agent-card.json?assistant_id={A}", "", nil},
	{"POST", "/threads/{T}/commands", `{"id":1,"method":"state.listCheckpoints","params":{}}`, nil},
	{"POST", "/threads/{T}/commands", `{"id":1,"method":"state.get","params":{"checkpoint_id":"{C}"}}`, nil},
	{"POST", "/threads/{T}/commands", `{"id":1,"method":"state.fork","params":{"checkpoint_id":"{C}","assistant_id":"talk"}}`, nil},
	{"POST", "/threads/{I}/commands", `{"id":1,"method":"input.respond","params":{"namespace":[],"interrupt_id":"{Q}","response":"x","assistant_id":"talk"}}`, nil},
	{"POST", "/threads/{B}/commands", `{"id":1,"method":"agent.getTree","params":{}}`, nil},
	{"POST", "/threads/{OWNT}/commands", `{"id":1,"method":"state.get","params":{"checkpoint_id":"{C}"}}`, nil},
	{"POST", "/commands/fork-thread", `{"source_thread_id":"{T}","event_number":1}`, nil},
	{"POST", "/commands/fork-thread", `{"source_thread_id":"{T}","event_number":100000}`, nil},
	{"POST", "/commands/send-message", `{"thread_id":"{T}","message":"x"}`, nil},
	{"POST", "/commands/send-message", `{"thread_id":"{T}","message":"x","assistant_id":"talk"}`, nil},
	{"POST", "/commands/send-message", `{"thread_id":"{I}","message":"x","assistant_id":"talk"}`, nil},
}

// telling are requests whose answer may say that an id is taken, because it creates what does not exist. They must not say or change more.
var telling = []probe{
	{"GET", "/understudy/runs/count", "", nil},
	{"POST", "/understudy/runs/cancel", `{}`, nil},
	{"POST", "/threads", `{"thread_id":"{T}"}`, nil},
	{"POST", "/threads", `{"thread_id":"{T}","if_exists":"do_nothing"}`, nil},
	{"POST", "/assistants", `{"assistant_id":"{A}","graph_id":"talk","if_exists":"do_nothing"}`, nil},
	{"POST", "/threads/{T}/runs/wait", `{"assistant_id":"talk","input":{},"if_not_exists":"create"}`, nil},
	{"POST", "/threads/{B}/runs", `{"assistant_id":"talk","input":{},"if_not_exists":"create","multitask_strategy":"rollback"}`, nil},
	{"POST", "/threads/{T}/commands", `{"id":1,"method":"run.start","params":{"assistant_id":"talk","input":{}}}`, nil},
	{"POST", "/threads/{I}/commands", `{"id":1,"method":"input.inject","params":{"namespace":[],"message":{"role":"user","content":"x"},"assistant_id":"talk"}}`, nil},
	{"POST", "/a2a/" + string(id.DefaultAssistant("talk")), a2a("message/send", `{"message":{`+spoken+`,"contextId":"{T}"}}`), nil},
	{"POST", "/a2a/" + string(id.DefaultAssistant("talk")), a2a("message/stream", `{"message":{`+spoken+`,"contextId":"{I}"}}`), nil},
	{"POST", "/v1/chat/completions", `{"model":"talk","messages":[{"role":"user","content":"x"}]}`, []string{"X-Thread-Id", "{T}"}},
	{"POST", "/v1/responses", `{"model":"talk","input":"x","conversation":"{CONV}"}`, nil},
	{"GET", "/v1/models", "", nil},
	{"POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil},
	{"POST", "/assistants/search", `{"limit":1000}`, nil},
	{"POST", "/runs/crons/search", `{"limit":1000}`, nil},
	{"POST", "/runs/cancel", `{"status":"pending"}`, nil},
	{"POST", "/store/items/search", `{"namespace_prefix":[]}`, nil},
	{"POST", "/store/namespaces", `{}`, nil},
}

// views are what an owner sees of everything.
var views = []probe{
	{"GET", "/threads/{T}", "", nil},
	{"GET", "/threads/{T}/state", "", nil},
	{"POST", "/threads/{T}/history", `{"limit":100}`, nil},
	{"GET", "/threads/{T}/runs?limit=100", "", nil},
	{"GET", "/threads/{T}/messages", "", nil},
	{"GET", "/threads/{I}", "", nil},
	{"GET", "/threads/{I}/state", "", nil},
	{"GET", "/threads/{B}", "", nil},
	{"GET", "/threads/{B}/runs/{BR}", "", nil},
	{"GET", "/assistants/{A}", "", nil},
	{"POST", "/assistants/{A}/versions", "{}", nil},
	{"GET", "/runs/crons/{K}", "", nil},
	{"GET", "/runs/crons/{KT}", "", nil},
	{"GET", "/store/items?namespace={NAME}.notes&key=k", "", nil},
	{"GET", "/v1/responses/{RESP}", "", nil},
	{"GET", "/v1/conversations/{CONV}", "", nil},
	{"POST", "/a2a/{A}", a2a("tasks/get", `{"id":"{TASK}"}`), nil},
	{"POST", "/threads/count", "{}", nil},
	{"POST", "/assistants/count", "{}", nil},
	{"POST", "/runs/crons/count", "{}", nil},
}

var itemIDs = regexp.MustCompile(`msg_[0-9a-f]{32}`)

func (v *village) view(u *villager) (out []string) {
	v.t.Helper()
	for _, p := range views {
		text := v.must(u.name, p.method, fill(p.path, u.has), fill(p.body, u.has))
		out = append(out, p.path+" "+itemIDs.ReplaceAllString(text, "")) // which each read makes anew
	}
	return out
}

// try sends a probe of what has names, as a user, and looks for secrets of others in the answer.
func (v *village) try(u *villager, p probe, has map[string]string) answered {
	v.t.Helper()
	all := map[string]string{"MINE": u.conversation()}
	for key, value := range has {
		all[key] = value
	}
	for key, value := range u.has {
		all["OWN"+key] = value
	}
	headers := slices.Clone(p.headers)
	for i := range headers {
		headers[i] = fill(headers[i], all)
	}
	a := v.ask(u.name, p.method, fill(p.path, all), fill(p.body, all), headers...)
	for _, other := range v.users {
		if other != u {
			require.NotContains(v.t, a.body, other.secret, "%s reads what belongs to %s: %s", u.name, other.name, p)
			require.NotContains(v.t, a.body, "TOKEN-of-"+other.name, "%s: %s", u.name, p)
		}
	}
	require.NotEqual(v.t, http.StatusInternalServerError, a.status, "%s: %s", p, a.body)
	return a
}

// ofNoOwner are parts of paths that name what their owner does not have either, or that wait for a run.
var ofNoOwner = []string{"{OWN", "{MINE}", "{NAME}", "/stream/events", "/join", "{I}/runs/", "/subgraphs/", "/runs/{R}/stream", "{B}/state/", "{I}/state/"}

// What belongs to another user looks like what does not exist, on every route and by every protocol, and stays as it is.
func TestIsolation(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, seed uint64, auth Auth, flags map[string]string) {
		t.Helper()
		v := newVillage(t, seed, auth, flags)
		probes := append(probesOf(t, v.routes), more...)
		v.random.Shuffle(len(probes), func(i, j int) { probes[i], probes[j] = probes[j], probes[i] })
		owner := v.users[v.random.IntN(len(v.users))]
		before := v.view(owner)
		for _, u := range v.users {
			if u == owner {
				continue
			}
			for _, p := range probes {
				require.Equal(t, v.try(u, p, unknown(owner.has)).plain(), v.try(u, p, owner.has).plain(), "%s asks for what belongs to %s: %s", u.name, owner.name, p)
			}
			for _, p := range telling {
				v.try(u, p, owner.has)
			}
		}
		require.Equal(t, before, v.view(owner))
		for _, p := range probes { // they are valid: their owner is answered
			if p.method == http.MethodGet && !slices.ContainsFunc(ofNoOwner, func(part string) bool { return strings.Contains(p.path, part) }) {
				require.Less(t, v.try(owner, p, owner.has).status, 300, "%s", p)
			}
		}
	}
	for seed := range max(1, seedtest.Seeds(24)/3) {
		t.Run(fmt.Sprint("sqlite ", seed), func(t *testing.T) { run(t, seed, owners{}, nil) })
	}
	t.Run("native", func(t *testing.T) { run(t, 2, native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}, nil) })
	t.Run("python", func(t *testing.T) { run(t, 3, nil, nil) })
	t.Run("postgres", func(t *testing.T) {
		run(t, 1, owners{}, map[string]string{"database-url": migratedtest.Database(t), "database-connections": "4", "redis-url": redistest.Start(t).URL})
	})
}

// Searches, counts and reads show each user what is shared with them, whatever was created, shared, given away and deleted.
func TestSharing(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(20) {
		v := &village{t: t, url: villageServer(t).url(), random: rand.New(rand.NewPCG(seed, 2))}
		names := []string{"ada", "bob", "cyd", "dan"}
		members := map[string][]string{}
		owner := map[string]string{}
		sees := func(user, thread string) bool { return owner[thread] == user || slices.Contains(members[thread], user) }
		var threads []string
		for range 60 {
			user := names[v.random.IntN(len(names))]
			if len(threads) == 0 || v.random.IntN(3) == 0 {
				with := slices.DeleteFunc(slices.Clone(names), func(string) bool { return v.random.IntN(3) > 0 })
				list, err := json.Marshal(append([]string{}, with...))
				require.NoError(t, err)
				id := gjson.Get(v.must(user, "POST", "/threads", `{"metadata":{"owner":"nobody","members":`+string(list)+`}}`), "thread_id").String()
				threads, owner[id], members[id] = append(threads, id), user, with
			}
			id := threads[v.random.IntN(len(threads))]
			want := http.StatusNotFound
			if sees(user, id) {
				want = http.StatusOK
			}
			switch v.random.IntN(4) {
			case 0:
				require.Equal(t, want, v.ask(user, "PATCH", "/threads/"+id, `{"metadata":{"n":1,"owner":"dan"}}`).status)
				if want == http.StatusOK {
					owner[id] = user // so does the handler
				}
			case 1:
				if got := v.ask(user, "DELETE", "/threads/"+id, ""); want == http.StatusOK {
					require.Equal(t, http.StatusNoContent, got.status)
					delete(owner, id)
					delete(members, id)
				} else {
					require.Equal(t, want, got.status)
				}
			case 2:
				require.Equal(t, want, v.ask(user, "GET", "/threads/"+id, "").status)
			}
			var found, expected []string
			for _, th := range gjson.Parse(v.must(user, "POST", "/threads/search", `{"limit":1000,"select":["thread_id"]}`)).Array() {
				found = append(found, th.Get("thread_id").String())
			}
			for _, th := range threads {
				if sees(user, th) {
					expected = append(expected, th)
				}
			}
			require.ElementsMatch(t, expected, found, "seed %d: %s", seed, user)
			require.Equal(t, fmt.Sprint(len(expected)), v.must(user, "POST", "/threads/count", "{}"), "seed %d: %s", seed, user)
		}
	}
}

// Every route needs credentials, but for a short list.
func TestRoutesNeedCredentials(t *testing.T) {
	t.Parallel()
	s := villageServer(t)
	v := &village{t: t, url: s.url(), routes: s.http.Routes()}
	for _, route := range v.routes {
		method, path, _ := strings.Cut(route, " ")
		open := slices.Contains(isPublic, route)
		for place, key := range places {
			path = strings.ReplaceAll(path, place, strings.Trim(key, "{}"))
		}
		for _, body := range []string{"", "{}", "garbage"} {
			for _, headers := range [][]string{nil, {"Authorization", "Basic x"}, {"X-Auth-Scheme", "langsmith"}, {"X-Understudy-Inside", "e30.x"}, {"User", "ada"}} {
				if a := v.ask("", method, path, body, headers...); !open {
					refusal := `{"detail":"Who are you?"}`
					if strings.HasPrefix(strings.TrimPrefix(path, "/api/langgraph"), "/v1/") { // its clients read errors in OpenAI's form only
						refusal = `{"error":{"message":"Who are you?","type":"authentication_error","param":null,"code":null}}`
					}
					require.Equal(t, answered{http.StatusUnauthorized, "application/json", refusal}, a, "%s %s", route, headers)
				} else {
					require.NotEqual(t, http.StatusUnauthorized, a.status, route)
				}
			}
		}
	}
	require.Equal(t, http.StatusUnauthorized, v.ask("", "GET", "/nothing/here", "").status)
}

// An id that belongs to another user takes as long to answer as one that does not exist, so that the time does not say which ids there are. Both are asked for in
// turns, so that what else the machine does meets both, and the median of the ratios counts. A busy machine may spoil some attempts; a difference spoils all.
func TestHiddenTakesAsLongAsUnknown(t *testing.T) {
	const attempts, pairs, most = 6, 300, 1.10
	v := newVillage(t, 1, owners{}, nil)
	nowhere := unknown(v.users[0].has)
	for _, path := range []string{"/threads/{T}", "/threads/{T}/state", "/threads/{T}/history", "/threads/{T}/runs/{R}", "/threads/{T}/runs", "/assistants/{A}", "/runs/crons/{K}"} {
		took := func(has map[string]string) float64 {
			began := time.Now()
			status := v.ask("bob", "GET", fill(path, has), "").status
			took := time.Since(began)
			require.Equal(t, http.StatusNotFound, status)
			return float64(took)
		}
		var seen []float64
		for range attempts {
			ratios := make([]float64, pairs)
			for i := range ratios {
				if i%2 == 0 {
					hidden := took(v.users[0].has)
					ratios[i] = hidden / took(nowhere)
				} else {
					none := took(nowhere)
					ratios[i] = took(v.users[0].has) / none
				}
			}
			slices.Sort(ratios)
			median := ratios[pairs/2]
			if seen = append(seen, median); median < most && median > 1/most {
				break
			}
		}
		last := seen[len(seen)-1]
		t.Logf("%s: %.3f", path, seen)
		require.True(t, last < most && last > 1/most, "%s of another user takes %.3f of the time of an unknown one", path, seen)
	}
}
