//go:build unix

package skill

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Folders of skills may have anything in them: pipes, endless devices, and links that lead back and multiply. The skills are found all the same.
func TestScanOfOddFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a-good", "pipe", "endless", "loops", "z-good"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for _, name := range []string{"a-good", "z-good"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, File), []byte("---\nname: "+name+"\ndescription: Works.\n---\n"), 0o600))
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe", File), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "endless", File)))
	for n := range 12 {
		require.NoError(t, os.Symlink(".", filepath.Join(dir, "loops", strconv.Itoa(n))))
	}
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "loops", "up")))
	outside := t.TempDir() // folders that links lead to count too
	require.NoError(t, os.MkdirAll(filepath.Join(outside, "far", "linked"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "far", "linked", File), []byte("---\nname: linked\ndescription: Works.\n---\n"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "m-outside")))
	var log bytes.Buffer
	found := Scanner(dir, slog.New(slog.NewTextHandler(&log, nil)))()
	var names []string
	for _, s := range found {
		names = append(names, s.Name+" "+s.Path)
	}
	require.Equal(t, []string{"a-good a-good", "linked m-outside/far/linked", "z-good z-good"}, names)
	require.NotContains(t, log.String(), "too many")
}
