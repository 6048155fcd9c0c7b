package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
)

// dead is an address without a listener.
func dead(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return "http://" + ln.Addr().String()
}

// TestUpstreamFails: a call that upstream does not respond is a 502 that says which, and what to do.
func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	reset := wire(t, func(_ string, c net.Conn) { c.Close() })
	half := wire(t, func(_ string, c net.Conn) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-"); c.Close() })
	other := wire(t, func(_ string, c net.Conn) { fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n"); c.Close() })
	for up, why := range map[string]string{
		dead(t): "cannot be reached: connect: connection refused", reset: "it broke off before it answered", half: "it broke off before it answered",
		other: "what listens there does not speak HTTP", "http://unknown.invalid": "its name is not known",
	} {
		cors := func(h http.Header, r *http.Request) { h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin")) }
		w := front(t, up, func(c *Config) { c.CORS = cors })
		for _, path := range []string{"/x", "/threads/" + aThread + "/state", "/threads/" + aThread + "/stream"} {
			res := w.do(http.MethodGet, path, nil, "Origin", "http://app")
			status, got := text(t, res)
			require.Equal(t, 502, status)
			require.Equal(t, "application/json", res.Header.Get("Content-Type"))
			require.Equal(t, "http://app", res.Header.Get("Access-Control-Allow-Origin"))
			require.Contains(t, got, `{"detail":"The upstream `+up+` failed: `)
			require.Contains(t, got, why)
			require.Contains(t, got, "--upstream")
		}
		<-w.recorder.ended
		status, _ := w.post("/threads/"+aThread+"/runs/wait", "{}")
		require.Equal(t, 502, status)
		<-w.recorder.ended
		w.stop()
	}
}

// TestCut: an answer that breaks off is seen to break off, wherever it is looked at, and what came of it passes.
func TestCut(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"counted": "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{\"values\":\"short\"",
		"chunked": "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{\"values\":\"short\"\r\n",
	} {
		for path, media := range map[string]string{
			"GET /x": "application/json", "GET /threads/" + aThread + "/state": "application/json", "GET /threads/" + aThread + "/history": "text/plain",
			"GET /threads/" + aThread + "/stream": "text/event-stream", "GET /threads/" + aThread + "/runs/" + aRun + "/join": "application/json",
		} {
			up := wire(t, func(_ string, c net.Conn) {
				fmt.Fprintf(c, answer, media)
				c.Close()
			})
			w := front(t, up)
			method, path, _ := strings.Cut(path, " ")
			res := w.do(method, path, nil)
			got, err := io.ReadAll(res.Body)
			require.Error(t, err, "%s %s", name, path)
			require.Equal(t, `{"values":"short"`, string(got), "%s %s", name, path)
			w.stop()
		}
	}
}

// TestOddAnswers: what is not understood passes as it is.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	long := `{"values":"short` + strings.Repeat("x", 2<<20) + `"}`
	var answer, media string
	var status int
	w := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	for _, path := range []string{"/threads/" + aThread + "/state", "/threads/" + aThread + "/runs/" + aRun + "/join", "/threads/" + aThread + "/stream"} {
		for _, tt := range []struct {
			name, media, answer string
			status              int
		}{
			{"no JSON", "text/plain", "short", 200},
			{"too long", "application/json", long, 200},
			{"refused", "application/json", `{"detail":"short"}`, 404},
			{"failed", "application/json", `{"detail":"short"}`, 500},
			{"empty", "application/json", "", 200},
			{"half a type", "application/", "short", 200},
		} {
			media, answer, status = tt.media, tt.answer, tt.status
			gotStatus, got := w.get(path)
			require.Equal(t, tt.status, gotStatus, tt.name)
			require.True(t, tt.answer == got || tt.status != 200 && strings.HasSuffix(path, "join"), "%s %s: %d bytes", tt.name, path, len(got))
		}
	}
}

// TestEndless: a body without an end flows through, and holds no more than the limit.
func TestEndless(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		block := []byte(strings.Repeat("x", 64<<10))
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	res := w.do(http.MethodGet, "/threads/"+aThread+"/state", nil)
	n, err := io.CopyN(io.Discard, res.Body, 8<<20)
	require.NoError(t, err)
	require.EqualValues(t, 8<<20, n)
	res.Body.Close()
}

// TestFailedConnection: a connection is not reused after an answer of 500, because the upstream may be about to close it.
func TestFailedConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	conns := map[string]int{}
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conns[r.RemoteAddr]++
		mu.Unlock()
		if r.Header.Get("X-Fail") != "" {
			http.Error(w, "Internal Server Error", 500)
		}
	})
	for range 3 {
		_, _ = w.get("/x")
	}
	require.Len(t, conns, 1)
	for range 3 {
		status, body := w.get("/x", "X-Fail", "1")
		require.Equal(t, 500, status)
		require.Equal(t, "Internal Server Error\n", body)
	}
	require.Len(t, conns, 3, "the first failure came on the connection that was there")
	for addr, n := range conns {
		require.Contains(t, []int{1, 4}, n, addr)
	}
}

