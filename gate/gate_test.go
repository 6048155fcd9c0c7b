package gate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/access"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// interpreter finds a Python that has langgraph_sdk and starlette.
func interpreter(tb testing.TB) string {
	tb.Helper()
	at := os.Getenv("UNDERSTUDY_TEST_PYTHON")
	if at == "" {
		at = filepath.Join("..", ".venv", "bin", "python")
	}
	if err := exec.CommandContext(tb.Context(), at, "-c", "import langgraph_sdk, starlette").Run(); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("no Python with langgraph_sdk and starlette: %s: %v", at, err)
		}
		tb.Skipf("SKIPPED: no Python with langgraph_sdk and starlette (set UNDERSTUDY_TEST_PYTHON): %s: %v", at, err)
	}
	return at
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if testing.Verbose() {
		os.Stderr.Write(b)
	}
	return len(b), nil
}

func options(tb testing.TB) Options {
	tb.Helper()
	dir, err := filepath.Abs("testdata")
	require.NoError(tb, err)
	return Options{
		Python: interpreter(tb), Dir: dir, Env: append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), Logger: slog.New(slog.NewTextHandler(testWriter{tb}, nil)),
	}
}

// start runs a gate until the end of the test.
func start(tb testing.TB, o Options, adjust ...func(*Gate)) *Gate {
	tb.Helper()
	g := New(o)
	for _, f := range adjust {
		f(g)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	tb.Cleanup(func() { cancel(); running.Wait() })
	require.NoError(tb, g.Ready(tb.Context()))
	return g
}

func odd(tb testing.TB, adjust ...func(*Gate)) *Gate {
	o := options(tb)
	o.Auth = "./odd.py:auth"
	return start(tb, o, adjust...)
}

func bearer(token string) *access.Request {
	return &access.Request{Method: "GET", Path: "/threads", Header: http.Header{"Authorization": {"Bearer " + token}}, Client: "127.0.0.1:5000", Scheme: "http"}
}

// asking foresees questions.
func asking(questions ...access.Question) func() []access.Expected {
	return func() []access.Expected { return asked(questions) }
}

func refused(t *testing.T, err error) *access.Refusal {
	t.Helper()
	var r *access.Refusal
	require.ErrorAs(t, err, &r)
	return r
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	g := odd(t)
	ctx := t.Context()
	t.Run("a text", func(t *testing.T) {
		actor, err := g.Authenticate(ctx, bearer("ann"))
		require.NoError(t, err)
		require.Equal(t, &access.Actor{
			Identity: "ann", DisplayName: "ann", Authenticated: true, Permissions: []string{}, User: json.RawMessage(`{"identity":"ann","is_authenticated":true,"display_name":"ann"}`),
		}, actor)
	})
	t.Run("an object keeps three fields", func(t *testing.T) {
		actor, err := g.Authenticate(ctx, bearer("object"))
		require.NoError(t, err)
		require.JSONEq(t, `{"identity":"ann","is_authenticated":true,"display_name":"ann"}`, string(actor.User))
		require.Equal(t, []string{"p"}, actor.Permissions)
		decisions, err := g.Decide(ctx, actor, access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"org"}`)})
		require.NoError(t, err, "its handlers use the object later too")
		require.JSONEq(t, `{"do":"org","org":"acme","secret":"ANN"}`, string(decisions[0].Value))
		stored := *actor
		_, err = g.Decide(ctx, &stored, access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"org"}`)})
		require.Equal(t, 500, refused(t, err).Status, "what was kept has only its fields")
	})
	t.Run("values that JSON does not have", func(t *testing.T) {
		actor, err := g.Authenticate(ctx, bearer("set"))
		require.NoError(t, err)
		require.Equal(t, `{"identity":"ann","is_authenticated":true,"display_name":"ann","things":[1],"n":1180591620717411303424,"when":"2024-01-02"}`, string(actor.User))
	})
	t.Run("what the handler gets", func(t *testing.T) {
		r := bearer("echo")
		r.Path, r.Query = "/api/é", "a=1&b=%20x&a=2"
		r.Header["X-Raw"] = []string{"caf\xe9 \xff"}
		actor, err := g.Authenticate(ctx, r)
		require.NoError(t, err)
		require.JSONEq(t, `{"identity":"ann","is_authenticated":true,"display_name":"ann","headers":{"authorization":"Bearer echo","x-raw":"café ÿ"},"path":"/api/é",
			"q":{"a":"2","b":" x"},"raw":"/api/é","params":{},"client":["127.0.0.1",5000],"type":"http"}`, string(actor.User))
	})
	t.Run("a field without a form in JSON", func(t *testing.T) {
		actor, err := g.Authenticate(ctx, bearer("unserializable"))
		require.NoError(t, err)
		require.Equal(t, `{"identity":"ann","is_authenticated":true,"display_name":"ann","kept":1}`, string(actor.User), "graphs do not see it")
		decisions, err := g.Decide(ctx, actor, access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"odd"}`)})
		require.NoError(t, err)
		require.JSONEq(t, `{"do":"odd","odd":"object"}`, string(decisions[0].Value), "its handlers do")
	})
	t.Run("a UUID", func(t *testing.T) {
		actor, err := g.Authenticate(ctx, bearer("uuid"))
		require.NoError(t, err)
		require.Equal(t, "00000000-0000-0000-0000-000000000007", actor.Identity)
		require.Equal(t, `{"identity":"00000000-0000-0000-0000-000000000007","is_authenticated":true,"display_name":"00000000-0000-0000-0000-000000000007"}`, string(actor.User))
	})
	for token, status := range map[string]int{"exit": 500, "generator": 400, "empty": 400, "half": 400, "status": 401} {
		t.Run(token, func(t *testing.T) {
			actor, err := g.Authenticate(ctx, bearer(token))
			require.Nil(t, actor)
			r := refused(t, err)
			require.Equal(t, status, r.Status)
			require.Equal(t, status == 500, r.Close)
			if token == "status" {
				require.Equal(t, http.Header{"Www-Authenticate": {"Bearer"}}, r.Header, "headers that would end the head are left out")
			}
			if status == 500 {
				require.Equal(t, "Internal Server Error", r.Plain)
			}
		})
	}
	for _, token := range []string{"print", "fork"} {
		t.Run(token, func(t *testing.T) {
			actor, err := g.Authenticate(ctx, bearer(token))
			require.NoError(t, err)
			require.Equal(t, token, actor.Identity)
		})
	}
	t.Run("two credentials", func(t *testing.T) {
		r := bearer("ann")
		r.Header.Add("Authorization", "Bearer ben")
		_, err := g.Authenticate(ctx, r)
		require.Equal(t, 401, refused(t, err).Status)
	})
}

func TestDecide(t *testing.T) {
	t.Parallel()
	g := odd(t)
	actor := &access.Actor{Identity: "ann", Permissions: []string{"p"}, User: json.RawMessage(`{"identity":"ann","is_authenticated":true,"display_name":"ann"}`)}
	decide := func(resource, action, value string) (access.Decision, error) {
		d, err := g.Decide(t.Context(), actor, access.Question{Resource: resource, Action: action, Value: json.RawMessage(value)})
		if err != nil {
			require.Nil(t, d)
			return access.Decision{}, err
		}
		require.Len(t, d, 1)
		return d[0], nil
	}
	d, err := decide("threads", "create", `{"big": 123456789012345678901234567890, "keep":  [1.10, "\ud800"], "do":"remove"}`)
	require.NoError(t, err)
	require.Equal(t, `{}`, string(d.Filter))
	require.Equal(t, `{"keep":[1.10, "\ud800"],"do":"remove","added":{"n":[1,2]}}`, string(d.Value), "what was not changed stays as it was")
	d, err = decide("threads", "create", `{"do":"types","thread_id":"01a210d2-79f3-74f3-a64e-2e1273a2c8f1"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"do":"types","thread_id":"01a210d2-79f3-74f3-a64e-2e1273a2c8f1","seen":["UUID","User",["p"],"ann"]}`, string(d.Value))
	d, err = decide("store", "list_namespaces", `{"namespace":null,"suffix":["a"]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"namespace":["ann"],"suffix":["a"],"seen":"NoneType"}`, string(d.Value))
	d, err = decide("store", "put", `{"namespace":["a"]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"namespace":["ann","a"],"seen":"tuple"}`, string(d.Value))
	d, err = decide("assistants", "search", `{}`)
	require.NoError(t, err)
	require.Equal(t, access.Decision{}, d, "no handler: allowed")
	d, err = decide("threads", "create", `{"n":1}`)
	require.NoError(t, err)
	require.Nil(t, d.Value, "nothing was changed")
	for do, status := range map[string]int{"garbage": 500, "filter": 500, "nan": 500, "write": 500, "teapot": 418, "ok": 500, "exit": 500} {
		_, err = decide("threads", "create", `{"do":"`+do+`"}`)
		r := refused(t, err)
		require.Equal(t, status, r.Status, do)
		if do == "garbage" {
			require.Contains(t, r.Error(), "Auth handler returned invalid result. Expected filter dict, None, or boolean. Got <class 'object'> instead.")
		}
	}
}

// Questions that are asked together with credentials are answered as those that are asked later: up to the first that is refused, and up to one whose filter the
// server has to examine before it asks more.
func TestAdmit(t *testing.T) {
	t.Parallel()
	g := odd(t)
	question := func(resource, action, value string) access.Question {
		return access.Question{Resource: resource, Action: action, Value: json.RawMessage(value)}
	}
	last := question("threads", "create", `{"do":"hang"}`)
	for name, c := range map[string]struct {
		questions []access.Question
		answered  int
		status    int // of the last answer; 0: it is not refused
	}{
		"none":           {},
		"changed":        {[]access.Question{question("store", "get", `{"namespace":["a"]}`)}, 1, 0},
		"refused":        {[]access.Question{question("store", "get", `{"namespace":[]}`), question("threads", "create", `{"do":"teapot"}`), last}, 2, 418},
		"fails":          {[]access.Question{question("threads", "create", `{"do":"ok"}`), last}, 1, 500},
		"invalid answer": {[]access.Question{question("threads", "create", `{"do":"garbage"}`), last}, 1, 500},
		"nobody's":       {[]access.Question{question("assistants", "search", `{}`), question("store", "get", `{"namespace":["x","y"]}`)}, 2, 0},
		"flat filter":    {[]access.Question{question("threads", "create", `{"do":"flat"}`), question("assistants", "search", `{}`)}, 2, 0},
		"operators":      {[]access.Question{question("threads", "create", `{"do":"operators"}`), last}, 1, 0},
		"invalid filter": {[]access.Question{question("threads", "create", `{"do":"unknown operator"}`), last}, 1, 0},
	} {
		actor, answers, err := g.Admit(t.Context(), bearer("ann"), asking(c.questions...))
		require.NoError(t, err, name)
		require.Equal(t, "ann", actor.Identity, name)
		require.Len(t, answers, c.answered, name)
		alone, err := g.Authenticate(t.Context(), bearer("ann"))
		require.NoError(t, err, name)
		require.Equal(t, alone, actor, name)
		for i, a := range answers {
			d, err := g.Decide(t.Context(), alone, c.questions[i])
			require.Equal(t, err, a.Err, name)
			if err == nil {
				require.Equal(t, d[0], a.Decision, name)
			}
			if i == len(answers)-1 && c.status > 0 {
				require.Equal(t, c.status, refused(t, a.Err).Status, name)
			} else {
				require.NoError(t, a.Err, name)
			}
		}
	}
	actor, answers, err := g.Admit(t.Context(), bearer("status"), asking(last))
	require.Equal(t, 401, refused(t, err).Status)
	require.Nil(t, actor)
	require.Nil(t, answers)
}

// Handlers see who asks in questions about someone who was not known when they were made, as in those that are asked later.
func TestAdmitFillsIn(t *testing.T) {
	t.Parallel()
	g := odd(t)
	for value, e := range map[string]access.Expected{
		`{"kwargs":{"config":{"configurable":{"a":1}}},"run_id":"x"}`:                                       {Question: access.Question{Action: "create_run"}},
		`{"kwargs":{"input":1.10,"config":{"configurable":{"do":"forge","langgraph_auth_user_id":"eve"}}}}`: {Question: access.Question{Action: "create_run"}},
		`{"user_id":null,"metadata":{"a": 1}}`:                                                              {Question: access.Question{Resource: "crons", Action: "create"}, IdentityAt: []string{"user_id"}},
	} {
		if e.Value = json.RawMessage(value); e.Resource == "" {
			e.Resource, e.UserAt = "threads", []string{"kwargs", "config", "configurable"}
		}
		for _, who := range []string{"ann", "object"} {
			actor, answers, err := g.Admit(t.Context(), bearer(who), func() []access.Expected { return []access.Expected{e} })
			require.NoError(t, err)
			require.Len(t, answers, 1)
			require.NoError(t, answers[0].Err, value)
			require.Equal(t, e.By(actor), answers[0].To)
			require.NotContains(t, string(answers[0].To.Value), `"eve"`)
			d, err := g.Decide(t.Context(), actor, answers[0].To.Question)
			require.NoError(t, err)
			require.Equal(t, d[0], answers[0].Decision, value)
			require.Contains(t, string(d[0].Value), actor.Identity, value)
		}
	}
}

func TestStudio(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth, o.Studio = "./odd.py:auth", true
	g := start(t, o)
	r := func(adjust func(r *access.Request)) *access.Request {
		r := bearer("status")
		r.Header.Set("X-Auth-Scheme", "langsmith")
		adjust(r)
		return r
	}
	actor, err := g.Authenticate(t.Context(), r(func(*access.Request) {}))
	require.NoError(t, err)
	require.Equal(t, "langgraph-studio-user", actor.Identity)
	d, err := g.Decide(t.Context(), actor, access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"types","thread_id":"x"}`)})
	require.Error(t, err, "it has no items: %s", d)
	for _, adjust := range []func(r *access.Request){
		func(r *access.Request) { r.Header.Set("X-Auth-Scheme", "LangSmith") },
		func(r *access.Request) { r.Header.Add("X-Auth-Scheme", "langsmith") },
		func(r *access.Request) { r.Client = "10.0.0.1:5000" },
		func(r *access.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1") },
	} {
		_, err := g.Authenticate(t.Context(), r(adjust))
		require.Equal(t, 401, refused(t, err).Status)
	}
}

