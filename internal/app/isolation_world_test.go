package app

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
	"understudy/graph/pregel"
	"understudy/internal/config"
	"understudy/internal/jsonobj"
)

// owners authenticates users by their names. What a user creates belongs to the user, and to the members that its metadata lists; each user has a namespace
// of the store.
type owners struct{}

func (owners) Authenticate(_ context.Context, r *access.Request) (*access.Actor, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || name == "" {
		return nil, &access.Refusal{Status: http.StatusUnauthorized, Detail: json.RawMessage(`"Who are you?"`)}
	}
	user := json.RawMessage(`{"identity":"` + name + `","is_authenticated":true,"display_name":"` + name + `","token":"TOKEN-of-` + name + `"}`)
	return &access.Actor{Identity: name, DisplayName: name, Authenticated: true, Permissions: []string{}, User: user}, nil
}

func (owners) Decide(_ context.Context, a *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	out := make([]access.Decision, len(questions))
	for i, q := range questions {
		value := jsonobj.Of(q.Value)
		if q.Resource == access.Store {
			var namespace []string
			_ = json.Unmarshal(value.Get("namespace"), &namespace)
			text, err := json.Marshal(append([]string{a.Identity}, namespace...))
			if err != nil {
				return nil, err
			}
			value.Set("namespace", text)
			out[i].Value = value.JSON()
			continue
		}
		switch q.Action {
		case "create", "update", "create_run":
			metadata := jsonobj.Of(value.Get("metadata"))
			metadata.SetText("owner", a.Identity)
			value.Set("metadata", metadata.JSON())
			out[i].Value = value.JSON()
		}
		me := string(jsonobj.Quote(a.Identity))
		out[i].Filter = json.RawMessage(`{"$or":[{"owner":` + me + `},{"members":{"$contains":` + me + `}}]}`)
	}
	return out, nil
}

// native is the policy that the server has itself, by which each user reaches what they created.
type native struct {
	access.Authenticator
	auth.Policy
}

