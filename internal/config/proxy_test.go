package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func loadProxy(t *testing.T, file string, flags map[string]string) (*Config, []Warning, error) {
	t.Helper()
	return Load(Source{Mode: Proxy, File: file, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
}

// A proxy needs an upstream, and no graphs.
func TestProxy(t *testing.T) {
	t.Parallel()
	c, warnings, err := loadProxy(t, "", map[string]string{"upstream": "HTTP://Host.example:8123/Agents/", "offline-reads": "true", "max-rewrite": "1MiB", "upstream-host": "Client"})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, "http://host.example:8123/Agents", c.Upstream.URL.String())
	require.True(t, c.Upstream.OfflineReads)
	require.Equal(t, MiB, c.Upstream.MaxRewrite)
	require.Equal(t, "client", c.Upstream.Host)
	require.Equal(t, 2025, c.Server.Port, "beside an upstream that has the usual one")
	require.True(t, c.Logging.JSON)
}

// The variables of LangGraph Server name its own database, which is none to record into.
func TestProxyDatabase(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URI": "postgres://theirs", "LANGGRAPH_POSTGRES_POOL_MAX_SIZE": "99", "LOG_LEVEL": "warn"}
	load := func() *Config {
		c, _, err := Load(Source{Mode: Proxy, Flags: map[string]string{"upstream": "http://h"}, Lookup: func(name string) (string, bool) {
			s, ok := env[name]
			return s, ok
		}})
		require.NoError(t, err)
		return c
	}
	c := load()
	require.Empty(t, c.Storage.DatabaseURL)
	require.Equal(t, 16, c.Storage.Connections)
	require.Equal(t, "WARN", c.Logging.Level.String())
	env["UNDERSTUDY_DATABASE_URL"] = "postgres://ours"
	require.Equal(t, "postgres://ours", load().Storage.DatabaseURL)
}

func TestProxyMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ flag, value, text string }{
		{"upstream", "", "--upstream: missing: name your LangGraph Server"},
		{"upstream", "localhost", `--upstream: "localhost" is no URL of a server: it has neither http:// nor a port; write one such as http://127.0.0.1:2024`},
		{"upstream", "ftp://h", "ftp:// is not http:// or https://"},
		{"upstream", "http://", "it has no host"},
		{"upstream", "http://h:x", "its port is not a number"},
		{"upstream", "http://u:p@h", "remove the credentials"},
		{"upstream", "http://h/?a", "it has a query"},
		{"upstream-host", "both", "write client or upstream"},
		{"max-rewrite", "0", "no response would be rewritten"},
	} {
		flags := map[string]string{"upstream": "http://h", tt.flag: tt.value}
		if tt.value == "" {
			delete(flags, tt.flag)
		}
		_, _, err := loadProxy(t, "", flags)
		require.ErrorContains(t, err, tt.text, tt.value)
	}
}

// Of langgraph.json a proxy reads what is about its own answers: the rest is the upstream's,
// whatever it says.
func TestProxyFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{
		"graphs": {"a": "./missing.ts:graph", "b": 1}, "auth": {"path": "./auth.py:auth"}, "python_version": "2.7", "store": {"index": {}},
		"http": {"app": "./app.py:app", "mount_prefix": "/there", "cors": {"allow_origins": ["https://app.example"]}},
		"history": {"markers": "off", "graphs": {"a": {"key": "talk"}}}
	}`), 0o600))
	c, warnings, err := loadProxy(t, file, map[string]string{"upstream": "http://h"})
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, "off", c.History.Markers)
	require.Equal(t, "talk", c.History.Graphs["a"].Key)
	require.Equal(t, []string{"https://app.example"}, c.HTTP.CORS.AllowOrigins)
	require.Empty(t, c.HTTP.MountPrefix)
	require.Empty(t, c.Graphs)
	require.NoError(t, os.WriteFile(file, []byte(`{"history": {"markers": "loud"}}`), 0o600))
	_, _, err = loadProxy(t, file, map[string]string{"upstream": "http://h"})
	require.ErrorContains(t, err, "history.markers")
}
