package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/thread"
)

const upstreamThread = "11111111-1111-4111-8111-111111111111"

// fakeUpstream serves one thread whose checkpoints each bring a question and an answer.
type fakeUpstream struct {
	*httptest.Server
	turns   int
	guarded atomic.Bool // it demands credentials
	asked   atomic.Int64
}

func newFakeUpstream(t testing.TB, turns int) *fakeUpstream {
	u := &fakeUpstream{turns: turns}
	u.Server = httptest.NewServer(u)
	t.Cleanup(u.Close)
	return u
}

func checkpointID(n int) string { return fmt.Sprintf("1f000000-0000-6000-8000-%012d", n) }

func (u *fakeUpstream) values(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"type":"human","id":"h%[1]d","content":"question %[1]d %[2]s","additional_kwargs":{},"response_metadata":{},"name":null}`, i, strings.Repeat("word ", 20)),
			fmt.Sprintf(`{"type":"ai","id":"a%d","content":"answer","additional_kwargs":{},"response_metadata":{},"name":null,"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null}`, i))
	}
	return `{"messages":[` + strings.Join(all, ",") + `]}`
}

func (u *fakeUpstream) state(n int) string {
	parent := "null"
	if n > 1 {
		parent = fmt.Sprintf(`{"checkpoint_id":%q,"thread_id":%q,"checkpoint_ns":""}`, checkpointID(n-1), upstreamThread)
	}
	return fmt.Sprintf(`{"values":%s,"next":[],"tasks":[],"metadata":{"source":"loop","step":%d,"parents":{},"graph_id":"agent","run_id":"22222222-2222-4222-8222-222222222222"},`+
		`"created_at":"2026-01-01T00:00:00+00:00","checkpoint":{"checkpoint_id":%q,"thread_id":%q,"checkpoint_ns":""},"parent_checkpoint":%s,"interrupts":[],"checkpoint_id":%q,"parent_checkpoint_id":null}`,
		u.values(n), n, checkpointID(n), upstreamThread, parent, checkpointID(n))
}

func (u *fakeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.asked.Add(1)
	w.Header().Set("Content-Type", "application/json")
	if u.guarded.Load() && r.Header.Get("Authorization") == "" {
		w.Header().Set("Www-Authenticate", "Bearer")
		w.WriteHeader(401)
		fmt.Fprint(w, `{"detail":"Who are you?"}`)
		return
	}
	const thread = "/threads/" + upstreamThread
	switch r.Method + " " + r.URL.Path {
	case "GET " + thread:
		fmt.Fprintf(w, `{"thread_id":%q,"created_at":"2026-01-01T00:00:00+00:00","updated_at":"2026-01-01T00:00:00+00:00","metadata":{"graph_id":"agent"},"status":"idle","config":{},"values":%s}`, upstreamThread, u.values(u.turns))
	case "GET " + thread + "/state":
		fmt.Fprint(w, u.state(u.turns))
	case "GET " + thread + "/history", "POST " + thread + "/history":
		var q struct {
			Limit  int
			Before json.RawMessage
		}
		q.Limit = 10
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			_ = json.Unmarshal(body, &q)
		} else if l := r.URL.Query().Get("limit"); l != "" {
			_, _ = fmt.Sscan(l, &q.Limit)
		}
		from := u.turns
		for n := 1; n <= u.turns; n++ {
			if strings.Contains(string(q.Before)+r.URL.RawQuery, checkpointID(n)) {
				from = n - 1
			}
		}
		var list []string
		for n := from; n > 0 && len(list) < q.Limit; n-- {
			list = append(list, u.state(n))
		}
		fmt.Fprint(w, "["+strings.Join(list, ",")+"]")
	case "POST /threads/search":
		fmt.Fprint(w, "[]")
	default:
		w.WriteHeader(404)
		fmt.Fprint(w, `{"detail":"Not Found"}`)
	}
}

