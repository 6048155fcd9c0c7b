package signin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/auth/signin"
)

// A provider reached over TLS must not name addresses without TLS: codes, secrets and keys would be sent to them in the clear. One that the options name is accepted.
func TestAddressesWithoutTLS(t *testing.T) {
	t.Parallel()
	keys := []string{"authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri"}
	for _, odd := range append([]string{""}, keys...) {
		var provider *httptest.Server
		provider = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			doc := map[string]any{"issuer": provider.URL, "code_challenge_methods_supported": []string{"S256"}}
			for _, key := range keys {
				doc[key] = provider.URL + "/" + key
			}
			if odd != "" {
				doc[odd] = strings.Replace(provider.URL, "https:", "HTTP:", 1)
			}
			_ = json.NewEncoder(w).Encode(doc)
		}))
		t.Cleanup(provider.Close)
		o := signin.Options{Issuer: provider.URL, ClientID: "x", Client: provider.Client()}
		err := signin.NewProvider(o).Check(t.Context())
		if odd == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "sign-in provider does not answer")
		o.AuthURL, o.TokenURL, o.UserInfoURL, o.KeysURL = "http://a.internal", "http://b.internal", "http://c.internal", "http://d.internal"
		require.NoError(t, signin.NewProvider(o).Check(t.Context()))
	}
}
