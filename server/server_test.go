package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/header"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
	"understudy/run"
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
		status, text, worth := explain(c.err)
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

func TestCORS(t *testing.T) {
	t.Parallel()
	preflight := []string{"Origin", "http://app.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,x-api-key"}
	t.Run("any origin", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		res, body := w.ask(t, "OPTIONS", "/threads", "", preflight...)
		require.Equal(t, []any{200, "OK"}, []any{res.StatusCode, body})
		require.Equal(t, "*", res.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY", res.Header.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "content-type,x-api-key", res.Header.Get("Access-Control-Allow-Headers"))
		require.Equal(t, "600", res.Header.Get("Access-Control-Max-Age"))
		require.Empty(t, res.Header.Values("Access-Control-Allow-Private-Network"))
		res, _ = w.ask(t, "OPTIONS", "/threads", "", append(preflight, "Access-Control-Request-Private-Network", "true")...)
		require.Equal(t, []any{200, "true"}, []any{res.StatusCode, res.Header.Get("Access-Control-Allow-Private-Network")})
		for _, path := range []string{"/ok", "/threads/xyz", "/nowhere"} {
			res, _ = w.ask(t, "GET", path, "", "Origin", "http://app.example")
			require.Equal(t, "*", res.Header.Get("Access-Control-Allow-Origin"), path)
			require.Equal(t, "x-pagination-total, x-pagination-next, content-location", res.Header.Get("Access-Control-Expose-Headers"))
		}
		res, _ = w.ask(t, "GET", "/ok", "")
		require.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
		res, _ = w.ask(t, "OPTIONS", "/threads", "", "Origin", "http://app.example")
		require.Equal(t, 405, res.StatusCode)
	})
	t.Run("some origins with credentials", func(t *testing.T) {
		t.Parallel()
		w := setup(t, func(o *Options) {
			o.CORS = CORS{AllowOrigins: []string{"http://app.example"}, AllowOriginRegex: regexp.MustCompile(`https://.*\.good\.example`), AllowCredentials: true, ExposeHeaders: []string{"x-more", "Content-Location", "X-More", "x-pagination-total"}}
		})
		res, _ := w.ask(t, "OPTIONS", "/threads", "", preflight...)
		require.Equal(t, []string{"http://app.example", "true"}, []string{res.Header.Get("Access-Control-Allow-Origin"), res.Header.Get("Access-Control-Allow-Credentials")})
		res, _ = w.ask(t, "GET", "/ok", "", "Origin", "https://a.good.example")
		require.Equal(t, "https://a.good.example", res.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "x-pagination-total, x-pagination-next, content-location, x-more", res.Header.Get("Access-Control-Expose-Headers"))
		for _, origin := range []string{"http://other.example", "https://a.good.example.evil.example", "http://app.example.evil"} {
			res, _ = w.ask(t, "GET", "/ok", "", "Origin", origin)
			require.Empty(t, res.Header.Get("Access-Control-Allow-Origin"), origin)
			require.Contains(t, res.Header.Get("Vary"), "Origin")
			res, _ = w.ask(t, "OPTIONS", "/threads", "", "Origin", origin, "Access-Control-Request-Method", "POST")
			require.Equal(t, 400, res.StatusCode)
		}
	})
}

