package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRequestLine: paths and queries reach the upstream byte for byte.
func TestRequestLine(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	up := wire(t, func(head string, c net.Conn) {
		line, _, _ := strings.Cut(head, "\r\n")
		lines <- line
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	for _, tt := range []struct{ prefix, path, want string }{
		{path: "/"},
		{path: "/threads/x%2Fy/../state//"},
		{path: "//double//slash"},
		{path: "/a%20b+c/%zz", want: "-"}, // net/http refuses what is no escape
		{path: "/caf\xc3\xa9/\"quoted\"/|"},
		{path: "/x?a=1;b=2&c=%zz&=&&d"},
		{path: "/x?"},
		{path: "/x?q=a+b%20c%2B"},
		{path: "/x?overlay=false&markers=off"},
		{path: "/understudy/other"},
		{path: "/threads/" + aThread + "/state?a=%zz&overlay=false&b;c&m%61rkers=off&d", want: "/threads/" + aThread + "/state?a=%zz&b;c&d"},
		{path: "/threads/" + aThread + "/state?overlay=true", want: "/threads/" + aThread + "/state"},
		{prefix: "/p%2Fq", path: "/a//b?c", want: "/p%2Fq/a//b?c"},
		{prefix: "/p", path: "//a", want: "/p//a"},
	} {
		w := front(t, up+tt.prefix)
		got := w.raw("GET " + tt.path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if tt.want == "-" {
			require.Contains(t, got, " 400 ")
			continue
		}
		if tt.want == "" {
			tt.want = tt.path
		}
		require.Contains(t, got, "200 OK", tt.path)
		require.Equal(t, "GET "+tt.want+" HTTP/1.1", <-lines)
		w.stop()
	}
}

// TestRequestHead: headers pass as they are, only those of one connection stay behind, and none is added.
func TestRequestHead(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 1)
	up := wire(t, func(head string, c net.Conn) {
		heads <- head
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	w := front(t, up)
	w.raw("GET /x HTTP/1.1\r\nHost: client.example:99\r\nAuthorization: Bearer a\r\nX-Api-Key: k\r\nX-Twice: 1\r\nX-Twice: 2\r\nCookie: a=b\r\n" +
		"Forwarded: for=1.2.3.4\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\nX-Understudy-Overlay: on\r\n" +
		"X-Hop: gone\r\nKeep-Alive: 5\r\nConnection: close, x-hop\r\n\r\n")
	head := strings.Split(strings.TrimSpace(<-heads), "\r\n")
	require.ElementsMatch(t, []string{
		"GET /x HTTP/1.1", "Host: client.example:99", "Authorization: Bearer a", "X-Api-Key: k", "X-Twice: 1", "X-Twice: 2", "Cookie: a=b",
		"Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Forwarded-Host: outer",
	}, head)

	w = front(t, up, func(c *Config) { c.Host = UpstreamHost })
	w.raw("GET /x HTTP/1.1\r\nHost: client.example\r\nConnection: close\r\n\r\n")
	require.Contains(t, <-heads, "Host: "+strings.TrimPrefix(up, "http://")+"\r\n")
}

// TestAnswers: what the upstream answers is what the client gets, to the byte, and nothing is said for it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const date = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
	for _, tt := range []struct{ name, method, answer, want string }{
		{name: "plain", answer: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"},
		{name: "no type, no date", answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n<a"},
		{name: "headers twice", answer: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 0\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n"},
		{name: "no content", answer: "HTTP/1.1 204 No Content\r\n" + date + "X-A: b\r\n\r\n"},
		{name: "not modified", answer: "HTTP/1.1 304 Not Modified\r\n" + date + "Etag: \"x\"\r\n\r\n"},
		{name: "redirect", answer: "HTTP/1.1 307 Temporary Redirect\r\n" + date + "Content-Length: 0\r\nLocation: /threads\r\n\r\n"},
		{name: "content location", answer: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 4\r\nContent-Location: /threads/1/runs/2\r\nContent-Type: a/b\r\n\r\nnull"},
		{name: "head", method: "HEAD", answer: "HTTP/1.1 200 OK\r\n" + date + "Content-Length: 17\r\nContent-Type: a/b\r\n\r\n"},
		{name: "options", method: "OPTIONS", answer: "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\n" + date + "Content-Length: 2\r\nVary: Origin\r\n\r\nOK"},
		{name: "a status that nobody knows", answer: "HTTP/1.1 299 Odd\r\n" + date + "Content-Length: 0\r\n\r\n", want: "HTTP/1.1 299 status code 299\r\n" + date + "Content-Length: 0\r\n\r\n"},
		{name: "early hints", answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + date + "\r\nok"},
		{name: "failure", answer: "HTTP/1.1 500 Internal Server Error\r\n" + date + "Content-Length: 21\r\nContent-Type: text/plain\r\n\r\nInternal Server Error"},
		{name: "another method", method: "QUERY", answer: "HTTP/1.1 405 Method Not Allowed\r\n" + date + "Allow: GET\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.method == "" {
				tt.method = http.MethodGet
			}
			if tt.want == "" {
				tt.want = tt.answer
			}
			up := wire(t, func(head string, c net.Conn) {
				if strings.HasPrefix(head, tt.method+" ") {
					fmt.Fprint(c, tt.answer)
				}
			})
			// Also on a route whose answers are looked at: what is no 200 with JSON stays.
			for _, path := range []string{"/x", "/threads/" + aThread} {
				got := front(t, up).raw(tt.method + " " + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				got = strings.Replace(got, "Connection: close\r\n", "", 1)
				require.Equal(t, sorted(tt.want), sorted(got))
			}
		})
	}
}

// sorted sorts the header lines of answers, whose order is not guaranteed.
func sorted(answer string) string {
	head, body, _ := strings.Cut(answer, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	for i := range lines {
		for j := i + 1; i > 0 && j < len(lines); j++ {
			if lines[j] < lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// TestBodies: bodies pass both ways, whatever their framing, and trailers with them.
func TestBodies(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", fmt.Sprint(len(body)))
	})
	for _, body := range []io.Reader{bytes.NewReader(big), io.MultiReader(bytes.NewReader(big))} { // counted, chunked
		res := w.do(http.MethodPut, "/x", body)
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(big, got))
		require.Equal(t, fmt.Sprint(len(big)), res.Trailer.Get("X-Sum"))
	}
	require.Equal(t, "-1", w.do(http.MethodPost, "/x", io.MultiReader(strings.NewReader("a"))).Header.Get("X-Length"))
	require.Equal(t, "0", w.do(http.MethodPost, "/x", nil).Header.Get("X-Length"))
}

// TestCompressed: a client that accepts gzip gets the upstream's own, also where answers are looked at; one that does not gets none.
func TestCompressed(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"values":"short"}`)
	require.NoError(t, z.Close())
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accepts", strings.Join(r.Header["Accept-Encoding"], "|"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	for path, accepts := range map[string]string{"/x": "gzip, br", "/threads/" + aThread + "/state": "identity"} {
		res := w.do(http.MethodGet, path, nil, "Accept-Encoding", "gzip, br")
		require.Equal(t, accepts, res.Header.Get("X-Accepts"))
		_, got := text(t, res)
		require.Equal(t, packed.String(), got)
	}
	require.Empty(t, w.do(http.MethodGet, "/x", nil).Header.Get("X-Accepts"))
}

// TestShown: each route whose answer carries messages is given to the recorder, with its thread and the caller's credentials.
func TestShown(t *testing.T) {
	t.Parallel()
	const base = "/threads/" + aThread
	for _, tt := range []struct{ method, path, body, note, want string }{
		{"GET", base + "/state", "", "state " + aThread + " live Bearer me", "whole"},
		{"GET", "/api/langgraph" + base + "/state", "", "state " + aThread + " live Bearer me", "whole"},
		{"GET", "/threads/" + strings.ToUpper(aThread) + "/state?subgraphs=1", "", "state " + aThread + " live Bearer me", "whole"},
		{"GET", base + "/state?overlay=false", "", "state " + aThread + " live Bearer me", "short"},
		{"GET", base + "/state/abc", "", "state " + aThread + " Bearer me", "whole"},
		{"POST", base + "/state/checkpoint", "{}", "state " + aThread + " Bearer me", "whole"},
		{"GET", base + "/history", "", "history " + aThread, "whole"},
		{"POST", base + "/history", "{}", "history " + aThread, "whole"},
		{"GET", base, "", "threads", "whole"},
		{"PATCH", base, "{}", "threads", "whole"},
		{"POST", base + "/copy", "", "threads", "whole"},
		{"POST", "/threads", "{}", "threads", "whole"},
		{"POST", "/threads/search", "{}", "threads", "whole"},
		{"POST", base + "/runs/wait", `{"echo",}`, "begin " + aThread, "whole"},
		{"GET", base + "/runs/" + aRun + "/join", "", "join " + aThread + " " + aRun, "whole"},
		{"POST", base + "/runs", `{"echo",}`, "begin " + aThread, "short"},
		{"POST", base + "/state", `{"echo",}`, "update " + aThread, "short"},
		// The rest passes.
		{"GET", "/threads/xyz/state", "", "", "short"},
		{"GET", "/threads", "", "", "short"},
		{"GET", base + "/state/a/b", "", "", "short"},
		{"GET", base + "/state/", "", "state " + aThread + " Bearer me", "whole"},
		{"PUT", base + "/state", "{}", "", "short"},
		{"POST", "/threads/count", "{}", "", "short"},
		{"POST", "/runs/wait", `["echo",1]`, "input ", "short"},
		{"POST", "/api/langgraph/runs/batch", `["echo",1]`, "input ", "short"},
		{"PATCH", "/runs/crons/" + aRun, `["echo",1]`, "input ", "short"},
		{"POST", "/runs/crons/search", `["echo",1]`, "", "short"},
		{"POST", base + "/stream/events", "{}", "watch " + aThread, "short"},
		{"POST", base + "/commands", `["echo",1]`, "input " + aThread, "short"},
		{"POST", base + "/messages", "{}", "", "short"},
		{"GET", base + "/runs/" + aRun, "", "", "short"},
		{"GET", "/threadsx/" + aThread + "/state", "", "", "short"},
		{"POST", base + "/runs/crons", `["echo",1]`, "input " + aThread, "short"},
		{"POST", "/threads", `["echo",1]`, "input ", "whole"},
		{"GET", base + "/runs/" + aRun + "/stream/x/y/z", "", "", "short"},
	} {
		w := behind(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Body", string(body))
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, `{"values":"short"}`)
		})
		res := w.do(tt.method, tt.path, strings.NewReader(tt.body), "Authorization", "Bearer me")
		_, got := text(t, res)
		require.Contains(t, got, tt.want, "%s %s", tt.method, tt.path)
		notes := w.recorder.notes()
		if tt.note == "" {
			require.Empty(t, notes, "%s %s", tt.method, tt.path)
			continue
		}
		require.Contains(t, notes, tt.note)
		require.Equal(t, strings.ReplaceAll(tt.body, `"echo",`, ""), res.Header.Get("X-Body"))
		if tt.want == "whole" && !strings.Contains(tt.path, "wait") && !strings.Contains(tt.path, "join") {
			require.Equal(t, int64(len(got)), res.ContentLength)
		}
		w.stop()
	}
}

func TestHistoryInPartSaysSo(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `["short"]`)
	})
	for _, partial := range []bool{false, true} {
		w.recorder.partial = partial
		res := w.do("GET", "/threads/"+aThread+"/history", nil)
		_, _ = text(t, res)
		require.Equal(t, map[bool]string{true: "partial; entries=7"}[partial], res.Header.Get("X-Understudy-Overlay"))
	}
}

// TestChoice: our own parameters and header are judged as the replacement judges them, and go no further.
func TestChoice(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, sent := r.Header["X-Understudy-Overlay"]
		fmt.Fprintf(w, "%s %v", r.URL.RawQuery, sent)
	})
	const state = "/threads/" + aThread + "/state"
	for _, tt := range []struct {
		path, header string
		status       int
		want         string
	}{
		{path: state + "?overlay=true&a=1", status: 200, want: "a=1 false"},
		{path: state, header: "off", status: 200, want: " false"},
		{path: "/x?markers=what", header: "what", status: 200, want: "markers=what false"},
		{path: state + "?overlay=1", status: 422, want: `{"detail":"Invalid overlay '1'. Expected true, false or full"}`},
		{path: state + "?markers=nonsense", status: 422, want: `{"detail":"Invalid markers 'nonsense'. Expected attached, system, summary_marker or off"}`},
		{path: state, header: "1", status: 422, want: `{"detail":"Invalid X-Understudy-Overlay header '1'. Expected on, off or full"}`},
	} {
		var header []string
		if tt.header != "" {
			header = []string{"X-Understudy-Overlay", tt.header}
		}
		status, got := w.get(tt.path, header...)
		require.Equal(t, tt.status, status, tt.path)
		require.Equal(t, tt.want, got)
	}
}

// TestRunsAreFollowed: the recorder hears of a run, of its result and of the end, and of updates that were accepted.
func TestRunsAreFollowed(t *testing.T) {
	t.Parallel()
	status := 200
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/wait") {
			w.Header().Set("Content-Location", "/threads/"+aThread+"/runs/"+aRun)
			_, _ = io.WriteString(w, "\n")
			w.(http.Flusher).Flush()
		}
		if status != 200 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, `{"run_id":"short"}`)
	})
	_, got := w.post("/threads/"+aThread+"/runs/wait", "{}")
	require.Equal(t, "\n"+`{"run_id":"the whole story"}`, got)
	<-w.recorder.ended
	_, _ = w.post("/threads/"+aThread+"/runs", "{}")
	<-w.recorder.ended
	_, _ = w.post("/threads/"+aThread+"/state", "{}")
	require.Equal(t, []string{
		"begin " + aThread, `created {"run_id":"` + aRun + `"}`, `result {"run_id":"short"}`,
		"begin " + aThread, `created {"run_id":"short"}`,
		"update " + aThread, `done {"run_id":"short"}`,
	}, w.recorder.notes())
	status = 409
	_, _ = w.post("/threads/"+aThread+"/runs", "{}")
	<-w.recorder.ended
	_, _ = w.post("/threads/"+aThread+"/state", "{}")
	require.Equal(t, []string{"begin " + aThread, "update " + aThread}, w.recorder.notes()[7:], "what was refused was not done")
}

// TestDeleted: threads that are deleted through the proxy are forgotten, once the upstream has said yes.
func TestDeleted(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Status") != "" {
			w.WriteHeader(404)
			_, _ = w.Write(body)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"pruned_count":` + cmp.Or(r.Header.Get("X-Pruned"), "2") + `}`))
	})
	other := "33333333-3333-4333-8333-333333333333"
	prune := `{"thread_ids": ["` + aThread + `","` + other + `"], "strategy": "delete"}`
	_, _ = text(t, w.do(http.MethodDelete, "/threads/"+aThread, nil, "X-Status", "404"))
	_, got := w.post("/threads/prune", prune, "X-Status", "404")
	require.Equal(t, prune, got)
	_, _ = w.post("/threads/prune", strings.Replace(prune, "delete", "keep_latest", 1))
	_, _ = w.post("/threads/prune", `{"thread_ids": 1}`)
	_, _ = w.post("/threads/prune", `{"thread_ids"`)
	_, got = w.post("/threads/prune", prune, "X-Pruned", "1")
	require.Equal(t, `{"pruned_count":1}`, got)
	require.Empty(t, w.recorder.gone, "one of them is not the caller's to delete")
	_, _ = text(t, w.do(http.MethodDelete, "/threads/"+aThread, nil))
	require.EqualValues(t, []string{aThread}, ids(w))
	_, _ = w.post("/threads/prune", prune)
	require.EqualValues(t, []string{aThread, aThread, other}, ids(w))
}

func ids(w *world) (out []string) {
	for _, t := range w.recorder.gone {
		out = append(out, string(t))
	}
	return out
}

// TestOwn: messages and events are answered here, whatever the upstream has there.
func TestOwn(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "upstream") })
	for _, path := range []string{"/messages", "/events?limit=5", "/runs/" + aRun + "/messages", "/runs/" + aRun + "/events"} {
		_, got := w.get("/threads/"+aThread+path, "Authorization", "me")
		require.Equal(t, "own me", got)
		_, got = w.post("/threads/"+aThread+path, "{}")
		require.Equal(t, "upstream", got)
	}
	_, got := w.get("/understudy/ok")
	require.JSONEq(t, `{"ok":true}`, got)
	_, got = w.get("/understudy/metrics")
	require.Contains(t, got, `understudy_proxy_calls_total{kind="own",status="own"} 4`)
	_, got = w.get("/understudy/else")
	require.Equal(t, "upstream", got)
}