// TestFailedLine: the first line of an answer is recognised however it is split, and no other line is.
func TestFailedLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"HTTP/1.1 500 Oops\r\nA: b\r\n\r\nHTTP/1.1 500 x": "HTTP/1.1 500 Oops\r\nConnection: close\r\nA: b\r\n\r\nHTTP/1.1 500 x",
		"HTTP/1.1 200 OK\r\nA: HTTP/1.1 5\r\n\r\n":        "HTTP/1.1 200 OK\r\nA: HTTP/1.1 5\r\n\r\n",
		"HTTP/1.1 5": "HTTP/1.1 5",
		"":           "",
	} {
		for _, lengths := range [][]byte{nil, {0, 0, 0, 0, 0}, {9, 1}, {15, 2, 0}} {
			c := &conn{Conn: readConn{Reader: &pieces{in, lengths}}}
			c.fresh.Store(true)
			got, err := io.ReadAll(bufio.NewReader(c))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
	}
}

type readConn struct {
	net.Conn
	io.Reader
}

func (r readConn) Read(p []byte) (int, error) { return r.Reader.Read(p) }

// TestHostile: requests that are none are answered, and never reach the upstream as something else.
func TestHostile(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			reached.Add(1)
		}
	})
	for name, tt := range map[string]struct{ request, want string }{
		"huge head":         {"GET /x HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n", " 431 "},
		"bad chunks":        {"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", " 400 "},
		"bad chunks, read":  {"POST /threads/" + aThread + "/state HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", " 400 "},
		"two lengths":       {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", " 400 "},
		"length and chunks": {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: gzip\r\n\r\nab", " 400 "},
		"connect":           {"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n", " 405 "},
		"no host":           {"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n", " 400 "},
		"control bytes":     {"GET /x\x01 HTTP/1.1\r\nHost: h\r\n\r\n", " 400 "},
		"short of its word": {"POST /threads/" + aThread + "/runs HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", ""},
	} {
		c, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		_, _ = io.WriteString(c, tt.request)
		_ = c.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(c)
		c.Close()
		if tt.want != "" {
			require.Contains(t, string(got), tt.want, name)
		}
	}
	require.Zero(t, reached.Load())
}

// TestHeld: the memory of all calls together is limited. Beyond it bodies are refused and answers pass unchanged; the memory is released
// afterwards.
func TestHeld(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", r.URL.Query().Get("type"))
			_, _ = io.WriteString(w, "short"+strings.Repeat("x", 40_000))
		}
	}, func(c *Config) { c.MaxHeld = 20_000 })
	status, got := w.post("/threads/"+aThread+"/state", strings.Repeat("x", 30_000))
	require.Equal(t, 503, status)
	require.JSONEq(t, `{"detail":"Too many request bytes in flight. Try again later."}`, got)
	for _, path := range []string{"/state?type=application/json", "/stream?type=text/event-stream", "/runs/" + aRun + "/join?type=application/json"} {
		_, got = w.get("/threads/" + aThread + path)
		require.Equal(t, "short"+strings.Repeat("x", 40_000), got, path)
	}
	status, _ = w.post("/threads/"+aThread+"/state", strings.Repeat("x", 10_000))
	require.Equal(t, 200, status)
	w.stop()
	require.Zero(t, w.proxy.held.used.Load())
}

