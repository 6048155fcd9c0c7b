package app

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

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

// After POST /internal/truncate the database has nothing of what runs and tasks leave, in no table.
func TestWhatTruncateLeaves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, user := startDeerFlow(t, func(c *Config) { c.Settings.Mode, c.Settings.Dir, c.Settings.Storage.Data = config.Dev, dir, dir })
	ann := user("ann@example.com")
	const hello = `{"input":{"messages":[{"role":"user","content":"hello"}]}}`
	thread := ann.must("POST", "/api/threads", `{}`, "thread_id")
	other := ann.must("POST", "/api/threads", `{}`, "thread_id")
	for _, path := range []string{"/api/threads/" + thread + "/runs/wait", "/api/runs/wait", "/api/threads/" + thread + "/runs/stream"} {
		status, answer := ann.ask("POST", path, hello)
		require.Equal(t, 200, status, answer)
	}
	_, runs := ann.ask("GET", "/api/threads/"+thread+"/runs", "")
	ann.must("PUT", "/api/threads/"+thread+"/runs/"+gjson.Get(runs, "0.run_id").String()+"/feedback", `{"rating":1}`, "feedback_id")
	status, answer := ann.ask("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"g","input":{}}`, "Idempotency-Key", "k")
	require.Equal(t, 200, status, answer)
	ann.must("POST", "/threads/"+thread+"/copy", "", "thread_id")
	const schedule = `"title":"T","prompt":"P","schedule_type":"cron","schedule_spec":{"cron":"0 9 * * *"},"timezone":"UTC"`
	for _, body := range []string{`{` + schedule + `}`, `{` + schedule + `,"context_mode":"reuse_thread","thread_id":"` + other + `"}`} {
		task := ann.must("POST", "/api/scheduled-tasks", body, "id")
		status, answer := ann.ask("POST", "/api/scheduled-tasks/"+task+"/trigger", "")
		require.Equal(t, 200, status, answer)
		ann.must("POST", "/api/scheduled-tasks/"+task+"/pause", "", "id")
	}
	status, answer = ann.ask("POST", "/internal/truncate", `{}`)
	require.Equal(t, 200, status, answer)
	stay := []string{
		"accounts", "assistants", "assistant_versions", "checkpoint_migrations", "schema_migrations", "meta", "sweeps", "sqlite_sequence", "message_words_config", "message_words_data",
		"log_offsets", // readers of the log note where they are, which may be just after
	}
	// Those readers delete what they made of a thread once they have read that it is gone.
	require.Eventually(t, func() bool { return rowsOf(t, dir)["read_models"] == 0 }, time.Minute, 10*time.Millisecond)
	for table, n := range rowsOf(t, dir) {
		require.Contains(t, stay, table, "%d rows", n)
	}
	require.Equal(t, 1, rowsOf(t, dir)["accounts"])
}

// rowsOf counts the rows of the tables of a database that have some.
func rowsOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	conn, err := sqlite.OpenConn(filepath.Join(dir, "understudy.db"), sqlite.OpenReadOnly)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	var tables []string
	require.NoError(t, sqlitex.ExecuteTransient(conn, "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		tables = append(tables, s.ColumnText(0))
		return nil
	}}))
	out := map[string]int{}
	for _, table := range tables {
		require.NoError(t, sqlitex.ExecuteTransient(conn, "SELECT count(*) FROM "+table, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			if n := s.ColumnInt(0); n > 0 {
				out[table] = n
			}
			return nil
		}}))
	}
	return out
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
