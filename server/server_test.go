package server

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/header"
	"understudy/run"
	"understudy/server/internal/web"
	"understudy/thread"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		text   string
		worth  bool
	}{
		{fault.New(fault.Invalid, "a"), 400, "a", false},
		{fault.New(fault.Unauthorized, "a"), 401, "a", false},
		{fault.New(fault.Forbidden, "a"), 403, "a", false},
		{fault.New(fault.NotFound, "a"), 404, "a", false},
		{fault.New(fault.Conflict, "a"), 409, "a", false},
		{fault.New(fault.TooLarge, "a"), 413, "a", false},
		{fault.New(fault.Unprocessable, "a"), 422, "a", false},
		{fault.New(fault.NotSupported, "a"), 501, "a", false},
		{fault.New(fault.Unavailable, "a"), 503, "a", true},
		{fmt.Errorf("subscribe: %w", bridge.ErrInterrupted), 503, "Live streams are interrupted, try again", false},
		{fault.New(fault.Internal, "secret"), 500, "Internal Server Error", true},
		{fmt.Errorf("get: %w", fault.Wrap(fault.NotFound, "a", errors.New("secret"))), 404, "a", false},
		{errors.New("secret"), 500, "Internal Server Error", true},
		{fmt.Errorf("read: %w", context.Canceled), 503, "Service Unavailable", false},
		{ErrShutdown, 503, "The server is shutting down", false},
		{fiber.ErrMethodNotAllowed, 405, "Method Not Allowed", false},
	} {
		status, text, worth := web.Explain(c.err)
		require.Equal(t, []any{c.status, c.text, c.worth}, []any{status, text, worth}, c.err.Error())
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const (
		a  = "/assistants/" + someID
		th = "/threads/" + someThread
		r  = th + "/runs/" + someRun
	)
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string // "" any
	}{
		{"POST", "/assistants", `{"graph_id":"g"}`, 200, ""},
		{"POST", "/assistants/search", `{}`, 200, ""},
		{"POST", "/assistants/search", `{"select":["name"]}`, 200, `[{"name":"n"},{"name":"n"}]`},
		{"POST", "/assistants/count", `{}`, 200, `7`},
		{"GET", a, "", 200, `{"assistant_id":"` + someID + `","graph_id":"g","config":{},"context":{},"metadata":{},"name":"n","created_at":"2026-01-02T03:04:05.678901+00:00","updated_at":"2026-01-02T03:04:05.678901+00:00","version":1,"description":null}`},
		{"HEAD", a, "", 200, ""},
		{"PATCH", a, `{}`, 200, ""},
		{"DELETE", a, "", 204, ""},
		{"GET", "/assistants/echo/graph?xray=1", "", 200, `{"nodes":[],"edges":[]}`},
		{"GET", "/understudy/graphs", "", 200, `{"graphs":["g"]}`},
		{"GET", "/assistants/echo/graph?xray=0", "", 422, `{"detail":"Invalid xray value"}`},
		{"GET", "/assistants/echo", "", 422, `{"detail":"Invalid assistant ID: must be a UUID"}`},
		{"GET", a + "/schemas", "", 200, ""},
		{"GET", a + "/subgraphs/a%7Cb", "", 200, `{}`},
		{"POST", a + "/versions", `{}`, 200, ""},
		{"POST", a + "/latest", `{"version":1}`, 200, ""},
		{"POST", "/threads", `{}`, 200, `{"thread_id":"` + someThread + `","created_at":"2026-01-02T03:04:05.678901+00:00","updated_at":"2026-01-02T03:04:05.678901+00:00","state_updated_at":"2026-01-02T03:04:05.678901+00:00","metadata":{},"status":"idle","config":{},"values":null}`},
		{"POST", "/threads", `{oops`, 422, `{"detail":"Invalid JSON in request body"}`},
		{"POST", "/threads", ``, 422, `{"detail":"Invalid JSON in request body"}`},
		{"POST", "/threads/search", `{}`, 200, ""},
		{"POST", "/threads/count", `{}`, 200, `3`},
		{"POST", "/threads/prune", `{"thread_ids":["` + someThread + `"]}`, 200, `{"pruned_count":1}`},
		{"POST", "/threads/prune", `{"thread_ids":["` + someThread + `"],"where":{"status":"error"}}`, 200, `{"pruned_count":0,"unmatched_count":1}`},
		{"GET", th, "", 200, ""},
		{"PATCH", th, `{}`, 200, ""},
		{"DELETE", th, "", 204, ""},
		{"POST", th + "/copy", "", 200, ""},
		{"POST", "/threads/xyz/copy", "", 400, `{"detail":"badly formed hexadecimal UUID string"}`},
		{"GET", th + "/storage", "", 200, `{"thread_id":"` + someThread + `","total_bytes":39,"checkpoints":{"count":2,"bytes":30},"channel_values":{"count":4,"bytes":4,"by_channel":{"a":{"versions":3,"bytes":0},"b":{"versions":1,"bytes":4}}},"pending_writes":{"count":1,"bytes":5}}`},
		{"GET", "/threads/xyz/storage", "", 422, `{"detail":"Invalid thread ID: must be a UUID"}`},
		{"GET", th + "/state", "", 200, `{"values":{},"next":[],"tasks":[],"metadata":null,"created_at":null,"checkpoint":null,"parent_checkpoint":null,"interrupts":[],"checkpoint_id":null,"parent_checkpoint_id":null}`},
		{"GET", th + "/state/xyz", "", 200, `{"values":{},"next":[],"tasks":[],"metadata":null,"created_at":null,"checkpoint":{"checkpoint_id":"xyz","thread_id":"` + someThread + `"},"parent_checkpoint":null,"interrupts":[],"checkpoint_id":"xyz","parent_checkpoint_id":null}`},
		{"POST", th + "/state", `{"values":{}}`, 200, ""},
		{"POST", th + "/state/checkpoint", `{"checkpoint":{}}`, 200, ""},
		{"GET", th + "/history?limit=x", "", 422, `{"detail":"Invalid limit x"}`},
		{"GET", th + "/history?limit=", "", 422, `{"detail":"Invalid limit "}`},
		{"GET", th + "/history?limit=-1", "", 200, `[]`},
		{"GET", th + "/history", "", 200, `[]`},
		{"POST", th + "/history", `{}`, 200, `[]`},
		{"POST", th + "/runs", `{"assistant_id":"a"}`, 200, ""},
		{"GET", th + "/runs?select=run_id&select=status", "", 200, `[{"run_id":"` + someRun + `","status":"pending"}]`},
		{"GET", th + "/runs?limit=0", "", 200, `[]`},
		{"GET", th + "/runs?status=", "", 200, `[]`},
		{"GET", th + "/runs?limit=", "", 400, `{"detail":"invalid literal for int() with base 10: ''"}`},
		{"GET", th + "/runs?offset=x", "", 400, `{"detail":"invalid literal for int() with base 10: 'x'"}`},
		{"GET", th + "/runs?offset=-1", "", 422, `{"detail":"Invalid offset -1"}`},
		{"GET", th + "/runs?select=nope", "", 422, ""},
		{"GET", r, "", 200, ""},
		{"GET", th + "/runs/xyz", "", 422, `{"detail":"Invalid run ID: must be a UUID"}`},
		{"POST", "/threads/xyz/runs/stream", `{"assistant_id":"a"}`, 400, `{"detail":"badly formed hexadecimal UUID string"}`},
		{"POST", "/threads/xyz/runs/wait", `{"assistant_id":"a"}`, 400, `{"detail":"badly formed hexadecimal UUID string"}`},
		{"POST", "/threads/xyz/runs", `{"assistant_id":"a"}`, 422, `{"detail":"Invalid thread ID"}`},
		{"DELETE", r, "", 204, ""},
		{"POST", r + "/cancel", "", 202, ""},
		{"POST", r + "/cancel?wait=yes", "", 200, `{}`},
		{"POST", "/runs", `{"assistant_id":"a"}`, 200, ""},
		{"POST", "/runs/batch", `[{"assistant_id":"a"}]`, 200, ""},
		{"POST", "/runs/cancel", `{"status":"all"}`, 204, ""},
		{"POST", "/runs/crons", `{"assistant_id":"a","schedule":"* * * * *"}`, 200, ""},
		{"POST", th + "/runs/crons", `{"assistant_id":"a","schedule":"* * * * *"}`, 200, ""},
		{"POST", "/runs/crons/search", `{"select":["cron_id"]}`, 200, `[{"cron_id":"` + someID + `"}]`},
		{"POST", "/runs/crons/count", `{}`, 200, `1`},
		{"GET", "/runs/crons/" + someID, "", 200, ""},
		{"GET", "/runs/crons/xyz", "", 422, `{"detail":"Invalid cron ID: must be a UUID"}`},
		{"PATCH", "/runs/crons/" + someID, `{"enabled":false}`, 200, ""},
		{"DELETE", "/runs/crons/" + someID, "", 204, ""},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{}}`, 204, ""},
		{"GET", "/store/items?namespace=a.b&key=k", "", 200, `null`},
		{"GET", "/store/items?namespace=a", "", 400, `{"error":"Key is required"}`},
		{"DELETE", "/store/items", `{"namespace":["a"],"key":"k"}`, 204, ""},
		{"POST", "/store/items/search", `{}`, 200, `{"items":[]}`},
		{"POST", "/store/namespaces", `{}`, 200, `{"namespaces":[["a","b"]]}`},
		{"GET", "/ok", "", 200, `{"ok":true,"services":{}}`},
		{"HEAD", "/ok", "", 200, ""},
		{"GET", "/api/langgraph/ok", "", 200, `{"ok":true,"services":{}}`},
		{"GET", "/info", "", 200, ""},
		{"GET", "/metrics", "", 200, ""},
		{"GET", "/nowhere", "", 404, `{"detail":"Not Found"}`},
		{"GET", "//ok", "", 404, `{"detail":"Not Found"}`},
		{"PUT", "/threads/xyz", "", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", "/threads", "", 405, `{"detail":"Method Not Allowed"}`},
		{"DELETE", "/runs/batch", "", 405, `{"detail":"Method Not Allowed"}`},
		{"POST", "/a2a/x", `{}`, 200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid JSON-RPC message: missing or invalid jsonrpc version"}}`},
		{"GET", th + "/stream/events", "", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", th + "/stream?stream_modes=nope", "", 422, `{"detail":"Invalid stream mode: nope"}`},
	} {
		res, answer := w.ask(t, c.method, c.path, c.body)
		require.Equal(t, c.status, res.StatusCode, "%s %s: %s", c.method, c.path, answer)
		if c.answer != "" {
			require.Equal(t, c.answer, answer, "%s %s", c.method, c.path)
		}
		if c.status == 200 && c.method == "HEAD" {
			require.Empty(t, answer)
		}
		if c.status == 202 || c.status == 204 {
			require.Empty(t, answer)
			require.Empty(t, res.Header.Get("Content-Type"))
		}
		if answer != "" && c.method != "HEAD" && c.path != "/metrics" {
			require.Equal(t, "application/json", res.Header.Get("Content-Type"), c.path)
			require.True(t, json.Valid([]byte(answer)), answer)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for path, want := range map[string]string{"/threads/?a=b&c": "/threads?a=b&c", "/threads/" + someThread + "/": "/threads/" + someThread, "/nowhere/": "", "//evil.example/": ""} {
		res, _ := w.ask(t, "POST", path, "{}")
		require.Equal(t, want, res.Header.Get("Location"), path)
		if want != "" {
			require.Equal(t, 307, res.StatusCode)
		} else {
			require.Equal(t, 404, res.StatusCode)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, _ := w.ask(t, "POST", "/assistants/search", `{"limit":2,"offset":4}`)
	require.Equal(t, []string{"6", "7"}, []string{res.Header.Get("X-Pagination-Next"), res.Header.Get("X-Pagination-Total")})
	res, _ = w.ask(t, "POST", "/threads/search", `{"limit":2,"offset":4}`)
	require.Equal(t, []string{"", "5"}, []string{res.Header.Get("X-Pagination-Next"), res.Header.Get("X-Pagination-Total")})
	require.True(t, w.last().(thread.Search).Limit == 2)
}

func TestPatchMinimal(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "PATCH", "/threads/"+someThread, `{}`, "Prefer", "return=minimal")
	require.Equal(t, 204, res.StatusCode)
	require.Empty(t, body)
}

func TestDisabledAndMounted(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Disable = Disable{Store: true, Meta: true, MCP: true}; o.MountPrefix = "agents/" })
	for path, status := range map[string]int{"/ok": 200, "/agents/ok": 200, "/info": 404, "/docs": 404, "/store/items?key=k": 404, "/mcp": 404, "/agents/threads/" + someThread: 200} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, status, res.StatusCode, path)
	}
}