// TestOwnOfAnUnderstudy: an upstream that keeps messages and events answers for them, with the query as it is, until it is down or another.
func TestOwnOfAnUnderstudy(t *testing.T) {
	t.Parallel()
	var info atomic.Pointer[string]
	set := func(s string) { info.Store(&s) }
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			_, _ = io.WriteString(w, `{"ok":true}`)
		case "/info":
			_, _ = io.WriteString(w, *info.Load())
		default:
			_, _ = io.WriteString(w, "upstream "+r.URL.RawQuery)
		}
	})
	for _, c := range []struct {
		info string
		want string
	}{
		{`{"version":"1"}`, "own "},
		{`{"version":"1","understudy_version":"2"}`, "upstream overlay=false&limit=5"},
		{`{"understudy_version":2}`, "own "},
		{`{"version":"1","understudy_version":"2"}`, "upstream overlay=false&limit=5"},
		{`{"understudy_version":"2"`, "own "},
	} {
		set(c.info)
		ctx, end := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- w.proxy.c.Upstream.Watch(ctx, time.Millisecond, slog.New(slog.DiscardHandler)) }()
		for _, path := range []string{"/messages", "/events", "/runs/" + aRun + "/messages", "/runs/" + aRun + "/events"} {
			require.Eventually(t, func() bool {
				_, got := w.get("/threads/" + aThread + path + "?overlay=false&limit=5")
				return got == c.want
			}, time.Minute, time.Millisecond, "%s %s", c.info, path)
		}
		end()
		require.ErrorIs(t, <-watched, context.Canceled)
	}
}