// A handler that takes too long is given up, whatever it does, and the others are served.
func TestSlowHandlers(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	g := odd(t, func(g *Gate) {
		g.opts.Timeout, g.silence, g.slowAnswer = 300*time.Millisecond, 2*time.Second, 50*time.Millisecond
		g.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	actor := &access.Actor{Identity: "ann"}
	create := func(do string) access.Question {
		return access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"` + do + `"}`)}
	}
	_, err := g.Authenticate(t.Context(), bearer("block"))
	require.ErrorIs(t, err, errSlow)
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	require.Regexp(t, `a handler has not answered yet; its request waits" handler=@auth.authenticate (at=odd.py:\d+ )?duration_ms=.* gives_up_after=300ms fix=`, log.String())
	require.Regexp(t, `a handler did not answer in time: the request is refused with 503" handler=@auth.authenticate (at=odd.py:\d+ )?limit=300ms fix=`, log.String())
	_, err = g.Authenticate(t.Context(), bearer("block"))
	require.ErrorIs(t, err, errSlow)
	require.Equal(t, 1, strings.Count(log.String(), "has not answered yet"), "at a bounded rate")
	_, err = g.Decide(t.Context(), actor, create("hang"))
	require.ErrorIs(t, err, errSlow)
	require.Regexp(t, `has not answered yet; .* handler=@auth.on`, log.String())
	_, err = g.Authenticate(t.Context(), bearer("ann"))
	require.NoError(t, err)
	// One that stops the loop stops the process, which is replaced.
	before := serving(g)
	_, err = g.Decide(t.Context(), actor, create("spin"))
	require.ErrorIs(t, err, errSlow)
	<-before.exited
	require.Eventually(t, func() bool { _, err := g.Authenticate(t.Context(), bearer("ann")); return err == nil }, 20*time.Second, 10*time.Millisecond)
}

// Handlers that are asked together have as much time each as if they were asked alone.
func TestSlowAdmission(t *testing.T) {
	t.Parallel()
	question := func(do string) access.Question {
		return access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"` + do + `"}`)}
	}
	patient := odd(t, func(g *Gate) { g.opts.Timeout = 3 * time.Second })
	actor, answers, err := patient.Admit(t.Context(), bearer("late"), asking(question("late")))
	require.NoError(t, err)
	require.Equal(t, "late", actor.Identity)
	require.Len(t, answers, 1)
	require.NoError(t, answers[0].Err)

	var log logtest.Buffer
	g := odd(t, func(g *Gate) {
		g.opts.Timeout, g.slowAnswer = 300*time.Millisecond, 50*time.Millisecond
		g.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	g.slowAnswer = time.Minute                         // not of the process: however late it reports, that counts
	for _, do := range []string{"swallow", "refuse"} { // which make something else of their end
		actor, answers, err = g.Admit(t.Context(), bearer("ann"), asking(question(do)))
		require.NoError(t, err)
		require.Equal(t, "ann", actor.Identity)
		require.Len(t, answers, 1)
		require.ErrorIs(t, answers[0].Err, errSlow, do)
	}
	many := slices.Repeat([]access.Question{question("hang")}, 10_000) // which have most of an hour together
	_, _, err = g.Admit(t.Context(), bearer("block"), asking(many...))
	require.ErrorIs(t, err, errSlow)
	require.Regexp(t, `a handler did not answer in time: the request is refused with 503" handler=@auth.authenticate at=odd.py:\d+ limit=300ms fix=`, log.String())
	actor, answers, err = g.Admit(t.Context(), bearer("ann"), asking(many...))
	require.NoError(t, err)
	require.Equal(t, "ann", actor.Identity)
	require.Len(t, answers, 1)
	require.ErrorIs(t, answers[0].Err, errSlow)
	require.Regexp(t, `a handler did not answer in time: the request is refused with 503" handler=@auth.on\S* (at=odd.py:\d+ )?limit=300ms fix=`, log.String())
}

// Of calls that wait at the same time, each is given up for its own handler.
func TestSlowHandlersOfSeveralCalls(t *testing.T) {
	t.Parallel()
	g := odd(t, func(g *Gate) { g.opts.Timeout, g.slowAnswer = 3*time.Second, 200*time.Millisecond })
	g.opts.Timeout, g.slowAnswer = time.Minute, time.Minute // not of the process: however late its reports and answers are, they count
	hangs := asked([]access.Question{{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"hang"}`)}})
	type given struct{ who, handler string }
	out := make(chan given, 12)
	for i := range cap(out) {
		who := []string{"ann", "block"}[i%2]
		go func() {
			a, err := g.askEntered(t.Context(), "admit", 2, func(b []byte, _ *process) []byte {
				return appendQuestions(appendRequest(append(b, `,"request":`...), bearer(who)), hangs)
			})
			if err != nil || !a.Slow || a.awaited.place == "" {
				a = &answer{}
			}
			out <- given{who, a.awaited.handler}
		}()
	}
	for range cap(out) {
		got := <-out
		require.Equal(t, given{got.who, map[string]string{"ann": "@auth.on.threads.create", "block": "@auth.authenticate"}[got.who]}, got)
	}
}

func TestThreadsThatHangAreNotEndless(t *testing.T) {
	t.Parallel()
	g := odd(t, func(g *Gate) { g.opts.Timeout = time.Second })
	before := serving(g)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			_, err := g.Authenticate(t.Context(), bearer("block"))
			require.Error(t, err)
		})
	}
	all.Wait()
	<-before.exited
	require.Eventually(t, func() bool { _, err := g.Authenticate(t.Context(), bearer("ann")); return err == nil }, 20*time.Second, 10*time.Millisecond)
}

// Handlers that are asked together are not awaited for longer than one while there is no process for them.
func TestAdmissionWhileDown(t *testing.T) {
	t.Parallel()
	g := New(Options{Timeout: 50 * time.Millisecond})
	g.patience = time.Minute
	question := access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{}`)}
	_, _, err := g.Admit(t.Context(), bearer("ann"), asking(slices.Repeat([]access.Question{question}, 10_000)...))
	require.ErrorIs(t, err, errSlow)
}

func TestFullQueue(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth, o.MaxCalls = "./odd.py:auth", 2
	g := start(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_, err := g.Authenticate(ctx, bearer("block"))
			require.ErrorIs(t, err, context.Canceled)
		})
	}
	require.Eventually(t, func() bool { return len(g.slots) == 2 }, 10*time.Second, time.Millisecond)
	_, err := g.Authenticate(t.Context(), bearer("ann"))
	require.ErrorIs(t, err, errFull)
	_, _, err = g.Admit(t.Context(), bearer("ann"), func() []access.Expected {
		t.Error("a request that has no place is read")
		return nil
	})
	require.ErrorIs(t, err, errFull)
	cancel()
	all.Wait()
	_, err = g.Authenticate(t.Context(), bearer("ann"))
	require.NoError(t, err)
}