func TestDescription(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, body := w.ask(t, "GET", "/openapi.json", "")
	var spec struct {
		OpenAPI    string
		Paths      map[string]map[string]struct{ Summary string }
		Components struct{ Schemas map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &spec))
	require.Equal(t, "3.1.0", spec.OpenAPI)
	for _, o := range operations {
		require.NotEmpty(t, spec.Paths[o.path][o.method].Summary, o.path)
	}
	for _, ref := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllStringSubmatch(body, -1) {
		require.Contains(t, spec.Components.Schemas, ref[1])
	}
	described := map[string]bool{}
	for key := range answers {
		method, path, _ := strings.Cut(key, " ")
		require.Contains(t, spec.Paths[path], method, key)
	}
	for _, o := range operations {
		described[o.path] = true
	}
	for _, p := range w.s.patterns {
		path := strings.Join(p.segments, "/")
		if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/mcp") || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/a2a") || strings.HasPrefix(path, "/.well") || strings.HasPrefix(path, "/ui/") ||
			strings.HasSuffix(path, "/events") {
			continue
		}
		require.True(t, described[path], path)
	}
}

// The pages and files that a browser loads, from each address of the first page, exist, and nothing is loaded from elsewhere.
func TestDocs(t *testing.T) {
	t.Parallel()
	prefixed, plain := setup(t, func(o *Options) { o.MountPrefix = "agents" }), setup(t)
	attribute := regexp.MustCompile(`(?:src|href)="([^"#]+)`)
	for _, start := range []string{"/docs", "/docs/api.html", "/agents/docs", "/agents/docs/overlay.html"} {
		w := plain
		if strings.HasPrefix(start, "/agents") {
			w = prefixed
		}
		res, page := w.ask(t, "GET", start, "")
		require.Equal(t, 200, res.StatusCode, start)
		require.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
		base, err := url.Parse(start)
		require.NoError(t, err)
		if given := regexp.MustCompile(`<base href="([^"]+)">`).FindStringSubmatch(page); given != nil {
			base, err = base.Parse(given[1])
			require.NoError(t, err)
		}
		links := attribute.FindAllStringSubmatch(page, -1)
		require.Greater(t, len(links), 10)
		for _, link := range links {
			if link[1] == "docs/" {
				continue // the base
			}
			to, err := base.Parse(link[1])
			require.NoError(t, err)
			if to.Host != "" {
				require.NotRegexp(t, `(src|<link[^>]*href)="`+regexp.QuoteMeta(link[1]), page, "loaded from elsewhere")
				continue
			}
			res, body := w.ask(t, "GET", to.Path, "")
			require.Equal(t, 200, res.StatusCode, "%s on %s", to, start)
			require.NotEmpty(t, body)
			require.NotEmpty(t, res.Header.Get("Content-Type"), to)
		}
	}
	res, _ := plain.ask(t, "GET", "/docs/nothing.html", "")
	require.Equal(t, 404, res.StatusCode)
	for _, accepts := range []string{"gzip", "identity"} {
		res, body := plain.ask(t, "GET", "/docs/swagger-ui.css", "", "Accept-Encoding", accepts)
		if accepts == "gzip" {
			require.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
			unpacked, err := gzip.NewReader(strings.NewReader(body))
			require.NoError(t, err)
			b, err := io.ReadAll(unpacked)
			require.NoError(t, err)
			body = string(b)
		}
		require.Contains(t, body, ".swagger-ui")
	}
}

