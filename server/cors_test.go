package server

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

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