// serving returns the process in service.
func serving(g *Gate) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

func kill(pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Kill()
}

// Whatever ends the process, questions that it had are refused, and later ones are answered by another one.
func TestDeath(t *testing.T) {
	t.Parallel()
	g := odd(t, func(g *Gate) { g.patience = time.Minute }) // slow machines take long to start the next one
	for _, end := range []func(){
		func() { _ = kill(serving(g).pid) },
		func() {
			_, err := g.Authenticate(t.Context(), bearer("die"))
			require.Equal(t, fault.Unavailable, fault.KindOf(err))
		},
	} {
		before := serving(g)
		hanging := make(chan error, 1)
		go func() {
			_, err := g.Authenticate(t.Context(), bearer("block"))
			hanging <- err
		}()
		require.Eventually(t, busy(before), 10*time.Second, time.Millisecond)
		end()
		require.ErrorIs(t, <-hanging, errDown)
		<-before.exited
		actor, err := g.Authenticate(t.Context(), bearer("ann"))
		require.NoError(t, err, "requests wait for the next process")
		require.Equal(t, "ann", actor.Identity)
	}
}

// A process that dies while it ends its last requests takes no more.
func TestReplacedProcessThatDies(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth = "./odd.py:auth"
	g := start(t, o, func(g *Gate) { g.grace = time.Hour })
	before := serving(g)
	hanging := make(chan error, 1)
	go func() {
		_, err := g.Authenticate(t.Context(), bearer("block"))
		hanging <- err
	}()
	require.Eventually(t, busy(before), 10*time.Second, time.Millisecond)
	require.NoError(t, g.Reload(t.Context(), o))
	require.NoError(t, kill(before.pid))
	require.ErrorIs(t, <-hanging, errDown)
	before.mu.Lock()
	defer before.mu.Unlock()
	require.True(t, before.left)
}

