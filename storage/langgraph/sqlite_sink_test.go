package langgraph

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A sink that was never written to leaves no file where none was.
func TestUnusedSink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "new.sqlite")
	for range 2 {
		s, err := OpenSQLiteSink(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
	s, err := OpenSQLiteSink(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.query("CREATE TABLE t (n)", nil))
	require.NoError(t, s.Close())
	require.FileExists(t, path)
}
