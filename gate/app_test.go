package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// routes starts a gate with the application of testdata.
func routes(t *testing.T, change func(*Options), adjust ...func(*Gate)) *Gate {
	t.Helper()
	o := options(t)
	o.App = "./app.py:app"
	if change != nil {
		change(&o)
	}
	return start(t, o, adjust...)
}

func request(method, target string) *Request {
	path, query, _ := strings.Cut(target, "?")
	return &Request{Request: access.Request{Method: method, Path: path, Query: query, Header: http.Header{"Host": {"x"}}, Scheme: "http", Client: "127.0.0.1:5000"}, RawPath: path}
}

// get reads a whole answer.
func get(t *testing.T, g *Gate, target string) (status int, body string, err error) {
	t.Helper()
	resp, err := g.Serve(t.Context(), request("GET", target))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// works checks that the application answers, after a restart if need be.
func works(t *testing.T, g *Gate) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, body, err := get(t, g, "/hello")
		return err == nil && status == http.StatusOK && body == "hello"
	}, 20*time.Second, 20*time.Millisecond)
}

// leaves waits until a route or socket has noticed that its client is gone.
func leaves(t *testing.T, g *Gate, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, body, err := get(t, g, "/who-left")
		return err == nil && strings.Contains(body, what)
	}, 20*time.Second, 20*time.Millisecond)
}