// A request that has found the process just before it left, or was replaced, is answered by the next one.
func TestProcessesThatJustLeft(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth, o.App = "./odd.py:auth", "./app.py:app"
	g := start(t, o, func(g *Gate) { g.patience = time.Minute })
	for name, end := range map[string]func(p *process){
		"died":     func(p *process) { require.NoError(t, kill(p.pid)) },
		"replaced": func(*process) { require.NoError(t, g.Reload(t.Context(), o)) },
	} {
		before := serving(g)
		before.leave(true) // what finds it now is late
		answered := make(chan error, 2)
		go func() {
			_, err := g.Authenticate(t.Context(), bearer("ann"))
			answered <- err
		}()
		go func() {
			r := &Request{RawPath: "/app/hello"}
			r.Method, r.Path, r.Scheme, r.Header = "GET", "/app/hello", "http", http.Header{}
			response, err := g.Serve(t.Context(), r)
			if err == nil {
				err = response.Body.Close()
			}
			answered <- err
		}()
		end(before)
		for range 2 {
			require.NoError(t, <-answered, name)
		}
		<-before.exited
		require.ErrorIs(t, must(before.newStream()), errLeft)
		_, err := before.call(t.Context(), &call{result: make(chan []byte, 1)}, "authenticate", func(b []byte, _ *process) []byte { return b })
		require.ErrorIs(t, err, errLeft)
	}
}

