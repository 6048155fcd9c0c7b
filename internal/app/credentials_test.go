package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/header"
	"understudy/internal/logtest"
	"understudy/internal/postgrestest"
)

// repeats is a graph that puts its whole configuration into its state, its checkpoint and what it streams. Only Stream is used.
type repeats struct{ graph.Graph }

func (repeats) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		values := fmt.Appendf(nil, `{"config":%s}`, inv.Config.Config)
		if inv.Saver != nil { // temporary threads have none
			if err := inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
				Key:  checkpointer.Key{Thread: inv.Thread, ID: id.Checkpoint(inv.Run)},
				Data: fmt.Appendf(nil, `{"channel_values":%s,"channel_versions":{"config":"1"}}`, values), Metadata: inv.Config.Config, Run: inv.Run,
			}}}); err != nil {
				yield(graph.Event{}, err)
				return
			}
		}
		yield(graph.Event{Name: "values", Data: values}, nil)
	}
}

// authenticating are headers by which clients and proxies authenticate.
var authenticating = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Cookie", "Set-Cookie", "X-Service-Key", "X-Tenant-Id", "X-Auth-Token", "X-Csrf-Token", "Api-Key",
	"X-Langsmith-Api-Key", "X-Amz-Security-Token", "X-Forwarded-Access-Token", "X-Goog-Iap-Jwt-Assertion",
}

// Whatever http.configurable_headers and http.logging_headers say, and however a client spells a header, no credential leaves the request: not into files or rows of
// a database, answers, logs, or spans.
func TestCredentialsStayInTheRequest(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t testing.TB) string{"SQLite": nil, "Postgres": postgrestest.Database} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			searchForCredentials(t, database)
		})
	}
}

func searchForCredentials(t *testing.T, database func(t testing.TB) string) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 12))
	for range 4 {
		filter := header.Filter{Includes: []string{"x-plain", []string{"*", "x-*", "*a*", "*-*"}[random.IntN(4)]}, Excludes: []string{"x-none"}}
		for range 6 {
			filter.Includes = append(filter.Includes, randomCase(random, authenticating[random.IntN(len(authenticating))]))
		}
		url := ""
		if database != nil {
			url = database(t)
		}
		checkCredentials(t, random, filter, url)
	}
}

// everythingIn returns everything in a database, as text.
func everythingIn(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	list := func(text string) []string {
		rows, err := conn.Query(t.Context(), text)
		require.NoError(t, err, text)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, text)
		return found
	}
	var all strings.Builder
	tables := list("SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()")
	require.NotEmpty(t, tables)
	for _, table := range tables {
		name := pgx.Identifier{table}.Sanitize()
		for _, column := range list("SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid = '" + name + "'::regclass") {
			as := pgx.Identifier{column}.Sanitize()
			for _, text := range list("SELECT " + as + "::text FROM " + name + " WHERE " + as + " IS NOT NULL") {
				if raw, err := hex.DecodeString(strings.TrimPrefix(text, `\x`)); err == nil { // of bytea
					text = string(raw)
				}
				all.WriteString(text + "\n")
			}
		}
	}
	return all.String()
}

// textOf returns everything in spans.
func textOf(spans []sdk.ReadOnlySpan) string {
	var all strings.Builder
	for _, s := range spans {
		fmt.Fprintln(&all, s.Name(), s.Status())
		for _, a := range s.Attributes() {
			fmt.Fprintln(&all, a.Key, a.Value.AsString(), a.Value.AsStringSlice())
		}
		for _, e := range s.Events() {
			fmt.Fprintln(&all, e.Name, e.Attributes)
		}
	}
	return all.String()
}

func checkCredentials(t *testing.T, random *rand.Rand, filter header.Filter, database string) {
	t.Helper()
	data := t.TempDir()
	flags := map[string]string{"port": "0", "data": data, "traces": "content"}
	if database != "" {
		delete(flags, "data")
		flags["database-url"], flags["database-connections"] = database, "4"
	}
	settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	settings.HTTP.ConfigurableHeaders, settings.HTTP.LoggingHeaders = filter, filter
	var log logtest.Buffer
	spans := tracetest.NewSpanRecorder()
	srv, err := New(t.Context(), Config{Settings: settings, Tracing: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	require.NoError(t, err)
	require.NoError(t, srv.Register("g", "", repeats{}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	var seen bytes.Buffer // every answer
	ask := func(method, path, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, strings.NewReader(body))
		require.NoError(t, err)
		for _, name := range authenticating {
			req.Header[randomCase(random, name)] = []string{"SECRET of " + name}
		}
		req.Header.Set("X-Plain", "PLAIN")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, text)
		seen.Write(text)
		return string(text)
	}
	var thread struct {
		ID string `json:"thread_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(ask("POST", "/threads", `{}`)), &thread))
	const input = `{"assistant_id":"g","input":{},"config":{"configurable":{"user_id":"ann"}}}`
	at := "/threads/" + thread.ID
	require.Contains(t, ask("POST", at+"/runs/wait", input), `"x-plain":"PLAIN"`)
	require.Contains(t, ask("POST", at+"/runs/stream", input), `"user_id":"ann"`)
	require.Contains(t, ask("POST", "/runs/wait", input), `"x-plain":"PLAIN"`)
	ask("POST", "/runs/batch", "["+input+","+input+"]")
	ask("POST", at+"/runs/crons", `{"assistant_id":"g","schedule":"0 0 1 1 *","input":{}}`)
	for _, path := range []string{"", "/state", "/history?limit=100", "/runs", "/events", "/messages"} {
		ask("GET", at+path, "")
	}
	ask("POST", "/threads/search", `{}`)
	ask("POST", "/runs/crons/search", `{}`)
	cancel()
	require.NoError(t, <-ended)
	require.Contains(t, log.String(), `"x-plain":"PLAIN"`)
	require.NotContains(t, log.String(), "SECRET", "%v", filter)
	require.NotContains(t, seen.String(), "SECRET", "%v", filter)
	exported := textOf(spans.Ended())
	require.Contains(t, exported, "POST /runs/wait")
	require.NotContains(t, exported, "SECRET", "%v", filter)
	if database != "" {
		rows := everythingIn(t, database)
		require.Contains(t, rows, "PLAIN")
		require.NotContains(t, rows, "SECRET", "%v", filter)
		return
	}
	files := 0
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		require.NotContains(t, string(text), "SECRET", "%s with %v", path, filter)
		return err
	}))
	require.Positive(t, files)
}

func randomCase(random *rand.Rand, s string) string {
	b := []byte(strings.ToLower(s))
	for i := range b {
		if random.IntN(2) == 0 {
			b[i] = bytes.ToUpper(b[i : i+1])[0]
		}
	}
	return string(b)
}
