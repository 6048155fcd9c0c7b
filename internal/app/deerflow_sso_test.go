package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/deerflow/account"
	"understudy/internal/config"
	"understudy/internal/oidctest"
)

// ssoServer starts a server with DeerFlow's accounts and a provider that is called work.
func ssoServer(t *testing.T, provider *oidctest.Provider, more string) *Server {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "config.yaml")
	text := fmt.Sprintf("config_version: 34\nmodels: []\nauth:\n  oidc:\n    enabled: true\n    providers:\n      work: {display_name: Work, issuer: %q, client_id: %q, client_secret: $SSO_SECRET%s}\n", provider.URL, provider.ClientID, more)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	env := map[string]string{"DEER_FLOW_HOME": home, "AUTH_JWT_SECRET": "a secret of more than thirty-two bytes", "SSO_SECRET": provider.ClientSecret}
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"port": "0", "data": t.TempDir(), "deerflow": file},
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	})
	require.NoError(t, err)
	return runWith(t, Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}, "g", repeats{})
}

// sso signs in at the provider and returns where the browser ends.
func (b *browser) sso(query string) page {
	b.t.Helper()
	p := b.open("GET", "/api/v1/auth/oauth/work"+query)
	require.Equal(b.t, http.StatusFound, p.status, p.body)
	p = b.open("GET", p.location)
	require.Equal(b.t, http.StatusFound, p.status, p.body)
	return b.open("GET", p.location)
}

// People sign in to DeerFlow's web UI at a provider, get an account the first time, and find it again.
func TestDeerFlowSSO(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	server := []*Server{ssoServer(t, provider, ", admin_emails: [Root@example.com]")}
	ada := newBrowser(t, server)
	require.Equal(t, `{"providers":[{"id":"work","display_name":"Work","type":"oidc"}]}`, ada.open("GET", "/api/v1/auth/providers").body)
	require.Equal(t, 400, ada.open("GET", "/api/v1/auth/oauth/other").status)
	require.Equal(t, 422, ada.open("GET", "/api/v1/auth/oauth/work?remember_me=x").status)

	p := ada.sso("?next=/workspace/chats/1")
	require.Equal(t, 302, p.status, p.body)
	require.Equal(t, "/auth/callback?next=%2Fworkspace%2Fchats%2F1", p.location)
	require.True(t, p.cookies["access_token"].HttpOnly)
	require.Positive(t, p.cookies["access_token"].MaxAge)
	ada.csrf = p.cookies["csrf_token"].Value
	me := ada.open("GET", "/api/v1/auth/me").body
	require.Contains(t, me, `"email":"ada@example.com","system_role":"user","needs_setup":false,"oauth_provider":"work"`)
	require.Equal(t, 200, ada.open("POST", "/api/threads").status)

	again := newBrowser(t, server)
	provider.User(map[string]any{"email": "lovelace@example.com"}) // the subject counts
	p = again.sso("?remember_me=false")
	require.Equal(t, "/auth/callback?next=%2Fworkspace", p.location)
	require.Zero(t, p.cookies["access_token"].MaxAge, "the session ends with the browser")
	require.Equal(t, me, again.open("GET", "/api/v1/auth/me").body)

	provider.User(map[string]any{"sub": "root", "email": "root@example.com"})
	root := newBrowser(t, server)
	root.sso("")
	require.Contains(t, root.open("GET", "/api/v1/auth/me").body, `"system_role":"admin"`)

	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "/a:b", "evil"} {
		require.Equal(t, "/auth/callback?next=%2Fworkspace", newBrowser(t, server).sso("?next="+url.QueryEscape(next)).location, next)
	}

	// Passwords and providers do not mix.
	require.NoError(t, server[0].rows.InsertUser(context.Background(), &account.User{ID: "local", Email: "bob@example.com", Password: "x", Role: account.Plain, CreatedAt: time.Now()}, false))
	provider.User(map[string]any{"sub": "bob", "email": "BOB@example.com"})
	require.Equal(t, "/login?error=sso_account_exists", newBrowser(t, server).sso("").location)
	require.Equal(t, 401, newBrowser(t, server).open("GET", "/api/v1/auth/me").status)

	// The state is that of the browser, and of one sign-in.
	b := newBrowser(t, server)
	back := b.open("GET", b.open("GET", "/api/v1/auth/oauth/work").location).location
	require.Equal(t, 403, newBrowser(t, server).open("GET", back).status)
	require.Equal(t, 403, b.open("GET", strings.Replace(back, "state=", "state=x", 1)).status)
	require.Equal(t, 403, b.open("GET", back).status, "the ticket is used up")
	b = newBrowser(t, server)
	provider.Change(func(c jwt.MapClaims) { c["nonce"] = "x" })
	require.Equal(t, "/login?error=sso_failed", b.sso("").location)
	provider.Change(nil)
	provider.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/token" {
			return false
		}
		w.WriteHeader(500)
		return true
	})
	require.Equal(t, "/login?error=sso_failed", b.sso("").location)
}

// Who gets an account is as config.yaml says.
func TestDeerFlowSSOAdmission(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		more string
		user map[string]any
		want string
	}{
		"a verified address":        {"", nil, "/auth/callback?next=%2Fworkspace"},
		"not verified":              {"", map[string]any{"email_verified": false}, "/login?error=sso_not_allowed"},
		"no address":                {"", map[string]any{"email": ""}, "/login?error=sso_not_allowed"},
		"verified without need":     {", require_verified_email: false", map[string]any{"email_verified": false}, "/auth/callback?next=%2Fworkspace"},
		"a domain":                  {", allowed_email_domains: ['@Example.com']", nil, "/auth/callback?next=%2Fworkspace"},
		"another domain":            {", allowed_email_domains: [example.org]", nil, "/login?error=sso_not_allowed"},
		"the end of a domain":       {", allowed_email_domains: [ample.com]", nil, "/login?error=sso_not_allowed"},
		"no accounts are made":      {", auto_create_users: false", nil, "/login?error=sso_not_allowed"},
		"another frontend":          {"}\n    frontend_base_url: \"https://ui.example/\"\n    x: {y: 1", nil, "https://ui.example/auth/callback?next=%2Fworkspace"},
		"the client's secret in it": {", token_endpoint_auth_method: client_secret_post", nil, "/auth/callback?next=%2Fworkspace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := oidctest.New(t)
			provider.User(tt.user)
			require.Equal(t, tt.want, newBrowser(t, []*Server{ssoServer(t, provider, tt.more)}).sso("").location)
		})
	}
}
