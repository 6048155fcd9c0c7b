package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowAgent writes a project with an agent that answers the message "slow" after an hour, "part" with the first words before that, and others at once.
func slowAgent(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"langgraph.json": `{"graphs": {"agent": {"agent": {"model": "scripted:script.json", "tools": ["calculator"]}}}}`,
		"script.json": `{"answers": [{"when": "^slow$", "content": "never", "delay": "1h"},
			{"from": "human", "when": "^part$", "content": "The beginning.", "tool_calls": [{"name": "calculator", "args": {"expression": "6 * 7"}}]},
			{"from": "tool", "when": ".", "content": "never", "delay": "1h"}, {"when": ".", "content": "quick"}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// newestRun returns the newest run of a thread with a status, once there is one.
func newestRun(t *testing.T, api *client, thread, status string) (run string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var runs []struct {
			ID string `json:"run_id"`
		}
		if err := api.get(t.Context(), "/threads/"+thread+"/runs?limit=1&status="+status, &runs); err != nil || len(runs) == 0 {
			return false
		}
		run = runs[0].ID
		return true
	}, time.Minute, 10*time.Millisecond)
	return run
}

// However a run ends without a result while a chat waits for it, running or in the queue, a script gets one true line and an error, and a person can go on.
func TestEndsOfRuns(t *testing.T) {
	t.Parallel()
	dir := slowAgent(t)
	api := &client{base: serveFolder(t, dir, "--grace", "1ms")}
	call := func(method, path string, body any) func(*testing.T, string, string) {
		return func(t *testing.T, thread, run string) {
			require.NoError(t, api.call(t.Context(), method, strings.NewReplacer("T", thread, "R", run).Replace(path), body, nil))
		}
	}
	many := func(t *testing.T, thread, run string) {
		require.NoError(t, api.post(t.Context(), "/runs/cancel", map[string]any{"thread_id": thread, "run_ids": []string{run}}, nil))
	}
	start := func(strategy string) func(*testing.T, string, string) {
		return call(http.MethodPost, "/threads/T/runs", map[string]any{"assistant_id": "agent", "input": map[string]any{"messages": "quick"}, "multitask_strategy": strategy})
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, thread, run string)
		want string
	}{
		"cancelled":              {call(http.MethodPost, "/threads/T/runs/R/cancel", map[string]any{}), "the run was cancelled; understudy logs T"},
		"rolled back":            {call(http.MethodPost, "/threads/T/runs/R/cancel?action=rollback", map[string]any{}), "the run was rolled back or deleted; understudy state T"},
		"deleted":                {call(http.MethodDelete, "/threads/T/runs/R", nil), "the run was rolled back or deleted; understudy state T"},
		"thread deleted":         {call(http.MethodDelete, "/threads/T", nil), "the run is gone: its thread T was deleted"},
		"interrupted by another": {start("interrupt"), "the run was interrupted by another of its thread, "},
		"rolled back by another": {start("rollback"), "the run was rolled back by another of its thread, "},
		"cancelled with others":  {many, "the run was cancelled; understudy logs T"},
	} {
		for _, message := range []string{"slow", "part"} {
			for _, status := range []string{"running", "pending"} {
				t.Run(name+" "+status+" "+message, func(t *testing.T) {
					t.Parallel()
					thread := newThread(t, api)
					t.Cleanup(func() {
						_ = api.call(context.WithoutCancel(t.Context()), http.MethodDelete, "/threads/"+thread, nil, nil)
					})
					if status == "pending" {
						require.NoError(t, api.post(t.Context(), "/threads/"+thread+"/runs", map[string]any{"assistant_id": "agent", "input": map[string]any{"messages": "slow"}}, nil))
						newestRun(t, api, thread, "running")
					}
					out, err := whileChatting(t, api.base, thread, message, func() { c.end(t, thread, newestRun(t, api, thread, status)) })
					require.ErrorContains(t, err, strings.ReplaceAll(c.want, " T", " "+thread), out)
					require.Equal(t, exitFailed, exitCode(err))
					require.NotContains(t, err.Error(), "\n")
				})
			}
		}
	}
}

// whileChatting sends a message, and does something once the command has asked for the run.
func whileChatting(t *testing.T, server, thread, message string, then func()) (string, error) {
	t.Helper()
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		root := newRoot(&out, io.Discard)
		root.SetArgs([]string{"chat", "agent", "-u", server, "-t", thread, "-m", message})
		ended <- root.ExecuteContext(t.Context())
	}()
	then()
	select {
	case err := <-ended:
		return out.String(), err
	case <-time.After(2 * time.Minute):
		t.Fatal("the chat does not end")
		return "", nil
	}
}

// A run that takes longer than it may has failed, and a server that comes back without its data has no such run.
func TestEndsOfRunsByServers(t *testing.T) {
	t.Parallel()
	first := serveFolder(t, slowAgent(t), "--grace", "1ms", "--run-timeout", "1s")
	target := atomic.Pointer[string]{}
	target.Store(&first)
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(q *httputil.ProxyRequest) {
		to, _ := url.Parse(*target.Load())
		q.SetURL(to)
	}})
	t.Cleanup(front.Close)
	thread := newThread(t, &client{base: front.URL})
	out, err := whileChatting(t, front.URL, thread, "slow", func() {})
	require.ErrorContains(t, err, "the run failed: ")
	require.Contains(t, out, "✗ TimeoutError: The run took longer than 1s.")

	with, without := serveFolder(t, slowAgent(t), "--grace", "1ms"), serveFolder(t, slowAgent(t))
	target.Store(&with)
	thread = newThread(t, &client{base: front.URL})
	_, err = whileChatting(t, front.URL, thread, "slow", func() {
		newestRun(t, &client{base: with}, thread, "running")
		target.Store(&without)
		front.CloseClientConnections()
	})
	require.ErrorContains(t, err, "the run is gone: ")
}

// newThread makes a thread and returns its ID.
func newThread(t *testing.T, api *client) string {
	t.Helper()
	var thread struct {
		ID string `json:"thread_id"`
	}
	require.NoError(t, api.post(t.Context(), "/threads", map[string]any{}, &thread))
	return thread.ID
}

// Other servers may say less: a failed run whose stream has no error, a stream that names no run, and one whose run may not be read.
func TestEndsThatServersHide(t *testing.T) {
	t.Parallel()
	nothing := func(http.ResponseWriter, *http.Request) {}
	fixed := func(status string) func() string { return func() string { return status } }
	for name, c := range map[string]struct {
		fake      http.Handler
		out, want string
	}{
		"failed":    {fakeRuns{start: nothing, status: fixed("error")}.handler(), "✗ the run ended with the status error\n", "the run failed: "},
		"timed out": {fakeRuns{start: nothing, status: fixed("timeout")}.handler(), "✗ the run ended with the status timeout\n", "the run failed: "},
		"nameless":  {silentRuns(""), "", "the stream ended without an answer, and the server does not say how the run ended: it names no run"},
		"forbidden": {silentRuns("/threads/T/runs/R"), "", "the stream ended without an answer, and the server does not say how the run ended: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.fake)
			t.Cleanup(server.Close)
			out, err := typeInto(t, "", "chat", "g", "-u", server.URL, "-m", "hi")
			require.ErrorContains(t, err, c.want)
			require.Contains(t, out, c.out)
		})
	}
}

// silentRuns is a server whose streams are empty, and whose runs may not be read.
func silentRuns(location string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /assistants/search", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"assistant_id":"A","graph_id":"g"}]`)
	})
	mux.HandleFunc("POST /threads", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"thread_id":"T"}`) })
	mux.HandleFunc("POST /threads/T/runs/stream", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Location", location) })
	mux.HandleFunc("GET /threads/T/runs/R", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	return mux
}
