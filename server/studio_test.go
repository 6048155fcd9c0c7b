package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/id"
	"understudy/internal/fleet"
	"understudy/internal/logs"
	"understudy/run"
	"understudy/studio"
)

// The pages work below any prefix, load their parts from there, and need no credentials: they hold no data.
func TestStudio(t *testing.T) {
	t.Parallel()
	if !studio.Built {
		t.Skip("the program is built without them")
	}
	for _, prefix := range []string{"", "/agents"} {
		w := setup(t, func(o *Options) {
			o.Studio, o.MountPrefix = true, prefix
			o.Authenticator = refuseAll{}
		})
		res, page := w.ask(t, "GET", prefix+"/studio/t/some-thread", "")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
		require.Equal(t, studio.Policy, res.Header.Get("Content-Security-Policy"))
		require.Equal(t, "no-cache", res.Header.Get("Cache-Control"))
		require.Contains(t, page, `<base href="`+prefix+`/studio/" />`)
		first, same := w.ask(t, "GET", prefix+"/studio/", "")
		require.Equal(t, page, same)
		res, _ = w.ask(t, "GET", prefix+"/studio/t/another", "", "If-None-Match", first.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, res.StatusCode)
		require.Equal(t, "no-cache", res.Header.Get("Cache-Control"))

		// A client that takes the address of the pages for that of the API is told so; a browser gets the page that says that there is none.
		for _, path := range []string{"threads/" + string(id.NewThread()), "threads/x/state", "assistants/x", "info", "ok", "runs/crons/x", "store/items"} {
			res, body := w.ask(t, "GET", prefix+"/studio/"+path, "", "Accept", "*/*")
			require.Equal(t, 404, res.StatusCode, path)
			require.Contains(t, body, "without /studio")
			require.Contains(t, res.Header.Get("Vary"), "Accept", path)
			res, _ = w.ask(t, "GET", prefix+"/studio/"+path, "", "Accept", "text/html,*/*")
			require.Equal(t, 200, res.StatusCode, path)
			require.Contains(t, res.Header.Get("Vary"), "Accept", path)
		}

		parts := regexp.MustCompile(`(?:src|href)="\./([^"]+)"`).FindAllStringSubmatch(page, -1)
		require.GreaterOrEqual(t, len(parts), 3) // icon, script, styles, and what pages share
		for _, part := range parts {
			res, plain := w.ask(t, "GET", prefix+"/studio/"+part[1], "")
			require.Equal(t, 200, res.StatusCode, part[1])
			require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
			compressed, body := w.ask(t, "GET", prefix+"/studio/"+part[1], "", "Accept-Encoding", "gzip, br")
			require.Equal(t, "br", compressed.Header.Get("Content-Encoding"))
			read, err := io.ReadAll(brotli.NewReader(bytes.NewReader([]byte(body))))
			require.NoError(t, err)
			require.Equal(t, plain, string(read))
		}
		res, _ = w.ask(t, "GET", prefix+"/studio/"+parts[1][1], "")
		require.Contains(t, res.Header.Get("Cache-Control"), "immutable")

		_, licenses := w.ask(t, "GET", prefix+"/studio/licenses.txt", "")
		require.Contains(t, licenses, "react-dom")

		for _, missing := range []string{"assets/none.js", "../go.mod", "%2e%2e/studio.go", "index.html.br", "assets/"} {
			res, body := w.ask(t, "GET", prefix+"/studio/"+missing, "")
			require.NotContains(t, body, "module understudy")
			require.NotContains(t, body, "package studio", missing)
			if res.StatusCode == 200 {
				require.Equal(t, page, body, missing)
			}
		}
		res, _ = w.ask(t, "GET", prefix+"/studio", "")
		require.Equal(t, http.StatusTemporaryRedirect, res.StatusCode)
		require.Equal(t, prefix+"/studio/", res.Header.Get("Location"))
	}
}