// Routes of routers that FastAPI includes are known like others, so that requests for the API do not pass through Python, and sockets are found. A router that decides
// itself is asked.
func TestIncludedRouters(t *testing.T) {
	t.Parallel()
	g := routes(t, func(o *Options) { o.App = "./routers.py:app" })
	type claim struct {
		method, path string
		socket       bool
	}
	for c, want := range map[claim]Claim{
		{"POST", "/threads/search", false}:        NotClaimed,
		{"GET", "/threads/x/stream/events", true}: NotClaimed,
		{"POST", "/v1/mine/items/3", false}:       Claimed,
		{"GET", "/v1/mine/items/3", false}:        OtherMethod,
		{"GET", "/v1/mine/inner/a/b", false}:      Claimed,
		{"GET", "/v1/mine/socket/3", true}:        Claimed,
		{"GET", "/v1/mine/socket/3", false}:       NotClaimed,
		{"GET", "/mine/long", false}:              NotClaimed,
		{"GET", "/v1/mine/long", false}:           Claimed,
	} {
		require.Equal(t, want, g.Claims(c.method, c.path, c.socket), c)
	}
	require.Empty(t, g.Application().Wraps, "compressing is no reason to pass the API through Python")
	status, body, err := get(t, g, "/v1/mine/inner/a/b")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"name":"a/b"}`, body)
	r := request("GET", "/v1/mine/long")
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := g.Serve(t.Context(), r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"), "as its middleware says")

	strange := routes(t, func(o *Options) { o.App = "./routers.py:odd" })
	require.Equal(t, Claimed, strange.Claims("GET", "/v1/mine/socket/3", true))
	require.Equal(t, Unknown, strange.Claims("GET", "/odd/socket", true))
}

// What a route raises, returns or sends out of turn is 500 with a fixed text, and the application continues to serve.
func TestOddRoutes(t *testing.T) {
	t.Parallel()
	g := routes(t, nil)
	for _, target := range []string{"/garbage", "/crash", "/leave"} {
		status, body, err := get(t, g, target)
		require.NoError(t, err, target)
		require.Equal(t, http.StatusInternalServerError, status, target)
		require.NotContains(t, body, "secret", target)
		works(t, g)
	}
	t.Run("a value that it refuses", func(t *testing.T) { // the client gets the reason, and the log where it comes from: it may be a fault
		var log logtest.Buffer
		g := routes(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		status, body, err := get(t, g, "/wrong")
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status)
		require.JSONEq(t, `{"detail":"the reason of the route"}`, body)
		require.Eventually(t, func() bool {
			text := log.String()
			return strings.Contains(text, "GET /wrong") && strings.Contains(text, "Traceback") && strings.Contains(text, "in wrong")
		}, 20*time.Second, 20*time.Millisecond)
	})
	t.Run("breaks in the middle", func(t *testing.T) {
		_, body, err := get(t, g, "/half")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, "first", body)
	})
	t.Run("begins twice", func(t *testing.T) {
		_, _, err := get(t, g, "/twice")
		require.Error(t, err)
		works(t, g)
	})
	t.Run("its task fails", func(t *testing.T) {
		status, body, err := get(t, g, "/late")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "done", body)
		leaves(t, g, "task")
	})
	t.Run("a head that would end early", func(t *testing.T) {
		resp, err := g.Serve(t.Context(), request("GET", "/split"))
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, "1", resp.Header.Get("X-Good"))
		require.NotContains(t, resp.Header, "Set-Cookie")
		for name, values := range resp.Header {
			require.NotContains(t, name+strings.Join(values, ""), "\n")
		}
		require.NotContains(t, resp.Header, "Transfer-Encoding")
		require.NotContains(t, resp.Header, "Connection")
	})
	t.Run("threads stay", func(t *testing.T) {
		_, body, err := get(t, g, "/forks")
		require.NoError(t, err)
		require.Equal(t, "forked", body)
	})
}

// When the process ends in the middle, nothing passes for whole: requests are refused, streams and sockets break, and the next ones are served.
func TestApplicationDies(t *testing.T) {
	t.Parallel()
	g := routes(t, nil)
	ctx := t.Context()
	stream, err := g.Serve(ctx, request("GET", "/drip"))
	require.NoError(t, err)
	defer stream.Body.Close()
	piece := make([]byte, 5)
	_, err = io.ReadFull(stream.Body, piece)
	require.NoError(t, err)
	r := request("GET", "/socket")
	r.WebSocket = true
	socket, refusal, err := g.Dial(ctx, r)
	require.NoError(t, err)
	require.Nil(t, refusal)
	defer socket.Close()
	require.NoError(t, socket.Write(ctx, Message{Data: []byte("x")}))
	m, err := socket.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, "x", string(m.Data))
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			_, _, err := get(t, g, "/hang")
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("a request of a process that died: %v", err)
			}
		})
	}
	p := serving(g)
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.open) == 5
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, kill(p.pid))
	waiting.Wait()
	_, err = io.ReadAll(stream.Body)
	require.Error(t, err)
	m, err = socket.Read(ctx)
	require.True(t, err != nil || m.Close && m.Code != 1000, "%v", m)
	works(t, g)

	_, _, err = get(t, g, "/exit-now")
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	works(t, g)
}

// A route that waits for what nothing else knows is not collected as garbage.
func TestRouteThatWaits(t *testing.T) {
	t.Parallel()
	g := routes(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		response, err := g.Serve(ctx, request("GET", "/hang"))
		if err == nil {
			response.Body.Close()
		}
		waiting <- err
	}()
	p := serving(g)
	require.Eventually(t, busy(p), 10*time.Second, time.Millisecond)
	for range 3 {
		_, text, err := get(t, g, "/collect")
		require.NoError(t, err)
		require.Equal(t, "collected", text)
	}
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
}

// A route that blocks the loop ends the process after the silence, and no longer than that holds up others.
func TestRouteThatBlocks(t *testing.T) {
	t.Parallel()
	g := routes(t, nil, func(g *Gate) { g.pingEvery, g.silence = 20*time.Millisecond, 500*time.Millisecond })
	_, _, err := get(t, g, "/block")
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	works(t, g)
}

// A client that leaves ends its stream and its socket in the application, and nothing of it is kept.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	g := routes(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	open := func(n int) func() bool {
		return func() bool {
			p := serving(g)
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.open) == n
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := g.Serve(ctx, request("GET", "/hang"))
		ended <- err
	}()
	require.Eventually(t, open(1), 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled) // the route continues, as with other servers of ASGI, unless it looks

	resp, err := g.Serve(t.Context(), request("GET", "/drip"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	leaves(t, g, "drip")

	r := request("GET", "/socket")
	r.WebSocket = true
	socket, _, err := g.Dial(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, socket.Write(t.Context(), Message{Data: []byte("crash")}))
	m, err := socket.Read(t.Context())
	require.NoError(t, err)
	require.True(t, m.Close)
	require.Equal(t, 1011, m.Code)
	require.NotContains(t, m.Reason, "secret")
	socket.Close()
	leaves(t, g, "socket")
	require.Eventually(t, open(0), 10*time.Second, time.Millisecond)
}

// endless is a body that never ends, and counts what was read of it.
type endless struct {
	read int
	left int // 0: no end
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left > 0 && e.read >= e.left {
		return 0, io.EOF
	}
	clear(b)
	e.read += len(b)
	return len(b), nil
}

// Bodies of any size pass in both directions within a window of memory, and one that is not wanted is not read.
func TestHugeBodies(t *testing.T) {
	t.Parallel()
	g := routes(t, nil)
	t.Run("read", func(t *testing.T) {
		r := request("POST", "/count")
		r.Body = &endless{left: 64 << 20}
		resp, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.JSONEq(t, `{"bytes":67108864}`, string(text))
	})
	t.Run("not read", func(t *testing.T) {
		body := &endless{}
		r := request("POST", "/refuse")
		r.Body = body
		resp, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.LessOrEqual(t, body.read, window+2*piece)
	})
	t.Run("a slow reader", func(t *testing.T) {
		resp, err := g.Serve(t.Context(), request("GET", "/flood"))
		require.NoError(t, err)
		s := resp.Body.(*body).s
		queued := func() (n int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, a := range s.queue {
				n += len(a.payload)
			}
			return n
		}
		require.Eventually(t, func() bool { return queued() >= window/2 }, 10*time.Second, time.Millisecond)
		works(t, g) // others are not held up
		require.LessOrEqual(t, queued(), window+2*piece)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.EqualValues(t, 64<<20, n)
		require.NoError(t, resp.Body.Close())
	})
	t.Run("breaks", func(t *testing.T) {
		r := request("POST", "/count")
		r.Body = io.MultiReader(bytes.NewReader(make([]byte, piece)), brokenBody{})
		resp, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, resp.StatusCode, "a part does not pass for the whole")
		require.NoError(t, resp.Body.Close())
		works(t, g)
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A lifespan that fails stops the start with its traceback, and on reload leaves what serves.
func TestLifespanFails(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.App = "./app.py:broken"
	g := New(o)
	err := g.Run(t.Context())
	var failed *StartError
	require.ErrorAs(t, err, &failed)
	require.Contains(t, failed.Error()+failed.Trace, "no database")

	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", "app.py"))
	require.NoError(t, err)
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "app.py"), []byte(text), 0o600))
	}
	write(string(text))
	o = options(t)
	o.App, o.Dir = "./app.py:app", dir
	g = start(t, o)
	before := serving(g)
	for _, bad := range []string{strings.Replace(string(text), "    yield\n\n\napp =", "    raise RuntimeError('no database')\n    yield\n\n\napp =", 1), "syntax error", "app = 7", ""} {
		write(bad)
		require.ErrorAs(t, g.Reload(t.Context(), o), &failed, bad)
		require.Same(t, before, serving(g))
		works(t, g)
	}
	write(strings.Replace(string(text), `"hello")`, `"hello" + "")`, 1))
	require.NoError(t, g.Reload(t.Context(), o))
	require.NotSame(t, before, serving(g))
	works(t, g)
}

// Requests of routes to the API act as administrator, or as the user of the request when they say so: neither headers of clients nor odd paths change
// that, or reach the API as another request.
func TestRoutesCallTheAPI(t *testing.T) {
	t.Parallel()
	type call struct {
		path   string
		header http.Header
		as     Passage
	}
	calls := make(chan call, 100)
	g := routes(t, func(o *Options) {
		o.API = func(r *http.Request, as Passage) (*http.Response, error) {
			if r.Body != nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			calls <- call{r.URL.RequestURI(), r.Header, as}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{}`)), ContentLength: 2}, nil
		}
	})
	ann := &access.Actor{Identity: "ann", DisplayName: "Ann", Authenticated: true, Permissions: []string{"p"}}
	send := func(target string, actor *access.Actor, headers http.Header) (int, string) {
		r := request("GET", target)
		r.Actor = actor
		for name, values := range headers {
			r.Header[name] = values
		}
		resp, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}

	status, text := send("/api", ann, nil)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, Passage{}, (<-calls).as, "without a word, as administrator")

	status, text = send("/api?understudy-act-as=user", ann, nil)
	require.Equal(t, http.StatusOK, status, text)
	as := (<-calls).as.Actor
	require.Equal(t, "ann", as.Identity)
	require.Equal(t, []string{"p"}, as.Permissions)

	for _, target := range []string{"/api?understudy-act-as=user", "/api?understudy-act-as=bob", "/api?understudy-act-as=administrator"} {
		status, _ = send(target, nil, nil)
		require.Equal(t, http.StatusInternalServerError, status, "%s without a user is refused, not an administrator", target)
	}
	spoofed := http.Header{
		"Understudy-Act-As": {"user"}, "User": {"bob"}, "X-Understudy-Inside": {"x.y"}, "Scope": {"bob"}, "Langgraph-Auth-User": {"bob"}, "Authorization": {"Bearer bob"}, "X-Api-Key": {"bob"},
	}
	status, text = send("/api?forward=1", ann, spoofed)
	require.Equal(t, http.StatusOK, status, text)
	c := <-calls
	require.Equal(t, "ann", c.as.Actor.Identity, "a header of the client can only make the route act as the client")
	require.NotContains(t, c.header, "Authorization")
	require.NotContains(t, c.header, "X-Api-Key")
	status, _ = send("/api", ann, spoofed)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, Passage{}, (<-calls).as)

	for _, path := range []string{"/x%20HTTP/1.1%0d%0aHost:%20y%0d%0a%0d%0aGET%20/y", "//host/x", "/x%00", "/%2e%2e/y", "http://elsewhere/x"} {
		send("/smuggle?path="+strings.ReplaceAll(path, "%", "%25"), ann, nil)
		send("/smuggle?path="+path, ann, nil)
	}
	send("/smuggle?path=/x&header=1", ann, nil)
	for len(calls) > 0 {
		c := <-calls
		require.NotContains(t, c.path, "\n")
		require.NotContains(t, c.path, " ")
		require.NotContains(t, c.header, "Authorization")
	}
}

