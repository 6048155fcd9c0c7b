package moving

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/thread"
	"understudy/transfer"
)

// Graphs with other names here: an import that renames them, and one that renames what an earlier one has moved, end the same. Until then the
// questions of the threads are there, and notes name the graph, and its assistants.
func TestImportRenamesGraphs(t *testing.T) {
	t.Parallel()
	old := &oldServer{times: []int{1, 2, 3}, graph: "old", status: "interrupted", asks: 2}
	server := httptest.NewServer(old)
	t.Cleanup(server.Close)
	rename := transfer.GraphNames{"old": "new", "none": "new"}
	digests := map[string]bool{}
	for name, cfg := range map[string]*config.Config{
		"sqlite": {Storage: config.Storage{Data: t.TempDir()}}, "postgres": {Storage: config.Storage{DatabaseURL: postgrestest.Database(t)}},
		"at once": {Storage: config.Storage{Data: t.TempDir()}},
	} {
		cfg.Graphs = []config.Graph{{ID: "new"}}
		if name != "at once" {
			for range 2 {
				result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
				require.NoError(t, err)
				require.Empty(t, result.Problems)
				notes := strings.Join(result.Notes, "\n")
				require.Contains(t, notes, `graph "old" of 1 threads is not in langgraph.json`)
				require.Contains(t, notes, `import again with --rename old=NAME`)
				require.Contains(t, notes, fmt.Sprintf(`graph "old" of 1 assistants is not in langgraph.json, and runs with them are refused until it is there: Ada (%s)`, ada))
			}
			requireMoved(t, cfg, "old")
		}
		result, err := Import{From: server.URL, Rename: rename}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Empty(t, result.Problems)
		require.Equal(t, []int{1, 1}, []int{result.Threads.New, result.Assistants.New}, name)
		notes := strings.Join(result.Notes, "\n")
		require.NotContains(t, notes, "not in langgraph.json")
		require.Contains(t, notes, `--rename none=new: no thread or assistant of the source has the graph "none"; there are old`)
		require.NotContains(t, notes, "--rename old=new")
		requireMoved(t, cfg, "new")
		result, err = Import{From: server.URL, Rename: rename}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Equal(t, []int{0, 0, 1}, []int{result.Threads.New, result.Assistants.New, result.Unread}, name)

		copied := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
		if cfg.Storage.DatabaseURL == "" {
			result, err = Import{From: cfg.Storage.Data, Rename: transfer.GraphNames{"new": "third"}}.Run(t.Context(), copied, nil)
			require.NoError(t, err)
			require.Empty(t, result.Problems)
			digests[result.Digest] = true
			requireMoved(t, copied, "third")
		}
	}
	require.Len(t, digests, 1)
}

// requireMoved checks the names in the thread and the assistant of the old server, and that the thread shows its questions.
func requireMoved(t *testing.T, cfg *config.Config, graph string) {
	t.Helper()
	rows := openAt(t, cfg)
	defer func() { require.NoError(t, rows.Close()) }()
	named := func(metadata []byte) {
		t.Helper()
		require.Equal(t, graph, gjson.GetBytes(metadata, "graph_id").String())
		require.Equal(t, string(id.DefaultAssistant(graph)), gjson.GetBytes(metadata, "assistant_id").String())
	}
	row, err := rows.Threads().Thread(t.Context(), conversation)
	require.NoError(t, err)
	named(row.Metadata)
	require.Equal(t, thread.Interrupted, row.Status)
	list, err := rows.Threads().ListCheckpoints(t.Context(), checkpointer.List{Thread: conversation})
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, c := range list {
		named(c.Metadata)
	}
	snap, err := newFamily(t, rows).service.State(t.Context(), checkpointer.Key{Thread: conversation}, false)
	require.NoError(t, err)
	require.Equal(t, []string{"ask0", "ask1"}, snap.Next)
	for i, task := range snap.Tasks {
		require.Equal(t, fmt.Sprintf("question %d", i), gjson.GetBytes(task.Interrupts[0], "value").String())
	}
	head, err := checkpointer.NewSnapshots(rows.Threads(), nil).Head(t.Context(), conversation)
	require.NoError(t, err)
	require.JSONEq(t, string(row.Interrupts), string(head.Interrupts), "what a run of another graph leaves")
	a, err := rows.Assistants().Assistant(t.Context(), ada)
	require.NoError(t, err)
	require.Equal(t, []any{graph, "Ada", 2}, []any{a.GraphID, a.Name, a.Version})
	versions, err := rows.Assistants().Versions(t.Context(), ada, nil, 0, 0)
	require.NoError(t, err)
	require.Len(t, versions, 2)
	for _, v := range versions {
		require.Equal(t, graph, v.GraphID)
	}
}

// A thread with a run going on waits for nothing yet. When the run has asked or failed, which adds no checkpoint, the next import brings that; not to a
// thread that continued here.
func TestImportOfBusyThreads(t *testing.T) {
	t.Parallel()
	for _, continued := range []bool{false, true} {
		old := &oldServer{times: []int{1, 2}, graph: "g", status: "busy", asks: 1}
		server := httptest.NewServer(old)
		t.Cleanup(server.Close)
		cfg := &config.Config{Storage: config.Storage{Data: t.TempDir()}}
		state := func() (*thread.Thread, int) {
			rows := openAt(t, cfg)
			defer func() { require.NoError(t, rows.Close()) }()
			row, err := rows.Threads().Thread(t.Context(), conversation)
			require.NoError(t, err)
			return row, len(gjson.ParseBytes(row.Interrupts).Map())
		}
		for range 2 {
			result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.Contains(t, strings.Join(result.Notes, "\n"), "1 threads had a run going on")
			row, asked := state()
			require.Equal(t, thread.Idle, row.Status)
			require.Zero(t, asked)
		}
		if continued {
			rows := openAt(t, cfg)
			f := newFamily(t, rows)
			f.messages = 100
			f.talk(conversation, 1)
			require.NoError(t, rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
				row, err := tx.Thread(conversation)
				if err == nil {
					row.Head = old.checkpoint(101)
					err = tx.UpdateThread(row)
				}
				return err
			}))
			require.NoError(t, rows.Close())
		}
		old.status, old.updated = "interrupted", 1
		result, err := Import{From: server.URL}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Empty(t, result.Problems)
		row, asked := state()
		if continued {
			require.Zero(t, asked)
			continue
		}
		require.Equal(t, thread.Interrupted, row.Status)
		require.Equal(t, 1, asked)
		require.Equal(t, transfer.Count{New: 1}, result.Threads)
		result, err = Import{From: server.URL}.Run(t.Context(), cfg, nil)
		require.NoError(t, err)
		require.Equal(t, 1, result.Unread)
	}
}
