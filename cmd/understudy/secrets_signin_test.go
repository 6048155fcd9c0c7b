package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/oidctest"
)

// The secret of a client, the codes and cookies of sign-ins and sessions are in no log, error, row or backup, also when the provider repeats them in its errors.
func TestSecretsOfSignIns(t *testing.T) {
	t.Parallel()
	k := newSecretKeeper(t)
	provider := oidctest.New(t)
	k.keep("the secret of the client", provider.ClientSecret)
	k.keep("the secret of the client, as it is sent", url.QueryEscape(provider.ClientSecret))
	dir := folderWithAgent(t)
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{
		"graphs": {"echo": {"agent": {"model": "scripted:script.json"}}}, "env": {"OIDC_SECRET": %q},
		"auth": {"oidc": {"issuer": %q, "client_id": %q, "client_secret_env": "OIDC_SECRET"}}
	}`, provider.ClientSecret, provider.URL, provider.ClientID), 0o600))
	address, stop := k.serve(file, data, "true")

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(at string, headers ...string) (status int, next string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		require.NoError(t, err)
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := browser.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		for _, c := range resp.Cookies() {
			if len(c.Value) > 20 && c.Name != "understudy_csrf" {
				k.keep("the cookie "+c.Name, c.Value)
			}
		}
		if !strings.HasPrefix(at, provider.URL) {
			k.saw("answer of "+strings.SplitN(at, "?", 2)[0], text)
		}
		return resp.StatusCode, resp.Header.Get("Location")
	}
	signIn := func() int {
		t.Helper()
		_, at := get(address + "/auth/login?next=/")
		_, back := get(at)
		q, err := url.Parse(back)
		require.NoError(t, err)
		k.keep("a code", q.Query().Get("code"))
		k.keep("a state", q.Query().Get("state"))
		status, _ := get(back)
		return status
	}
	provider.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/token" {
			return false
		}
		_, secret, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":"invalid_grant","error_description":"no such code %s of client with %s, verifier %s","error_uri":"https://x/?%s"}`, r.FormValue("code"), secret, r.FormValue("code_verifier"), secret)
		return true
	})
	require.GreaterOrEqual(t, signIn(), 400)
	provider.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/token" {
			return false
		}
		_, secret, _ := r.BasicAuth()
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s %s", r.FormValue("code"), secret)
		return true
	})
	require.GreaterOrEqual(t, signIn(), 400)
	provider.Hook(nil)
	require.Equal(t, http.StatusSeeOther, signIn())
	status, _ := get(address + "/auth/session")
	require.Equal(t, http.StatusOK, status)
	status, _ = get(address + "/threads/x?code=nothing")
	require.NotEqual(t, http.StatusUnauthorized, status)
	get(address+"/threads/x", "Cookie", "understudy_session="+k.secret("a session that is none"))
	k.sawFolder("data of a server that runs", data)
	stop()
	k.sawFolder("data", data)
	require.Contains(t, string(k.seen["log"]), "/auth/callback")
	k.check()
}
