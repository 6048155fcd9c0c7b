package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// smallDisk mounts a file system of 6 MB, less than what largeFolder has. makeRoom makes it large enough.
func smallDisk(t *testing.T) (dir string, makeRoom func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(dir, 0o700))
	mount := func(flags uintptr, size string) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size)
	}
	if err := mount(0, "6m"); err != nil {
		t.Skip("SKIPPED: a file system of a given size needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir, func() { require.NoError(t, mount(syscall.MS_REMOUNT, "200m")) }
}

// largeFolder is a data folder with 16 MB of conversations.
func largeFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Synchronous: "normal"})
	require.NoError(t, err)
	now := time.Now().Truncate(time.Microsecond)
	content := fmt.Appendf(nil, `{"type":"human","id":"m","content":%q}`, strings.Repeat("0123456789abcdef", 10<<10))
	for n := range 50 {
		name := id.Thread(fmt.Sprintf("01a206fb-8dce-76de-9933-4f6ae92099%02d", n))
		require.NoError(t, s.Threads().Write(t.Context(), func(tx thread.Tx) error {
			if err := tx.InsertThread(&thread.Thread{ID: name, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: []byte(`{}`), Config: []byte(`{}`), Status: thread.Idle}); err != nil {
				return err
			}
			if err := tx.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: name, ID: "1f000000-0000-6000-8000-000000000001"}, Metadata: []byte(`{"step":0,"source":"loop"}`),
				Data: []byte(`{"v":4,"id":"1f000000-0000-6000-8000-000000000001","ts":"2026-01-02T03:04:05+00:00","channel_values":{},"channel_versions":{"x":"1"},"versions_seen":{}}`),
			}, Blobs: []checkpointer.Blob{{Channel: "x", Version: "1", Type: "bytes", Data: content}}}); err != nil {
				return err
			}
			return tx.AppendEvents(name, []*eventstore.Event{{Type: eventstore.TypeHuman, Category: eventstore.CategoryMessage, MessageID: "m", Content: content, CreatedAt: now}})
		}))
	}
	require.NoError(t, s.Close())
	return dir
}

// Commands that write much name the disk that is full, what to do, and what is left; the same command works once there is room.
func TestCommandsOnAFullDisk(t *testing.T) {
	source := largeFolder(t)
	exported, backup := filepath.Join(t.TempDir(), "exported.sqlite"), filepath.Join(t.TempDir(), "backup")
	for _, args := range [][]string{{"export", "--to", exported, "--data", source}, {"backup", backup, "--data", source}} {
		out, err := execute(t, args...)
		require.NoError(t, err, out)
	}
	t.Setenv("LANGGRAPH_AES_KEY", "0123456789abcdef")
	const continues = "make room, and run the same command again: it continues where it ended; what was written is whole, and nothing has to be removed"
	for name, c := range map[string]struct {
		args  string // DISK, SOURCE, EXPORTED and BACKUP are replaced
		want  []string
		left  []string // in the file system
		begin func(t *testing.T, disk string)
	}{
		"export":                       {"export --to DISK/out.sqlite --data SOURCE", []string{"the disk of DISK/out.sqlite is full", "run this again, it continues where it stopped"}, []string{"out.sqlite"}, nil},
		"backup":                       {"backup DISK/out --data SOURCE", []string{"the disk of DISK has ", " MB, and this needs ", "; free ", "or name another folder as TARGET; nothing was changed"}, []string{}, nil},
		"restore":                      {"restore BACKUP --data DISK/data", []string{"the disk of DISK has ", " MB, and this needs ", "or name another folder with --data; nothing was changed"}, []string{}, nil},
		"import":                       {"import --from SOURCE --data DISK/data", []string{"the disk of DISK/data is full", continues}, []string{"data"}, nil},
		"import a file":                {"import --from EXPORTED --data DISK/data", []string{"the disk of DISK/data is full", continues}, []string{"data"}, nil},
		"no room at all":               {"import --from SOURCE --data DISK/data", []string{"the disk of DISK", " is full; free disk space"}, nil, fillDisk},
		"rebuild":                      {"rebuild --data DISK/data", []string{"the disk of DISK/data is full", continues}, []string{"data", "rest"}, copyAndFill(source, 128<<10)},
		"encrypt":                      {"encrypt --data DISK/data", []string{"values were encrypted so far, and nothing is lost: it needs up to ", " MB on the disk of DISK/data", "run the same command again"}, []string{"data", "rest"}, copyAndFill(source, 128<<10)},
		"rebuild without room to open": {"rebuild --data DISK/data", []string{"--data: the disk of DISK/data is full; free disk space, or name another folder with --data"}, []string{"data", "rest"}, copyAndFill(source, 0)},
		"encrypt without room to open": {"encrypt --data DISK/data", []string{"the disk is full", "Nothing was changed: it needs up to ", " MB on the disk of DISK/data", "run the same command again"}, []string{"data", "rest"}, copyAndFill(source, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			disk, makeRoom := smallDisk(t)
			if c.begin != nil {
				c.begin(t, disk)
			}
			fill := strings.NewReplacer("DISK", disk, "SOURCE", source, "EXPORTED", exported, "BACKUP", backup)
			args := strings.Fields(fill.Replace(c.args))
			_, err := execute(t, args...)
			for _, want := range c.want {
				require.ErrorContains(t, err, fill.Replace(want))
			}
			if c.left != nil {
				files := []string{}
				entries, err := os.ReadDir(disk)
				require.NoError(t, err)
				for _, f := range entries {
					if name := f.Name(); !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") { // of out.sqlite
						files = append(files, name)
					}
				}
				require.ElementsMatch(t, c.left, files)
			}
			makeRoom()
			_, err = execute(t, args...)
			require.NoError(t, err)
		})
	}
}

// fillDisk leaves no room on a disk.
func fillDisk(t *testing.T, disk string) {
	t.Helper()
	require.ErrorIs(t, os.WriteFile(filepath.Join(disk, "rest"), make([]byte, 40<<20), 0o600), syscall.ENOSPC)
}

// copyAndFill returns what copies a data folder to a disk, which it enlarges, and then leaves so many bytes of room there.
func copyAndFill(from string, room int64) func(*testing.T, string) {
	return func(t *testing.T, disk string) {
		t.Helper()
		require.NoError(t, syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=40m"))
		require.NoError(t, os.CopyFS(filepath.Join(disk, "data"), os.DirFS(from)))
		require.NoError(t, os.Remove(filepath.Join(disk, "data", "understudy.reserve"))) // it is room too
		fillDisk(t, disk)
		rest, err := os.Stat(filepath.Join(disk, "rest"))
		require.NoError(t, err)
		require.NoError(t, os.Truncate(filepath.Join(disk, "rest"), rest.Size()-room))
	}
}
