package app

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

// POST /internal/truncate empties a development server for programs of its own machine, and is not there otherwise.
func TestTruncate(t *testing.T) {
	t.Parallel()
	start := func(mode config.Mode, host string) string {
		settings, _, err := config.Load(config.Source{
			Mode: mode, Flags: map[string]string{"port": "0", "host": host, "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
		})
		require.NoError(t, err)
		return strings.Replace(runWith(t, Config{Settings: settings}, "g", repeats{}).url(), "[::]", "127.0.0.1", 1)
	}
	truncate := func(url, origin string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/internal/truncate", strings.NewReader(`{"runs":true}`))
		require.NoError(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	for mode, host := range map[config.Mode]string{config.Serve: "127.0.0.1", config.Dev: "0.0.0.0"} {
		require.Equal(t, http.StatusNotFound, truncate(start(mode, host), ""))
	}

	url := start(config.Dev, "127.0.0.1")
	thread, _ := call(t, "POST", url+"/threads", `{}`)["thread_id"].(string)
	call(t, "POST", url+"/threads/"+thread+"/runs/wait", `{"assistant_id":"g","input":{}}`)
	call(t, "POST", url+"/assistants", `{"graph_id":"g"}`)
	call(t, "POST", url+"/runs/crons", `{"assistant_id":"g","schedule":"0 0 1 1 *","input":{}}`)
	call(t, "PUT", url+"/store/items", `{"namespace":["a"],"key":"k","value":{}}`)
	counts := func() (n []string) {
		for _, path := range []string{"/threads/count", "/assistants/count", "/runs/crons/count"} {
			_, text := send(t, "POST", url+path, `{}`)
			n = append(n, text)
		}
		return n
	}
	require.Equal(t, []string{"1", "2", "1"}, counts())
	require.Equal(t, http.StatusNotFound, truncate(url, "https://page.example"))
	require.Equal(t, []string{"1", "2", "1"}, counts())
	require.Equal(t, http.StatusOK, truncate(url, "http://localhost:3000"))
	require.Equal(t, []string{"0", "1", "0"}, counts())
	require.Len(t, call(t, "POST", url+"/store/items/search", `{}`)["items"], 1)
}

func send(t *testing.T, method, url, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}
