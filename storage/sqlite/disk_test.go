package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/room"
)

// fullThread adds a thread with events of so many bytes.
func fullThread(ctx context.Context, s *Store, t id.Thread, size int) error {
	return s.write(ctx, func(tx *Tx) error {
		row := benchThread(1)
		row.ID = t
		if err := tx.InsertThread(row); err != nil {
			return err
		}
		e := event("message")
		e.Content = fmt.Appendf(nil, `{"content":%q}`, strings.Repeat("x", size))
		return tx.AppendEvents(t, []*eventstore.Event{e})
	})
}

// Deleting works on a full disk, with the reserve, and nothing else is taken until there is room again: then all is as before.
func TestDeletingOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	limited := syscall.Mount("tmpfs", mkdir(t, dir), "tmpfs", 0, "size=40m") == nil
	if !limited {
		t.Skip("a disk of its own needs the right to mount one")
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ctx := t.Context()
	s, err := Open(ctx, Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.FileExists(t, filepath.Join(dir, reserveName))

	// Something else fills the disk. (A log that is longer than the reserve when the disk is full cannot be folded: then deleting fails too.)
	var saved []id.Thread
	for n := range 20 {
		name := id.Thread(fmt.Sprint("before", n))
		require.NoError(t, fullThread(ctx, s, name, 64<<10))
		saved = append(saved, name)
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	require.ErrorIs(t, fill(f, 40<<20), syscall.ENOSPC)
	require.NoError(t, f.Close())
	for n := 0; ; n++ {
		name := id.Thread(fmt.Sprint("t", n))
		if err = fullThread(ctx, s, name, 64<<10); err != nil {
			break
		}
		saved = append(saved, name)
		require.Less(t, n, 1000)
	}
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.NotEmpty(t, saved)
	require.NoFileExists(t, filepath.Join(dir, reserveName))
	require.ErrorIs(t, s.Ping(ctx), errFull)
	require.ErrorIs(t, fullThread(ctx, s, "small", 1), errFull)
	for _, name := range saved {
		require.NoError(t, s.write(room.Making(ctx), func(tx *Tx) error { return tx.DeleteThread(name) }))
	}
	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	require.FileExists(t, filepath.Join(dir, reserveName))
	require.NoError(t, fullThread(ctx, s, "again", 256<<10))
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

// The same where nobody may mount a disk: SQLite's own limit stands in for its end.
func TestDeletingInAFullDatabase(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	s, err := Open(ctx, Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, fullThread(ctx, s, "old", 100))
	require.NoError(t, s.write(ctx, func(tx *Tx) error { // on the writer's goroutine
		s.disk.allocate = func(string, int64) error { return syscall.ENOSPC }
		return tx.exec("PRAGMA max_page_count = 10")
	}))
	err = fullThread(ctx, s, "large", 4<<20)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.NoFileExists(t, filepath.Join(dir, reserveName))
	require.ErrorIs(t, s.Ping(ctx), errFull)
	require.ErrorIs(t, fullThread(ctx, s, "small", 1), errFull)
	require.NoError(t, s.write(room.Making(ctx), func(tx *Tx) error { return tx.DeleteThread("old") }))
	require.NoError(t, s.write(room.Making(ctx), func(tx *Tx) error {
		s.disk.allocate = allocate
		return tx.exec("PRAGMA max_page_count = 1000000")
	}))
	require.Eventually(t, func() bool { return s.Ping(ctx) == nil }, 20*time.Second, 10*time.Millisecond)
	require.FileExists(t, filepath.Join(dir, reserveName))
	require.NoError(t, fullThread(ctx, s, "large", 4<<20))
}

// A write into a file that is no longer there is not acknowledged.
func TestFolderIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"folder":   os.RemoveAll,
		"database": func(dir string) error { return os.Remove(filepath.Join(dir, fileName)) },
		"log":      func(dir string) error { return os.Remove(filepath.Join(dir, fileName+"-wal")) },
		"replaced": func(dir string) error {
			other := filepath.Join(dir, "other")
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				return err
			}
			return os.Rename(other, filepath.Join(dir, fileName))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			var log bytes.Buffer
			s, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			require.NoError(t, fullThread(t.Context(), s, "a", 1))
			require.NoError(t, s.Ping(t.Context()))
			require.NoError(t, remove(dir))
			require.ErrorIs(t, fullThread(t.Context(), s, "b", 1), errGone)
			require.ErrorIs(t, fullThread(t.Context(), s, "c", 1), errGone)
			require.ErrorIs(t, s.Ping(t.Context()), errGone)
			require.True(t, fault.Is(errGone, fault.Unavailable))
			_ = s.Close() // it may say that its files are not there
			require.Equal(t, 1, strings.Count(log.String(), "removed or replaced"), log.String())
		})
	}
}

// Only its owner reads a data folder, also one that others could read, and what is copied out of it.
func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "data")
	for range 2 {
		s, err := Open(t.Context(), Options{Dir: dir})
		require.NoError(t, err)
		require.NoError(t, fullThread(t.Context(), s, id.NewThread(), 1))
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(files), 4)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f.Name())
		}
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		require.NoError(t, s.Close())
		require.NoError(t, os.Chmod(filepath.Join(dir, fileName), 0o644))
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // that is the test
	}
}

// What a killed server kept in memory goes with the start of the next. Folders that are held, or that are something else, stay.
func TestMemoryOfKilledServers(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	folder := func(name string, marked, locked bool) string {
		dir := mkdir(t, filepath.Join(place, name))
		if marked {
			require.NoError(t, os.WriteFile(filepath.Join(dir, memoryMark), nil, 0o600))
		}
		if locked {
			require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
		}
		return dir
	}
	killed := folder(memoryPrefix+"1", true, true)
	held := folder(memoryPrefix+"2", true, true)
	lock, err := lockDir(held)
	require.NoError(t, err)
	defer lock.Close()
	young := folder(memoryPrefix+"3", true, false)
	old := folder(memoryPrefix+"4", true, false)
	require.NoError(t, os.Chtimes(old, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)))
	unmarked := folder(memoryPrefix+"5", false, true)
	other := folder("understudy-data", true, true)
	sweepMemory(place)
	require.NoDirExists(t, killed)
	require.NoDirExists(t, old)
	for _, dir := range []string{held, young, unmarked, other} {
		require.DirExists(t, dir)
	}
	if runtime.GOOS == "linux" {
		dir, err := memoryDir()
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(dir))
	}
}

// A failure to fold the log that goes on is logged once a minute, and its end.
func TestFoldFailuresAreThrottled(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &folder{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 100 {
		f.note(sqlite.ResultIOErr.ToError())
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	f.note(nil)
	f.note(nil)
	require.Equal(t, 1, strings.Count(log.String(), "level=INFO"), log.String())
	f.note(sqlite.ResultIOErr.ToError())
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), log.String())
}

func TestOutOfMemoryIsUnavailable(t *testing.T) {
	t.Parallel()
	require.True(t, fault.Is(classify(sqlite.ResultNoMem.ToError()), fault.Unavailable))
}
