package wholefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/wholefile"
)

// However many write at once, a reader sees what one of them wrote, whole, and nothing is left beside it.
func TestReaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	require.NoError(t, wholefile.Replace(file, []byte(strings.Repeat("0", 100_000)), 0o640))
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for range 20 {
				require.NoError(t, wholefile.Replace(file, []byte(strings.Repeat(string(rune('1'+n)), 100_000)), 0o640))
			}
		})
	}
	for range 100 {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(string(text[:1]), 100_000), string(text))
	}
	writers.Wait()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

// What cannot be replaced stays as it is, and nothing is left beside it.
func TestFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder", "inside"), 0o755))
	require.Error(t, wholefile.Replace(filepath.Join(dir, "folder"), nil, 0o644))
	require.Error(t, wholefile.Replace(filepath.Join(dir, "missing", "a"), nil, 0o644))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