// TestReady: the proxy reports its own readiness on its own path; /readyz is the upstream's.
func TestReady(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ok" {
			w.WriteHeader(int(status.Load()))
		}
	})
	answers := func(w *world, status int, want string) {
		t.Helper()
		gotStatus, got := w.get("/understudy/readyz")
		require.Equal(t, []any{status, want}, []any{gotStatus, got})
		_, got = w.get("/understudy/livez")
		require.JSONEq(t, `{"live":true}`, got)
	}
	for _, fine := range []int64{200, 401, 404} {
		status.Store(fine)
		answers(w, 200, `{"ready":true,"checks":{"draining":"ok","upstream":"ok"}}`)
	}
	status.Store(503)
	answers(w, 503, `{"ready":false,"checks":{"draining":"ok","upstream":"failed"}}`)
	res := w.do(http.MethodHead, "/understudy/readyz", nil)
	require.Equal(t, []any{503, "1"}, []any{res.StatusCode, res.Header.Get("Retry-After")})

	up := dead(t)
	answers(front(t, up), 503, `{"ready":false,"checks":{"draining":"ok","upstream":"failed"}}`)
	// Offline reads answer without the upstream.
	answers(front(t, up, func(c *Config) { c.Offline = NewOffline(c.Upstream, "") }), 200, `{"ready":true,"checks":{"draining":"ok"}}`)

	w.proxy.endStreams(ErrShutdown)
	status.Store(200)
	answers(w, 503, `{"ready":false,"checks":{"draining":"failed","upstream":"ok"}}`)
}

