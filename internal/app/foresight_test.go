package app

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/id"
)

// clerk is a gatekeeper that counts how often it is asked, and notes each question. One that is blind looks at no question together with credentials.
type clerk struct {
	owners
	blind  bool
	filter string // of threads, instead of the owner's; with one that is invalid, or not flat, later questions wait
	deny   string // a question that is refused: threads.read

	mu    sync.Mutex
	trips int
	asked []string
}

func (c *clerk) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	actor, _, err := c.Admit(ctx, r, nil)
	return actor, err
}

// Admit implements access.Gatekeeper.
func (c *clerk) Admit(ctx context.Context, r *access.Request, foresee func() []access.Expected) (*access.Actor, []access.Answer, error) {
	c.trip()
	actor, err := c.owners.Authenticate(ctx, r)
	if err != nil || c.blind || foresee == nil {
		return actor, nil, err
	}
	var answers []access.Answer
	for _, q := range foresee() {
		q = q.By(actor)
		d, err := c.decide(ctx, actor, q.Question)
		answers = append(answers, access.Answer{To: q, Decision: d, Err: err})
		if err != nil || strings.Contains(string(d.Filter), "$") {
			break
		}
	}
	return actor, answers, nil
}

func (c *clerk) Decide(ctx context.Context, a *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	c.trip()
	out := make([]access.Decision, len(questions))
	for i, q := range questions {
		var err error
		if out[i], err = c.decide(ctx, a, q); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *clerk) trip() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips++
}

func (c *clerk) decide(ctx context.Context, a *access.Actor, q access.Question) (access.Decision, error) {
	c.mu.Lock()
	what := q.Resource + "." + q.Action
	c.asked = append(c.asked, what+" "+ids.ReplaceAllString(string(q.Value), "ID"))
	c.mu.Unlock()
	if what == c.deny {
		return access.Decision{}, &access.Refusal{Status: http.StatusForbidden, Detail: json.RawMessage(`"Not you"`)}
	}
	d, err := c.owners.Decide(ctx, a, q)
	if err != nil || q.Resource == access.Store {
		return d[0], err
	}
	if d[0].Filter = json.RawMessage(`{"owner":"` + a.Identity + `"}`); c.filter != "" {
		d[0].Filter = json.RawMessage(c.filter)
	}
	return d[0], nil
}

// take returns what was asked since it was called last.
func (c *clerk) take() (trips int, asked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	trips, asked = c.trips, c.asked
	c.trips, c.asked = 0, nil
	return trips, asked
}

const many = 100

// moreTrips are the routes of which a request asks the gate more than once when it succeeds, and how often at most here; all others ask once.
var moreTrips = map[string]int{
	// They end at a private assistant that is not found.
	"POST /runs/batch": 4, "POST /threads/{thread_id}/runs/crons": 2,
	// The copy is asked about only if there is something to copy.
	"POST /threads/{thread_id}/copy": 2,
	// A message asks what its graph reads; a command whose thread may not be read asks about the run all the same.
	"POST /threads/{thread_id}/commands": 2,
	// They ask about what they find.
	"POST /mcp": many, "POST /a2a/{assistant_id}": many, "GET /a2a/{assistant_id}": 3,
	"GET /a2a/{assistant_id}/.well-known/agent-card.json": 3, "GET /a2a/{assistant_id}/.well-known/agent.json": 3, "GET /.well-known/agent-card.json": 3,
	"GET /v1/responses/{response}": many, "POST /v1/responses/{response}/cancel": many, "POST /v1/chat/completions": 3,
}

