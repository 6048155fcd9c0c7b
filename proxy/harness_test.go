package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/eventstore/overlay"
	"understudy/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	aThread = "11111111-1111-4111-8111-111111111111"
	aRun    = "22222222-2222-4222-8222-222222222222"
)

// world is a proxy in front of an upstream.
type world struct {
	t        *testing.T
	proxy    *Proxy
	url      string
	addr     string
	recorder *fakeRecorder
	stop     func()
}

// front starts a proxy in front of addr.
func front(t *testing.T, upstream string, change ...func(*Config)) *world {
	t.Helper()
	u, err := url.Parse(upstream)
	require.NoError(t, err)
	rec := &fakeRecorder{ended: make(chan struct{}, 2000)}
	c := Config{
		Upstream: NewUpstream(u, 1<<20), Recorder: rec, MaxRewrite: 1 << 20, ShutdownTimeout: 2 * time.Second,
		Own: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := CallOf(r.Context())
			w.Header().Set("X-Offline", map[bool]string{true: "yes", false: "no"}[c.Offline])
			_, _ = io.WriteString(w, "own "+c.Header.Get("Authorization"))
		}),
	}
	for _, f := range change {
		f(&c)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := New(c)
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, ln) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return &world{t: t, proxy: p, url: "http://" + ln.Addr().String(), addr: ln.Addr().String(), recorder: rec, stop: stop}
}

// behind starts an upstream of a handler, and a proxy in front of it.
func behind(t *testing.T, h http.HandlerFunc, change ...func(*Config)) *world {
	t.Helper()
	up := httptest.NewServer(h)
	t.Cleanup(up.Close)
	return front(t, up.URL, change...)
}

// do makes a call that is not changed on its way out: no redirect is followed, nothing is decompressed, nothing added.
func (w *world) do(method, path string, body io.Reader, header ...string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, body)
	require.NoError(w.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	res, err := tr.RoundTrip(r)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { res.Body.Close(); tr.CloseIdleConnections() })
	return res
}

func (w *world) get(path string, header ...string) (int, string) {
	w.t.Helper()
	return text(w.t, w.do(http.MethodGet, path, nil, header...))
}

func (w *world) post(path, body string, header ...string) (int, string) {
	w.t.Helper()
	return text(w.t, w.do(http.MethodPost, path, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, header...)...))
}

func text(t *testing.T, res *http.Response) (int, string) {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

// wire listens as an upstream that reads one request after the other, byte for byte, and answers with the result of serve.
func wire(t *testing.T, serve func(request string, c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					var head strings.Builder
					for {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						head.WriteString(line)
						if line == "\r\n" {
							break
						}
					}
					serve(head.String(), c)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return "http://" + ln.Addr().String()
}

// raw sends bytes to the proxy and reads all that comes back.
func (w *world) raw(request string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	require.NoError(w.t, err)
	defer c.Close()
	_, err = io.WriteString(c, request)
	require.NoError(w.t, err)
	require.NoError(w.t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	b, _ := io.ReadAll(c)
	return string(b)
}

// fakeRecorder marks what it sees.
type fakeRecorder struct {
	partial bool // histories are shown in part
	mu      sync.Mutex
	seen    []string // what was asked of it
	gone    []id.Thread
	ended   chan struct{}
	// event decides over events; nil: all stay as they are.
	event func(event string, data []byte) ([]byte, overlay.Fate)
}

func (f *fakeRecorder) note(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, s)
}

func (f *fakeRecorder) notes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.seen...)
}

// shout is what the fake makes of a body: it stands for a transcript.
func shout(b []byte) []byte { return bytes.ReplaceAll(b, []byte("short"), []byte("the whole story")) }

func (f *fakeRecorder) State(_ context.Context, c *Call, t id.Thread, live bool, body []byte) []byte {
	f.note("state " + string(t) + map[bool]string{true: " live"}[live] + " " + c.Header.Get("Authorization"))
	if c.Choice.Overlay != nil && !*c.Choice.Overlay {
		return body
	}
	return shout(body)
}

func (f *fakeRecorder) History(_ context.Context, _ *Call, t id.Thread, body []byte) ([]byte, int, bool) {
	f.note("history " + string(t))
	return shout(body), 7, f.partial
}

func (f *fakeRecorder) Threads(_ context.Context, _ *Call, body []byte) []byte {
	f.note("threads")
	return shout(body)
}

func (f *fakeRecorder) Begin(_ context.Context, _ *Call, t id.Thread, body []byte) (Run, []byte) {
	f.note("begin " + string(t))
	return &fakeRun{f}, bytes.ReplaceAll(body, []byte(`"echo",`), nil)
}

func (f *fakeRecorder) Join(_ context.Context, _ *Call, t id.Thread, r id.Run) Run {
	f.note("join " + string(t) + " " + string(r))
	return &fakeRun{f}
}

func (f *fakeRecorder) Watch(_ context.Context, _ *Call, t id.Thread) Run {
	f.note("watch " + string(t))
	return &fakeRun{f}
}

func (f *fakeRecorder) Update(_ context.Context, _ *Call, t id.Thread, body []byte) (Update, []byte) {
	f.note("update " + string(t))
	return fakeUpdate{f}, bytes.ReplaceAll(body, []byte(`"echo",`), nil)
}

func (f *fakeRecorder) Input(_ context.Context, _ *Call, t id.Thread, body []byte) (Update, []byte) {
	f.note("input " + string(t))
	return nil, bytes.ReplaceAll(body, []byte(`"echo",`), nil)
}

func (f *fakeRecorder) Gone(_ context.Context, t id.Thread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, t)
}

type fakeRun struct{ f *fakeRecorder }

func (x *fakeRun) Created(_ context.Context, run []byte) { x.f.note("created " + string(run)) }

func (x *fakeRun) Result(_ context.Context, body []byte) []byte {
	x.f.note("result " + string(body))
	return shout(body)
}

func (x *fakeRun) Event(_ context.Context, event string, data []byte) ([]byte, overlay.Fate) {
	if x.f.event != nil {
		return x.f.event(event, data)
	}
	return data, overlay.Shown
}

func (x *fakeRun) Ended() { x.f.note("ended") }

func (x *fakeRun) End(context.Context) { x.f.ended <- struct{}{} }

type fakeUpdate struct{ f *fakeRecorder }

func (u fakeUpdate) Done(_ context.Context, answer []byte) { u.f.note("done " + string(answer)) }

func contextOf(r *http.Request) (*http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	return r.WithContext(ctx), cancel
}