// acceptance records what Outer learns.
type acceptance struct{ accepted []*access.Request }

func (a *acceptance) Accepted(r *access.Request) { a.accepted = append(a.accepted, r) }

// Outer of a request to a guarded route learns which credentials were accepted, so that an open answer can end with them; of refused ones nothing.
func TestAcceptedCredentials(t *testing.T) {
	t.Parallel()
	g := routes(t, func(o *Options) { o.Auth, o.GuardRoutes = "./odd.py:auth", true })
	for token, want := range map[string]int{"ann": 1, "status": 0} {
		r, outer := request("GET", "/hello"), &acceptance{}
		r.Header, r.Outer = bearer(token).Header, outer
		resp, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		require.Equal(t, want == 1, resp.StatusCode == http.StatusOK)
		require.Len(t, outer.accepted, want)
		if want == 1 {
			require.Equal(t, "Bearer "+token, outer.accepted[0].Header.Get("Authorization"))
		}
	}
}

// late is in the log when an exception handler takes too long.
const late = "an exception handler of the application did not answer in time"

// The API's answer to an error does not wait longer for an exception handler than for any handler.
func TestExceptionHandlerThatHangs(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	g := routes(t, func(o *Options) {
		o.App, o.Logger = "./app.py:stuck", slog.New(slog.NewTextHandler(&log, nil))
	})
	// Not an option: the process itself may take longer to answer.
	g.opts.Timeout = 50 * time.Millisecond
	for status, begins := range map[int]bool{http.StatusNotFound: false, http.StatusConflict: true} { // an answer that begins may hang too
		r := request("GET", "/threads/x")
		r.Raised = &Raised{Status: status, Detail: []byte(`"no"`)}
		response, err := g.Serve(t.Context(), r)
		for begins && errors.Is(err, errSlow) && g.opts.Timeout < time.Minute { // slow machines take longer to begin
			g.opts.Timeout *= 2
			response, err = g.Serve(t.Context(), r)
		}
		require.Equal(t, begins, err == nil, "%v", err)
		if begins {
			before := strings.Count(log.String(), late)
			_, err = io.ReadAll(response.Body)
			require.NoError(t, response.Body.Close())
			require.Equal(t, before+1, strings.Count(log.String(), late))
		}
		require.ErrorIs(t, err, errSlow)
	}
	require.Contains(t, log.String(), late)
}