// A process that dies between its greeting and its turn is not put into service: requests would look for another one there without end.
func TestReloadOfAProcessThatDies(t *testing.T) {
	t.Parallel()
	for range 20 { // Go selects by chance
		g := New(Options{})
		before := g.newProcess()
		before.greet(&hello{})
		go func() {
			p := <-g.wanted
			g.leave(p)
			p.leave(true)
			p.greet(&hello{})
			p.cause = "signal: killed"
			close(p.exited)
		}()
		var start *StartError
		require.ErrorAs(t, g.Reload(t.Context(), Options{}), &start)
		require.ErrorContains(t, start, "signal: killed")
		require.Same(t, before, serving(g))
		require.False(t, isClosed(before.retiring))
	}
}

// A process that is started again, and ready later than one of a reload, does not replace it: it ends.
func TestReloadIsFasterThanTheNextStart(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	go func() {
		p := <-g.wanted
		p.greet(&hello{})
	}()
	late := g.newProcess()
	require.NoError(t, g.Reload(t.Context(), Options{}))
	reloaded := serving(g)
	late.greet(&hello{})
	require.Same(t, reloaded, serving(g))
	require.True(t, isClosed(late.retiring))
	require.False(t, isClosed(reloaded.retiring))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func must(_ *stream, err error) error { return err }

func busy(p *process) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.calls) > 0 || len(p.open) > 0
	}
}

