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
