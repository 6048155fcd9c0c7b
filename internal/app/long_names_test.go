package app

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/storage/postgres/migratedtest"
)

// bounded are the columns in indexes of Postgres that no client can make long, by what bounds them. Clients choose what the columns of longNames get.
var bounded = map[string][]string{
	"IDs that the server makes, or UUIDs, or (DeerFlow) of up to 64 characters": {
		"thread_id", "run_id", "assistant_id", "cron_id", "account_id", "occurrence_id", "checkpoint_id", "source_thread_id", "session_id", "feedback_id", "after",
		"call_id", "api_keys.key_id", "transcripts.version", "checkpoint_blobs.version", "checkpoint_writes.task_id",
	},
	"digests":                  {"identity", "shapes.digest", "idempotency_keys.id"},
	"words of the server":      {"status", "events.type", "meta.key", "sweeps.name", "model", "kind", "log_offsets.follower", "server", "answers.key", "store_items.embedding"},
	"the length that is taken": {"usage_days.name", "usage_sums.name"}, // 200 bytes
	"names of the graph":       {"graph_id", "checkpoint_ns", "checkpoint_blobs.channel"},
	"limits of DeerFlow":       {"accounts.email_key", "accounts.provider", "accounts.subject", "login_failures.name"}, // 254 characters; the provider's own; an address
}

