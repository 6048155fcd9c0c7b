package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// No request of a user sets whose a thread was or is, wherever a route takes metadata: the files of a thread are moved from who its metadata name.
func TestDeerFlowMetadataOfOwnersAreReserved(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(*Config) {})
	ann := user("ann@example.com")
	_, me := ann.ask("GET", "/api/v1/auth/me", "")
	id := gjson.Get(me, "id").String()
	require.NotEmpty(t, id, me)
	const claims = `"metadata":{"former_user_id":"victim","user_id":"victim","kept":"yes"}`
	// Of routes that take a body: what they need besides metadata.
	needed := map[string]string{
		"/runs":        `"assistant_id":"g","input":{},"if_not_exists":"create"`,
		"/runs/wait":   `"assistant_id":"g","input":{},"if_not_exists":"create"`,
		"/runs/stream": `"assistant_id":"g","input":{},"if_not_exists":"create","on_disconnect":"continue"`,
		"/runs/crons":  `"assistant_id":"g","input":{},"schedule":"* * * * *"`,
		"/state":       `"values":{"x":1}`,
		"/assistants":  `"graph_id":"g"`,
		"/threads":     `"if_exists":"do_nothing"`,
		"/runs/batch":  ``,
	}
	thread := ann.must("POST", "/threads", `{}`, "thread_id")
	sent := 0
	for _, route := range srv.http.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if method != http.MethodPost && method != http.MethodPatch && method != http.MethodPut {
			continue
		}
		if strings.Contains(path, "/auth/") || strings.HasSuffix(path, "/cancel") || strings.HasSuffix(path, "/join") || !strings.Contains(path, "thread") && !strings.Contains(path, "run") {
			continue
		}
		body := "{" + claims + "}"
		for end, more := range needed {
			if strings.HasSuffix(path, end) && more != "" {
				body = "{" + claims + "," + more + "}"
			}
		}
		if strings.HasSuffix(path, "/runs/batch") {
			body = `[{` + claims + `,"assistant_id":"g","input":{}}]`
		}
		// On a thread that is there, and on one that the request may create.
		for n, at := range []string{thread, fmt.Sprintf("00000000-0000-4000-8000-%012d", sent)} {
			status, answer := ann.ask(method, strings.ReplaceAll(parameter.ReplaceAllString(strings.ReplaceAll(path, "{thread_id}", at), "11111111-0000-4000-8000-000000000000"), "//", "/"), body)
			require.Less(t, status, 500, "%s: %s", route, answer)
			sent++
			if n == 0 && !strings.Contains(path, "{thread_id}") {
				break
			}
		}
	}
	require.Greater(t, sent, 20)
	rows := 0
	_, list := ann.ask("POST", "/threads/search", `{"limit":1000}`)
	for _, row := range gjson.Parse(list).Array() {
		rows++
		require.Equal(t, id, row.Get("metadata.user_id").String(), row.Raw)
		require.False(t, row.Get("metadata.former_user_id").Exists(), row.Raw)
	}
	require.Greater(t, rows, 5, "requests that created threads")
	require.Contains(t, list, `"kept":"yes"`, "what is not reserved is set")
}