// talking is a graph that repeats its note; a note with "ask" asks first, and one with "wait" waits for the end of release.
func talking(t *testing.T, release <-chan struct{}) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[pregel.Values](pregel.WithChannel("messages", pregel.Messages()), pregel.WithChannel("note", pregel.LastValue()))
	g.AddNode("talk", func(ctx context.Context, v pregel.Values) (any, error) {
		note, _, err := pregel.Get[string](v, "note")
		if err != nil {
			return nil, err
		}
		if strings.Contains(note, "ask") {
			if _, err := pregel.Interrupt[string](ctx, "question about "+note); err != nil {
				return nil, err
			}
		}
		if strings.Contains(note, "wait") {
			select {
			case <-release:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return map[string]any{"messages": []any{map[string]any{"type": "ai", "content": "answer to " + note}}}, nil
	})
	g.AddSequence(pregel.START, "talk", pregel.END)
	compiled, err := g.Compile(pregel.WithName("talk"))
	require.NoError(t, err)
	return compiled
}

// village is a server with users.
type village struct {
	t        *testing.T
	url      string
	routes   []string
	users    []*villager
	random   *rand.Rand
	patience time.Duration // instead of idle, if that is shorter
}

// villager is a user, and the ids of what the user has, by placeholder of a request.
type villager struct {
	name, secret string
	has          map[string]string
}

func newVillage(t *testing.T, seed uint64, auth Auth, flags map[string]string) *village {
	t.Helper()
	s := villageOf(t, auth, flags)
	v := &village{t: t, url: s.url(), routes: s.http.Routes(), random: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range []string{"ada", "bob", "cyd"} {
		v.users = append(v.users, v.settle(name))
	}
	return v
}

// villageServer starts a server without users.
func villageServer(t *testing.T) *Server {
	t.Helper()
	return villageOf(t, owners{}, nil)
}

// villageOf starts a server without users; without auth the handlers of testdata/owners.py, which decide as owners does.
func villageOf(t *testing.T, auth Auth, flags map[string]string) *Server {
	t.Helper()
	all := map[string]string{"port": "0", "data": t.TempDir(), "jobs": "20"}
	for name, value := range flags {
		all[name] = value
	}
	source := config.Source{Mode: config.Serve, Flags: all, Lookup: func(string) (string, bool) { return "", false }}
	if auth == nil {
		source.File, all["python"] = handlersFile(t)
	}
	settings, _, err := config.Load(source)
	require.NoError(t, err)
	settings.Graphs = nil // the one of the tests is in Go
	release := make(chan struct{})
	s := runWith(t, Config{Settings: settings, Source: &config.Source{}, Auth: auth, Log: slog.New(slog.DiscardHandler)}, "talk", talking(t, release))
	t.Cleanup(func() { close(release) })
	return s
}

// handlersFile makes a langgraph.json with the handlers of testdata/owners.py, and returns it with the Python for them. The test is skipped without one.
func handlersFile(t *testing.T) (file, python string) {
	t.Helper()
	if python = os.Getenv("UNDERSTUDY_TEST_PYTHON"); python == "" {
		t.Skip("SKIPPED: set UNDERSTUDY_TEST_PYTHON")
	}
	handlers, err := filepath.Abs("testdata/owners.py")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.py"), nil, 0o600))
	file = filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs":{"unused":"./agent.py:graph"},"auth":{"path":`+string(jsonobj.Quote(handlers+":auth"))+`}}`), 0o600))
	return file, python
}

// idle is how long a stream is silent before it counts as one that stays open.
const idle = 150 * time.Millisecond

// answered is a response: of a stream that stays open, what came first.
type answered struct {
	status int
	kind   string
	body   string
}

func (v *village) ask(user, method, path, body string, headers ...string) answered {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, strings.NewReader(body))
	require.NoError(v.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if user != "" {
		req.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(v.t, err, "%s %s %s", method, path, body)
	defer resp.Body.Close()
	a := answered{status: resp.StatusCode, kind: resp.Header.Get("Content-Type")}
	if !strings.HasPrefix(a.kind, "text/event-stream") {
		text, err := io.ReadAll(resp.Body)
		require.NoError(v.t, err, "%s %s", method, path)
		a.body = string(text)
		return a
	}
	patience := max(idle, v.patience)
	silent := time.AfterFunc(patience, cancel)
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadString('\n')
		a.body += line
		if strings.HasPrefix(line, "event: error") { // the end follows, on a busy machine later
			patience = 5 * time.Second
		}
		silent.Reset(patience)
		if err != nil {
			if ctx.Err() != nil {
				a.body += "(open)"
			}
			return a
		}
	}
}

// must is ask for what has to succeed.
func (v *village) must(user, method, path, body string, headers ...string) string {
	v.t.Helper()
	a := v.ask(user, method, path, body, headers...)
	require.Less(v.t, a.status, 300, "%s: %s %s %s: %s", user, method, path, body, a.body)
	return a.body
}

// settle gives a user one of everything.
func (v *village) settle(name string) *villager {
	u := &villager{name: name, secret: "SECRET-" + name + "-" + uuid.NewString(), has: map[string]string{"NAME": name, "TOOL": "tool_" + uuid.NewString()}}
	make := func(key, field, method, path, body string, headers ...string) {
		v.t.Helper()
		text := v.must(name, method, path, body, headers...)
		u.has[key] = gjson.Get(text, field).String()
		require.NotEmpty(v.t, u.has[key], "%s of %s %s: %s", key, method, path, text)
	}
	input := func(more string) string {
		return `"assistant_id":"talk","input":{"note":"` + u.secret + more + `","messages":[{"type":"human","content":"` + u.secret + `"}]},"metadata":{"of":"` + u.secret + `"}`
	}
	make("T", "thread_id", "POST", "/threads", `{"metadata":{"about":"`+u.secret+`"}}`)
	th := "/threads/" + u.has["T"]
	v.must(name, "POST", th+"/runs/stream", `{`+input("")+`,"stream_resumable":true,"stream_mode":["values","updates"]}`)
	make("R", "0.run_id", "GET", th+"/runs", "")
	v.must(name, "GET", th+"/runs/"+u.has["R"]+"/join", "") // a stream that is silent for long was left before its end
	v.must(name, "POST", th+"/state", `{"values":{"note":"`+u.secret+`"}}`)
	make("C", "checkpoint.checkpoint_id", "GET", th+"/state", "")
	make("M", "data.0.content.id", "GET", th+"/messages", "")
	make("I", "thread_id", "POST", "/threads", `{"metadata":{"about":"`+u.secret+`"}}`)
	v.must(name, "POST", "/threads/"+u.has["I"]+"/runs/wait", `{`+input(" ask")+`}`)
	make("Q", "interrupts.@values.0.0.id", "GET", "/threads/"+u.has["I"], "")
	make("B", "thread_id", "POST", "/threads", `{"metadata":{"about":"`+u.secret+`"}}`)
	make("BR", "run_id", "POST", "/threads/"+u.has["B"]+"/runs", `{`+input(" wait")+`,"stream_resumable":true}`)
	make("S", "run_id", "POST", "/runs", `{`+input(" wait")+`,"stream_resumable":true}`)
	make("A", "assistant_id", "POST", "/assistants", `{"graph_id":"talk","name":"`+u.has["TOOL"]+`","metadata":{"about":"`+u.secret+`"},"config":{"configurable":{"x":"`+u.secret+`"}}}`)
	make("K", "cron_id", "POST", "/runs/crons", `{`+input("")+`,"schedule":"0 0 1 1 *"}`)
	make("KT", "cron_id", "POST", th+"/runs/crons", `{`+input("")+`,"schedule":"0 0 1 1 *"}`)
	v.must(name, "PUT", "/store/items", `{"namespace":["`+name+`","notes"],"key":"k","value":{"v":"`+u.secret+`"}}`)
	message := `{"role":"user","messageId":"m","parts":[{"kind":"text","text":"` + u.secret + `"}]}`
	make("RESP", "id", "POST", "/v1/responses", `{"model":"`+u.has["A"]+`","input":"`+u.secret+`"}`)
	make("CONV", "id", "POST", "/v1/conversations", `{"metadata":{"about":"`+u.secret+`"}}`)
	make("TASK", "result.id", "POST", "/a2a/"+u.has["A"], `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":`+message+`}}`)
	return u
}

// conversation is the thread of CONV.
func (u *villager) conversation() string {
	thread := strings.ReplaceAll(strings.TrimPrefix(u.has["CONV"], "conv_"), "-", "")
	return thread[:8] + "-" + thread[8:12] + "-" + thread[12:16] + "-" + thread[16:20] + "-" + thread[20:]
}

var ids = regexp.MustCompile(`[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}`)

// unknown returns what a user has under ids that nobody has. A part that occurs in several ids is replaced by the same one.
func unknown(has map[string]string) map[string]string {
	out, other := map[string]string{}, map[string]string{}
	defer func() { out["NAME"] = "nobody" }()
	for key, value := range has {
		out[key] = ids.ReplaceAllStringFunc(value, func(was string) string {
			plain := strings.ReplaceAll(was, "-", "")
			if other[plain] == "" {
				other[plain] = uuid.NewString()[24:]
			}
			return was[:len(was)-12] + other[plain] // of the same time
		})
	}
	return out
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.+Z]+|"(created|created_at|timestamp)":\s?\d+|\b\d{13}-\d+\b`)

// plain returns an answer without what differs from request to request.
func (a answered) plain() answered {
	a.body = times.ReplaceAllString(ids.ReplaceAllString(a.body, "ID"), "TIME")
	return a
}

// fill puts ids into a request.
func fill(text string, has map[string]string) string {
	for key, value := range has {
		text = strings.ReplaceAll(text, "{"+key+"}", value)
	}
	return text
}
