package doctor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/oidctest"
)

func TestSignInProvider(t *testing.T) {
	t.Parallel()
	provider, server := oidctest.Start()
	defer server.Close()
	p := newPatient(t)
	set := func(issuer, more string) {
		p.write("langgraph.json", fmt.Sprintf(`{"graphs": {"e": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}}},
			"auth": {"oidc": {"issuer": %q, "client_id": "me"%s}}}`, issuer, more))
	}
	set(provider.URL, "")
	require.Contains(t, p.examine(), "ok sign-in: the provider "+provider.URL+" answers; the address by which browsers reach this server/auth/callback must be among the redirect URIs of client me")
	set(provider.URL, `, "url": "https://agents.example"`)
	require.Contains(t, p.examine(), "https://agents.example/auth/callback must be")
	set(provider.URL+"/", "")
	require.Contains(t, p.examine(), "problem sign-in: OpenID configuration of "+provider.URL+"/: ")
	server.Close()
	set(provider.URL, "")
	require.Contains(t, p.examine(), "problem sign-in: OpenID configuration of "+provider.URL+": ")
}

// Whatever auth.jwt checks tokens with is asked for, as a start does.
func TestKeysOfTokens(t *testing.T) {
	t.Parallel()
	provider, server := oidctest.Start()
	defer server.Close()
	p := newPatient(t)
	set := func(jwt string, more ...any) string {
		p.write("langgraph.json", fmt.Sprintf(`{"graphs": {"e": {"agent": {"model": {"name": "scripted:", "script": [{"content": "hi"}]}}}},
			"env": {"SECRET": "0123456789abcdef0123456789abcdef"}, "auth": {"jwt": {"audience": "me", `+jwt+`}}}`, more...))
		return p.examine()
	}
	require.Contains(t, set(`"issuer": %q`, provider.URL), `ok tokens: the keys of "`+provider.URL+`" can be fetched`)
	require.Contains(t, set(`"issuer": %q`, provider.URL+"/"), "write that one in auth.jwt.issuer → correct auth.jwt.issuer, or see that")
	require.Contains(t, set(`"jwks_url": %q`, provider.URL+"/nowhere"), "answers with 404 Not Found → correct auth.jwt.jwks_url, or see that the network lets this machine ask it; until then requests with tokens get 503")
	require.Contains(t, set(`"secret_env": "SECRET"`), "ok tokens: tokens are checked with the secret of auth.jwt.secret_env")
	server.Close()
	require.Contains(t, set(`"issuer": %q`, provider.URL), "problem tokens: the keys that tokens are checked with cannot be fetched: ")
}
