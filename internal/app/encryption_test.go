package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/graph/pregel"
	"understudy/internal/app/moving"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
)

// noted is the state of a graph that says back what it got, in messages too.
type noted struct {
	Text     string           `json:"text"`
	Title    string           `json:"title"`
	Messages []map[string]any `json:"messages" graph:"messages,reducer=append"`
}

func noting(t *testing.T) *pregel.Graph {
	t.Helper()
	g := pregel.NewStateGraph[noted]()
	g.AddNode("note", func(ctx context.Context, s noted) (any, error) {
		if strings.Contains(s.Text, "ask") {
			if _, err := pregel.Interrupt[string](ctx, "question MARKER-interrupt"); err != nil {
				return nil, err
			}
		}
		if strings.Contains(s.Text, "fail") {
			return nil, errors.New("failed at MARKER-error")
		}
		return noted{Title: "MARKER-title", Messages: []map[string]any{
			{"type": "human", "id": uuid.NewString(), "content": s.Text + " MARKER-question"},
			{"type": "ai", "id": uuid.NewString(), "content": "MARKER-answer to " + s.Text + strings.Repeat(" long", 500)},
		}}, nil
	})
	g.AddSequence(pregel.START, "note", pregel.END)
	compiled, err := g.Compile(pregel.WithName("note"))
	require.NoError(t, err)
	return compiled
}

// Keys of the tests.
const (
	keyOne = "0123456789abcdef0123456789abcdef"
	keyTwo = "another key 1234"
)

// encrypted loads settings with keys, as LANGGRAPH_AES_KEY has them.
func encrypted(t *testing.T, keys, hidden string, flags map[string]string) *config.Config {
	t.Helper()
	env := map[string]string{"LANGGRAPH_AES_KEY": keys, "LANGGRAPH_AES_JSON_KEYS": hidden}
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(name string) (string, bool) { return env[name], env[name] != "" }})
	require.NoError(t, err)
	return settings
}

// work does what leaves content in each table, with MARKER in all of it, and returns the thread.
func work(t *testing.T, url string) (thread string) {
	t.Helper()
	send := func(method, path, body string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, text)
		return string(text)
	}
	send("POST", "/assistants", `{"graph_id":"note","config":{"configurable":{"x":"MARKER-assistant"}},"metadata":{"a":{"b":"MARKER-assistant-metadata"}}}`)
	send("POST", "/assistants", `{"graph_id":"note","context":{"y":"MARKER-context"}}`)
	created := send("POST", "/threads", `{"metadata":{"deep":{"x":"MARKER-thread"},"hidden":"MARKER-hidden","plain":"visible"}}`)
	at := strings.Index(created, `"thread_id":"`) + len(`"thread_id":"`)
	thread = created[at : at+36]
	th := "/threads/" + thread
	for _, text := range []string{"MARKER-one", "MARKER-two"} {
		send("POST", th+"/runs/stream", `{"assistant_id":"note","input":{"text":"`+text+`"},"metadata":{"r":{"m":"MARKER-run-metadata"}},"config":{"configurable":{"c":"MARKER-config"}},"stream_mode":["values","updates"],"stream_resumable":true}`)
	}
	send("POST", th+"/runs/wait", `{"assistant_id":"note","input":{"text":"ask MARKER-three"}}`)
	send("POST", th+"/state", `{"values":{"text":"MARKER-update"}}`)
	send("POST", th+"/copy", `{}`)
	send("POST", "/runs/wait", `{"assistant_id":"note","input":{"text":"fail MARKER-failing"}}`)
	send("PUT", "/store/items", `{"namespace":["n"],"key":"k","value":{"v":"MARKER-item"}}`)
	send("POST", "/runs/crons", `{"assistant_id":"note","schedule":"0 0 1 1 *","input":{"text":"MARKER-cron"},"metadata":{"c":{"m":"MARKER-cron-metadata"}}}`)
	send("POST", th+"/runs", `{"assistant_id":"note","input":{"text":"MARKER-later"},"after_seconds":3600,"webhook":"https://example.com/hook"}`)
	for _, want := range []string{"MARKER-update", "MARKER-interrupt"} {
		require.Contains(t, send("GET", th+"/state", "")+send("POST", th+"/history", `{"limit":20}`), want)
	}
	check(t, url, thread)
	return thread
}