func TestEndWhileBusy(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth = "./odd.py:auth"
	g := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	require.NoError(t, g.Ready(t.Context()))
	hanging := make(chan error, 1)
	go func() {
		_, err := g.Authenticate(context.Background(), bearer("block"))
		hanging <- err
	}()
	p := serving(g)
	require.Eventually(t, busy(p), 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.ErrorIs(t, <-hanging, errDown)
	_, err := g.Authenticate(t.Context(), bearer("ann"))
	require.ErrorIs(t, err, errDown)
}

func TestWhatDoesNotLoad(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, text string) Options {
		t.Helper()
		o := options(t)
		o.Dir = t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "auth.py"), []byte(text), 0o600))
		o.Auth = "./auth.py:auth"
		return o
	}
	for name, c := range map[string]struct{ text, reason, fix string }{
		"missing module":  {"import os\nimport no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'", "install the package that has the module no_such_thing"},
		"syntax":          {"x = (", "SyntaxError: '(' was never closed", "auth.py:1"},
		"another name":    {"authx = 1", "AttributeError: there is no 'auth' in ./auth.py", ""},
		"another type":    {"auth = {}", "it is a builtins.dict", "auth = Auth()"},
		"no authenticate": {"from langgraph_sdk import Auth\nauth = Auth()", "it has no authenticate handler", "@auth.authenticate"},
		"parameters":      {"from langgraph_sdk import Auth\nauth = Auth()\n@auth.authenticate\ndef f(token): pass", "'token'", "authorization"},
		"exit":            {"import os\nos._exit(3)", "exit status 3", ""},
		"sys.exit":        {"import sys\nsys.exit('no key')", "SystemExit: no key", "auth.py:2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := New(write(t, c.text))
			ended := make(chan error, 1)
			go func() { ended <- g.Run(t.Context()) }()
			err := g.Ready(t.Context())
			var start *StartError
			require.ErrorAs(t, err, &start)
			require.Equal(t, err, <-ended)
			require.Contains(t, err.Error(), c.reason)
			require.Contains(t, err.Error(), c.fix)
		})
	}
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		o := options(t)
		o.Auth = "./nowhere.py:auth"
		g := New(o)
		require.ErrorContains(t, g.Run(t.Context()), "No such file")
	})
	t.Run("no Python", func(t *testing.T) {
		t.Parallel()
		o := options(t)
		o.Auth, o.Python = "./odd.py:auth", "/nowhere/python"
		require.ErrorContains(t, New(o).Run(t.Context()), "/nowhere/python")
	})
}

