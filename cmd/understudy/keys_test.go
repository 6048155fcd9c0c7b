package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an identity may create in a minute is counted over all ways to create a run, and others are not held up.
func TestRunsPerMinute(t *testing.T) {
	t.Parallel()
	dir := folderWithAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{
		"graphs": {"echo": {"agent": {"model": "scripted:script.json"}}}, "auth": {"api_keys": true}, "limits": {"runs_per_minute": 5}}`), 0o600))
	create := func(args ...string) *client {
		var out bytes.Buffer
		root := newRoot(&out, io.Discard)
		root.SetArgs(append([]string{"keys", "create", "-c", filepath.Join(dir, "langgraph.json"), "--data", filepath.Join(dir, "data")}, args...))
		require.NoError(t, root.ExecuteContext(t.Context()))
		return &client{header: http.Header{"X-Api-Key": {strings.TrimSpace(out.String())}}}
	}
	ada, also, bob := create("--name", "a", "--identity", "ada"), create("--name", "b", "--identity", "ada"), create("--name", "bob")
	url := serveFolder(t, dir)
	ada.base, also.base, bob.base = url, url, url
	body := map[string]any{"assistant_id": "echo", "input": messagesInput("hello")}
	require.NoError(t, ada.post(t.Context(), "/runs/wait", body, nil))
	require.NoError(t, also.post(t.Context(), "/runs", body, nil))
	require.ErrorContains(t, ada.post(t.Context(), "/runs/batch", []any{body, body, body, body}, nil), "Too many runs")
	require.NoError(t, ada.post(t.Context(), "/runs/batch", []any{body, body, body}, nil), "none of the batch before counts")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"echo","messages":[{"role":"user","content":"hello"}]}`))
	require.NoError(t, err)
	req.Header = also.header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.NoError(t, bob.post(t.Context(), "/runs/wait", body, nil))
}

// Keys are created, rotated and revoked beside a server that is writing, and each change is true for it within seconds.
// A key in a new database is for no server that runs elsewhere: a note says so, once.
func TestKeysCreateNamesANewDatabase(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, made := range []bool{true, false} {
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs([]string{"keys", "create", "--name", "a", "--data", dir})
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "standard output is the key alone")
		require.Equal(t, made, strings.Contains(errs.String(), "note: there was no database in "+dir+", so a new one was made"), errs.String())
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dir := folderWithAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"echo": {"agent": {"model": "scripted:script.json"}}}, "auth": {"api_keys": true}}`), 0o600))
	run := func(args ...string) (string, error) {
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetArgs(append(append([]string{"keys"}, args...), "-c", filepath.Join(dir, "langgraph.json"), "--data", filepath.Join(dir, "data")))
		err := root.ExecuteContext(t.Context())
		require.NotContains(t, errs.String(), strings.TrimSpace(out.String())+"x")
		return strings.TrimSpace(out.String()), err
	}
	ok := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		require.NoError(t, err)
		return out
	}
	first := ok("create", "--name", "first") // makes the folder
	url := serveFolder(t, dir)
	api := func(key string) *client { return &client{base: url, header: http.Header{"X-Api-Key": {key}}} }
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := api(first).post(t.Context(), "/runs/wait", map[string]any{"assistant_id": "echo", "input": messagesInput("hello")}, nil); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var keys []string
	for range 10 {
		keys = append(keys, ok("create", "--name", "second", "--identity", "ada", "--expires", "1d"))
	}
	reader := ok("create", "--name", "reader", "--identity", "ada", "--scope", "read")
	for _, key := range keys {
		require.NoError(t, api(key).post(t.Context(), "/threads", map[string]any{}, nil))
	}
	var list []any
	require.NoError(t, api(reader).post(t.Context(), "/threads/search", map[string]any{}, &list))
	require.Len(t, list, len(keys))
	require.ErrorContains(t, api(reader).post(t.Context(), "/threads", map[string]any{}, nil), "needs the scope write")
	require.NoError(t, api(first).post(t.Context(), "/threads/search", map[string]any{}, &list))
	require.Empty(t, list, "of another identity")

	id := func(key string) string { return key[3:19] }
	ok("revoke", keys[0])
	next := ok("rotate", id(keys[1]))
	for _, old := range keys[:2] {
		require.Eventually(t, func() bool { return api(old).post(t.Context(), "/threads/search", map[string]any{}, nil) != nil }, 20*time.Second, 50*time.Millisecond)
	}
	require.NoError(t, api(next).post(t.Context(), "/threads/search", map[string]any{}, &list))
	require.Len(t, list, len(keys))
	close(stop)
	load.Wait()

	out := ok("list", "--json")
	var shown []shownKey
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	status := map[string]string{}
	for _, k := range shown {
		status[k.ID] = k.Status
	}
	require.Equal(t, []string{"revoked", "expired", "valid", "valid"}, []string{status[id(keys[0])], status[id(keys[1])], status[id(keys[2])], status[id(next)]})
	for _, key := range append(keys, first, reader, next) {
		require.NotContains(t, out+ok("list"), key[20:], "a secret is shown once")
	}

	for problem, args := range map[string][]string{
		"needs --name":                         {"create"},
		"the scopes are read, write and admin": {"create", "--name", "x", "--scope", "root"},
		"12h or 90d":                           {"create", "--name", "x", "--expires", "tomorrow"},
		"at most 200":                          {"create", "--name", strings.Repeat("x", 201)},
		"there is no key":                      {"revoke", "none"},
		`there is no key "0123456789abcdef"`:   {"revoke", "us_0123456789abcdef_secret"}, // which is not shown
		"no key":                               {"rotate", "none"},
		"was revoked":                          {"rotate", id(keys[0])},
		"ID of one key":                        {"revoke"},
	} {
		_, err := run(args...)
		require.ErrorContains(t, err, problem)
	}
}

// A command that is refused for its flags has not made a database.
func TestRefusedKeysMakeNoDatabase(t *testing.T) {
	t.Parallel()
	for problem, args := range map[string][]string{
		"needs --name":                         {"keys", "create"},
		"the scopes are read, write and admin": {"keys", "create", "--name", "x", "--scope", "root"},
		"12h or 90d":                           {"keys", "create", "--name", "x", "--expires", "tomorrow"},
		"at most 200":                          {"keys", "create", "--name", strings.Repeat("x", 201)},
		"times from now":                       {"keys", "rotate", "0123456789abcdef", "--overlap", "-1h"},
		"ID of one key":                        {"keys", "revoke"},
		"--limit is 1":                         {"audit", "--limit", "0"},
		"is none":                              {"audit", "--event", "tea"},
		"no duration":                          {"audit", "--since", "tea"},
		"needs --from":                         {"import"},
		"needs --to":                           {"export"},
		"does not know":                        {"rebuild", "tea"},
		"needs two keys":                       {"encrypt", "--rotate"},
	} {
		data := filepath.Join(t.TempDir(), "data")
		root := newRoot(io.Discard, io.Discard)
		root.SetArgs(append(args, "--data", data))
		require.ErrorContains(t, root.ExecuteContext(t.Context()), problem, "%q", args)
		require.NoDirExists(t, data, "%q", args)
	}
}
