package sqlite

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/thread"
)

// A database with damaged pages opens. When a write meets one, the log says it once a minute, and the store counts as unavailable.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	open := func() *Store {
		s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		return s
	}
	var threads []id.Thread
	write := func(s *Store, th id.Thread) error {
		return s.Runs().Write(t.Context(), func(tx run.Tx) error {
			return tx.InsertThread(&thread.Thread{ID: th, Status: thread.Idle, Metadata: []byte(`{"x":"` + strings.Repeat("x", 2000) + `"}`)})
		})
	}
	s := open()
	for range 300 {
		threads = append(threads, id.NewThread())
		require.NoError(t, write(s, threads[len(threads)-1]))
	}
	require.NoError(t, s.Close())
	path := filepath.Join(dir, fileName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := len(text) / 2; i < len(text); i++ {
		text[i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))

	s = open()
	defer s.Close()
	require.NoError(t, s.Ping(t.Context()))
	failed := 0
	for range 50 {
		if err := write(s, id.NewThread()); err != nil {
			require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
			failed++
		}
	}
	require.Positive(t, failed)
	require.ErrorContains(t, s.Ping(t.Context()), "the database is damaged")
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), "restore a backup")
}

// madeOf returns a function that makes a database with these tables.
func madeOf(tables ...string) func(path string) error {
	return func(path string) error {
		conn, err := connect(path, true, "normal")
		if err != nil {
			return err
		}
		for _, table := range tables {
			err = errors.Join(err, exec(conn, "CREATE TABLE "+table+" (id)"))
		}
		return errors.Join(err, conn.Close())
	}
}

// remove deletes a database and its log.
func remove(t *testing.T, path string) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(path+suffix))
	}
}

// A database that was deleted, or whose volume is not mounted, is named in the log of the server that makes a new one.
func TestMissingDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, deleted := range []bool{false, false, true} { // the folder is new, has a database, has lost it
		path := filepath.Join(dir, fileName)
		if deleted {
			remove(t, path)
		}
		var log bytes.Buffer
		s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, deleted, strings.Contains(log.String(), "is missing; a new one is made"), log.String())
	}
}

// What stands in the place of the database is named, and nothing is written to it.
func TestUnusableDatabases(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(path string) error
		want  string
	}{
		"empty":                      {func(path string) error { return os.Truncate(path, 0) }, "is empty, and was not"},
		"a folder":                   {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory, not a database: move it away"},
		"of LangGraph's SqliteSaver": {madeOf("checkpoints", "writes"), "another program (its tables are checkpoints, writes)"},
		"of LangGraph Server":        {madeOf("assistant", "thread", "run"), "one of LangGraph Server"},
		"of any other":               {madeOf("users"), "another program (its tables are users)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := Open(t.Context(), Options{Dir: dir})
			require.NoError(t, err)
			require.NoError(t, s.Close())
			path := filepath.Join(dir, fileName)
			if name != "empty" {
				remove(t, path)
			}
			require.NoError(t, tt.spoil(path))
			_, err = Open(t.Context(), Options{Dir: dir})
			require.ErrorContains(t, err, tt.want)
			in, err := Inspect(t.Context(), dir, encryption.Configured{})
			require.ErrorContains(t, err, tt.want)
			require.Empty(t, in.Damage)
		})
	}
}
