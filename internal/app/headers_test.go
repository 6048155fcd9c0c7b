package app

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"understudy/internal/oidctest"
)

// Whatever the server answers, browsers take it for what it says it is, keep nothing of someone who signed in, and execute nothing in pages but the
// program's own scripts: on every route, for everyone, also in errors.
func TestAnswersAreSafeForBrowsers(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	servers := oidcServers(t, 1, nil, provider, nil)
	ada, stranger := newBrowser(t, servers), newBrowser(t, servers)
	ada.signIn("/")
	check := func(b *browser, method, path string, open bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, agents+path, strings.NewReader("{}"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-CSRF-Token", b.csrf)
		resp, err := b.Do(req)
		require.NoError(t, err, "%s %s", method, path)
		defer resp.Body.Close() // a stream continues
		h, at := resp.Header, method+" "+path+" "+resp.Status
		require.NotEqual(t, 500, resp.StatusCode, at)
		require.Equal(t, []string{"nosniff"}, h["X-Content-Type-Options"], at)
		require.Empty(t, h.Get("Server"), at)
		if b == ada && !open {
			require.Regexp(t, "no-store|no-cache", h.Get("Cache-Control"), at)
		}
		if strings.HasPrefix(h.Get("Content-Type"), "text/html") {
			require.Regexp(t, "default-src '(none|self)'", h.Get("Content-Security-Policy"), at)
			require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe-eval", at)
			require.Equal(t, "DENY", h.Get("X-Frame-Options"), at)
			require.Equal(t, "no-referrer", h.Get("Referrer-Policy"), at)
			require.Equal(t, "same-origin", h.Get("Cross-Origin-Opener-Policy"), at)
		}
	}
	placeholder := regexp.MustCompile(`\{[^}]+\}`)
	open := regexp.MustCompile(`^/(api/langgraph/)?(|ok|livez|readyz|info|metrics|docs.*|openapi.json|studio.*|ui/.*|auth/(methods|login|callback))$`)
	pages := 0
	for _, route := range servers[0].http.Routes() {
		method, path, _ := strings.Cut(route, " ")
		path = placeholder.ReplaceAllStringFunc(path, func(string) string { return uuid.NewString() })
		for _, b := range []*browser{ada, stranger} {
			if path != "/auth/logout" {
				check(b, method, path, open.MatchString(path))
			}
		}
		pages++
	}
	require.Greater(t, pages, 100)
	for _, path := range []string{"/nothing", "/threads/%2e%2e", "/studio/none", "/auth/login?next=//evil.example", "/auth/callback?code=a&state=b", "/docs/none", "/ui/%3Cscript%3E", "/threads/"} {
		for _, method := range []string{"GET", "POST", "PUT", "OPTIONS", "HEAD"} {
			check(stranger, method, path, true)
		}
	}
}