// longNames are requests with a value that their client chooses, and the indexed columns that get it. TEXT is the value, USER who asks, THREAD a
// thread of its own.
var longNames = []struct{ method, path, body, columns string }{
	{"POST", "/assistants", `{"graph_id":"note","name":"TEXT"}`, "assistants.name"},
	{"POST", "/assistants/search", `{"name":"TEXT","sort_by":"name"}`, ""},
	{"POST", "/assistants", `{"graph_id":"TEXT"}`, ""},
	{"POST", "/threads", `{"metadata":{"k":"TEXT"}}`, "thread_metadata.value"},
	{"POST", "/threads", `{"metadata":{"k":["TEXT"]}}`, "thread_metadata.value"},
	{"POST", "/threads", `{"metadata":{"TEXT":1}}`, "thread_metadata.key"},
	{"POST", "/threads/search", `{"metadata":{"TEXT":"TEXT"}}`, ""},
	{"POST", "/threads/search", `{"values":{"text":"TEXT"}}`, ""},
	{"POST", "/threads", `{"thread_id":"TEXT"}`, ""},
	{"PUT", "/store/items", `{"namespace":["USER","TEXT"],"key":"k","value":{}}`, "store_items.namespace store_vectors.namespace"},
	{"PUT", "/store/items", `{"namespace":["USER"],"key":"TEXT","value":{}}`, "store_items.key store_vectors.key"},
	{"POST", "/store/items/search", `{"namespace_prefix":["USER","TEXT"]}`, ""},
	{"POST", "/store/namespaces", `{"prefix":["USER","TEXT"]}`, ""},
	{"GET", "/store/items?namespace=USER.TEXT&key=TEXT", "", ""},
	{"DELETE", "/store/items", `{"namespace":["USER","TEXT"],"key":"TEXT"}`, ""},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"note","input":{"messages":[{"type":"human","id":"TEXT","content":"TEXT"}]}}`, "read_models.name"},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"note","input":{"text":"a"},"metadata":{"TEXT":"TEXT"},"config":{"configurable":{"TEXT":"TEXT"}}}`, ""},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"note","input":{"text":"a"},"checkpoint":{"checkpoint_ns":"TEXT"}}`, ""},
	{"POST", "/threads/THREAD/state", `{"values":{"messages":[{"type":"human","id":"TEXT","content":"x"}]},"as_node":"note"}`, "read_models.name"},
	{"POST", "/threads/THREAD/state", `{"values":{"title":"x"},"checkpoint":{"checkpoint_ns":"TEXT"}}`, ""},
	{"POST", "/threads/THREAD/history", `{"checkpoint":{"checkpoint_ns":"TEXT"}}`, ""},
	{"GET", "/understudy/threads/THREAD/messages/TEXT", "", ""},
	{"POST", "/threads/THREAD/runs/wait", `{"assistant_id":"note","input":{"text":"a"},"webhook":"https://TEXT.example/"}`, "outbox.origin"},
	{"POST", "/runs/crons", `{"assistant_id":"note","input":{},"schedule":"0 0 1 1 *","metadata":{"TEXT":"TEXT"}}`, ""},
	{"POST", "/runs/crons", `{"assistant_id":"note","input":{},"schedule":"TEXT"}`, ""},
}

// A client may choose long names: each is taken, or refused with a limit that is the same on both databases, and nothing fails later. Every column in an
// index of Postgres, which takes 2.6 KB, gets such a name here or is in bounded.
func TestLongNames(t *testing.T) {
	t.Parallel()
	random := make([]byte, 5000)
	_, _ = rand.Read(random) // never fails
	text := hex.EncodeToString(random)
	answers := map[string][]string{}
	database := migratedtest.Database(t)
	for name, flags := range map[string]map[string]string{"SQLite": {"data": t.TempDir(), "port": "0"}, "Postgres": {"data": t.TempDir(), "port": "0", "database-url": database}} {
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		var log logtest.Buffer
		srv := runWith(t, Config{Settings: settings, Auth: native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}, Log: slog.New(slog.NewTextHandler(&log, nil))}, "note", noting(t))
		ask := func(user, method, path, body string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, srv.url()+path, strings.NewReader(body))
			require.NoError(t, err)
			req.Header = http.Header{"Authorization": {"Bearer " + user}, "Content-Type": {"application/json"}}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return resp.StatusCode, string(answer)
		}
		for _, user := range []string{"ada", text[:4000]} { // an identity may be long too
			for _, size := range []int{1000, 5000, 10_000} {
				for _, r := range longNames {
					var thread struct {
						ID string `json:"thread_id"`
					}
					_, made := ask(user, "POST", "/threads", `{"metadata":{"graph_id":"note"}}`)
					require.NoError(t, json.Unmarshal([]byte(made), &thread), made)
					fill := strings.NewReplacer("THREAD", thread.ID, "TEXT", text[:size], "USER", user)
					status, answer := ask(user, r.method, fill.Replace(r.path), fill.Replace(r.body))
					what := fmt.Sprintf("%s, %d bytes, user of %d: %s %s %s", name, size, len(user), r.method, r.path, r.body)
					require.Less(t, status, 500, "%s: %.300s", what, answer)
					require.NotEqual(t, 413, status, "%s: %.300s", what, answer)
					if r.columns != "" && (size > 1000 || user != "ada") && status >= 400 {
						require.Regexp(t, "limit is|too long|at most", answer, what)
					} else if r.columns != "" && status != 204 {
						require.Equal(t, 200, status, "%s: %.300s", what, answer)
					}
					answers[what[len(name):]] = append(answers[what[len(name):]], fmt.Sprint(status))
					if r.columns == "read_models.name" { // waits for what follows the log
						require.Equal(t, 200, status, what)
						status, answer = ask(user, "GET", "/understudy/threads/"+thread.ID+"/messages/"+url.PathEscape(text[:size]), "")
						require.Equal(t, 200, status, "%s: %.300s", what, answer)
						require.Contains(t, answer, text[:size])
					}
				}
			}
		}
		require.NotContains(t, log.String(), "level=ERROR")
	}
	for what, statuses := range answers {
		require.Len(t, slices.Compact(statuses), 1, "the databases differ%s: %v", what, statuses)
	}

	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `SELECT DISTINCT c.relname || '.' || a.attname FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
		JOIN pg_am m ON m.oid = (SELECT relam FROM pg_class WHERE oid = x.indexrelid) AND m.amname = 'btree'
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (x.indkey) AND a.atttypid IN ('text'::regtype, 'bytea'::regtype)
		WHERE c.relnamespace = 'public'::regnamespace`)
	require.NoError(t, err)
	indexed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, indexed)
	var sent []string
	for _, r := range longNames {
		sent = append(sent, strings.Fields(r.columns)...)
	}
	for _, column := range indexed {
		_, short, _ := strings.Cut(column, ".")
		known := slices.Contains(sent, column) || slices.ContainsFunc(slices.Collect(maps.Values(bounded)), func(list []string) bool {
			return slices.Contains(list, column) || slices.Contains(list, short)
		})
		require.True(t, known, "%s is in an index: send a long text for it in longNames, or add to bounded what bounds it", column)
	}
}
