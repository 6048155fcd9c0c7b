package deerflow

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/files"
	"understudy/deerflow/memory"
)

// What is no folder among the folders of users, such as what file managers make, keeps no memory from being found.
func TestRememberedAmongOtherFiles(t *testing.T) {
	t.Parallel()
	home := files.Home{Dir: t.TempDir()}
	users := filepath.Join(home.Dir, "users")
	elsewhere := filepath.Join(home.Dir, "elsewhere")
	require.NoError(t, os.MkdirAll(filepath.Join(users, "ann", "agents", "cook"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(users, "ann", "agents", ".DS_Store"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(users, ".DS_Store"), nil, 0o600))
	require.NoError(t, os.MkdirAll(elsewhere, 0o700))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(users, "ben")))
	require.NoError(t, os.Symlink(filepath.Join(home.Dir, "nowhere"), filepath.Join(users, "cid")))
	subjects, err := Remembered(home)
	require.NoError(t, err)
	require.Equal(t, []string{"ann", memory.Subject("ann", "cook"), "ben"}, subjects)
}