// Nor does a request that passes the middleware of the application wait longer for its exception handlers.
func TestExceptionHandlerWithinMiddlewareThatHangs(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	g := routes(t, func(o *Options) {
		o.App, o.Timeout, o.Logger = "./app.py:stuck_within", 300*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
		o.API = func(r *http.Request, _ Passage) (*http.Response, error) {
			status, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "X-Api": {"a"}, RaisedHeader: {"1"}}, Body: io.NopCloser(strings.NewReader(`{"detail":"no"}`))}, err
		}
	})
	ask := func(status int) (got int, body string, header http.Header, err error) {
		r := request("GET", "/"+strconv.Itoa(status))
		r.Outer = &acceptance{}
		response, err := g.Serve(t.Context(), r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response.StatusCode, string(text), response.Header, err
	}
	status, body, header, err := ask(http.StatusGone)
	require.NoError(t, err)
	require.Equal(t, "410 gone yes", strconv.Itoa(status)+" "+body+" "+header.Get("X-Around"), log.String())
	require.NotContains(t, log.String(), late)
	status, body, header, err = ask(http.StatusNotFound)
	require.NoError(t, err)
	require.Equal(t, `404 {"detail":"no"} a`, strconv.Itoa(status)+" "+body+" "+header.Get("X-Api"))
	require.Equal(t, 1, strings.Count(log.String(), late))
	_, body, _, err = ask(http.StatusConflict)
	require.Error(t, err, "an answer that has begun is broken off: %s", body)
	require.Equal(t, 2, strings.Count(log.String(), late))
	require.Contains(t, log.String(), "look for calls without a timeout in the exception handlers, or raise --gate-timeout")
}
