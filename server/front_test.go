package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/gate"
)

// playedApp is an application that a test answers for.
type playedApp struct {
	about *gate.Application
	has   func(path string) bool // nil: those below /app
	serve func(ctx context.Context, r *gate.Request) (*http.Response, error)
	mu    sync.Mutex
	paths []string
}

func (a *playedApp) Up() error                      { return nil }
func (a *playedApp) Application() *gate.Application { return a.about }

func (a *playedApp) Claims(_, path string, _ bool) gate.Claim {
	if a.has != nil && a.has(path) || a.has == nil && strings.HasPrefix(path, "/app") {
		return gate.Claimed
	}
	return gate.NotClaimed
}

func (a *playedApp) Serve(ctx context.Context, r *gate.Request) (*http.Response, error) {
	a.mu.Lock()
	a.paths = append(a.paths, r.Method+" "+r.Path)
	a.mu.Unlock()
	if r.Body == nil {
		return a.serve(ctx, r)
	}
	resp, err := a.serve(ctx, r)
	if r.Unblock != nil {
		r.Unblock()
	}
	return resp, err
}

func (a *playedApp) Dial(context.Context, *gate.Request) (*gate.Socket, *http.Response, error) {
	return nil, replied(http.StatusForbidden, "", ""), nil
}

func (a *playedApp) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.paths...)
}

// replied is a response of known length.
func replied(status int, body string, headers ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// fronted is a server before an application.
func fronted(t *testing.T, serve func(ctx context.Context, r *gate.Request) (*http.Response, error), change ...func(*Options)) (*world, *playedApp) {
	t.Helper()
	a := &playedApp{about: &gate.Application{}, serve: serve}
	return setup(t, append([]func(*Options){func(o *Options) { o.App = a }}, change...)...), a
}

// hold is a body that comes in pieces, and ends with an error or with its context.
type hold struct {
	ctx    context.Context //nolint:containedctx // of the request
	pieces chan string
	err    error
	closed chan struct{}
	once   sync.Once
}

func (h *hold) Read(b []byte) (int, error) {
	select {
	case s, ok := <-h.pieces:
		if !ok {
			return 0, h.err
		}
		return copy(b, s), nil
	case <-h.ctx.Done():
		return 0, context.Cause(h.ctx)
	}
}

func (h *hold) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// A path of the API that the application answers, and that it redirects to one with a slash which it has not, is not redirected back. Other paths lose their slash.
func TestFrontRedirects(t *testing.T) {
	t.Parallel()
	w, a := fronted(t, func(_ context.Context, r *gate.Request) (*http.Response, error) {
		return replied(http.StatusTemporaryRedirect, "", "Location", r.Path+"/"), nil
	})
	taken := []string{"/info", "/mcp", "/threads/search", "/threads/a"}
	a.has = func(path string) bool { return slices.Contains(taken, path) }
	ask := func(method, path string) (status int, location string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.addr+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, resp.Header.Get("Location")
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		for _, path := range taken {
			status, location := ask(method, path)
			require.Equal(t, http.StatusTemporaryRedirect, status, path)
			require.Equal(t, path+"/", location)
			status, location = ask(method, location)
			require.Equal(t, http.StatusNotFound, status, "%s %s/", method, path)
			require.Empty(t, location)
		}
		for _, path := range []string{"/threads/b", "/runs/stream"} {
			status, location := ask(method, path+"/")
			require.Equal(t, http.StatusTemporaryRedirect, status, path)
			require.Equal(t, path, location)
		}
	}
}

// A body that is too large or too slow is refused with its own status, whatever the application makes of it; other bodies arrive whole.
func TestFrontBodies(t *testing.T) {
	t.Parallel()
	const limit = 3 << 20
	w, _ := fronted(t, func(_ context.Context, r *gate.Request) (*http.Response, error) {
		if r.Query == "unread" {
			return replied(http.StatusTeapot, "no"), nil
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil { // as an application that raises
			return replied(http.StatusInternalServerError, "Internal Server Error"), nil
		}
		return replied(http.StatusOK, fmt.Sprint(n)), nil
	}, func(o *Options) { o.MaxBody, o.BodyTimeout = limit, 300*time.Millisecond })
	send := func(path string, body io.Reader) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.addr+path, body)
		require.NoError(t, err)
		resp, err := w.http.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	chunked := func(n int) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, n))) }
	for _, n := range []int{1, smallBody, smallBody + 1, limit} {
		status, text := send("/app/x", bytes.NewReader(make([]byte, n)))
		require.Equal(t, []any{http.StatusOK, fmt.Sprint(n)}, []any{status, text})
		status, text = send("/app/x", chunked(n))
		require.Equal(t, []any{http.StatusOK, fmt.Sprint(n)}, []any{status, text})
	}
	for _, body := range []io.Reader{bytes.NewReader(make([]byte, limit+1)), chunked(limit + 1)} {
		status, text := send("/app/x", body)
		require.Equal(t, http.StatusRequestEntityTooLarge, status, text)
	}
	status, _ := send("/app/x?unread", chunked(limit))
	require.Equal(t, http.StatusTeapot, status)

	in, out := io.Pipe()
	go func() { _, _ = out.Write([]byte("x")) }()
	status, text := send("/app/x", in)
	require.Equal(t, http.StatusRequestTimeout, status, text)
	out.Close()
}