func TestReload(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "auth.py"), []byte(text), 0o600))
	}
	const good = "from langgraph_sdk import Auth\nauth = Auth()\n@auth.authenticate\nasync def f(authorization):\n    import asyncio\n    await asyncio.sleep(DELAY)\n    return 'WHO'\n"
	version := func(who, delay string) { write(strings.NewReplacer("WHO", who, "DELAY", delay).Replace(good)) }
	version("one", "0.5")
	o.Auth = "./auth.py:auth"
	g := start(t, o, func(g *Gate) { g.patience, g.grace = time.Minute, time.Minute }) // slow machines take long to start the next one
	who := func() string {
		actor, err := g.Authenticate(t.Context(), bearer("x"))
		require.NoError(t, err)
		return actor.Identity
	}
	first := serving(g)
	slow := make(chan string, 1)
	go func() { slow <- who() }()
	require.Eventually(t, busy(first), 10*time.Second, time.Millisecond)
	version("two", "0")
	require.NoError(t, g.Reload(t.Context(), o))
	require.Equal(t, "two", who())
	require.Equal(t, "one", <-slow, "what was open ends where it began")
	<-first.exited

	write("x = (")
	var start *StartError
	require.ErrorAs(t, g.Reload(t.Context(), o), &start)
	require.Equal(t, "two", who(), "a version that does not load changes nothing")
	version("three", "0")
	require.NoError(t, g.Reload(t.Context(), o))
	require.Equal(t, "three", who())
	second := serving(g)
	require.NoError(t, kill(second.pid))
	<-second.exited
	require.Equal(t, "three", who())
}