// Answers are those of LangGraph Server 0.16.7 with allow_origins only, and with methods and headers.
func TestRefusedPreflights(t *testing.T) {
	t.Parallel()
	const safe = "Accept, Accept-Language, Content-Language, Content-Type"
	var log logtest.Buffer
	narrow := setup(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.CORS = CORS{AllowOrigins: []string{"http://app.example"}, AllowMethods: []string{"GET"}, AllowHeaders: []string{"Content-Type"}}
	})
	wide := setup(t, func(o *Options) {
		o.CORS = CORS{AllowOrigins: []string{"http://app.example"}, AllowMethods: []string{"GET", "POST"}, AllowHeaders: []string{"x-api-key"}}
	})
	for _, c := range []struct {
		w                       *world
		origin, method, headers string
		status                  int
		body, methods, allowed  string
	}{
		{narrow, "http://app.example", "GET", "content-type", 200, "OK", "GET", safe},
		{narrow, "http://app.example", "GET", "", 200, "OK", "GET", safe},
		{narrow, "http://app.example", "POST", "content-type", 400, "Disallowed CORS method", "GET", safe},
		{narrow, "http://app.example", "POST", "content-type,x-api-key", 400, "Disallowed CORS method, headers", "GET", safe},
		{narrow, "http://app.example", "GET", "x-api-key", 400, "Disallowed CORS headers", "GET", safe},
		{narrow, "http://evil.example", "PUT", "x-foo", 400, "Disallowed CORS origin, method, headers", "GET", safe},
		{wide, "http://app.example", "POST", "content-type, X-Api-Key", 200, "OK", "GET, POST", safe + ", x-api-key"},
		{wide, "http://app.example", "DELETE", "content-type", 400, "Disallowed CORS method", "GET, POST", safe + ", x-api-key"},
	} {
		ask := []string{"Origin", c.origin, "Access-Control-Request-Method", c.method}
		if c.headers != "" {
			ask = append(ask, "Access-Control-Request-Headers", c.headers)
		}
		res, body := c.w.ask(t, "OPTIONS", "/threads", "", ask...)
		require.Equal(t, []any{c.status, c.body}, []any{res.StatusCode, body}, c)
		require.Equal(t, []string{c.methods, c.allowed, "600"}, []string{res.Header.Get("Access-Control-Allow-Methods"), res.Header.Get("Access-Control-Allow-Headers"), res.Header.Get("Access-Control-Max-Age")}, c)
		if c.origin == "http://app.example" {
			require.Equal(t, c.origin, res.Header.Get("Access-Control-Allow-Origin"))
		} else {
			require.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	line := log.String()
	require.Equal(t, 1, strings.Count(line, "a page may not send its request: CORS"), line)
	require.Contains(t, line, "Disallowed CORS method")
	require.Contains(t, line, `fix="in http.cors of langgraph.json add its method to allow_methods"`)
}

func TestDisabledAndMounted(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Disable = Disable{Store: true, Meta: true, MCP: true}; o.MountPrefix = "agents/" })
	for path, status := range map[string]int{"/ok": 200, "/agents/ok": 200, "/info": 404, "/docs": 404, "/store/items?key=k": 404, "/mcp": 404, "/agents/threads/" + someThread: 200} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, status, res.StatusCode, path)
	}
}

// A proxy that hides /metrics hides all of it: no alias, and no other spelling of the path, is served.
func TestMetricsAreAtTheRootOnly(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MountPrefix = "agents" })
	for _, path := range []string{"/metrics", "/agents/metrics"} {
		res, _ := w.ask(t, "GET", path, "")
		require.Equal(t, 200, res.StatusCode)
	}
	for _, prefix := range []string{"", "/agents", "/api/langgraph", "/api%2flanggraph"} {
		for _, form := range []string{"/metrics", "//metrics", "/./metrics", "/x/../metrics", "/%6detrics", "/%2Fmetrics", "/METRICS", "/metrics;", "/metrics%00", "/metrics%3F"} {
			if form == "/metrics" && (prefix == "" || prefix == "/agents") {
				continue
			}
			for _, method := range []string{"GET", "HEAD"} {
				res, _ := w.ask(t, method, prefix+form, "")
				require.Contains(t, []int{400, 404}, res.StatusCode, prefix+form)
			}
		}
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
		if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/mcp") || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/a2a") || strings.HasPrefix(path, "/.well") ||
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

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.ask(t, "GET", "/threads/"+someThread, "")
	w.ask(t, "GET", "/made-up", "")
	res, body := w.ask(t, "GET", "/metrics", "")
	require.True(t, strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain"))
	require.Contains(t, body, `understudy_http_requests_total{method="GET",path="/threads/{thread_id}",status="200"} 1`)
	require.Contains(t, body, `path="other",status="404"`)
	require.Contains(t, body, "understudy_body_bytes 0\n")
	require.NotContains(t, body, someThread)
	_, body = w.ask(t, "GET", "/metrics?format=json", "")
	var got struct {
		Queue struct {
			Pending int      `json:"n_pending"`
			Running int      `json:"n_running"`
			Longest *float64 `json:"pending_runs_wait_time_max_secs"`
			Middle  *float64 `json:"pending_runs_wait_time_med_secs"`
			Due     *float64 `json:"pending_unblocked_runs_wait_time_max_secs"`
		}
		API struct {
			Requests []struct {
				Method, Path  string
				Status, Count int
			} `json:"http_requests_total"`
		}
		Workers struct{ Max, Active, Available int }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, []int{4, 2}, []int{got.Queue.Pending, got.Queue.Running})
	require.Positive(t, *got.Queue.Longest)
	require.Positive(t, *got.Queue.Middle)
	require.Positive(t, *got.Queue.Due)
	require.Equal(t, []int{10, 3, 7}, []int{got.Workers.Max, got.Workers.Active, got.Workers.Available})
	require.Len(t, got.API.Requests, 2, "probes are not among them")
	require.Equal(t, "", got.API.Requests[1].Path, "no route was found")
	require.Equal(t, []int{404, 1}, []int{got.API.Requests[1].Status, got.API.Requests[1].Count})
	for _, line := range []string{
		`lg_api_http_requests_total{method="GET",path="/threads/{thread_id}",status="200"} 1`, "lg_api_workers_max 10", "lg_api_workers_active 3", "lg_api_workers_available 7",
	} {
		_, body = w.ask(t, "GET", "/metrics", "")
		require.Contains(t, body, line+"\n")
	}
}