// Pages that are added to the sources are served to programs too.
func TestPagesOfTheSources(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../ui/src/app.tsx")
	require.NoError(t, err)
	found := regexp.MustCompile(`\["(/[^"]*)", "|path="(/[^"]*)"`).FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(found), 15)
	for _, f := range found {
		address := strings.NewReplacer(":id?", "x", ":id", "x").Replace(f[1] + f[2])
		require.Regexp(t, pageAddress, strings.TrimPrefix(address, "/"))
	}
}

// The root leads browsers to the pages, and answers others as LangGraph Server does.
func TestStudioAtRoot(t *testing.T) {
	t.Parallel()
	if !studio.Built {
		t.Skip("the program is built without them")
	}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	w := setup(t, func(o *Options) { o.Studio = true })
	res, _ := w.ask(t, "GET", "/", "", "Accept", browser)
	require.Equal(t, http.StatusTemporaryRedirect, res.StatusCode)
	require.Equal(t, "/studio/", res.Header.Get("Location"))
	_, body := w.ask(t, "GET", "/", "", "Accept", "*/*")
	require.JSONEq(t, `{"ok":true,"services":{}}`, body)
	for _, none := range []func(*Options){func(*Options) {}, func(o *Options) { o.Studio, o.Disable.UI = true, true }} {
		w := setup(t, none)
		_, body = w.ask(t, "GET", "/", "", "Accept", browser)
		require.JSONEq(t, `{"ok":true,"services":{}}`, body)
		res, _ = w.ask(t, "GET", "/studio/", "")
		require.Equal(t, 404, res.StatusCode)
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path := "/understudy/threads/0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10/tree"
	res, body := w.ask(t, "GET", path+"?limit=2&before=1F0BD33E-8a23-6f9d-8001-b9fb5e9b9a59", "")
	require.Equal(t, 200, res.StatusCode, body)
	require.JSONEq(t, `[
		{"checkpoint_id": "1f0bd33e-8a23-6f9d-8001-b9fb5e9b9a58", "parent_checkpoint_id": "c0", "created_at": "2025-11-09T06:18:29.241436+00:00", "step": 1, "source": "loop", "run_id": "r"},
		{"checkpoint_id": "c0", "parent_checkpoint_id": null, "created_at": null, "step": -1, "source": "input", "run_id": null}]`, body)
	for _, query := range []string{"limit=0", "limit=10001", "limit=x", "limit=", "limit=-1", "before=x", "before=", "limit=99999999999999999999"} {
		res, body := w.ask(t, "GET", path+"?"+query, "")
		require.Equal(t, 422, res.StatusCode, query)
		require.Contains(t, body, "Invalid")
	}
}

type refuseAll struct{}

func (refuseAll) Authenticate(context.Context, *access.Request) (*access.Actor, error) {
	return nil, &access.Refusal{Status: http.StatusUnauthorized}
}

func TestRecentRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "GET", "/understudy/runs?limit=2&status=success&graph_id=g&before=0190D0F2-7b5a-7b7e-8000-3c7e5b1f5d11", "")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10", gjson.Get(body, "next").String())
	require.Equal(t, int64(1), gjson.Get(body, "runs.#").Int())
	require.Equal(t, gjson.Null, gjson.Get(body, "runs.0.ended_at").Type)
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "before=x", "status=done", "status="} {
		res, body := w.ask(t, "GET", "/understudy/runs?"+query, "")
		require.Equal(t, 422, res.StatusCode, query)
		require.Contains(t, body, "Invalid")
	}
}

func TestCancelOfManyRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "GET", "/understudy/runs/count?status=pending&graph_id=g", "")
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, int64(300), gjson.Get(body, "count").Int())
	until := gjson.Get(body, "until").String()
	require.True(t, id.IsUUID(until), body)
	res, body = w.ask(t, "POST", "/understudy/runs/cancel", `{"status":"pending","graph_id":"g","until":"`+until+`"}`)
	require.Equal(t, 200, res.StatusCode, body)
	require.Equal(t, int64(50), gjson.Get(body, "cancelled").Int())
	// The next call has the same bound, although its body does not name it.
	next := gjson.Get(body, "next").String()
	res, body = w.ask(t, "POST", "/understudy/runs/cancel?action=rollback", `{"status":"all","after":"`+next+`"}`)
	require.Equal(t, 200, res.StatusCode, body)
	require.JSONEq(t, `{"cancelled":0,"next":null}`, body)
	w.services.mu.Lock()
	require.Contains(t, w.services.asked, run.Active{Status: run.Pending, Graph: "g", Until: id.Run(until)})
	require.Contains(t, w.services.asked, run.Active{Until: id.Run(until)})
	require.Contains(t, w.services.asked, run.CancelRollback)
	w.services.mu.Unlock()
	for _, query := range []string{"status=success", "status=x"} {
		res, body := w.ask(t, "GET", "/understudy/runs/count?"+query, "")
		require.Equal(t, 422, res.StatusCode, body)
	}
	for _, body := range []string{`{"status":"error"}`, `{"status":1}`, `{"graph_id":[]}`, `{"until":"x"}`, `{"after":"x"}`, `{"after":""}`, `{"after":"` + until + `"}`, `{"after":"` + until + `.x"}`, `{"after":null}`, `[]`, `{`, ``} {
		res, answer := w.ask(t, "POST", "/understudy/runs/cancel", body)
		require.GreaterOrEqual(t, res.StatusCode, 400, body+answer)
		require.Less(t, res.StatusCode, 500, body+answer)
	}
}

func TestReadModels(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const thread = "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10"
	base := "/understudy/threads/" + thread
	get := func(path string, status int) string {
		res, body := w.ask(t, "GET", path, "")
		require.Equal(t, status, res.StatusCode, "%s: %s", path, body)
		return body
	}
	body := get(base+"/branches?limit=2&after=x", 200)
	at := gjson.Get(body, "branches.0.created_at").String()
	require.JSONEq(t, fmt.Sprintf(`{"thread_id": %q,
		"ancestors": [{"thread_id": "parent", "event_number": 3, "checkpoint_id": "c", "created_at": %q}],
		"branches": [{"thread_id": "child", "event_number": 3, "checkpoint_id": "c", "created_at": %q},
			{"thread_id": "other", "event_number": null, "checkpoint_id": null, "created_at": null}], "next": "other"}`, thread, at, at), body)
	body = get(base+"/messages/a%2Fb%20%C3%A9", 200)
	require.JSONEq(t, fmt.Sprintf(`{"thread_id": %q, "message_id": "a/b é", "seq": 3, "event_number": 7, "run_id": %q, "checkpoint_id": "c", "parent_checkpoint_id": null, "created_at": %q}`,
		thread, someRun, at), body)
	next := gjson.Get(get("/understudy/timeline?limit=2", 200), "next").String()
	require.Equal(t, "completed", gjson.Get(get("/understudy/timeline?before="+next, 200), "events.0.event").String())
	heads := get("/understudy/heads?before="+next, 200)
	require.Equal(t, int64(8), gjson.Get(heads, "heads.0.message_seq").Int())
	require.Equal(t, gjson.Null, gjson.Get(heads, "heads.1.last_event").Type)
	get("/understudy/heads?before=-1.0.b.c", 200)
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "before=", "before=1", "before=1.2", "before=1.2.", "before=1.-2.t", "before=x.2.t", "before=1.2.%00", "before=1.2.%ff"} {
		for _, path := range []string{"/understudy/timeline", "/understudy/heads"} {
			require.Contains(t, get(path+"?"+query, 422), "Invalid")
		}
	}
	for _, query := range []string{"limit=0", "after=%00", "after=%ff"} {
		require.Contains(t, get(base+"/branches?"+query, 422), "Invalid")
	}
	get(base+"/messages/%00", 404)
	get(base+"/messages/%ff", 404)
	get("/understudy/threads/x/branches", 422)
}