func (failing) Describe(ch chan<- *prometheus.Desc) { ch <- prometheus.NewDesc("broken", "", nil, nil) }

func (failing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("no"))
}

func TestServiceErrors(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.err = fault.New(fault.NotFound, "Thread with ID x not found")
	res, body := w.ask(t, "GET", "/threads/"+someThread, "")
	require.Equal(t, []any{404, `{"detail":"Thread with ID x not found"}`}, []any{res.StatusCode, body})
	w.err = errors.New("the disk burns")
	res, body = w.ask(t, "GET", "/threads/"+someThread, "", "X-Request-Id", "rq")
	require.Equal(t, []any{500, `{"detail":"Internal Server Error"}`, "rq"}, []any{res.StatusCode, body, res.Header.Get("X-Request-Id")})
	w.err = fault.New(fault.Unprocessable, "Namespace label '' must be a non-empty string without periods")
	res, body = w.ask(t, "GET", "/store/items?key=n", "")
	require.Equal(t, []any{422, "Namespace label '' must be a non-empty string without periods", "text/plain; charset=utf-8"}, []any{res.StatusCode, body, res.Header.Get("Content-Type")})
	res, body = w.ask(t, "PUT", "/store/items", `{}`)
	require.Equal(t, 422, res.StatusCode)
	require.Contains(t, body, `{"detail":"`)
	w.err = fault.New(fault.Conflict, "Thread is already running a task.")
	for _, suffix := range []string{"", "/wait", "/stream"} {
		res, _ = w.ask(t, "POST", "/threads/"+someThread+"/runs"+suffix, `{"assistant_id":"a"}`)
		require.Equal(t, 409, res.StatusCode)
	}
	require.Zero(t, w.s.Slots.InUse())
}

