package app

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var parameter = regexp.MustCompile(`\{[a-z_]+\}|\*`)

// isPublicGateway are the routes of DeerFlow's Gateway that need no session, without their prefix.
var isPublicGateway = []string{
	"POST /v1/auth/register", "POST /v1/auth/initialize", "POST /v1/auth/login/local", "POST /v1/auth/logout", "GET /v1/auth/setup-status", "GET /v1/auth/providers",
	"GET /v1/auth/oauth/{provider}", "GET /v1/auth/callback/{provider}", "POST /webhooks/{source}",
}

// Every route of a server with DeerFlow's accounts needs a session, but for a short list, and no route with a thread serves it to another user.
func TestDeerFlowRoutesNeedSessions(t *testing.T) {
	t.Parallel()
	user, routes := serveDeerFlow(t)
	stranger, ann, ben := user(""), user("ann@example.com"), user("ben@example.com")
	thread := ann.must("POST", "/api/threads", `{"metadata":{"about":"SECRET of ann"}}`, "thread_id")
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		gateway := method + " " + strings.TrimPrefix(strings.TrimPrefix(path, "/api"), "/langgraph")
		if route == "GET /health" || slices.Contains(isPublic, route) || strings.HasPrefix(path, "/api/") && slices.Contains(isPublicGateway, gateway) {
			continue
		}
		refused := []int{http.StatusUnauthorized, http.StatusForbidden}
		for _, header := range [][]string{nil, {"Cookie", "csrf_token=a", "X-Csrf-Token", "a"}, {"X-Deerflow-Internal-Token", ""}, {"X-Deerflow-Owner-User-Id", "default"}} {
			status, answer := stranger.ask(method, parameter.ReplaceAllString(path, "00000000-0000-4000-8000-000000000000"), "{}", header...)
			require.Contains(t, refused, status, "%s: %s", route, answer)
		}
		if strings.HasPrefix(path, "/api/") && strings.Contains(path, "{thread_id}") {
			status, answer := ben.ask(method, parameter.ReplaceAllString(strings.ReplaceAll(path, "{thread_id}", thread), "00000000-0000-4000-8000-000000000000"), "{}")
			require.GreaterOrEqual(t, status, 400, "%s: %s", route, answer)
			require.NotContains(t, answer, "SECRET")
		}
	}
	_, answer := ann.ask("GET", "/api/threads/"+thread, "")
	require.Contains(t, answer, "SECRET of ann")
}