func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path := "/understudy/runs/0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10/spans"
	model := `{
		"id": "1.1", "parent_id": "1", "attempt": 1, "kind": "model", "name": "m", "status": "error",
		"start_time": "1970-01-01T00:00:00+00:00", "end_time": "1970-01-01T00:00:02+00:00", "first_token_time": "1970-01-01T00:00:01+00:00",
		"namespace": "n:1", "node": "n", "step": 1, "model": "x", "message_id": "id",
		"usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "cached_tokens": 1}, "error": {"error": "E", "message": "t", "stack": "s"}, `
	attempt := `{"id": "1", "parent_id": null, "attempt": 1, "kind": "attempt", "name": "g", "status": "running", "start_time": "1970-01-01T00:00:00+00:00", "end_time": null}`
	content := `"input": ["in"], "input_cut": true, "output": "out", "output_cut": false}`
	for query, want := range map[string]string{
		"":                       "[" + attempt + "," + model + `"has_content": true}]`,
		"?content=true&after=1":  "[" + model + content + "]",
		"?content=true&id=1.1":   "[" + model + content + "]",
		"?id=2":                  "[]",
		"?node=n":                "[]", // what runs in a node is not the node
		"?after=1.1":             "[]",
		"?limit=1&content=false": "[" + attempt + "]",
	} {
		res, body := w.ask(t, "GET", path+query, "")
		require.Equal(t, 200, res.StatusCode, body)
		require.JSONEq(t, want, gjson.Get(body, "spans").Raw, query)
		require.True(t, gjson.Get(body, "run.run_id").Exists())
		require.Equal(t, map[bool]string{true: "1"}[query == "?limit=1&content=false"], gjson.Get(body, "next").String(), query)
	}
	for _, query := range []string{"limit=0", "limit=20001", "limit=x", "content=maybe", "content="} {
		res, body := w.ask(t, "GET", path+"?"+query, "")
		require.Equal(t, 422, res.StatusCode, query)
		require.Contains(t, body, "Invalid")
	}
	res, _ := w.ask(t, "GET", "/understudy/runs/x/spans", "")
	require.Equal(t, 422, res.StatusCode)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	res, body := w.ask(t, "GET", "/understudy/usage?days=2&until=2026-03-01", "")
	require.Equal(t, 200, res.StatusCode, body)
	sum := func(runs string) string {
		return `"runs": ` + runs + `, "errors": ` + runs + `, "llm_calls": ` + map[string]string{"1": "7", "0": "0"}[runs] + `, "input_tokens": 0, "output_tokens": 0, "total_tokens": ` + map[string]string{"1": "7", "0": "0"}[runs]
	}
	took := `, "p50_ms": 1024, "p95_ms": 1024}`
	require.JSONEq(t, `{"since": "2026-02-28", "until": "2026-03-01", "total": {`+sum("1")+took+`,
		"days": [{"date": "2026-02-28", `+sum("0")+`, "p50_ms": 0, "p95_ms": 0}, {"date": "2026-03-01", `+sum("1")+took+`],
		"graphs": [{"graph_id": "g", `+sum("1")+took+`], "assistants": [{"assistant_id": "a", `+sum("1")+took+`],
		"models": [{"model": "m", `+sum("1")+took+`], "callers": []}`, body)
	for _, query := range []string{"days=0", "days=367", "days=x", "days=", "until=yesterday", "until=", "until=2026-02-30", "until=0001-01-01"} {
		res, body := w.ask(t, "GET", "/understudy/usage?"+query, "")
		require.Equal(t, 422, res.StatusCode, query)
		require.Contains(t, body, "Invalid")
	}
}