// Streams are counted while they are open, and when they end.
func TestMetricsOfStreams(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := setup(t, func(o *Options) { o.Registry = registry })
	l := following(w)
	l.records <- record(1, "values", "1")
	l.records <- record(2, "values", "2")
	answered := make(chan string, 1)
	go func() {
		_, body := w.ask(t, "POST", runsPath+"/stream", `{"assistant_id":"a"}`)
		answered <- body
	}()
	value := func(name string, labels ...string) float64 { return metricstest.Value(t, registry, name, labels...) }
	require.Eventually(t, func() bool { return value("understudy_open_streams") == 1 }, time.Minute, time.Millisecond)
	close(l.records)
	require.Contains(t, <-answered, "data: 2")
	require.Eventually(t, func() bool { return value("understudy_open_streams") == 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return value("understudy_streams_ended_total", "reason", "done") == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, 2.0, value("understudy_stream_events_total"))
	require.Eventually(t, func() bool {
		return value("understudy_http_request_seconds", "path", "/threads/{thread_id}/runs/stream") == 1
	}, time.Minute, time.Millisecond)
	s := w.s
	require.True(t, s.bodies.take(7))
	require.Equal(t, 7.0, value("understudy_body_bytes"))
	s.bodies.give(7)
}

// A database that is away takes nothing along but what it knows.
func TestMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(broken{})
	w := setup(t, func(o *Options) { o.Registry = registry })
	w.mu.Lock()
	w.err = errors.New("gone")
	w.mu.Unlock()
	res, body := w.ask(t, "GET", "/metrics", "")
	require.Equal(t, 200, res.StatusCode)
	require.Contains(t, body, "understudy_open_streams 0\n")
	_, body = w.ask(t, "GET", "/metrics?format=json", "")
	require.Contains(t, body, `{"queue":{"n_pending":null,`)
	require.Contains(t, body, `"workers":{"max":10,`)
}

// broken is a collector that fails.
type broken struct{}

func (broken) Describe(ch chan<- *prometheus.Desc) { ch <- prometheus.NewDesc("broken", "", nil, nil) }

func (broken) Collect(ch chan<- prometheus.Metric) {
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
	require.Zero(t, w.s.slots.inUse())
}

func TestPanicInAHandler(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) {
		o.Bind = func(context.Context, func(string) string) (context.Context, error) { panic("oops") }
	})
	res, body := w.ask(t, "GET", "/ok", "")
	require.Equal(t, []any{500, `{"detail":"Internal Server Error"}`}, []any{res.StatusCode, body})
}