// Each failure of a handler is logged with a next step.
func TestFailuresAreLoggedWithAFix(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "auth.py"), []byte(`from langgraph_sdk import Auth
auth = Auth()

@auth.authenticate
async def authenticate(authorization):
    what = authorization.removeprefix("Bearer ")
    if what == "nobody":
        return None
    if what == "raises":
        raise KeyError("x")
    if what == "imports":
        import a_module_that_nobody_has
    if what == "status":
        raise Auth.exceptions.HTTPException(status_code=418)
    return what

@auth.on
async def on(ctx, value):
    what = ctx.user.identity
    if what == "number":
        return 3
    if what == "nan":
        return {"a": float("nan")}
    if what == "form":
        return {"a": object()}
    if what == "writes":
        value["metadata"] = object()
    if what == "fails":
        raise RuntimeError("boom")
`), 0o600))
	o.Auth = "./auth.py:auth"
	var mu sync.Mutex
	var said []map[string]any
	o.Logger = slog.New(slog.NewJSONHandler(writerFunc(func(b []byte) (int, error) {
		var line map[string]any
		err := json.Unmarshal(b, &line)
		mu.Lock()
		defer mu.Unlock()
		said = append(said, line)
		return len(b), err
	}), nil))
	g := start(t, o)
	for what, fix := range map[string]string{
		"nobody": "return a str", "raises": "look at " + filepath.Join(o.Dir, "auth.py") + ":10", "imports": "a_module_that_nobody_has", "status": "status_code 401 or 403", "number": "return None or True",
		"nan": "without NaN", "form": "use texts", "writes": "use texts", "fails": "look at " + filepath.Join(o.Dir, "auth.py") + ":29",
	} {
		mu.Lock()
		said = nil
		mu.Unlock()
		_, answers, err := g.Admit(t.Context(), bearer(what), asking(access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"metadata":{}}`)}))
		if len(answers) > 0 {
			err = answers[0].Err
		}
		require.GreaterOrEqual(t, refused(t, err).Status, 400, what)
		mu.Lock()
		require.Len(t, said, 1, what)
		require.Equal(t, "ERROR", said[0]["level"], what)
		require.Contains(t, said[0]["fix"], fix, what)
		mu.Unlock()
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestManyIdentities(t *testing.T) {
	t.Parallel()
	g := odd(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				name := string(rune('a'+i)) + "-" + string(rune('a'+j%26))
				actor, d, err := g.Admit(t.Context(), bearer(name), asking(access.Question{Resource: "store", Action: "get", Value: json.RawMessage(`{"namespace":["n"]}`)}))
				require.NoError(t, err)
				require.Equal(t, name, actor.Identity)
				require.JSONEq(t, `{"namespace":["`+name+`","n"],"seen":"tuple"}`, string(d[0].Decision.Value))
			}
		})
	}
	all.Wait()
}

func TestEmbed(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Embed = "./embed.py:embed"
	g := start(t, o)
	vectors, err := g.Embed(t.Context(), []string{"red", "ü\u2028"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{3, 0.5}, {2, 0.5}}, vectors)
	for _, text := range []string{"explode", "few", "text"} {
		_, err = g.Embed(t.Context(), []string{text})
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, other := range []string{"./embed.py:asynchronous", "./embed.py:model"} {
		o.Embed = other
		require.NoError(t, g.Reload(t.Context(), o))
		vectors, err = g.Embed(t.Context(), []string{"red"})
		require.NoError(t, err)
		require.Equal(t, [][]float32{{3, 0.5}}, vectors)
	}
}

func BenchmarkAdmit(b *testing.B) {
	g := odd(b)
	q := access.Question{Resource: "threads", Action: "search", Value: json.RawMessage(`{"metadata":{},"limit":10}`)}
	for b.Loop() {
		if _, _, err := g.Admit(b.Context(), bearer("ann"), asking(q)); err != nil {
			b.Fatal(err)
		}
	}
}

// Handlers that hang while they are loaded again hold up nothing: those from before answer, a reload that is given up ends its process, and the corrected
// file is loaded.
func TestReloadThatHangs(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Dir = t.TempDir()
	o.Auth = "./auth.py:auth"
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "auth.py"), []byte(text), 0o600))
	}
	handler := func(who string) string {
		return "from langgraph_sdk import Auth\nauth = Auth()\n@auth.authenticate\nasync def f():\n    return '" + who + "'\n"
	}
	began := filepath.Join(o.Dir, "began")
	hang := "import os, time\nwith open('began.part', 'w') as f:\n    f.write(str(os.getpid()))\nos.rename('began.part', 'began')\ntime.sleep(1000)\n"
	write(handler("one"))
	g := start(t, o)
	who := func() string {
		actor, err := g.Authenticate(t.Context(), bearer("x"))
		require.NoError(t, err)
		return actor.Identity
	}
	write(hang)
	ctx, giveUp := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Reload(ctx, o) }()
	pid := 0
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(began)
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, "one", who())
	require.Empty(t, ended)
	another := errors.New("another file was saved")
	giveUp(another)
	require.ErrorIs(t, <-ended, another)
	require.Eventually(t, func() bool {
		p, err := os.FindProcess(pid)
		return err != nil || p.Signal(syscall.Signal(0)) != nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, "one", who())
	write(handler("two"))
	require.NoError(t, g.Reload(t.Context(), o))
	require.Equal(t, "two", who())
}