// TestWebSocket: an upgraded connection is a tunnel, and ends when either side does.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") != "abc" {
			w.WriteHeader(400)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer close(closed)
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw) // echo
	})
	c, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprint(c, "GET /threads/"+aThread+"/stream/events HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\n\r\n")
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	for _, frame := range []string{"\x81\x05hello", strings.Repeat("\x00\xff", 50_000)} {
		go func() { _, _ = io.WriteString(c, frame) }()
		got := make([]byte, len(frame))
		_, err = io.ReadFull(in, got)
		require.NoError(t, err)
		require.Equal(t, frame, string(got))
	}
	require.NoError(t, c.Close())
	<-closed
}

// TestAsk: the recorder asks with the caller's credentials, and nothing of the call's own.
func TestAsk(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-A", "b")
		switch r.URL.Path {
		case "/p/threads/long":
			_, _ = w.Write(make([]byte, 2<<20))
			return
		case "/p/threads/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
			return
		}
		fmt.Fprintf(w, "%s %s %s %v %v", r.Method, r.RequestURI, body, r.Header["Authorization"], len(r.Header["Range"])+len(r.Header["Last-Event-Id"]))
	}))
	defer up.Close()
	w := front(t, up.URL+"/p")
	header := http.Header{"Authorization": {"me"}, "Range": {"bytes=0-1"}, "Last-Event-Id": {"4"}}
	status, head, body, err := w.proxy.c.Upstream.Ask(t.Context(), header, "POST", "/threads/x?a=b", []byte("{}"))
	require.NoError(t, err)
	require.Equal(t, "b", head.Get("X-A"))
	require.Equal(t, "200 POST /p/threads/x?a=b {} [me] 0", fmt.Sprint(status, " ", string(body)))
	_, _, _, err = w.proxy.c.Upstream.Ask(t.Context(), nil, "GET", "/threads/long", nil)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	_, _, _, err = w.proxy.c.Upstream.Ask(t.Context(), nil, "GET", "/threads/cut", nil)
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _, err = w.proxy.c.Upstream.Ask(ctx, nil, "GET", "/threads/x", nil)
	require.ErrorIs(t, err, context.Canceled)
	w.proxy.c.Upstream.transport.CloseIdleConnections()
}

// TestContinue: a client that asks before it sends is answered by the upstream, whether it may or not.
func TestContinue(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	for path, want := range map[string]string{"/yes": "HTTP/1.1 100 Continue", "/threads/" + aThread + "/state": "HTTP/1.1 100 Continue", "/no": "HTTP/1.1 417 Expectation Failed"} {
		c, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", path)
		in := bufio.NewReader(c)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(line), path)
		if path != "/no" {
			fmt.Fprint(c, "hello")
			rest, err := io.ReadAll(in)
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(string(rest), "\r\n\r\n5"), string(rest))
		}
		c.Close()
	}
}
