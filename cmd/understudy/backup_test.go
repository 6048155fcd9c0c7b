package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/storage/sqlite"
)

// folderWithAgent is a project with an agent that repeats what it is told.
func folderWithAgent(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"echo": {"agent": {"model": "scripted:script.json"}}}}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.json"), []byte(`{"answers": [{"when": "(?s)^(.*)$", "content": "You said: $1"}]}`), 0o600))
	return dir
}

// A backup that is made while many threads are written has each thread as it was at one moment: all that was acknowledged before the backup began, and
// nothing but whole turns. It serves when it is restored, and goes on.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	dir := folderWithAgent(t)
	url := serveFolder(t, dir)
	api := &client{base: url}
	const threads = 6
	ids := make([]string, threads)
	var turns, failed [threads]atomic.Int64
	for i := range ids {
		var created struct {
			ID string `json:"thread_id"`
		}
		require.NoError(t, api.post(t.Context(), "/threads", map[string]any{}, &created))
		ids[i] = created.ID
	}
	say := func(api *client, id, text string) error {
		return api.post(t.Context(), "/threads/"+id+"/runs/wait", map[string]any{"assistant_id": "echo", "input": messagesInput(text)}, nil)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range ids {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := say(api, ids[i], fmt.Sprintf("turn %d", turns[i].Load())); err != nil {
					failed[i].Add(1)
					return
				}
				turns[i].Add(1)
			}
		})
	}
	total := func() (n int64) {
		for i := range turns {
			n += turns[i].Load()
		}
		return n
	}
	for n := total() + 40; total() < n && failed[0].Load() == 0; {
		require.NoError(t, api.get(t.Context(), "/ok", nil))
	}
	before := make([]int64, threads)
	for i := range before {
		before[i] = turns[i].Load()
	}
	backup := filepath.Join(t.TempDir(), "backup")
	out, err := execute(t, "backup", backup, "--data", filepath.Join(dir, "data"))
	require.NoError(t, err, out)
	require.Contains(t, out, "understudy.db ")
	after := make([]int64, threads)
	for i := range after {
		after[i] = turns[i].Load() + 1 // one may be stored and not be acknowledged yet
	}
	for n := total() + 20; total() < n && failed[0].Load() == 0; {
		require.NoError(t, api.get(t.Context(), "/ok", nil))
	}
	close(stop)
	load.Wait()
	for i := range failed {
		require.Zero(t, failed[i].Load(), "the backup disturbs no run")
	}

	other := folderWithAgent(t)
	_, err = execute(t, "restore", backup, "--data", filepath.Join(dir, "data"), "--replace")
	require.ErrorContains(t, err, "is in use by another server")
	out, err = execute(t, "restore", backup, "--data", filepath.Join(other, "data"))
	require.NoError(t, err, out)
	restored := &client{base: serveFolder(t, other)}
	for i, id := range ids {
		require.NoError(t, say(restored, id, "after"), "a run that was interrupted ends, and the thread goes on")
		var state json.RawMessage
		require.NoError(t, restored.get(t.Context(), "/threads/"+id+"/state", &state))
		messages := gjson.GetBytes(state, "values.messages").Array()
		var said []string
		for _, m := range messages {
			said = append(said, textOf(m.Get("content")))
		}
		require.Zero(t, len(said)%2, said)
		kept := int64(len(said)/2 - 1)
		require.GreaterOrEqual(t, kept, before[i], "what was acknowledged before the backup is in it")
		require.LessOrEqual(t, kept, after[i])
		for k := range kept {
			require.Equal(t, []string{fmt.Sprintf("turn %d", k), fmt.Sprintf("You said: turn %d", k)}, said[2*k:2*k+2])
		}
		require.Equal(t, "You said: after", said[len(said)-1])
	}
}

// Mistakes change nothing, and say what to do.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: filepath.Join(dir, "data")})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	backup := func() string {
		to := filepath.Join(t.TempDir(), "backup")
		out, err := execute(t, "backup", to, "--data", filepath.Join(dir, "data"))
		require.NoError(t, err, out)
		return to
	}
	good := backup()
	_, err = execute(t, "backup", good, "--data", filepath.Join(dir, "data"))
	require.ErrorContains(t, err, "is there already")
	_, err = execute(t, "backup", filepath.Join(dir, "x"), "--data", filepath.Join(dir, "nothing"))
	require.ErrorContains(t, err, "has no database to back up; name the data folder: understudy backup [TARGET] --data DIR")
	_, err = execute(t, "backup", "--database-url", "postgres://u:s3cret@h/d")
	require.ErrorContains(t, err, "pg_dump")
	require.NotContains(t, err.Error(), "s3cret")
	_, err = execute(t, "restore")
	require.ErrorContains(t, err, "needs the folder of a backup")
	for name, c := range map[string]struct {
		spoil func(dir string)
		want  string
	}{
		"another byte": {func(dir string) {
			f, err := os.OpenFile(filepath.Join(dir, "understudy.db"), os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0xff}, 5000)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, "is not the one that was backed up"},
		"cut off":    {func(dir string) { require.NoError(t, os.Truncate(filepath.Join(dir, "understudy.db"), 4096)) }, "is not the one that was backed up"},
		"not there":  {func(dir string) { require.NoError(t, os.RemoveAll(dir)) }, "does not exist; name the folder of a backup"},
		"unfinished": {func(dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "backup.json"))) }, "is no backup"},
		"a file": {func(dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
		}, "is a file; name the folder of a backup"},
		"no manifest": {func(dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "backup.json"), []byte("{"), 0o600))
		}, "backup.json"},
		"a path that leads out": {func(dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "backup.json"), []byte(`{"files":[{"path":"../understudy.db"}]}`), 0o600))
		}, "is no database of a data folder"},
	} {
		spoilt := backup()
		c.spoil(spoilt)
		to := filepath.Join(t.TempDir(), "data")
		_, err := execute(t, "restore", spoilt, "--data", to)
		require.ErrorContains(t, err, c.want, name)
		left, err := filepath.Glob(filepath.Join(to, "understudy.db*"))
		require.NoError(t, err)
		require.Empty(t, left, name)
	}
	_, err = execute(t, "restore", good, "--data", filepath.Join(dir, "data"))
	require.ErrorContains(t, err, "keep the old database aside with --replace")
	out, err := execute(t, "restore", good, "--data", filepath.Join(dir, "data"), "--replace")
	require.NoError(t, err)
	require.Contains(t, out, "keys that were revoked since are valid again")
	require.Contains(t, out, "verified and restored")
	kept, err := filepath.Glob(filepath.Join(dir, "data", "understudy.db.before-*"))
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	require.True(t, strings.HasSuffix(kept[0], "Z"), kept)
	files, err := filepath.Glob(filepath.Join(dir, "data", "understudy.db*"))
	require.NoError(t, err)
	require.Len(t, files, 1+len(kept), "nothing of the old log is next to the new database: %s", files)
}