func TestServersAndLogs(t *testing.T) {
	t.Parallel()
	ring := logs.NewRing()
	log := slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := &fleet.Keeper{
		Self: fleet.Server{ID: "s", Version: "1", Host: "h", PID: 7, Mode: "serve", Started: at}, Ring: ring, Now: func() time.Time { return at },
		Load: func(s *fleet.Server) {
			s.Jobs, s.Running, s.Workers, s.Memory, s.WorkerMemory, s.Blocked, s.BlockedAt = 4, 3, 2, 1, []int64{5, 6}, 1, "a.py:3"
			s.Problems = []fleet.Problem{{Graph: "g", At: "g.py:1", Error: "E"}, {Error: "not JSON", Reload: true}}
		},
	}
	w := setup(t, func(o *Options) { o.Fleet, o.MaxStreams = k, 1 })
	res, body := w.ask(t, "GET", "/understudy/servers", "")
	require.Equal(t, 200, res.StatusCode, body)
	require.JSONEq(t, `{"servers": [{"id": "s", "version": "1", "address": null, "host": "h", "pid": 7, "mode": "serve", "started_at": "2026-01-02T03:04:05+00:00",
		"heartbeat_at": "2026-01-02T03:04:05+00:00", "jobs": 4, "running": 3, "workers": 2, "memory_bytes": 1, "worker_memory_bytes": [5, 6],
		"blocked": 1, "blocked_at": "a.py:3", "problems": [{"graph": "g", "at": "g.py:1", "error": "E", "reload": false}, {"graph": null, "at": null, "error": "not JSON", "reload": true}],
		"draining": false}]}`, body)
	log.Info("one", "run_id", "r")
	log.Warn("two", "password", "x")
	for query, want := range map[string]string{
		"": `["one","two"]`, "?limit=1": `["two"]`, "?level=warn": `["two"]`, "?level=ERROR": `[]`, "?text=RUN_ID=R": `["one"]`, "?server=s": `["one","two"]`, "?server=x": `[]`,
	} {
		res, body := w.ask(t, "GET", "/understudy/logs"+query, "")
		require.Equal(t, 200, res.StatusCode, body)
		require.JSONEq(t, want, gjson.Get(body, "lines.#.message").Raw, query)
	}
	_, body = w.ask(t, "GET", "/understudy/logs?level=warn", "")
	require.Equal(t, "s", gjson.Get(body, "lines.0.server").String())
	require.JSONEq(t, `{"password":"[hidden]"}`, gjson.Get(body, "lines.0.attributes").Raw)
	for _, query := range []string{"limit=0", "limit=2001", "level=loud", "level=", "level=INFO+4"} {
		for _, path := range []string{"/understudy/logs?", "/understudy/logs/stream?"} {
			res, body := w.ask(t, "GET", path+query, "")
			require.Equal(t, 422, res.StatusCode, query)
			require.Contains(t, body, "Invalid")
		}
	}
	_, in := dial(t, w, "GET", "/understudy/logs/stream?limit=1&level=info", "")
	line := func() string {
		for {
			text, err := in.ReadString('\n')
			require.NoError(t, err)
			if data, ok := strings.CutPrefix(text, "data: "); ok {
				return gjson.Get(data, "lines.#.message").Raw
			}
		}
	}
	require.JSONEq(t, `["two"]`, line())
	log.Debug("not wanted")
	log.Info("three")
	require.JSONEq(t, `["three"]`, line())
	res, _ = w.ask(t, "GET", "/understudy/logs/stream", "")
	require.Equal(t, 503, res.StatusCode, "its connection is one of the bounded number")
	log.Info(logs.Request, "route", "/ok")
	for query, want := range map[string]string{"?requests=false&level=info": `["one","two","three"]`, "?requests=true&limit=2": `["three","request"]`} {
		_, body := w.ask(t, "GET", "/understudy/logs"+query, "")
		require.JSONEq(t, want, gjson.Get(body, "lines.#.message").Raw, query)
	}
}
