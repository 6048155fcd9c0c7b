//go:build unix

package skill

import (
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
	for _, name := range []string{"a-good", "pipe", "endless", "loops"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a-good", File), []byte("---\nname: good\ndescription: Works.\n---\n"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe", File), 0o600))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "endless", File)))
	for n := range 12 {
		require.NoError(t, os.Symlink(".", filepath.Join(dir, "loops", strconv.Itoa(n))))
	}
	found := Scanner(dir, slog.New(slog.DiscardHandler))()
	require.Len(t, found, 1)
	require.Equal(t, "good", found[0].Name)
}
