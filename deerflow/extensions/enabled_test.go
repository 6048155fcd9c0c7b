package extensions

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

func TestEnabled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "extensions_config.json")
	f := Open(path)
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"KEY": "secret", "HOST": "https://h"}[name]
		return v, ok
	}
	list, bad, err := f.Enabled(lookup)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Empty(t, bad)
	require.NoError(t, os.WriteFile(path, []byte(`{"mcpServers": {
		"files": {"command": "npx", "args": ["-y", "pkg", "$KEY"], "env": {"TOKEN": "$KEY", "PRICE": "$5 or ${KEY}", "NONE": "$NONE"}},
		"off": {"enabled": false, "command": "npx"},
		"web": {"transport": "http", "url": "$HOST", "headers": {"Authorization": "$KEY"}},
		"older": {"type": "sse", "url": "https://o/sse", "oauth": {"token_url": "https://t", "client_id": "c", "client_secret": "$KEY", "extra_token_params": {"x": "$KEY"}}},
		"named": {"type": "streamable-http", "url": "https://n", "oauth": {"enabled": false}},
		"nothing": {}, "nowhere": {"type": "http"}, "odd": 7, "odd args": {"command": "x", "args": "y"},
		"bad grant": {"type": "http", "url": "https://x", "oauth": {"token_url": "https://t", "grant_type": "password"}}
	}}`), 0o600))
	list, bad, err = f.Enabled(lookup)
	require.NoError(t, err)
	none := map[string]string{}
	require.Equal(t, []Server{
		{Name: "files", Type: "stdio", Command: "npx", Args: []string{"-y", "pkg", "secret"}, Env: map[string]string{"TOKEN": "secret", "PRICE": "$5 or ${KEY}", "NONE": ""}, Headers: none},
		{Name: "web", Type: "http", URL: "https://h", Env: none, Headers: map[string]string{"Authorization": "secret"}},
		{Name: "older", Type: "sse", URL: "https://o/sse", Env: none, Headers: none, OAuth: &OAuth{
			TokenURL: "https://t", Grant: "client_credentials", ClientID: "c", ClientSecret: "secret", TokenField: "access_token", TypeField: "token_type", ExpiresField: "expires_in", DefaultType: "Bearer",
			Skew: time.Minute, Extra: map[string]string{"x": "secret"},
		}},
		{Name: "named", Type: "http", URL: "https://n", Env: none, Headers: none},
	}, list)
	require.Len(t, bad, 5)
	for _, err := range bad {
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoError(t, os.WriteFile(path, []byte(`{`), 0o600))
	_, _, err = f.Enabled(lookup)
	require.Error(t, err)
}

// A file that cannot be read, or whose sections have wrong types, is reported as unavailable by each function that needs it, and never overwritten.
func TestBrokenFile(t *testing.T) {
	t.Parallel()
	for _, content := range []string{`{`, `[]`, `7`, `{"mcpServers": [], "skills": {"s": {"enabled": "no"}}}`, `{"mcpServers": 7, "skills": 7}`, `{"mcpServers": {}} x`, "\xff"} {
		path := filepath.Join(t.TempDir(), "extensions_config.json")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		f := Open(path)
		_, _, enabled := f.Enabled(os.LookupEnv)
		_, servers := f.Servers()
		_, skill := f.SkillEnabled("s")
		for name, err := range map[string]error{"enabled": enabled, "servers": servers, "skill": skill, "switch": f.Enable("x", true), "replace": f.SetServers(json.RawMessage(`{}`), nil)} {
			require.Equal(t, fault.Unavailable, fault.KindOf(err), "%s of %s: %v", name, content, err)
		}
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(kept))
	}
}

// A token is fetched once for many requests, before it ends, and again when the server refuses it; what it is got with changes when the issuer says so.
func TestOAuth(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	fetched, valid := 0, ""
	var forms []string
	expires := 3600
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		forms = append(forms, string(body))
		fetched++
		valid = fmt.Sprint("token", fetched)
		_ = json.NewEncoder(w).Encode(map[string]any{"the.token": valid, "token_type": "bearer", "expires_in": expires, "refresh_token": fmt.Sprint("r", fetched)})
	}))
	t.Cleanup(issuer.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+valid {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	o, err := readOAuth(json.RawMessage(fmt.Sprintf(`{"token_url": %q, "grant_type": "refresh_token", "refresh_token": "r0", "client_id": "me", "token_field": "the.token"}`, issuer.URL)), func(s string) string { return s })
	require.NoError(t, err)
	client := &http.Client{Transport: (&Server{OAuth: o}).Transport()}
	post := func() string {
		resp, err := client.Post(server.URL, "text/plain", strings.NewReader("hello"))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.Status + " " + string(body)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := post(); got != "200 OK hello" {
				t.Error(got)
			}
		})
	}
	all.Wait()
	require.Equal(t, []string{"client_id=me&grant_type=refresh_token&refresh_token=r0"}, forms)
	mu.Lock()
	valid = "another"
	expires = 30 // less than the skew: each request fetches
	mu.Unlock()
	require.Equal(t, "200 OK hello", post())
	require.Equal(t, "client_id=me&grant_type=refresh_token&refresh_token=r1", forms[1])
	require.Equal(t, "200 OK hello", post())
	require.Len(t, forms, 3)
	issuer.Close()
	require.Contains(t, post(), "fetch a token")
	require.NotContains(t, post(), "r3")
}

// Values of a wrong kind are named by their keys, without types of this program.
func TestServersOfWrongKinds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "extensions_config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"mcpServers": {"a": {"args": "x"}, "b": 5, "c": {"env": {"K": 1}}, "d": {"enabled": "no"}, "e": {"command": ["x"]}}}`), 0o600))
	list, bad, err := Open(path).Enabled(os.LookupEnv)
	require.NoError(t, err)
	require.Empty(t, list)
	got := map[string]string{}
	for name, err := range bad {
		got[name] = err.Error()
	}
	require.Equal(t, map[string]string{
		"a": "args must not be of type string", "b": "the server must not be of type number", "c": "env must not be of type number", "d": "enabled must not be of type string", "e": "command must not be of type array",
	}, got)
}

// A file that cannot be written, as on a full disk or behind a folder in its place, is the server's trouble for a time, and is said so.
func TestFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := Open(filepath.Join(t.TempDir(), "missing", "extensions_config.json"))
	require.True(t, fault.Is(f.EnableSkill("demo", false), fault.Unavailable))
}
