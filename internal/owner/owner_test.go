package owner_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/owner"
)

// Files that root makes in the folder of a service belong to the service.
func TestInherit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	if os.Geteuid() != 0 {
		require.NoError(t, owner.Inherit(path, filepath.Join(dir, "missing"))) // and nothing changes
		return
	}
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.NoError(t, owner.Inherit(path, filepath.Join(dir, "missing")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	uid, known := owner.Of(info)
	require.True(t, known)
	require.Equal(t, 65534, uid)
}
