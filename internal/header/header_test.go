package header

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelects(t *testing.T) {
	t.Parallel()
	f := Filter{Includes: []string{"X-*-id", "user-agent", "authorization", "x-Named-Token"}, Excludes: []string{"x-INTERNAL-*"}}
	for name, want := range map[string]bool{
		"X-Tenant-Name-Id": true, "x-id": false, "user-agent": true, "x-internal-id": false, "Authorization": false, "accept": false,
		"x-named-token": true, "X-Token-Id": false,
	} {
		require.Equal(t, want, f.Selects(name), name)
	}
	require.True(t, f.Withholds("x-token-id"))
	require.False(t, f.Withholds("x-named-token"))
	require.False(t, f.Withholds("cookie"))
	require.False(t, Filter{}.Selects("x-id"))
	all := Filter{Includes: []string{"*"}}
	for _, name := range []string{"langgraph_auth_user_id", "__pregel_resuming", "X-Goog-Api-Key", "x-session-token"} {
		require.False(t, all.Selects(name), name)
	}
}

// A wildcard passes no header of the classes that carry secrets, however it is spelled; a name of its own does. What only sounds alike passes.
func TestWildcardsPassNoSecrets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{
		"ocp-apim-subscription-key", "x-auth", "x-session-id", "x-session", "session", "php-sessid", "connect.sid", "x-auth-user", "x-authenticated-user",
		"x-functions-key", "x-rapidapi-key", "x-goog-api-key", "x-algolia-api-key", "x-api_key", "apikey-v2", "x-encryption-keys", "x-amz-credential",
		"x-amz-signature", "x-hub-signature-256", "x-signature", "x-sig", "x-hmac", "x-access-token", "x-ms-token-aad-id-token", "x-id-jwt", "x-vault-token",
		"x-gitlab-token", "private-token", "x-client-secret", "x-password", "x-user-pwd", "x-passphrase", "x-credentials", "x-creds", "x-saml-assertion", "x-oauth-scopes",
		"x-bearer", "x-otp", "x-pin", "x-sso", "x-ssl-client-certificate", "x-device-cookie", "x-csrf", "x_auth_key", "dd-api-key", "x-honeycomb-team-key",
		"x-authentication", "x-authn", "x-authz", "x-subscriptionkey", "x-kerberos-ticket",
	} {
		for _, pattern := range []string{"*", "x*", "*" + name[1:], name[:len(name)-1] + "*"} {
			f := Filter{Includes: []string{anyCase(random, pattern)}}
			require.False(t, f.Selects(anyCase(random, name)), "%s by %s", name, pattern)
			require.Equal(t, matches(pattern, name), f.Withholds(name), "%s by %s", name, pattern)
		}
		require.True(t, Filter{Includes: []string{"*", anyCase(random, name)}}.Selects(anyCase(random, name)), name)
	}
	all := Filter{Includes: []string{"*"}}
	for _, name := range []string{
		"accept", "user-agent", "x-request-id", "x-user-id", "x-thread-id", "x-conversation-id", "x-author", "x-authority", "x-monkey", "x-keyboard", "x-passenger", "x-compass",
		"x-signal", "x-pinned", "x-sidecar", "x-certain", "x-ticketing", "idempotency-key", "x-idempotency-key", "sec-websocket-key", "max-tokens", "x-max-tokens", "traceparent",
		"x-forwarded-for", "x-region", "x-workspace-id", "x-organization",
	} {
		require.True(t, all.Selects(anyCase(random, name)), name)
		require.False(t, all.Withholds(name), name)
	}
}

// Whatever is configured, no header that authenticates passes, however it is spelled.
func TestCredentialsNeverPass(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		name := anyCase(random, credentials[random.IntN(len(credentials))])
		f := Filter{Includes: []string{pattern(random, name), pattern(random, name), "*"}}
		if random.IntN(2) == 0 {
			f.Excludes = []string{"x-nothing"}
		}
		require.False(t, f.Selects(name), "%s with %v", name, f)
		require.False(t, f.Withholds(name), "%s with %v", name, f)
	}
}

// FuzzMatches holds patterns against regular expressions.
func FuzzMatches(f *testing.F) {
	for _, s := range []string{"", "*", "x-*", "*-id", "x-*-*d", "**", "a.c", "x-[a]*"} {
		f.Add(s, "x-some-id")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 100 || len(name) > 100 || strings.ToValidUTF8(pattern, "") != pattern || strings.ToValidUTF8(name, "") != name {
			return
		}
		re := regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `\z`)
		require.Equal(t, re.MatchString(name), matches(pattern, name))
	})
}

func anyCase(random *rand.Rand, s string) string {
	b := []byte(s)
	for i := range b {
		if random.IntN(2) == 0 {
			b[i] = strings.ToUpper(string(b[i]))[0]
		}
	}
	return string(b)
}

// pattern makes a pattern that matches name: the name with wildcards in place of parts of it.
func pattern(random *rand.Rand, name string) string {
	for range random.IntN(3) {
		i := random.IntN(len(name) + 1)
		j := i + random.IntN(len(name)-i+1)
		name = name[:i] + "*" + name[j:]
	}
	return anyCase(random, name)
}

func TestBaggage(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]map[string]string{
		"": {}, "a=b": {}, "langsmith-metadata=7": {}, "langsmith-metadata=%7B": {}, "langsmith-project=%zz": {}, "langsmith-project": {},
		"langsmith-metadata=%7B%22a%22%3A%20%22b%22%7D, langsmith-tags=t1%2Ct2,z=1,langsmith-project=my+project": {
			"langsmith-metadata": `{"a": "b"}`, "langsmith-tags": `["t1","t2"]`, "langsmith-project": "my project",
		},
	} {
		got := Baggage(value)
		if len(got) != len(want) {
			t.Fatalf("%s: %v", value, got)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %s is %q", value, name, got[name])
			}
		}
	}
	require.True(t, IsJSON("langsmith-tags", `["a"]`))
	require.False(t, IsJSON("langsmith-tags", `a`))
	require.False(t, IsJSON("langsmith-trace", `["a"]`))
}