// TestStalled: a client that stops sending does not hold a call for ever.
func TestStalled(t *testing.T) {
	t.Parallel()
	w := behind(t, func(http.ResponseWriter, *http.Request) {}, func(c *Config) { c.BodyTimeout = 20 * time.Millisecond })
	got := w.raw("POST /threads/" + aThread + "/state HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
	require.Contains(t, got, " 408 ")
	require.Contains(t, got, `{"detail":"Request Timeout"}`)
}

// TestSecure: an upstream on https sees its own name, is not trusted without its certificate, and its failed connections end too.
func TestSecure(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	conns, hosts := map[string]int{}, map[string]bool{}
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		conns[r.RemoteAddr]++
		hosts[r.Host] = true
		if r.URL.Path == "/fail" {
			w.WriteHeader(500)
		}
	}))
	defer up.Close()
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	_, got := front(t, up.URL).get("/x")
	require.Contains(t, got, "its certificate is not accepted")
	w := front(t, up.URL, func(c *Config) {
		c.Upstream.tls.RootCAs = up.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	})
	for range 3 {
		status, _ := w.get("/x")
		require.Equal(t, 200, status)
	}
	require.Len(t, conns, 1)
	for range 2 {
		_, _ = w.get("/fail")
	}
	require.Len(t, conns, 2)
	require.Equal(t, map[string]bool{strings.TrimPrefix(up.URL, "https://"): true}, hosts)
}

// panicking is a recorder with a mistake in everything that it does.
type panicking struct{ Recorder }

// TestRecorderPanics: calls pass as they are when recording breaks.
func TestRecorderPanics(t *testing.T) {
	t.Parallel()
	for _, rec := range []Recorder{panicking{}, panicking{brokenRuns{}}} { // a nil Recorder panics wherever it is asked
		media := "application/json"
		w := behind(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Content-Location", "/threads/"+aThread+"/runs/"+aRun)
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, "data: "+string(body)+"\n\n")
		}, func(c *Config) { c.Recorder = rec })
		for _, path := range []string{"/state", "/history", "", "/runs/" + aRun + "/join", "/stream"} {
			if media = "application/json"; path == "/stream" {
				media = "text/event-stream"
			}
			status, got := w.get("/threads/" + aThread + path)
			require.Equal(t, 200, status, path)
			require.Equal(t, "data: \n\n", got, path)
		}
		for _, path := range []string{"/runs", "/runs/wait", "/runs/stream", "/state"} {
			status, got := w.post("/threads/"+aThread+path, "body")
			require.Equal(t, 200, status, path)
			require.Equal(t, "data: body\n\n", got, path)
		}
		res := w.do(http.MethodDelete, "/threads/"+aThread, nil)
		require.Equal(t, 200, res.StatusCode)
		w.stop()
	}
}

// brokenRuns begins well.
type brokenRuns struct{ Recorder }

func (brokenRuns) Begin(_ context.Context, _ *Call, _ id.Thread, body []byte) (Run, []byte) {
	return struct{ Run }{}, body
}

func (brokenRuns) Join(context.Context, *Call, id.Thread, id.Run) Run { return struct{ Run }{} }

func (brokenRuns) Update(_ context.Context, _ *Call, _ id.Thread, body []byte) (Update, []byte) {
	return struct{ Update }{}, body
}