// What http.logging_headers selects is logged with each request; a secret that only a wildcard selects is not, and one line says so.
func TestLoggedHeaders(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	all := header.Filter{Includes: []string{"*"}, Excludes: []string{"accept-*"}}
	w := setup(t, func(o *Options) {
		o.Configurable, o.Logged = all, all
		o.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	})
	for range 2 {
		w.ask(t, "POST", "/threads/"+someThread+"/runs", `{"assistant_id":"a"}`, "X-Tenant", "t", "X-Session-Token", "SECRET", "Cookie", "a=SECRET")
	}
	require.NoError(t, w.stop())
	require.NotContains(t, log.String(), "SECRET")
	require.Equal(t, 2, strings.Count(log.String(), `"x-tenant":"t"`))
	require.NotContains(t, log.String(), "accept-encoding")
	require.Equal(t, 1, strings.Count(log.String(), `"header":"x-session-token"`))
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

func TestBodies(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxBody = 100_000; o.MaxBodies = 310_000; o.BodyTimeout = 300 * time.Millisecond })
	big := func(n int) string { return `{"metadata":{"a":"` + strings.Repeat("x", n) + `"}}` }
	for _, chunked := range []bool{false, true} {
		for n, status := range map[int]int{10: 200, 9000: 200, 99_000: 200, 100_001: 413, 3_000_000: 413, 40_000_000: 413} {
			var in io.Reader = strings.NewReader(big(n))
			if chunked {
				in = struct{ io.Reader }{in}
			}
			res, err := http.Post("http://"+w.addr+"/threads", "application/json", in)
			require.NoError(t, err, n)
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			require.Equal(t, status, res.StatusCode, "%d %v %s", n, chunked, b)
			if status == 200 {
				require.Len(t, w.last().(thread.New).Metadata, n+8)
			}
		}
	}
	require.Eventually(t, func() bool { return w.s.bodies.inUse() == 0 }, time.Minute, time.Millisecond)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	// Other requests hold the memory: new ones are refused, and succeed later.
	require.True(t, w.s.bodies.take(309_000))
	res, _ := w.ask(t, "POST", "/threads", big(50_000))
	require.Equal(t, []string{"503", "1"}, []string{res.Status[:3], res.Header.Get("Retry-After")})
	w.s.bodies.give(309_000)
	res, _ = w.ask(t, "POST", "/threads", big(50_000))
	require.Equal(t, 200, res.StatusCode)

	// A client that stops sending releases its memory.
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n%s", strings.Repeat("x", 20_000))
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, answer, "408")
	require.Eventually(t, func() bool { return w.s.bodies.inUse() == 0 }, time.Minute, time.Millisecond)
}

// creating notes what bodies take while threads are created.
type creating struct {
	fakeThreads
	taken func()
}

func (c creating) Create(ctx context.Context, n thread.New) (*thread.View, error) {
	c.taken()
	return c.fakeThreads.Create(ctx, n)
}

// A body counts with the copies that serving it makes, and one that could never be let in is refused for good.
func TestBodiesCountWithTheirCopies(t *testing.T) {
	t.Parallel()
	var w *world
	var most int64
	w = setup(t, func(o *Options) {
		o.MaxBodies = 300_000
		o.Threads = creating{o.Threads.(fakeThreads), func() { most = w.s.bodies.inUse() }}
	})
	body := func(n int) string { return `{"metadata":{"a":"` + strings.Repeat("x", n-21) + `"}}` }
	res, _ := w.ask(t, "POST", "/threads", body(90_000))
	require.Equal(t, 200, res.StatusCode)
	require.InDelta(t, 3*90_000, most, 100)
	res, answer := w.ask(t, "POST", "/threads", body(110_000))
	require.Equal(t, 413, res.StatusCode)
	require.Contains(t, answer, "100000 bytes")
	require.True(t, w.s.bodies.take(200_000))
	res, _ = w.ask(t, "POST", "/threads", body(50_000))
	require.Equal(t, []string{"503", "1"}, []string{res.Status[:3], res.Header.Get("Retry-After")})
	w.s.bodies.give(200_000)

	// So does what has arrived of one that is still being sent.
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n%s", strings.Repeat(" ", 60_000))
	require.Eventually(t, func() bool { return w.s.bodies.inUse() >= 3*60_000 }, time.Minute, time.Millisecond)
	res, _ = w.ask(t, "POST", "/threads", body(50_000))
	require.Equal(t, "503", res.Status[:3])
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return w.s.bodies.inUse() == 0 }, time.Minute, time.Millisecond)
}

