package understudy

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/internal/redistest"
	"understudy/store"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// slow is a graph that says something, waits to be let go, and says more. Only Stream is used.
type slow struct {
	graph.Graph
	began chan struct{}
	goOn  chan struct{}
}

func (s slow) Stream(ctx context.Context, _ graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if !yield(graph.Event{Name: "values", Data: json.RawMessage(`{"at":1}`)}, nil) {
			return
		}
		s.began <- struct{}{}
		select {
		case <-s.goOn:
		case <-ctx.Done():
			yield(graph.Event{}, context.Cause(ctx))
			return
		}
		yield(graph.Event{Name: "values", Data: json.RawMessage(`{"at":2}`)}, nil)
	}
}

// serve runs a server on Postgres and Redis, and gives its address.
func serve(t *testing.T, database, redis string, g graph.Graph) (url string) {
	t.Helper()
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"port": "0", "database-url": database, "database-connections": "4", "redis-url": redis, "data": t.TempDir()},
		Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	return serveWith(t, settings, g)
}

func serveWith(t *testing.T, settings *Settings, g graph.Graph) (url string) {
	t.Helper()
	return runWith(t, Config{Settings: settings}, "slow", g).url()
}

// runWith runs a server or a worker with a graph until the test ends.
func runWith(t *testing.T, c Config, name string, g graph.Graph) *Server {
	t.Helper()
	srv, err := New(c)
	require.NoError(t, err)
	require.NoError(t, srv.Register(name, "", g))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return srv
}

func call(t *testing.T, method, url, body string) (answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s", text)
	_ = json.Unmarshal(text, &answer) // some answer nothing
	return answer
}

// What one server began another shows, streams and cancels.
func TestServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	database, redis := postgrestest.Database(t), redistest.Start(t)
	g := slow{began: make(chan struct{}, 1), goOn: make(chan struct{})}
	a, b := serve(t, database, redis.URL, g), serve(t, database, redis.URL, g)
	thread, _ := call(t, http.MethodPost, a+"/threads", `{}`)["thread_id"].(string)
	run, _ := call(t, http.MethodPost, a+"/threads/"+thread+"/runs", `{"assistant_id":"slow","input":{}}`)["run_id"].(string)
	<-g.began
	require.Equal(t, "running", call(t, http.MethodGet, b+"/threads/"+thread+"/runs/"+run, "")["status"])

	resp, err := http.Get(b + "/threads/" + thread + "/runs/" + run + "/stream")
	require.NoError(t, err)
	defer resp.Body.Close()
	close(g.goOn)
	seen := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		seen = seen || lines.Text() == `data: {"at":2}`
	}
	require.True(t, seen, "the stream of a run on the other server")
	require.Equal(t, "success", call(t, http.MethodGet, b+"/threads/"+thread+"/runs/"+run, "")["status"])
	call(t, http.MethodGet, b+"/ok?check_db=1", "")
}

func TestMirrorNeedsADataFolder(t *testing.T) {
	t.Parallel()
	_, err := openDatabase(t.Context(), &Settings{DatabaseURL: "postgres://h/d"}, nil, nil, func([]id.Thread) {})
	require.ErrorContains(t, err, "history.jsonl")
}

// TestMovingNamesTheDatabase: a database is told from that of LangGraph's savers, from one of somebody else, and from the one that is moved into.
func TestMovingNamesTheDatabase(t *testing.T) {
	address, empty := postgrestest.Database(t), postgrestest.Database(t)
	ours := &Settings{DatabaseURL: address, DatabaseConnections: 3}
	file := filepath.Join(t.TempDir(), "out.sqlite")
	_, err := Export{To: file}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "nothing of this program to export")
	folder := &Settings{Data: t.TempDir()}
	rows, err := openDatabase(t.Context(), folder, slog.New(slog.DiscardHandler), nil, nil)
	require.NoError(t, err)
	now := time.Now()
	require.NoError(t, rows.Items().Apply(t.Context(), []*store.Item{{Namespace: []string{"a"}, Key: "k", Value: []byte(`{"x":1}`), CreatedAt: now, UpdatedAt: now}}))
	require.NoError(t, rows.Close())

	in, err := Import{From: folder.Data}.Run(t.Context(), ours, nil)
	require.NoError(t, err)
	require.Equal(t, 1, in.Items.New)
	in, err = Import{From: address}.Run(t.Context(), &Settings{Data: t.TempDir()}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, in.Items.New)
	out, err := Export{To: file}.Run(t.Context(), ours)
	require.NoError(t, err)
	require.Equal(t, 1, out.Items.New)
	require.Equal(t, in.Digest, out.Digest)

	_, err = Import{From: strings.Replace(address, "127.0.0.1", "localhost", 1)}.Run(t.Context(), ours, nil)
	require.ErrorContains(t, err, "this is the database itself")
	_, err = Import{From: empty}.Run(t.Context(), ours, nil)
	require.ErrorContains(t, err, "has no tables of LangGraph")
	_, err = Export{To: address}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "is a database of understudy itself")
	_, err = Export{To: "http://h"}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "import there, with this one as --from")
}

// A program that makes settings itself, and validates nothing, sees no password either.
func TestAddressThatWasNotValidated(t *testing.T) {
	t.Parallel()
	settings := config.Default(config.Serve)
	settings.Port, settings.DatabaseURL = 0, "postgres://us:p@ss/w#rd@127.0.0.1:6543/us"
	_, err := New(Config{Settings: settings})
	require.ErrorContains(t, err, "percent-encode the password")
	require.NotContains(t, err.Error(), "w#rd")
	require.NotContains(t, err.Error(), "ss:")
}