// runProxy runs a proxy until the returned function is called.
func runProxy(t testing.TB, upstream, data string, change ...func(*config.Config)) (addr string, stop func()) {
	t.Helper()
	p, err := NewProxy(t.Context(), ProxyConfig{Settings: proxySettings(t, upstream, data, change...)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return "http://" + p.Addr().String(), stop
}

func proxySettings(t testing.TB, upstream, data string, change ...func(*config.Config)) *config.Config {
	cfg := config.Default(config.Proxy)
	var err error
	cfg.Upstream.URL, err = url.Parse(upstream)
	require.NoError(t, err)
	cfg.Server.Port, cfg.Storage.Data = 0, data
	for _, f := range change {
		f(cfg)
	}
	return cfg
}

func fetch(t testing.TB, method, address string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	res, err := client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

// TestProxyOwnRoutes: messages and events are answered as the replacement answers them, after the upstream has let the caller see the thread.
func TestProxyOwnRoutes(t *testing.T) {
	others := goleak.IgnoreCurrent() // what servers of other tests have not ended yet
	t.Cleanup(func() {
		goleak.VerifyNone(t, others, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
	})
	up := newFakeUpstream(t, 3)
	up.guarded.Store(true)
	addr, _ := runProxy(t, up.URL, t.TempDir())
	const path = "/threads/" + upstreamThread
	res, body := fetch(t, "GET", addr+path+"/messages?limit=4", "Authorization", "me", "Origin", "http://app")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, "*", res.Header.Get("Access-Control-Allow-Origin"))
	var page struct {
		Data []struct {
			Seq     int
			Content struct{ ID string }
		}
		HasMore bool `json:"has_more"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &page))
	require.True(t, page.HasMore)
	require.Len(t, page.Data, 4)
	require.Equal(t, "a1", page.Data[3].Content.ID)
	res, body = fetch(t, "HEAD", addr+path+"/messages", "Authorization", "me")
	require.Equal(t, 200, res.StatusCode)
	require.Empty(t, body)
	for _, tt := range []struct {
		method, path, credentials string
		status                    int
		detail                    string
	}{
		{"GET", path + "/messages", "", 401, `{"detail":"Who are you?"}`},
		{"GET", path + "/events", "", 401, `{"detail":"Who are you?"}`},
		{"GET", "/threads/44444444-4444-4444-8444-444444444444/messages", "me", 404, `{"detail":"Not Found"}`},
		{"GET", path + "/runs/44444444-4444-4444-8444-444444444444/messages", "me", 404, `{"detail":"Not Found"}`},
		{"GET", path + "/messages?limit=0", "me", 422, `{"detail":"Invalid limit 0"}`},
		{"GET", path + "/messages?overlay=x", "me", 422, `{"detail":"Invalid overlay 'x'. Expected true, false or full"}`},
	} {
		res, body := fetch(t, tt.method, addr+tt.path, "Authorization", tt.credentials)
		require.Equal(t, tt.status, res.StatusCode, tt.path)
		require.Equal(t, tt.detail, body, tt.path)
		require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	}
	up.Close()
	res, body = fetch(t, "GET", addr+path+"/messages", "Authorization", "me")
	require.Equal(t, 502, res.StatusCode)
	require.Contains(t, body, "The upstream "+up.URL+" failed: it cannot be reached")
}

// TestProxyOffline: what was recorded is shown without the upstream, to callers without credentials, once the upstream was seen to need none.
func TestProxyOffline(t *testing.T) {
	up := newFakeUpstream(t, 3)
	data := t.TempDir()
	offline := func(c *config.Config) { c.Upstream.OfflineReads = true }
	addr, stop := runProxy(t, up.URL, data, offline)
	const path = "/threads/" + upstreamThread + "/messages"
	_, recorded := fetch(t, "GET", addr+path)
	require.Contains(t, recorded, `"h2"`)
	up.Close()
	look := func(addr string) {
		for _, header := range [][]string{nil, {"Accept", "a/b", "User-Agent", "x", "Origin", "http://app", "Sec-Fetch-Mode", "cors"}} {
			res, body := fetch(t, "GET", addr+path, header...)
			require.Equal(t, 200, res.StatusCode, body)
			require.Equal(t, recorded, body)
		}
		for _, header := range [][]string{{"Authorization", "x"}, {"X-Api-Key", "x"}, {"Cookie", "a=b"}, {"X-Anything", "x"}} {
			res, body := fetch(t, "GET", addr+path, header...)
			require.Equal(t, 502, res.StatusCode, header)
			require.NotContains(t, body, "h2")
		}
		res, _ := fetch(t, "GET", addr+path+"?token=x")
		require.Equal(t, 502, res.StatusCode)
		res, _ = fetch(t, "GET", addr+"/threads/44444444-4444-4444-8444-444444444444/messages")
		require.NotEqual(t, 200, res.StatusCode)
		res, _ = fetch(t, "GET", addr+"/threads/"+upstreamThread+"/state")
		require.Equal(t, 502, res.StatusCode)
	}
	look(addr)
	stop()
	addr, stop = runProxy(t, up.URL, data, offline)
	look(addr)
	stop()
	addr, stop = runProxy(t, up.URL, data)
	res, _ := fetch(t, "GET", addr+path)
	require.Equal(t, 502, res.StatusCode, "nobody asked for offline reads")
	stop()
	addr, _ = runProxy(t, up.URL, t.TempDir(), offline)
	res, _ = fetch(t, "GET", addr+path)
	require.Equal(t, 502, res.StatusCode, "the upstream was never seen to be open")
}

// TestProxyOfflineGuarded: an upstream that demands credentials is none to read without; what was known of it is forgotten.
func TestProxyOfflineGuarded(t *testing.T) {
	up := newFakeUpstream(t, 1)
	data := t.TempDir()
	offline := func(c *config.Config) { c.Upstream.OfflineReads = true }
	_, stop := runProxy(t, up.URL, data, offline)
	stop()
	up.guarded.Store(true)
	_, err := NewProxy(t.Context(), ProxyConfig{Settings: proxySettings(t, up.URL, data, offline)})
	require.ErrorContains(t, err, "the upstream requires credentials")
	up.Close()
	addr, _ := runProxy(t, up.URL, data, offline)
	res, _ := fetch(t, "GET", addr+"/threads/"+upstreamThread+"/messages")
	require.Equal(t, 502, res.StatusCode)
}

// TestProxyFolders: each upstream has a folder of its own, by its name or else its address; one proxy at a time may have it.
func TestProxyFolders(t *testing.T) {
	up := newFakeUpstream(t, 1)
	data := t.TempDir()
	seen := map[string]bool{}
	for _, c := range []*config.Config{
		proxySettings(t, "http://h:1", data), proxySettings(t, "http://h:2", data), proxySettings(t, "http://h:1/p", data),
		proxySettings(t, "http://h:1", data, func(c *config.Config) { c.Upstream.Name = "../My App" }),
		proxySettings(t, "http://h:1", data, func(c *config.Config) { c.Upstream.Name = "My-App" }),
	} {
		dir, schema := upstreamPlace(c)
		require.True(t, strings.HasPrefix(dir, data+"/upstreams/"), dir)
		require.NotContains(t, dir[len(data)+len("/upstreams/"):], "/")
		require.Regexp(t, "^upstream_[a-z0-9_]{1,54}$", schema)
		require.False(t, seen[dir] || seen[schema])
		seen[dir], seen[schema] = true, true
	}
	named := func(c *config.Config) { c.Upstream.Name = "x" }
	dir, schema := upstreamPlace(proxySettings(t, "http://h:1", data, named))
	dir2, schema2 := upstreamPlace(proxySettings(t, "http://h:2", data, named))
	require.Equal(t, []string{dir, schema}, []string{dir2, schema2})
	_, _ = runProxy(t, up.URL, data)
	_, _ = runProxy(t, up.URL, data, named)
	_, err := NewProxy(t.Context(), ProxyConfig{Settings: proxySettings(t, up.URL, data)})
	require.ErrorContains(t, err, "is in use by another server")
}

// TestProxiesShareADatabase: proxies that record into one Postgres database record each message once, whoever sees it first, and go on when
// their connections are cut. Without the database, answers pass as the upstream has them.
func TestProxiesShareADatabase(t *testing.T) {
	const turns, proxies = 12, 3
	up := newFakeUpstream(t, turns)
	pg := postgrestest.Start(t)
	address := pg.Address("postgres")
	on := func(c *config.Config) { c.Storage.DatabaseURL, c.Storage.Connections = address, 3 }
	var addrs []string
	for range proxies {
		addr, _ := runProxy(t, up.URL, t.TempDir(), on)
		addrs = append(addrs, addr)
	}
	const path = "/threads/" + upstreamThread
	var all sync.WaitGroup
	for _, addr := range addrs {
		for range 3 {
			all.Go(func() {
				if res, body := fetch(t, "GET", addr+path+"/state"); res.StatusCode != 200 || strings.Contains(body, "incomplete") {
					t.Error(res.Status, body)
				}
			})
		}
	}
	all.Wait()
	ids := func(addr string) (ids []string) {
		res, body := fetch(t, "GET", addr+path+"/messages?limit=1000")
		require.Equal(t, 200, res.StatusCode, body)
		for _, m := range gjson.Get(body, "data.#.content.id").Array() {
			ids = append(ids, m.String())
		}
		return ids
	}
	var want []string
	for n := range turns {
		want = append(want, fmt.Sprint("h", n), fmt.Sprint("a", n))
	}
	for _, addr := range addrs {
		require.Equal(t, want, ids(addr))
	}
	admin, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer admin.Close(t.Context())
	var events, last int
	_, schema := upstreamPlace(proxySettings(t, up.URL, "d"))
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*), max(seq) FROM "+schema+".events").Scan(&events, &last))
	require.Equal(t, events, last)
	require.Equal(t, 2*turns, events)

	other, _ := runProxy(t, up.URL, t.TempDir(), on, func(c *config.Config) { c.Upstream.Name = "Another" })
	_, err = admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'understudy'")
	require.NoError(t, err)
	for _, addr := range append(addrs, other) {
		require.Equal(t, want, ids(addr))
	}

	pg.Stop(t)
	for _, addr := range addrs {
		res, body := fetch(t, "GET", addr+path+"/state")
		require.Equal(t, 200, res.StatusCode, body)
		require.Equal(t, up.values(turns), gjson.Get(body, "values").Raw)
		res, body = fetch(t, "GET", addr+path+"/messages")
		require.Equal(t, 503, res.StatusCode, body)
		require.Contains(t, body, "the database cannot be reached")
	}
	pg.Restart(t)
	for _, addr := range addrs {
		require.Equal(t, want, ids(addr))
	}
}

// BenchmarkProxyState reads the state of a recorded thread of 400 messages, through the proxy and beside it.
func BenchmarkProxyState(b *testing.B) {
	up := newFakeUpstream(b, 200)
	state := up.state(200)
	fast := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/state") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, state)
			return
		}
		up.ServeHTTP(w, r)
	}))
	defer fast.Close()
	addr, stop := runProxy(b, fast.URL, b.TempDir())
	defer stop()
	for name, base := range map[string]string{"direct": fast.URL, "proxy": addr, "proxy raw": addr} {
		b.Run(name, func(b *testing.B) {
			path := "/threads/" + upstreamThread + "/state"
			if name == "proxy raw" {
				path = strings.Replace(path, "/threads/", "//threads/", 1) // a malformed path
			}
			b.SetBytes(int64(len(state)))
			for b.Loop() {
				res, err := http.Get(base + path)
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(b, err)
				res.Body.Close()
			}
		})
	}
}

// What is left of long threads that a proxy has forgotten is deleted while it runs.
func TestProxySweepsRemains(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p, err := NewProxy(t.Context(), ProxyConfig{Settings: proxySettings(t, "http://127.0.0.1:1", t.TempDir())})
	require.NoError(t, err)
	now := time.Now()
	gone := id.Thread(upstreamThread)
	require.NoError(t, p.rows.Threads().Write(ctx, func(tx thread.Tx) error {
		return errors.Join(tx.InsertThread(&thread.Thread{
			ID: gone, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now,
			Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle,
		}),
			tx.AppendEvents(gone, []*eventstore.Event{{Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: "m", Content: []byte("\xa1x"), CreatedAt: now}}),
			tx.RemoveThread(gone))
	}))
	left := func() int {
		list, err := p.rows.Threads().Remains(ctx, 10)
		require.NoError(t, err)
		return len(list)
	}
	require.Equal(t, 1, left())
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(running) }()
	require.Eventually(t, func() bool { return left() == 0 }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