// An answer that breaks never looks whole, and one of a client that leaves, or of a server that ends, ends in the application.
func TestFrontAnswers(t *testing.T) {
	t.Parallel()
	held := make(chan *hold, 10)
	w, _ := fronted(t, func(ctx context.Context, r *gate.Request) (*http.Response, error) {
		switch r.Path {
		case "/app/none":
			return replied(http.StatusNoContent, "", "X-A", "1", "Set-Cookie", "a=1", "Set-Cookie", "b=2"), nil
		case "/app/odd":
			return replied(299, "odd", "Connection", "close, X-A", "Transfer-Encoding", "chunked", "X-Long", strings.Repeat("x", 8000)), nil
		case "/app/fails":
			return nil, errors.New("secret")
		}
		h := &hold{ctx: ctx, pieces: make(chan string, 10), err: io.ErrUnexpectedEOF, closed: make(chan struct{})}
		h.pieces <- "first"
		if r.Path != "/app/stream" {
			close(h.pieces)
		}
		held <- h
		resp := replied(http.StatusOK, "", "Content-Type", "text/event-stream")
		resp.Body, resp.ContentLength = h, map[string]int64{"/app/long": 1 << 20, "/app/short": 10}[r.Path]
		if resp.ContentLength == 0 {
			resp.ContentLength = -1
		}
		return resp, nil
	})
	for _, path := range []string{"/app/stream", "/app/long", "/app/short"} {
		resp, err := w.http.Get("http://" + w.addr + path)
		h := <-held
		if err != nil { // a short one breaks before its head is sent
			require.Equal(t, "/app/short", path)
			<-h.closed
			continue
		}
		if path == "/app/stream" {
			piece := make([]byte, 5)
			_, err = io.ReadFull(resp.Body, piece)
			require.NoError(t, err)
			close(h.pieces)
		}
		_, err = io.ReadAll(resp.Body)
		require.Error(t, err, "%s: a part passes for the whole", path)
		resp.Body.Close()
		<-h.closed
	}
	resp, text := w.ask(t, "GET", "/app/none", "")
	require.Equal(t, []any{http.StatusNoContent, "", []string{"a=1", "b=2"}}, []any{resp.StatusCode, text, resp.Header.Values("Set-Cookie")})
	require.False(t, resp.Close, "the connection is used again")
	resp, text = w.ask(t, "GET", "/app/odd", "")
	require.Equal(t, []any{299, "odd"}, []any{resp.StatusCode, text})
	resp, text = w.ask(t, "GET", "/app/fails", "")
	require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
	require.NotContains(t, text, "secret")

	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.addr+"/app/stream", nil)
	require.NoError(t, err)
	resp, err = w.http.Do(req)
	require.NoError(t, err)
	h := <-held
	leave()
	<-h.closed
	resp.Body.Close()

	resp, err = w.http.Get("http://" + w.addr + "/app/stream")
	require.NoError(t, err)
	h = <-held
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	<-h.closed
	require.NoError(t, <-ended)
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
	resp.Body.Close()
}

// What is in one request never becomes another one: neither by its framing nor by its path and headers.
func TestFrontSmuggling(t *testing.T) {
	t.Parallel()
	w, a := fronted(t, func(_ context.Context, r *gate.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return replied(http.StatusOK, "ok"), nil
	})
	const hidden = "GET /app/hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)
	length := fmt.Sprint(len(hidden))
	for _, raw := range []string{
		"POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: " + length + "\r\n\r\n0\r\n\r\n" + hidden,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + "\r\nContent-Length: 0\r\n\r\n" + hidden,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: " + length + "\r\n\r\n" + hidden,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: " + length + "\r\n\r\n" + hidden,
		"POST /app/x HTTP/1.1\r\nHost: x\r\nX-A: 1\n\r\n\r\nContent-Length: " + length + "\r\n\r\n" + hidden,
		"GET /app/x?a=b%0d%0aHost:%20y%0d%0a%0d%0aGET%20/app/hidden HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + "\r\n\r\n" + hidden,
		"GET /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + hidden,
	} {
		a.mu.Lock()
		a.paths = nil
		a.mu.Unlock()
		conn, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		_, err = conn.Write([]byte(raw))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, _ = io.Copy(io.Discard, bufio.NewReader(conn))
		conn.Close()
		for _, path := range a.seen() {
			require.NotContains(t, path, "hidden HTTP", raw)
			require.NotEqual(t, "GET /app/hidden", path, raw)
		}
	}
}

// Requests that pass the middleware of an application authenticate as their client, and only the process itself can be inside.
func TestFrontPassage(t *testing.T) {
	t.Parallel()
	var s *Server
	w, _ := fronted(t, func(ctx context.Context, r *gate.Request) (*http.Response, error) {
		out, err := http.NewRequestWithContext(ctx, r.Method, "http://x"+r.Path, nil)
		if err != nil {
			return nil, err
		}
		out.Header = r.Header.Clone()
		return s.Inside(out, gate.Passage{Outer: r.Outer})
	}, func(o *Options) {
		o.Authenticator = byName{}
	})
	s = w.s
	w.s.opts.App.(*playedApp).about.Wraps = []string{"Middleware"}
	for _, headers := range [][]string{
		nil, {"X-Forwarded-For", "127.0.0.1"}, {"X-Understudy-Inside", "e30.e30"}, {"User", "ada"}, {"Host", "inside"}, {"Understudy-Act-As", "user"}, {"X-Forwarded-Host", "inside"},
	} {
		resp, text := w.ask(t, "GET", "/threads/"+someThread, "", headers...)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s %s", headers, text)
	}
	resp, text := w.ask(t, "GET", "/threads/"+someThread, "", "Authorization", "Bearer ada")
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	resp, text = w.ask(t, "GET", "/threads/"+someThread, "", "Authorization", "Bearer ada", "Content-Length", "0")
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
}

// byName accepts a bearer token as the name of the user.
type byName struct{}

func (byName) Authenticate(_ context.Context, r *access.Request) (*access.Actor, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, &access.Refusal{Status: http.StatusUnauthorized, Detail: []byte(`"Who are you?"`)}
	}
	return &access.Actor{Identity: name, Permissions: []string{}}, nil
}
