package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/gate"
	"understudy/internal/header"
	"understudy/internal/logtest"
	"understudy/server/internal/web"
)

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
	require.NoError(t, w.stop())
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
	w.ask(t, "POST", "//threads/search", "{}")
	w.ask(t, "POST", "/v2//threads/search", "{}")
	w.ask(t, "POST", "/studio/threads/search", "{}")
	w.ask(t, "PUT", "/threads/0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10/runs", "") // a path of the API that ends as another one
	w.ask(t, "OPTIONS", "/threads", "", "Origin", "http://app.example", "Access-Control-Request-Method", "POST")
	require.NoError(t, w.stop())
	require.Contains(t, log.String(), `path=/api/threads/search reason="Not Found" fix="remove /api from the URL of the client, or start with --mount-prefix /api"`)
	require.Contains(t, log.String(), `fix="remove /api/v1 from the URL of the client, or start with --mount-prefix /api/v1"`)
	require.Contains(t, log.String(), `path=//threads/search reason="Not Found" fix="remove the / at the end of the URL of the client"`)
	require.Contains(t, log.String(), `fix="remove /v2 from the URL of the client, or start with --mount-prefix /v2"`)
	require.Regexp(t, `path=/studio/threads/search reason="(Method Not Allowed|Not Found)" fix="remove /studio and what follows it from the URL of the client`, log.String())
	require.Equal(t, 5, strings.Count(log.String(), "fix="))
	require.NotContains(t, log.String(), "OPTIONS", "preflights are at debug")
	require.NotContains(t, log.String(), "s3cret")
	require.Contains(t, log.String(), `path=/nowhere/at/all reason="Not Found"`)
	require.Regexp(t, `status=422 .*reason=.*wrong`, log.String())
	for line := range strings.Lines(log.String()) {
		require.Less(t, len(line), 3000)
	}
}

// The reason of an answer that other code has written is its text too, and not the JSON around it.
func TestReasonsArePlain(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"detail":"Invalid \"key\""}`: `Invalid "key"`, `{"detail":{"a":1}}`: `{"detail":{"a":1}}`, "plain": "plain", "": "", `{"detail":"cut o`: `{"detail":"cut o`, `["detail"]`: `["detail"]`,
	} {
		require.Equal(t, want, web.PlainReason([]byte(body)), body)
	}
}

// unable is an authenticator that cannot answer.
type unable struct{}

func (unable) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	return nil, &access.Refusal{Status: http.StatusServiceUnavailable, Detail: []byte(`"later"`), Cause: errors.New("connection refused")}
}

// Why a request cannot be authenticated is in the log, and not in the answer.
func TestLogOfRefusalsWithACause(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	w := setup(t, func(o *Options) {
		o.Authenticator = unable{}
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	answer, body := w.ask(t, "POST", "/threads", `{}`)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.JSONEq(t, `{"detail":"later"}`, body)
	require.NoError(t, w.stop())
	require.Contains(t, log.String(), "later")
	require.Contains(t, log.String(), "connection refused")
}

// An error that the application words is logged, named and ended like others.
func TestErrorsThatTheApplicationAnswers(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	w, a := fronted(t, func(_ context.Context, r *gate.Request) (*http.Response, error) {
		return replied(r.Raised.Status, "in other words"), nil
	}, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Bind = func(context.Context, func(string) string) (context.Context, error) {
			return nil, &access.Refusal{Status: http.StatusServiceUnavailable, Detail: []byte(`"later"`), Cause: errors.New("connection refused"), Close: true}
		}
	})
	a.about.Handles = true
	answer, body := w.ask(t, "GET", "/threads/"+someThread, "")
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Equal(t, "in other words", body)
	require.NotEmpty(t, answer.Header.Get("X-Request-Id"))
	require.True(t, answer.Close)
	require.NoError(t, w.stop())
	require.Contains(t, log.String(), "connection refused")
}

// An address is a credential: the log has the route, also of requests that are refused or not served.
func TestAddressesAreNotLogged(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/base"} {
		var log logtest.Buffer
		w := setup(t, func(o *Options) {
			o.Logger, o.MountPrefix, o.LogReasons = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), prefix, true
		})
		expired := someTokens.Seal(`{"e":1}`)
		paths := []string{prefix + ratingPath + expired, prefix + ratingPath + expired + "/", "/other" + prefix + ratingPath + expired, prefix + "/api/langgraph" + ratingPath + expired}
		for _, path := range paths {
			for _, method := range []string{"POST", "GET", "OPTIONS"} {
				w.ask(t, method, path, "")
			}
		}
		require.NoError(t, w.stop())
		require.Equal(t, 3*len(paths), strings.Count(log.String(), "msg=request "), log.String())
		require.NotContains(t, log.String(), expired[:40])
	}
}
