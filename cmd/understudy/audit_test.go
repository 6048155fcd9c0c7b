package main

import (
	"bytes"
	"context"
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

// syncBuffer is a buffer that one goroutine writes and another reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// The audit log shows beside a running server who was refused what, and no credentials.
func TestAudit(t *testing.T) {
	t.Parallel()
	dir := folderWithAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"echo": {"agent": {"model": "scripted:script.json"}}}, "auth": {"api_keys": true}}`), 0o600))
	start := func(ctx context.Context, out io.Writer, args ...string) error {
		root := newRoot(out, io.Discard)
		root.SetArgs(append(args, "-c", filepath.Join(dir, "langgraph.json"), "--data", filepath.Join(dir, "data")))
		return root.ExecuteContext(ctx)
	}
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		require.NoError(t, start(t.Context(), &out, args...))
		return strings.TrimSpace(out.String())
	}
	ada, bob := run("keys", "create", "--name", "ada"), run("keys", "create", "--name", "bob", "--scope", "read")
	url := serveFolder(t, dir)
	follow, stop := context.WithCancel(t.Context())
	var followed syncBuffer
	ended := make(chan error, 1)
	go func() { ended <- start(follow, &followed, "audit", "--follow", "--json") }()

	as := func(key string) *client { return &client{base: url, header: http.Header{"X-Api-Key": {key}}} }
	var thread struct {
		ID string `json:"thread_id"`
	}
	require.NoError(t, as(ada).post(t.Context(), "/threads", map[string]any{}, &thread))
	refused := func(key, path string, body any) {
		t.Helper()
		require.Error(t, as(key).post(t.Context(), path, body, nil))
	}
	last := "0"
	if ada[len(ada)-1] == '0' {
		last = "1"
	}
	forged := ada[:len(ada)-1] + last
	for range 3 {
		refused(forged, "/threads/search", map[string]any{})
	}
	refused(bob, "/threads/"+thread.ID+"/history", map[string]any{})
	refused(bob, "/threads/00000000-0000-4000-8000-000000000000/history", map[string]any{})
	refused(bob, "/threads", map[string]any{})
	run("keys", "revoke", bob[3:19])

	entries := func(text string) (list []shownEntry) {
		dec := json.NewDecoder(strings.NewReader(text))
		for {
			var e shownEntry
			if dec.Decode(&e) != nil {
				return list
			}
			list = append(list, e)
		}
	}
	failed := 0
	var hidden, denied *shownEntry
	require.Eventually(t, func() bool {
		failed, hidden, denied = 0, nil, nil
		revoked := false
		for _, e := range entries(followed.String()) {
			switch {
			case e.Event == "sign-in.failed":
				failed += e.Count
				require.Equal(t, []string{"", "127.0.0.1", "POST /threads/search", "401"}, []string{e.Identity, e.Source, e.Resource, e.Outcome})
			case e.Outcome == "404":
				hidden = &e
			case e.Outcome == "403":
				denied = &e
			case e.Event == "key.revoked":
				revoked = true
			}
		}
		return failed == 3 && hidden != nil && denied != nil && revoked
	}, 30*time.Second, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"access.denied", "bob", "POST /threads/{thread_id}/history of thread " + thread.ID}, []string{hidden.Event, hidden.Identity, hidden.Resource})
	require.Equal(t, []string{"access.denied", "bob", "threads.create of thread "}, []string{denied.Event, denied.Identity, denied.Resource[:len("threads.create of thread ")]})

	out := run("audit")
	for _, part := range []string{"TIME", "key.created", `name "ada"`, "command line", "key " + bob[3:19], "key.revoked", "sign-in.failed"} {
		require.Contains(t, out, part)
	}
	require.Len(t, entries(run("audit", "--event", "key.created", "--json")), 2)
	require.Len(t, entries(run("audit", "--json", "--limit", "1")), 1)
	require.Equal(t, "no entries", run("audit", "--identity", "eve"))
	require.Empty(t, run("audit", "--identity", "eve", "--json"))
	for _, key := range []string{ada, bob, forged} {
		require.NotContains(t, out+followed.String(), key[20:])
	}
	for problem, args := range map[string][]string{"write one of key.created": {"--event", "x"}, "1 to": {"--limit", "0"}, "12h or 90d": {"--since", "x"}} {
		require.ErrorContains(t, start(t.Context(), io.Discard, append([]string{"audit"}, args...)...), problem)
	}
}
