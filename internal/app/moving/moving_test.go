package moving

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/store"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// TestMovingNamesTheDatabase: a database is told from that of LangGraph's savers, from one of somebody else, and from the one that is moved into.
func TestMovingNamesTheDatabase(t *testing.T) {
	address, empty := postgrestest.Database(t), postgrestest.Database(t)
	ours := &config.Config{Storage: config.Storage{DatabaseURL: address, Connections: 3}}
	file := filepath.Join(t.TempDir(), "out.sqlite")
	_, err := Export{To: file}.Run(t.Context(), ours)
	require.ErrorContains(t, err, "nothing of this program to export")
	folder := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
	rows, err := backend.Open(t.Context(), folder, backend.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	now := time.Now()
	require.NoError(t, rows.Items().Apply(t.Context(), []*store.Item{{Namespace: []string{"a"}, Key: "k", Value: []byte(`{"x":1}`), CreatedAt: now, UpdatedAt: now}}))
	require.NoError(t, rows.Close())

	in, err := Import{From: folder.Storage.Data}.Run(t.Context(), ours, nil)
	require.NoError(t, err)
	require.Equal(t, 1, in.Items.New)
	in, err = Import{From: address}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
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
	require.ErrorContains(t, err, "run import there with this one as --from")
}

// What `langgraph dev` keeps is recognized, however it is named.
func TestImportFromLanggraphDev(t *testing.T) {
	t.Parallel()
	project := t.TempDir()
	kept := filepath.Join(project, ".langgraph_api")
	require.NoError(t, os.Mkdir(kept, 0o700))
	file := filepath.Join(kept, ".langgraph_ops.pckl")
	require.NoError(t, os.WriteFile(file, []byte("\x80\x04}q\x00."), 0o600))
	for _, from := range []string{kept, kept + "/", project, file} {
		_, err := Import{From: from}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
		require.ErrorContains(t, err, "run `langgraph dev` in "+project+", and import from the address that it prints: understudy import --from http://", from)
	}
	_, err := Import{From: filepath.Join(project, "not", ".understudy")}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
	require.ErrorContains(t, err, "does not exist: name the file that SqliteSaver was given, or the data folder of understudy")
	_, err = Import{From: t.TempDir()}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
	require.ErrorContains(t, err, "name the file that SqliteSaver was given")
}

// The folder of a project is not where its data is: the error names the place.
func TestImportFromAProject(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{".understudy": "name that one", "config.yaml": "has no database of DeerFlow", "backend": "has no database of DeerFlow"} {
		project := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(project, name), 0o700))
		_, err := Import{From: project}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, project)
	}
}

// Threads that name no graph get the given one, and the result says how many; nothing is said when all name theirs.
func TestImportNamesTheGraph(t *testing.T) {
	t.Parallel()
	const thread = `{"thread_id": "01a206fb-8dce-76de-9933-4f6ae92099a%d", "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z", "metadata": %s, "status": "idle", "values": null}`
	for metadata, want := range map[string]string{`{"graph_id": "theirs"}`: "", `{}`: `1 threads do not name their graph and belong to "mine" now`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case r.URL.Path == "/threads/search" && gjson.GetBytes(body, "offset").Int() == 0:
				fmt.Fprintf(w, "[%s]", fmt.Sprintf(thread, 1, metadata))
			case r.URL.Path == "/threads/count":
				fmt.Fprint(w, "1")
			case strings.HasPrefix(r.URL.Path, "/threads/01"):
				if strings.HasSuffix(r.URL.Path, "/history") {
					fmt.Fprint(w, "[]")
					return
				}
				fmt.Fprintf(w, thread, 1, metadata)
			case strings.HasSuffix(r.URL.Path, "/namespaces"):
				fmt.Fprint(w, `{"namespaces": []}`)
			case strings.HasPrefix(r.URL.Path, "/store"):
				fmt.Fprint(w, `{"items": []}`)
			default:
				fmt.Fprint(w, "[]")
			}
		}))
		t.Cleanup(server.Close)
		result, err := Import{From: server.URL, Graph: "mine"}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}}, nil)
		require.NoError(t, err)
		require.Equal(t, 1, result.Threads.New, "%v", result.Problems)
		notes := strings.Join(result.Notes, "\n")
		if want == "" {
			require.NotContains(t, notes, "name their graph")
		}
		require.Contains(t, notes, want)
		require.NotContains(t, notes, "is not in langgraph.json", "no file is known")

		result, err = Import{From: server.URL, Graph: "mine"}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}, Graphs: []config.Graph{{ID: "theirs"}, {ID: "mine"}}}, nil)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(result.Notes, "\n"), "is not in langgraph.json")
		result, err = Import{From: server.URL, Graph: "mine"}.Run(t.Context(), &config.Config{Storage: config.Storage{Data: t.TempDir()}, Graphs: []config.Graph{{ID: "other"}}}, nil)
		require.NoError(t, err)
		require.Contains(t, strings.Join(result.Notes, "\n"), `of 1 threads is not in langgraph.json`)
	}
}

func TestPlaceHasNoPassword(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"postgres://me:s3cret@h:1/d": "d on h:1", "host=h port=1 dbname=d password=s3cret": "d on h:1", "http://me:s3cret@h/x": "http://me:xxxxx@h/x", "file.sqlite": "file.sqlite", "postgres://me:s3cret@[": "a database",
	} {
		require.Equal(t, want, Import{From: from}.Place())
	}
}

// Servers are named as elsewhere, and a file before a server.
func TestSourcesThatAreServers(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("file:1", nil, 0o600))
	for text, want := range map[string]string{
		"localhost:2024": "http://localhost:2024", "http://u:p@h:1/docs": "http://u:xxxxx@h:1", "https://x/studio/?baseUrl=http://h:1": "http://h:1",
		"http://u:p@h:x": "a server", "file:1": "file:1", "checkpoints.sqlite": "checkpoints.sqlite", `C:\data`: `C:\data`, "data/a:1": "data/a:1",
	} {
		require.Equal(t, want, Import{From: text}.Place(), text)
		require.Equal(t, want != text, isServer(text), text)
	}
	for text, why := range map[string]string{
		"http://h:x": "its port is not a number; write one such as http://127.0.0.1:2024",
		"http:h":     "two slashes are missing",
		"ftp://h":    "write one such as postgres://me:secret@localhost/agents, http://127.0.0.1:2024 or checkpoints.sqlite",
	} {
		_, err := openSource(t.Context(), Import{From: text}, config.Default(config.Dev))
		require.ErrorContains(t, err, why)
	}
}
