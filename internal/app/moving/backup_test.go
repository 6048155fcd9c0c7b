package moving

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	zombiezen "zombiezen.com/go/sqlite"

	"understudy/internal/config"
)

// What a backup cannot write is named by its target, what it cannot read by the data folder.
func TestBackupNamesTheFolderAtFault(t *testing.T) {
	t.Parallel()
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "monday")
	cfg := &config.Config{Storage: config.Storage{Data: data}}
	database := filepath.Join(data, "understudy.db")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"full disk":         {fmt.Errorf("back up %s: %w", database, zombiezen.ResultFull.ToError()), "TARGET: the disk of " + filepath.Dir(to) + " is full"},
		"full file system":  {fmt.Errorf("back up %s: %w", database, &fs.PathError{Op: "write", Path: to + ".partial/backup.json", Err: syscall.ENOSPC}), "TARGET: the disk of "},
		"quota":             {&fs.PathError{Op: "mkdir", Path: to + ".partial", Err: syscall.EDQUOT}, "TARGET: the disk quota"},
		"read-only":         {&fs.PathError{Op: "mkdir", Path: to + ".partial", Err: syscall.EROFS}, "TARGET: " + filepath.Dir(to) + " is on a file system that is mounted read-only"},
		"not to be written": {&fs.PathError{Op: "mkdir", Path: to + ".partial", Err: syscall.EACCES}, "TARGET: user "},
		"not to be read":    {fmt.Errorf("back up %s: %w", database, &fs.PathError{Op: "open", Path: database, Err: syscall.EACCES}), "--data: user "},
		"anything else":     {errors.New("damaged"), "damaged"},
	} {
		err := ofFolder(cfg, to, c.err)
		require.ErrorContains(t, err, c.want, name)
		require.ErrorIs(t, err, c.err, name)
	}
	require.NoError(t, ofFolder(cfg, to, nil))
}