// check reads back what work wrote.
func check(t *testing.T, url, thread string) {
	t.Helper()
	search := func(body string) string {
		resp, err := http.Post(url+"/threads/search", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}
	require.Contains(t, search(`{"metadata":{"plain":"visible"}}`), thread)
	require.Contains(t, search(`{"metadata":{"hidden":"MARKER-hidden"}}`), thread)
	require.Contains(t, search(`{"metadata":{"deep":{"x":"MARKER-thread"}}}`), thread)
	require.NotContains(t, search(`{"metadata":{"hidden":"other"}}`), thread)
	resp, err := http.Get(url + "/threads/" + thread + "/state")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "MARKER-update")
}

// serveOnce runs a server while fn uses it.
func serveOnce(t *testing.T, settings *config.Config, fn func(url string)) {
	t.Helper()
	s, err := New(t.Context(), Config{Settings: settings})
	require.NoError(t, err)
	require.NoError(t, s.Register("note", "", noting(t)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	fn("http://" + s.Addr().String())
}

// folderHas returns the files of a folder that have a text.
func folderHas(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// databaseHas returns the tables of a database that have a text.
func databaseHas(t *testing.T, url, text string) (tables []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, name := range all {
		var n int
		// bytea is shown in hexadecimal digits.
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" AS t WHERE t::text LIKE '%' || $1 || '%' OR t::text LIKE '%' || encode($1::text::bytea, 'hex') || '%'", text).Scan(&n))
		if n > 0 {
			tables = append(tables, name)
		}
	}
	return tables
}

// Nothing that clients and graphs wrote can be read in the database, before and after the key changes.
func TestNothingIsReadable(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"port": "0", "synchronous": "normal"}
			var has func(text string) []string
			if engine == "sqlite" {
				dir := t.TempDir()
				flags["data"] = dir
				has = func(text string) []string { return folderHas(t, dir, text) }
			} else {
				flags["database-url"], flags["database-connections"] = postgrestest.Database(t), "4"
				has = func(text string) []string { return databaseHas(t, flags["database-url"], text) }
			}
			nothing := slog.New(slog.DiscardHandler)

			// What was written before there was a key is readable until it is encrypted.
			var before, thread string
			serveOnce(t, encrypted(t, "", "", flags), func(url string) { before = work(t, url) })
			require.NotEmpty(t, has("MARKER"))
			serveOnce(t, encrypted(t, keyOne, "hidden", flags), func(url string) { check(t, url, before) })
			changed, err := moving.Encrypt(t.Context(), encrypted(t, keyOne, "hidden", flags), nothing)
			require.NoError(t, err)
			require.Positive(t, changed)
			require.Empty(t, has("MARKER"))

			serveOnce(t, encrypted(t, keyOne, "hidden", flags), func(url string) {
				check(t, url, before)
				thread = work(t, url)
			})
			require.Empty(t, has("MARKER"))
			require.NotEmpty(t, has("visible"), "the index of metadata is readable, and so is that nothing is missed here")

			for keys, want := range map[string]string{"": "set LANGGRAPH_AES_KEY", keyTwo: "set it to the key from before"} {
				_, err := New(t.Context(), Config{Settings: encrypted(t, keys, "", flags)})
				require.ErrorContains(t, err, want)
			}

			both := encrypted(t, keyTwo+","+keyOne, "hidden", flags)
			serveOnce(t, both, func(url string) { check(t, url, thread) })
			changed, err = moving.Encrypt(t.Context(), both, nothing)
			require.NoError(t, err)
			require.Positive(t, changed)
			again, err := moving.Encrypt(t.Context(), both, nothing)
			require.NoError(t, err)
			require.Zero(t, again)
			serveOnce(t, encrypted(t, keyTwo, "hidden", flags), func(url string) {
				check(t, url, before)
				check(t, url, thread)
			})
			require.Empty(t, has("MARKER"))
		})
	}
}