// A body that no handler reads must not be taken for the next request.
func TestUnreadBodies(t *testing.T) {
	t.Parallel()
	w := setup(t)
	smuggled := "DELETE /threads/" + someThread + " HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, size := range []int{0, 20_000, 1_000_000} {
		body := strings.Repeat(" ", size) + smuggled
		conn, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		go func() {
			fmt.Fprintf(conn, "GET /ok HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}()
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		answer, _ := io.ReadAll(conn)
		conn.Close()
		require.Equal(t, 1, strings.Count(string(answer), "HTTP/1.1 "), "%d: %s", size, answer)
		require.Nil(t, w.last())
	}
}

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, body := range []string{"{\"metadata\":{\"a\":\"\xff\"}}", "\x00", strings.Repeat("[", 1<<20), `{"metadata":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001), `{}{}`, `{"metadata":{"a":"\ud800"}}`} {
		res, answer := w.ask(t, "POST", "/threads", body)
		require.Equal(t, []any{422, `{"detail":"Invalid JSON in request body"}`}, []any{res.StatusCode, answer})
	}
	res, _ := w.ask(t, "POST", "/threads", `{"metadata":{"n":123456789012345678901234567890}}`)
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, `{"n":123456789012345678901234567890}`, string(w.last().(thread.New).Metadata))
}

// No route with a body takes a value that could not be shown again, wherever it stands: services hear nothing of it.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const invalid, deep = `{"detail":"Invalid JSON in request body"}`, `{"detail":"Recursion limit reached"}`
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	values := []struct {
		value, want string
		status      int
	}{
		{"1e400", invalid, 422},
		{"-1e400", invalid, 422},
		{"2e308", invalid, 422},
		{"1e99999999999999999999", invalid, 422},
		{strings.Repeat("1", 310), invalid, 422},
		{"-" + strings.Repeat("1", 5000), invalid, 422},
		{strings.Repeat("9", 100_000), invalid, 422},
		{"NaN", invalid, 422},
		{"Infinity", invalid, 422},
		{"-Infinity", invalid, 422},
		{`"\ud800"`, invalid, 422},
		{nested(compat.MaxDepth), deep, 400},
		{nested(500), deep, 400},
		{nested(5000), invalid, 422},
		{strings.Repeat("[", 1<<16), invalid, 422},
	}
	ids := strings.NewReplacer("{thread_id}", someThread, "{run_id}", someRun, "{assistant_id}", someID, "{cron_id}", someID, "{checkpoint_id}", someID)
	routes := 0
	for _, op := range operations {
		if op.body == nil {
			continue
		}
		routes++
		for _, v := range values {
			for _, body := range []string{
				`[V]`, `{"unknown":V}`, `{"metadata":{"k":V},"assistant_id":"a","graph_id":"a","schedule":"* * * * *","namespace":["a"],"key":"k","value":{}}`,
				`[{"assistant_id":"a","input":{"k":V}}]`,
				`{"assistant_id":"a","input":{"k":[V]},"values":{"k":V},"value":{"k":V},"namespace":["a"],"key":"k","schedule":"* * * * *"}`,
			} {
				res, answer := w.ask(t, strings.ToUpper(op.method), ids.Replace(op.path), strings.ReplaceAll(body, "V", v.value))
				want := []any{v.status, v.want}
				if op.tag == eventStreaming {
					want = []any{400, `{"detail":"Invalid JSON body"}`}
				}
				require.Equal(t, want, []any{res.StatusCode, answer}, "%s %s %.60s in %s", op.method, op.path, v.value, body)
			}
		}
	}
	require.Greater(t, routes, 20)
	require.Nil(t, w.last())
	res, _ := w.ask(t, "POST", "/threads", `{"metadata":{"k":`+nested(100)+`}}`)
	require.Equal(t, 200, res.StatusCode)
}

// A request leaves one line, and nothing of what was in it.
func TestLog(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	w := setup(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	w.ask(t, "POST", "/threads?token=s3cret", `{"metadata":{"a":"s3cret"}}`, "Authorization", "s3cret", "Cookie", "s3cret", "X-Request-Id", "rq-1")
	w.ask(t, "POST", "/threads", `{"metadata":"s3cret"}`)
	l := following(w)
	l.records <- record(1, "values", `"s3cret"`)
	close(l.records)
	w.ask(t, "POST", runsPath+"/stream", `{"assistant_id":"a","input":"s3cret"}`)
	w.ask(t, "POST", "/api/threads/search", "{}")
	w.ask(t, "GET", "/api/v1/assistants/x/schemas", "")
	w.ask(t, "GET", "/api/nowhere/ok/else", "")
	w.ask(t, "OPTIONS", "/threads", "", "Origin", "http://app.example", "Access-Control-Request-Method", "POST")
	require.NoError(t, w.stop())
	require.Contains(t, log.String(), `path=/api/threads/search reason="Not Found" fix="remove /api from the URL of the client, or start with --mount-prefix /api"`)
	require.Contains(t, log.String(), `fix="remove /api/v1 from the URL of the client, or start with --mount-prefix /api/v1"`)
	require.Equal(t, 2, strings.Count(log.String(), "fix="))
	require.NotContains(t, log.String(), "OPTIONS", "preflights are at debug")
	require.NotContains(t, log.String(), "s3cret")
	require.Equal(t, 3, strings.Count(log.String(), "msg=request "), log.String())
	require.Contains(t, log.String(), "request_id=rq-1 method=POST route=/threads status=200")
	require.Contains(t, log.String(), "ended=done")
	require.Contains(t, log.String(), "duration_ms=")
}

// In development the line of a refused request has its path and the reason, on one line and of bounded size.
func TestLogReasons(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	w := setup(t, func(o *Options) {
		o.Logger, o.LogReasons = slog.New(slog.NewTextHandler(&log, nil)), true
	})
	w.ask(t, "GET", "/nowhere/at/all?token=s3cret", "")
	w.ask(t, "GET", "/"+strings.Repeat("x", 10_000), "")
	w.ask(t, "POST", "/threads", `{"metadata":"wrong`+strings.Repeat("y", 10_000)+`"}`)
	w.ask(t, "POST", "/api/threads/search", "{}")
	w.ask(t, "GET", "/api/v1/assistants/x/schemas", "")
	w.ask(t, "GET", "/api/nowhere/ok/else", "")
	w.ask(t, "OPTIONS", "/threads", "", "Origin", "http://app.example", "Access-Control-Request-Method", "POST")
	require.NoError(t, w.stop())
	require.Contains(t, log.String(), `path=/api/threads/search reason="Not Found" fix="remove /api from the URL of the client, or start with --mount-prefix /api"`)
	require.Contains(t, log.String(), `fix="remove /api/v1 from the URL of the client, or start with --mount-prefix /api/v1"`)
	require.Equal(t, 2, strings.Count(log.String(), "fix="))
	require.NotContains(t, log.String(), "OPTIONS", "preflights are at debug")
	require.NotContains(t, log.String(), "s3cret")
	require.Contains(t, log.String(), `path=/nowhere/at/all reason="Not Found"`)
	require.Regexp(t, `status=422 .*reason=.*wrong`, log.String())
	for line := range strings.Lines(log.String()) {
		require.Less(t, len(line), 3000)
	}
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
		require.Equal(t, want, got["langgraph_py_version"])
		python = "1.2.22"
	}
	for _, path := range []string{"/", "/api/langgraph/"} {
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, 200, res.StatusCode, path)
		require.Equal(t, `{"ok":true}`, body)
	}
}
