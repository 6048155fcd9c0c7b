package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/transfer"
)

func TestMovingSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name  string
		args  []string
		usage bool
		want  string
	}{
		{"no source", []string{"import"}, true, "import needs --from"},
		{"no target", []string{"export"}, true, "export needs --to"},
		{"a header without a value", []string{"import", "--from", "http://x", "--header", "token"}, true, "is not of the form"},
		{"an argument", []string{"import", "x.sqlite"}, true, "takes no argument"},
		{"a flag's value behind a space", []string{"serve", "--deerflow", "config.yaml"}, true, `got "config.yaml"; write --deerflow=config.yaml`},
		{"an argument behind a switch", []string{"serve", "--studio", "x"}, true, `got "x"; usage`},
		{"an argument next to a value", []string{"serve", "--deerflow=c.yaml", "x"}, true, `got "x"; usage`},
		{"nothing there", []string{"import", "--from", dir + "/none.sqlite", "--data", dir}, false, "does not exist"},
		{"an empty folder", []string{"import", "--from", dir, "--data", dir + "/data"}, false, "is a folder without a database"},
		{"in memory", []string{"export", "--to", dir + "/out.sqlite", "--data", dir + "/nothing"}, false, "has no database to export"},
		{"a server", []string{"export", "--to", "http://x", "--data", dir}, false, "has no database to export"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := execute(t, c.args...)
			require.ErrorContains(t, err, c.want)
			var usage usageError
			assert.Equal(t, c.usage, errors.As(err, &usage))
		})
	}
}

func TestImportRefusesUnknownGraphs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"agent": "./agent.py:graph"}}`), 0o600))
	for graph, want := range map[string]string{"agnet": `names "agnet", which is not a graph of langgraph.json; it has agent`, "agent": "does not exist"} {
		_, err := execute(t, "import", "--from", filepath.Join(dir, "none.sqlite"), "--data", filepath.Join(dir, "data"), "--config", file, "--graph", graph)
		require.ErrorContains(t, err, want)
	}
	_, err := execute(t, "import", "--from", filepath.Join(dir, "none.sqlite"), "--data", filepath.Join(dir, "data"), "--config", filepath.Join(dir, "none.json"), "--graph", "agnet")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "agnet", "no file names graphs")
}

func TestImportUsesTheOnlyGraph(t *testing.T) {
	t.Parallel()
	one, two := config.Graph{ID: "one"}, config.Graph{ID: "two"}
	for _, c := range []struct {
		given  string
		graphs []config.Graph
		want   string
	}{
		{"", nil, ""}, {"two", []config.Graph{one}, "two"}, {"", []config.Graph{one}, "one"}, {"", []config.Graph{one, two}, ""},
	} {
		require.Equal(t, c.want, onlyGraph(c.given, &config.Config{Graphs: c.graphs}))
	}
}

func TestRenames(t *testing.T) {
	t.Parallel()
	got, err := parseRenames([]string{"a=b", "c=b", "a=b"})
	require.NoError(t, err)
	require.Equal(t, transfer.GraphNames{"a": "b", "c": "b"}, got)
	for _, given := range [][]string{{"a"}, {"=b"}, {"a="}, {"a=b", "a=c"}, {"a=b", "b=c"}, {"a=b", "b=a"}, {"a=a"}} {
		_, err := parseRenames(given)
		require.ErrorContains(t, err, "takes --rename OLD=NEW", "%v", given)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result transfer.Result
		want   string
	}{
		"moved": {
			transfer.Result{Threads: transfer.Count{New: 2, Known: 1}, Notes: []string{"so it is"}, Digest: "d1"},
			"threads      2 moved, 1 were there\nnote: so it is\nverified: everything that was read is there and equal (digest d1)\n",
		},
		"nothing to do": {
			transfer.Result{Threads: transfer.Count{Known: 1}, Unread: 1, Digest: "d1"},
			"threads      0 moved, 1 were there\nnothing to do: everything was there\n1 threads have nothing new there and were not read again\n" +
				"verified: everything that was read is there and equal\n",
		},
		"nothing read": {
			transfer.Result{Threads: transfer.Count{Known: 1}, Unread: 1},
			"threads      0 moved, 1 were there\nnothing to do: everything was there\n1 threads have nothing new there and were not read again\n",
		},
		"nothing there": {transfer.Result{}, "nothing to do: everything was there\nnothing was read that could be compared\n"},
		"differs": {
			transfer.Result{Items: transfer.Count{New: 1}, Problems: []transfer.Problem{{What: "thread 1", Err: errors.New("lost")}}},
			"store items  1 moved, 0 were there\ndiffers: thread 1: lost\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			report(&out, &c.result)
			assert.Equal(t, c.want, out.String())
		})
	}
}

// What only reads or changes data that is there does not make a data folder of a misspelt name, and does not pass for an answer.
func TestCommandsNeedData(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"audit"}, {"rebuild"}, {"rebuild", "--check"}, {"keys", "list"}, {"keys", "revoke", "0123456789abcdef"}, {"keys", "rotate", "0123456789abcdef"}, {"export", "--to", "out.sqlite"}, {"backup"},
	} {
		dir := filepath.Join(t.TempDir(), "dta")
		_, err := execute(t, append(args, "--data", dir)...)
		require.ErrorContains(t, err, dir+" has no database", args)
		require.ErrorContains(t, err, "name the data folder", args)
		require.NoDirExists(t, dir, args)
	}
}

// An import between two storages of ours says what stays behind: what it verifies is not everything that clients need.
func TestImportSaysWhatStaysBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) string {
		var out bytes.Buffer
		root := newRoot(&out, io.Discard)
		root.SetArgs(args)
		require.NoError(t, root.ExecuteContext(t.Context()))
		return out.String()
	}
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	run("keys", "create", "--name", "a", "--data", from)
	run("keys", "create", "--name", "b", "--data", from)
	out := run("import", "--from", from, "--data", to)
	require.Contains(t, out, "note: 2 API keys are left out: clients get 401 until each has a new one (understudy keys create)")
	require.NotContains(t, out, "crons", "there are none")
}