// requestsOf are requests of each route: probes, and what is wrong with them.
func requestsOf(t *testing.T, routes []string) (all []probe) {
	t.Helper()
	valid := slices.Concat(probesOf(t, routes), more, telling, []probe{
		{"POST", "/threads/search", "{}", nil},
		{"POST", "/threads/search", `{"limit":2,"metadata":{"a":1},"status":"idle"}`, nil},
		{"POST", "/assistants/search", "{}", nil},
		// Decoding overwrites these.
		{"POST", "/threads/search", `{"metadata": {"a": 1}}`, nil},
		{"POST", "/threads/search", `{"metadata":{"a":1,"b":"a longer text","a":2}}`, nil},
		{"POST", "/threads/search", `{"limit":10,"metadata":{"a":0.1234567890123456789012345678901234567890}}`, nil},
		{"PATCH", "/threads/{T}", "{\n  \"metadata\": {\"a\": \"x\\u0000\"}\n}", nil},
		{"PATCH", "/assistants/{A}", `{"name": "b", "name": "c"}`, nil},
		{"PUT", "/store/items", `{"namespace": ["{NAME}", "a\u0000"], "key": "k", "value": {}}`, nil},
		{"POST", "/store/items/search", `{"namespace_prefix":["{NAME}","a\u0000"]}`, nil},
		{"DELETE", "/store/items", `{"namespace":["{NAME}"],"key":"a\u0000"}`, nil},
		{"PUT", "/store/items", `{"namespace":["{NAME}","notes"],"key":"k2","value":{"v":1},"ttl":5,"index":false}`, nil},
		{"GET", "/store/items?namespace=a&key=k&refresh_ttl=true", "", nil},
		{"GET", "/store/items?namespace=a", "", nil},
		{"GET", "/store/items?namespace=langgraph&key=k", "", nil},
		{"POST", "/store/items/search", `{"namespace_prefix":["a."]}`, nil},
		{"GET", "/understudy/timeline", "", nil},
		{"GET", "/understudy/heads?limit=2", "", nil},
		{"GET", "/understudy/usage", "", nil},
		{"GET", "/understudy/runs", "", nil},
		{"GET", "/understudy/changes", "", nil},
		{"GET", "/understudy/threads/search?text=x", "", nil},
		{"GET", "/assistants/talk/graph?xray=true", "", nil},
		{"GET", "/threads/{T}/runs?limit=2&offset=0&select=run_id&status=success", "", nil},
		{"GET", "/threads/{T}?overlay=nonsense", "", nil},
		{"HEAD", "/threads/{T}", "", nil},
		{"GET", "/threads/{T}", "", []string{"X-Understudy-Overlay", "nonsense"}},
		{"GET", "/threads/{T}/history?limit=0", "", nil},
		{"GET", "/threads/{T}/", "", nil},
		{"PATCH", "/runs/crons/{K}", `{"webhook":"nonsense"}`, nil},
		{"POST", "/threads", `{"thread_id":"{T}"}`, []string{"Idempotency-Key", "nonsense"}},
		{"POST", "/threads", `{"metadata":{"a":1}}`, nil},
		{"POST", "/assistants", `{"graph_id":"talk"}`, nil},
		{"POST", "/threads/{OWNT}/runs/wait", `{"assistant_id":"{A}","input":{"note":"x"},"config":{"tags":["a"],"configurable":{"a":1,"langgraph_auth_user":{"identity":"eve"}}},"metadata":{"a":1}}`, nil},
		{"POST", "/threads/{OWNT}/runs/stream", `{"assistant_id":"{A}","input":{"note":"x"},"stream_mode":["values","updates"]}`, nil},
		{"POST", "/threads/{OWNT}/runs", `{"assistant_id":"` + string(id.DefaultAssistant("talk")) + `","input":{"note":"x"},"context":{"b":1,"langgraph_auth_user":{}},"durability":"exit"}`, nil},
		{"POST", "/runs/stream", `{"assistant_id":"talk","input":{"note":"x"},"on_completion":"keep"}`, nil},
		{"POST", "/runs/wait", `{"assistant_id":"{NAME}","input":{}}`, nil},
		{"POST", "/runs/wait", `{"assistant_id":"{T}","input":{}}`, nil},
		{"POST", "/runs/wait", `{"assistant_id":"talk","input":{},"webhook":"nonsense"}`, nil},
		{"POST", "/threads/{OWNT}/runs", `{"assistant_id":"talk","input":{}}`, []string{"Idempotency-Key", "a key"}},
		{"POST", "/runs", `{"assistant_id":"talk","input":{}}`, []string{"Idempotency-Key", "\xff"}},
		{"POST", "/runs/batch", `[{"assistant_id":"{A}","input":{}},{"assistant_id":"talk","input":{}},{"assistant_id":"{A}","input":{}}]`, nil},
		{"POST", "/threads/{OWNT}/runs/crons", `{"assistant_id":"{A}","schedule":"0 0 1 1 *","input":{},"config":{"configurable":{"a":1}},"metadata":{"b":2},"end_time":"2090-01-01T00:00:00Z"}`, nil},
	})
	for _, p := range valid {
		all = append(all, p)
		for _, wrong := range []probe{
			{p.method, strings.NewReplacer("{T}", "nonsense", "{R}", "nonsense", "{A}", "nonsense", "{K}", "nonsense", "{M}", "%00").Replace(p.path), p.body, p.headers},
			{p.method, p.path + "?limit=x&offset=-1&before=nonsense&after=nonsense&select=nonsense&stream_modes=nonsense&xray=nonsense&status=nonsense&types=nonsense", p.body, p.headers},
			{p.method, p.path, "{", p.headers},
			{p.method, p.path, `{"limit":"x","metadata":1,"thread_id":"x"}`, p.headers},
		} {
			if wrong.String() != p.String() && (p.body != "" || wrong.path != p.path) {
				all = append(all, wrong)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b probe) int { // what deletes comes last
		rank := func(p probe) int { return map[string]int{"GET": 0, "HEAD": 0, "DELETE": 2}[p.method] }
		return rank(a) - rank(b)
	})
	return all
}

// lingers reports whether a request of its owner waits for a run that does not end.
func lingers(p probe) bool {
	return strings.Contains(p.path, "/join") || strings.Contains(p.path, "stream") && !strings.HasSuffix(p.path, "/runs/stream") || strings.Contains(p.path, "{B}") || strings.Contains(p.body, "{B}")
}

// A question that is answered together with the credentials is the one that the request asks then: handlers are asked the same, as often, and answers are
// the same, whoever sends whatever request. Most requests ask the gate once.
func TestForesight(t *testing.T) {
	t.Parallel()
	clerks := [2]*clerk{{}, {blind: true}}
	var villages [2]*village
	for i, c := range clerks {
		villages[i] = newVillage(t, 5, c, nil)
		c.take()
	}
	trips := map[string]int{}
	compare := func(name string, p probe, user func(v *village) *villager, of func(v *village) map[string]string) {
		var got [2]answered
		var asked [2][]string
		for i, v := range villages {
			all := maps.Clone(of(v))
			all["MINE"] = user(v).conversation()
			for key, value := range user(v).has {
				all["OWN"+key] = value
			}
			headers := slices.Clone(p.headers)
			for k := range headers {
				headers[k] = fill(headers[k], all)
			}
			got[i] = v.ask(user(v).name, p.method, fill(p.path, all), fill(p.body, all), headers...)
			var n int
			n, asked[i] = clerks[i].take()
			if route := routeOf(v.routes, p); i == 0 && route != "" && clerks[i].filter == "" && got[i].status < 300 && n > 0 {
				trips[route] = max(trips[route], n)
			}
		}
		require.Equal(t, got[1].status, got[0].status, "%s: %s: %s, and without foresight %s", name, p, got[0].body, got[1].body)
		require.Equal(t, asked[1], asked[0], "%s: %s", name, p)
		if got[0].status >= 400 {
			require.Equal(t, got[1].plain(), got[0].plain(), "%s: %s", name, p)
		}
	}
	ada := func(v *village) *villager { return v.users[0] }
	bob := func(v *village) *villager { return v.users[1] }
	requests := requestsOf(t, villages[0].routes)
	for _, p := range requests {
		compare("a stranger", p, bob, func(v *village) map[string]string { return ada(v).has })
	}
	for _, c := range clerks {
		c.deny = "threads.read"
	}
	for _, p := range requests {
		compare("refused", p, bob, func(v *village) map[string]string { return ada(v).has })
	}
	for _, filter := range []string{`{"owner":{"$ne":"x"}}`, `{"$or":[{"owner":"ada"},{"owner":"bob"}]}`, ""} {
		for _, c := range clerks {
			c.deny, c.filter = "", filter
		}
		for _, p := range requests {
			if !lingers(p) && (filter == "" || !mayChange(p)) {
				compare("their owner, "+filter, p, ada, func(v *village) map[string]string { return ada(v).has })
			}
		}
	}
	require.Greater(t, len(trips), 80)
	for route, n := range trips {
		require.LessOrEqual(t, n, max(1, moreTrips[route]), "%s: the gate is asked more often than it needs to be", route)
	}
	for route := range moreTrips {
		require.Greater(t, trips[route], 1, "%s asks once", route)
	}
}

// routeOf returns the route of a request; "" for that of none.
func routeOf(routes []string, p probe) string {
	path, _, _ := strings.Cut(p.path, "?")
	segments := strings.Split(path, "/")
	i := slices.IndexFunc(routes, func(route string) bool {
		method, pattern, _ := strings.Cut(route, " ")
		parts := strings.Split(pattern, "/")
		return method == p.method && len(parts) == len(segments) && !slices.ContainsFunc(parts, func(part string) bool {
			at := slices.Index(parts, part)
			return !strings.HasPrefix(part, "{") && part != segments[at]
		})
	})
	if i < 0 {
		return ""
	}
	return routes[i]
}

// doorman takes long to refuse who sends a request, after it has asked what that is going to ask.
type doorman struct {
	owners
	asked, goOn chan struct{}
}

func (d *doorman) Admit(ctx context.Context, _ *access.Request, foresee func() []access.Expected) (*access.Actor, []access.Answer, error) {
	foresee()
	d.asked <- struct{}{}
	select {
	case <-d.goOn:
	case <-ctx.Done():
	}
	return nil, nil, &access.Refusal{Status: http.StatusUnauthorized, Detail: json.RawMessage(`"Who are you?"`)}
}

// Who is not known yet takes no place for an open response, of which there are few.
func TestStrangersTakeNoPlace(t *testing.T) {
	t.Parallel()
	const some = "019ad0e2-0000-7000-8000-000000000001"
	d := &doorman{asked: make(chan struct{}), goOn: make(chan struct{})}
	s := villageOf(t, d, nil)
	for _, path := range []string{"/threads/ID/stream", "/threads/ID/runs/ID/join", "/threads/ID/runs/ID/stream", "/runs/ID/stream", "/understudy/changes"} {
		status := make(chan int, 1)
		go func() {
			resp, err := http.Get(s.url() + strings.ReplaceAll(path, "ID", some))
			if err == nil {
				_ = resp.Body.Close()
				status <- resp.StatusCode
			}
			close(status)
		}()
		<-d.asked
		taken := s.http.Slots.InUse()
		d.goOn <- struct{}{}
		require.Equal(t, http.StatusUnauthorized, <-status, path)
		require.Zero(t, taken, path)
	}
}