func TestPanicInAHandler(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) {
		o.Bind = func(context.Context, func(string) string) (context.Context, error) { panic("oops") }
	})
	res, body := w.ask(t, "GET", "/ok", "")
	require.Equal(t, []any{500, `{"detail":"Internal Server Error"}`}, []any{res.StatusCode, body})
}

func TestRunRequest(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) {
		o.Configurable = header.Filter{Includes: []string{"x-*"}, Excludes: []string{"x-quiet"}}
		o.CheckWebhook = func(a string) error { return fault.Newf(fault.Unprocessable, "Invalid webhook %s", a) }
	})
	path := "/threads/" + someThread + "/runs"
	res, _ := w.ask(t, "POST", path, `{"assistant_id":"a"}`, "X-Request-Id", "rq-1", "X-Tenant", "t", "X-Quiet", "s")
	require.Equal(t, path+"/"+someRun, res.Header.Get("Content-Location"))
	require.Empty(t, res.Header.Get("Location"))
	got := w.last().(run.Request)
	require.Equal(t, "rq-1", got.RequestID)
	require.Equal(t, map[string]string{"x-request-id": "rq-1", "x-tenant": "t"}, got.Headers)
	w.ask(t, "POST", path, `{"assistant_id":"a"}`, "X-Request-Id", strings.Repeat("x", 300))
	require.True(t, id.IsUUID(w.last().(run.Request).RequestID))
	res, body := w.ask(t, "POST", path, `{"assistant_id":"a","webhook":"nowhere"}`)
	require.Equal(t, []any{422, `{"detail":"Invalid webhook nowhere"}`}, []any{res.StatusCode, body})
	res, _ = w.ask(t, "POST", "/runs", `{"assistant_id":"a"}`)
	require.Equal(t, "/runs/"+someRun, res.Header.Get("Content-Location"))
}

// Clients compare the version with those of LangGraph Server; ours has a name of its own. A probe without a path gets an answer.
func TestInfo(t *testing.T) {
	t.Parallel()
	python := ""
	w := setup(t, func(o *Options) {
		o.Version, o.APIVersion, o.LangGraphVersion = "devel", "0.16.7", func() string { return python }
	})
	for _, want := range []any{nil, "1.2.22"} {
		_, body := w.ask(t, "GET", "/info", "")
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.Equal(t, "0.16.7", got["version"])
		require.Equal(t, "devel", got["understudy_version"])
		require.Equal(t, true, got["understudy_doctor"])
		require.Equal(t, want, got["langgraph_py_version"])
		python = "1.2.22"
	}
	_, body := setup(t, func(o *Options) { o.Doctor = nil }).ask(t, "GET", "/info", "")
	require.Contains(t, body, `"understudy_doctor":false`, "its pages show no Health")
	for _, path := range []string{"/", "/api/langgraph/"} {
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, 200, res.StatusCode, path)
		require.Equal(t, `{"ok":true,"services":{}}`, body)
	}
}
